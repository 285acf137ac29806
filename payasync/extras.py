"""What stands on a package that is an extra: found when it is first asked for."""

import importlib
from typing import Any

from payasync.errors import ConfigurationError


def from_extra(extra: str, module: str, name: str) -> Any:
    """Return what a module of ours defines, which needs an extra.

    Args:
        extra: Its name, such as `postgres`.
        module: Ours.
        name: What is looked for in it.

    Raises:
        ConfigurationError: The extra is not installed.
    """
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        missing = error.name
    raise ConfigurationError(f'{name} needs {missing}, an extra: python -m pip install "payasync[{extra}]"')
