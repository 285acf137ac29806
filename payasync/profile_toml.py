"""A profile's TOML form, read strictly: a key that does not exist is an error, and nothing is converted."""

import re
import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from attrs import NOTHING, fields, has

from payasync.errors import ConfigurationError
from payasync.files import read_guarded
from payasync.profile import Profile
from payasync.shapes import Parameter
from payasync.signing import SortedPairs
from payasync.toml_lines import lines_of
from payasync.typed import shown

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
