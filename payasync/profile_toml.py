"""A profile's TOML form, read strictly: a key that does not exist is an error, and nothing is converted."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import cattrs

from payasync.errors import ConfigurationError
from payasync.profile import Profile
from payasync.shapes import Parameter
from payasync.signing import SignatureScheme, SortedPairs
from payasync.structuring import complaints, strict_converter

_LINE: Final = re.compile(r"at line (\d+)")
_CONVERTER: Final = strict_converter(forbid_extra_keys=True)
_CONVERTER.register_structure_hook(SignatureScheme | None, lambda value, _: _CONVERTER.structure(value, SortedPairs))
_CONVERTER.register_structure_hook(Parameter | None, lambda value, _: _CONVERTER.structure(value, Parameter))


def read_file(path: str | Path) -> Profile:
    """Read a profile from a TOML file.

    Raises:
        ConfigurationError: The file cannot be read, or what `read_text` raises.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
    else:
        return read_text(text, where=str(path))
    raise ConfigurationError(f"profile: cannot read {str(path)!r}: {why}", field="profile")


def read_text(text: str, where: str = "profile") -> Profile:
    """Read a profile from a TOML text.

    Raises:
        ConfigurationError: It is not TOML, or a key is unknown or of the wrong type.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why = str(error)
    else:
        return _structured(_arguments(tables, where), where)
    line = _LINE.search(why)
    raise ConfigurationError(f"{where} is not TOML: {why}", field="profile", line=int(line[1]) if line else None)


def _arguments(tables: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the tables by the names of `Profile`'s arguments, which differ in one place: `[status.…]`."""
    arguments = dict(tables)
    status = arguments.pop("status", {})
    for reserved in ("payment_status", "refund_status"):
        if reserved in arguments:
            raise ConfigurationError(
                f"{where}: {reserved} is written [status.{reserved.removesuffix('_status')}]", field=reserved
            )
    if not isinstance(status, dict) or set(status) - {"payment", "refund"}:
        raise ConfigurationError(f"{where}: status must hold [status.payment] and [status.refund] only", field="status")
    return arguments | {f"{thing}_status": parameter for thing, parameter in status.items()}


def _structured(arguments: Mapping[str, Any], where: str) -> Profile:
    try:
        return _CONVERTER.structure(arguments, Profile)
    except cattrs.BaseValidationError as error:
        ours = _ours(error)
        why = complaints(error, where)
    if ours is not None:
        raise ours
    raise ConfigurationError(why, field="profile")


def _ours(group: BaseException) -> ConfigurationError | None:
    """Return the first error of ours that a part raised about itself."""
    if isinstance(group, ConfigurationError):
        return group
    inner = group.exceptions if isinstance(group, BaseExceptionGroup) else ()
    return next((found for each in inner if (found := _ours(each))), None)
