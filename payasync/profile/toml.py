"""A profile's TOML form: read strictly, and written so that it reads back as the same profile."""

import json
import re
import tomllib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from attrs import NOTHING, Factory, fields, has

from payasync.documents import encodable
from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.profile.schema import Parameter
from payasync.settings import read_guarded
from payasync.signing.schemes import SortedPairs
from payasync.validators import shown

_CLOSING: Final = ('"""', "'''", "]")
"""With one of these ends what began on an earlier line."""

_DEEPEST: Final = 8
"""Steps of a key; deeper ones have no line of their own."""


def lines_of(text: str) -> dict[str, int]:
    """Return the line on which each key first stands, by its dotted path; counted from 1.

    A table that only stands in the name of another, as `a` in `[a.b]`, is on that line, too. What
    stands in a list of inline tables is on none.
    """
    found: dict[str, int] = {}
    header = ""
    for number, first, tables in _statements(text):
        is_header = first.lstrip().startswith("[")
        keys = list(_keys(tables, "" if is_header else header, _DEEPEST))
        header = keys[-1] if is_header else header
        for key in keys:
            found.setdefault(key, number)
    return found


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield of each statement the line on which it begins, that line itself, and what it says when read alone."""
    begun: list[str] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        begun.append(line)
        tables = _read(begun)
        if tables is not None:
            yield number - len(begun) + 1, begun[0], tables
            begun = []


def _read(lines: list[str]) -> dict[str, Any] | None:
    """Return what the lines of a statement say, or `None` where it goes on."""
    if len(lines) > 1 and not any(mark in lines[-1] for mark in _CLOSING):
        return None
    try:
        return tomllib.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return None


def _keys(value: Any, above: str, left: int) -> Iterator[str]:
    """Yield the paths in a value, each before those below it."""
    if isinstance(value, dict) and left:
        for name, inner in value.items():
            path = f"{above}.{name}" if above else name
            yield path
            yield from _keys(inner, path, left - 1)


_LINE: Final = re.compile(r"at line (\d+)")
_MARK: Final = "\ufeff"
"""What some editors write before a text in UTF-8."""

_STATUS: Final = {"payment_status": "payment", "refund_status": "refund"}
"""The arguments that TOML writes in another way: as the tables of `[status]`."""

_PARTS: Final = {each.name: each.type for each in fields(Profile) if each.type and has(each.type)} | {
    "signature": SortedPairs
}
_KEYS: Final = tuple(dict.fromkeys("status" if each.name in _STATUS else each.name for each in fields(Profile)))


def read_file(path: str | Path) -> Profile:
    """Read a profile from a TOML file.

    Raises:
        ConfigurationError: The file cannot be read, or what `read_text` raises.
    """
    try:
        text = read_guarded(path)
    except (OSError, TypeError, ValueError) as error:
        why = _unreadable(error)
    else:
        return read_text(text, where=str(path))
    name = repr(str(path)) if isinstance(path, Path) else shown(path)
    raise ConfigurationError(f"profile: cannot read {name}: {why}", field="profile")


def _unreadable(error: Exception) -> str:
    if isinstance(error, OSError):
        return str(error.strerror)
    return "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else "it is no path"


def read_text(text: str, where: str = "profile") -> Profile:
    """Read a profile from a TOML text.

    Args:
        text: The text.
        where: The name of the file, which stands before the line in errors.

    Raises:
        ConfigurationError: It is not TOML, or a key is unknown or of the wrong type; it has the key, as
            TOML writes it, and the line of the key, or of the table where it is missing.
    """
    text = text.removeprefix(_MARK) if isinstance(text, str) else text
    tables = _tables(text, where)
    try:
        return _profile(tables)
    except ConfigurationError as error:
        error.add(line=_nearest(error.field or "", lines_of(text)))
        error.args = (f"{_place(where, error.line)}: {error}",)
        raise


def _tables(text: str, where: str) -> dict[str, Any]:
    if not isinstance(text, str):
        raise ConfigurationError(f"{where} must be a TOML text, not {shown(text)}", field="profile")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # some numbers and nestings are too much for tomllib
        why = str(error)
    line = int(found[1]) if (found := _LINE.search(why)) else None
    raise ConfigurationError(f"{_place(where, line)}: not TOML: {why}", field="profile", line=line)


def _place(where: str, line: int | None) -> str:
    return where if line is None else f"{where}, line {line}"


def _nearest(path: str, lines: Mapping[str, int]) -> int | None:
    """Return the line of a key, or else of the table where it belongs."""
    while path and path not in lines:
        path = path.rpartition(".")[0]
    return lines.get(path)


def _profile(tables: Mapping[str, Any]) -> Profile:
    for key in tables:
        _check_key(key, key, _KEYS)
    arguments = {key: _part(key, _PARTS[key], given) if key in _PARTS else given for key, given in tables.items()}
    arguments |= _status(arguments.pop("status", {}))
    with _written("payment_status", "status.payment"), _written("refund_status", "status.refund"):
        return Profile(**arguments)


def _status(given: object) -> dict[str, Parameter]:
    tables = _table("status", given)
    for key in tables:
        _check_key(f"status.{key}", key, tuple(_STATUS.values()))
    return {
        argument: _part(f"status.{key}", Parameter, tables[key]) for argument, key in _STATUS.items() if key in tables
    }


def _part(path: str, kind: Any, given: object) -> Any:
    """Return a part of a profile, from its table."""
    known = {each.name: each for each in fields(kind)}
    table = _table(path, given)
    for key in table:
        _check_key(f"{path}.{key}", key, tuple(known))
    for name, each in known.items():
        if each.default is NOTHING and name not in table:
            raise ConfigurationError(f"{path}.{name} is missing", field=f"{path}.{name}")
    with _written("status", path):  # how a `Parameter` calls itself, whichever it is
        return kind(**table)


def _table(path: str, given: object) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ConfigurationError(f"{path} must be a table, not {shown(given)}", field=path)
    return given


def _check_key(path: str, key: str, allowed: tuple[str, ...]) -> None:
    if key not in allowed:
        close = [f"[status.{_STATUS[key]}]"] if path in _STATUS else get_close_matches(key, allowed, n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise ConfigurationError(f"{path} is unknown: {meant}allowed are {', '.join(allowed)}", field=path)


@contextmanager
def _written(name: str, path: str) -> Generator[None, None, None]:
    """Let errors say a key as TOML writes it."""
    try:
        yield
    except ConfigurationError as error:
        if error.field is not None and error.field.split(".")[0] == name:
            error.add(field=path + error.field.removeprefix(name))
            error.args = (str(error).replace(name, path, 1),)
        raise


_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_INTEGER_BITS: Final = 64


def write_toml(profile: Profile) -> str:
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
