"""A profile as TOML: what differs from what the document states, and reads back as the same profile."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import NOTHING, Factory, fields, has

from payasync.documents import encodable
from payasync.errors import ConfigurationError
from payasync.profile import Profile
from payasync.signing import SortedPairs

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_INTEGER_BITS: Final = 64


def write(profile: Profile) -> str:
    """Return a profile's TOML form.

    Raises:
        ConfigurationError: It holds what TOML cannot: a scheme of your own, a constant that is null, a text with a
            lone surrogate, or an integer of more than 64 bits.
    """
    if profile.signature is not None and type(profile.signature) is not SortedPairs:
        raise ConfigurationError(
            "signature is a scheme of your own, which TOML cannot hold: give it in Python", field="signature"
        )
    table = _changed(profile)
    status = {thing: table.pop(f"{thing}_status", None) for thing in ("payment", "refund")}
    if given := {thing: parameter for thing, parameter in status.items() if parameter}:
        table["status"] = given
    return "".join(f"{line}\n" for line in _lines((), table)).lstrip("\n")


def _changed(part: Any) -> dict[str, Any]:
    """Return what differs from the defaults, by its keys; of a part without defaults, all."""
    changed = {}
    for each in fields(type(part)):
        value = getattr(part, each.name)
        default = each.default.factory() if isinstance(each.default, Factory) else each.default  # type: ignore[arg-type]
        if default is NOTHING or value != default:
            changed[each.name] = _changed(value) if has(type(value)) else value
    return changed


def _lines(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table: its own values, then the tables within it; one that is empty is there, too."""
    own = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if path and (own or not table):
        yield ""
        yield f"[{'.'.join(_key(path, key) for key in path)}]"
    for key, value in own.items():
        yield f"{_key(path, key)} = {_value((*path, key), value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _lines((*path, key), value)


def _key(path: tuple[str, ...], key: str) -> str:
    return str.__str__(key) if _BARE.fullmatch(key) else _text(path, key)


def _value(path: tuple[str, ...], value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(path, value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(path, each) for each in value)}]"
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(path, key)} = {_value(path, each)}" for key, each in value.items())
        return f"{{{pairs}}}"
    if value is None:
        raise _not_held(path, "is null")
    if isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
        raise _not_held(path, f"has an integer of more than {_INTEGER_BITS} bits")
    return int.__repr__(value) if isinstance(value, int) else float.__repr__(value)


def _text(path: tuple[str, ...], text: str) -> str:
    """Return a basic string; JSON escapes as TOML does, but for DEL."""
    if not encodable(text):
        raise _not_held(path, "has a lone surrogate")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _not_held(path: tuple[str, ...], what: str) -> ConfigurationError:
    where = ".".join(path)
    return ConfigurationError(f"{where} {what}, which TOML cannot hold: give the profile in Python", field=where)
