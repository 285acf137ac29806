"""How a profile, a part of it, or a session with it is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from payasync.errors import ConfigurationError


def refused(make: Callable[..., object], *arguments: Any, **parts: Any) -> ConfigurationError:
    """Return the error that something is refused with; no foreign error stands behind it."""
    with pytest.raises(ConfigurationError) as caught:
        make(*arguments, **parts)
    assert caught.value.__context__ is None
    return caught.value


def refusal(make: Callable[..., object], *arguments: Any, **parts: Any) -> tuple[str | None, str]:
    """Return the field and the words of the error that something is refused with."""
    error = refused(make, *arguments, **parts)
    return error.field, str(error)
