"""The TOML form of a profile: strict reading, and writing that reads back as an equal profile."""

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from attrs import NOTHING, Factory, fields, has

from payasync.endpoints import ARGUMENTS
from payasync.errors import ConfigurationError
from payasync.profile.schema import CODE_LISTS, Endpoint, Parameter, ResultCodes
from payasync.settings import describe_value, invalid_setting
from payasync.signing.schemes import SortedPairs, Template
from payasync.strict_json import ABSENT, at, encodable

if TYPE_CHECKING:
    from payasync.profile.profile import Profile

P = TypeVar("P", bound="Profile")

_STATUS: Final = {"payment_status": "payment", "refund_status": "refund"}
"""Arguments that have another name in TOML: the tables of `[status]`."""
_USUAL_FAMILY: Final = "sorted-pairs"
_FAMILIES: Final[Mapping[str, type]] = {_USUAL_FAMILY: SortedPairs, "template": Template}
"""The classes of signatures, by `signature.family`."""
_BYTE_ORDER_MARK: Final = "\ufeff"
_TOML_ERROR_LINE: Final = re.compile(r"at line (\d+), ")
_LINE_BREAK: Final = r"character '\n'"
"""What tomllib finds in a string of one line that has no end."""
_CLOSING: Final = ('"""', "'''", "]")
"""The ends of values of several lines."""
_DEEPEST: Final = 8
"""The most steps of a key that has a line of its own."""
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_INTEGER_BITS: Final = 64
_TABLES: Final = ("endpoints", "fields", "constants", "codes", "accept.required", "sandbox.omits")
"""The tables whose keys are names of operations."""
_OPERATION_IN_KEY: Final = re.compile(
    rf"(?<![\w.])((?:{'|'.join(map(re.escape, _TABLES))})\.)({'|'.join(map(re.escape, (*ARGUMENTS, '*')))})(?!\w)"
)
_STATUS_IN_KEY: Final = re.compile(r"(?<![\w.])(payment|refund)_status\.(name|place)\b")
_STATUS_KEY: Final = r"status.\1.\2"


def read_text(kind: type[P], text: str, where: str = "profile") -> P:
    """Read a profile from a TOML text.

    Args:
        kind: `Profile`.
        text: The text.
        where: The name of the file in errors.

    Raises:
        ConfigurationError: The text is not TOML, or a key is unknown or has the wrong type. The error has the key as
            TOML writes it, and the line of the key, or of the table where the key is missing.
    """
    if not isinstance(text, str):
        raise ConfigurationError(f"{where} must be a TOML text, not {describe_value(text)}", field="profile")
    text = text.removeprefix(_BYTE_ORDER_MARK)
    tables = _parse(text, where)
    try:
        return _make_profile(kind, tables)
    except ConfigurationError as error:
        field, lines = _STATUS_IN_KEY.sub(_STATUS_KEY, error.field or ""), lines_of(text)
        path = field
        while path and path not in lines:
            path = path.rpartition(".")[0]
        error.add(field=field or None, line=lines.get(path))
        words = _OPERATION_IN_KEY.sub(r'\1"\2"', _STATUS_IN_KEY.sub(_STATUS_KEY, str(error)))
        error.args = (f"{_locate(where, error.line)}: {words}",)
        raise


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib raises these for very long numbers and deep nesting
        why = str(error)
    line = int(found[1]) if (found := _TOML_ERROR_LINE.search(why)) else None
    why = _TOML_ERROR_LINE.sub("at ", why) + (": is a quote left open?" if _LINE_BREAK in why else "")
    raise ConfigurationError(f"{_locate(where, line)}: not TOML: {why}", field="profile", line=line)


def _locate(where: str, line: int | None) -> str:
    return where if line is None else f"{where}, line {line}"


def _make_profile(kind: type[P], tables: Mapping[str, Any]) -> P:
    given_ones = [each for each in fields(kind) if each.init]
    keys = tuple(dict.fromkeys("status" if each.name in _STATUS else each.name for each in given_ones))
    parts: dict[str, Any] = {each.name: each.type for each in given_ones if each.type and has(each.type)}
    arguments: dict[str, Any] = {}
    _check_quotes(tables)
    for key, given in _check_table("", tables, keys).items():
        if key == "status":
            for thing, inner in _check_table(key, given, tuple(_STATUS.values())).items():
                arguments[f"{thing}_status"] = _make_part(f"{key}.{thing}", Parameter, inner)
        elif key == "endpoints":
            table = _check_table(key, given)
            arguments[key] = {name: _make_part(f"{key}.{name}", Endpoint, inner) for name, inner in table.items()}
        elif key == "codes":
            arguments[key] = _make_codes(given)
        else:
            kind_of_part, inner = _family_of(key, given) if key == "signature" else (parts.get(key), given)
            arguments[key] = _make_part(key, kind_of_part, inner) if kind_of_part else given
    return kind(**arguments)


def _check_quotes(tables: Mapping[str, Any]) -> None:
    """Refuse the name of an operation without quotes: in TOML it is a table inside a table."""
    for table in _TABLES:
        for operation in ARGUMENTS:
            if at(tables, f"{table}.{operation}") is not ABSENT:
                key = f'{table}."{operation}"'
                written = f"{key} = [...]" if "." in table else f"[{key}]"
                why = f"the operation {operation} must stand in quotes, because its name has a dot: {written}"
                raise ConfigurationError(why, field=f"{table}.{operation}")


def _family_of(path: str, given: object) -> tuple[type, object]:
    """Return the class that a table of `signature` is about, and the table without the key that says so."""
    options = dict(_check_table(path, given))
    family = options.pop("family", _USUAL_FAMILY)
    if not isinstance(family, str) or family not in _FAMILIES:
        raise invalid_setting("signature.family", f"must be {' or '.join(_FAMILIES)}, not {describe_value(family)}")
    for other, kind in _FAMILIES.items():
        mine, others = ({each.name for each in fields(each)} for each in (_FAMILIES[family], kind))
        for name in options.keys() & (others - mine):
            why = f"is of the family {other!r}, and signature.family is {family!r}"
            raise invalid_setting(f"{path}.{name}", f"{why}; allowed are {', '.join(sorted(mine))}")
    return _FAMILIES[family], options


def _make_part(path: str, kind: Any, given: object) -> Any:
    """Return a part of a profile from its table."""
    names = {_key_of(each.name): each.name for each in fields(kind)}
    table = _check_table(path, given, tuple(names))
    for each in fields(kind):
        if each.default is NOTHING and each.name not in table:
            raise invalid_setting(f"{path}.{each.name}", "is missing")
    parts = {each.name: part for each in fields(kind) for part in get_args(each.type) if has(part)}
    arguments = {
        names[key]: _make_part(f"{path}.{key}", parts[names[key]], value) if names[key] in parts else value
        for key, value in table.items()
    }
    try:
        return kind(**arguments)
    except ConfigurationError as error:
        for part in ("status", "endpoints", "header"):  # a `Parameter` does not know which one it is, for example
            _rename_key(error, part, path)
        raise


def _make_codes(given: object) -> ResultCodes:
    """Return the result codes; the tables of single operations stand between the general lists."""
    table = _check_table("codes", given, (*CODE_LISTS, *ARGUMENTS))
    lists = {key: value for key, value in table.items() if key in CODE_LISTS}
    try:
        return ResultCodes(**lists, by_operation={key: table[key] for key in table if key not in CODE_LISTS})
    except ConfigurationError as error:
        _rename_key(error, "codes.by_operation", "codes")
        raise


def _key_of(argument: str) -> str:
    """Return the TOML key of an argument; `with` is a word of Python, so the argument is `with_`."""
    return argument.removesuffix("_")


def _check_table(path: str, given: object, allowed: Collection[str] = ()) -> dict[str, Any]:
    """Return a table; refuse any other value, and a key that is not allowed, if some are."""
    if not isinstance(given, dict):
        raise invalid_setting(path, f"must be a table, not {describe_value(given)}")
    for key in given if allowed else ():
        if key not in allowed:
            where = f"{path}.{key}" if path else key
            close = [f"[status.{_STATUS[key]}]"] if where in _STATUS else get_close_matches(key, allowed, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise invalid_setting(where, f"is unknown: {meant}allowed are {', '.join(allowed)}")
    return given


def _rename_key(error: ConfigurationError, name: str, path: str) -> None:
    """Change an error so that it names a key as TOML writes it."""
    if f"{error.field}.".startswith(f"{name}.") and error.field is not None:
        error.add(field=path + error.field.removeprefix(name))
        error.args = (str(error).replace(name, path, 1),)


def lines_of(text: str) -> dict[str, int]:
    """Return the line of the first occurrence of each key, by its dotted path; lines count from 1.

    `[a.b]` is also the line of `a`. Keys in a list of inline tables have no line.
    """
    lines: dict[str, int] = {}
    header = ""
    statement: list[str] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        statement.append(line)
        if len(statement) > 1 and not any(mark in line for mark in _CLOSING):
            continue
        try:
            tables = tomllib.loads("\n".join(statement))
        except (ValueError, RecursionError):  # the statement continues on the next line
            continue
        is_header = statement[0].lstrip().startswith("[")
        keys = list(_list_keys(tables, "" if is_header else header, _DEEPEST))
        header = keys[-1] if is_header else header
        for key in keys:
            lines.setdefault(key, number - len(statement) + 1)
        statement = []
    return lines


def _list_keys(value: Any, above: str, left: int) -> Iterator[str]:
    """Yield the paths of the keys in a value, parents first."""
    if isinstance(value, dict) and left:
        for name, inner in value.items():
            path = f"{above}.{name}" if above else name
            yield path
            yield from _list_keys(inner, path, left - 1)


def write_toml(profile: "Profile") -> str:
    """Return a profile's TOML form.

    Raises:
        ConfigurationError: The profile holds a value that TOML cannot: a scheme of your own, a constant that is null,
            a text with a lone surrogate, or an integer of more than 64 bits.
    """
    family = next((name for name, each in _FAMILIES.items() if type(profile.signature) is each), "")
    if profile.signature is not None and not family:
        raise invalid_setting("signature", "is a scheme of your own, which TOML cannot hold: give it in Python")
    table = _list_changes(profile)
    if family not in {"", _USUAL_FAMILY}:
        table["signature"] = {"family": family, **table["signature"]}
    if status := {name: table.pop(argument) for argument, name in _STATUS.items() if table.get(argument)}:
        table["status"] = status
    if codes := table.get("codes"):
        codes |= codes.pop("by_operation", {})
    return "".join(f"{line}\n" for line in _write_table((), table)).lstrip("\n")


def _list_changes(part: Any) -> Any:
    """Return the values of a part, or of parts in a table, that differ from their defaults; other values unchanged."""
    if isinstance(part, Mapping):
        return {name: _list_changes(held) for name, held in part.items()}
    if not has(type(part)):
        return part
    changed = {}
    for each in filter(lambda one: one.init, fields(type(part))):
        value = getattr(part, each.name)
        default = each.default.factory() if isinstance(each.default, Factory) else each.default  # type: ignore[arg-type]
        if default is NOTHING or value != default:
            changed[_key_of(each.name)] = _list_changes(value)
    return changed


def _write_table(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table: its values, then the tables in it; an empty table has its header."""
    own = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if path and (own or not table):
        yield ""
        yield f"[{'.'.join(_write_key(path, key) for key in path)}]"
    for key, value in own.items():
        yield f"{_write_key(path, key)} = {_write_value((*path, key), value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _write_table((*path, key), value)


def _write_key(path: tuple[str, ...], key: str) -> str:
    return str.__str__(key) if _BARE_KEY.fullmatch(key) else _write_value(path, key)


def _write_value(path: tuple[str, ...], value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if not encodable(value):
            raise _not_writable(path, "has a lone surrogate")
        # TOML escapes as JSON does, and DEL too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(_write_value(path, each) for each in value)}]"
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_write_key(path, key)} = {_write_value(path, each)}" for key, each in value.items())
        return f"{{{pairs}}}"
    if value is None:
        raise _not_writable(path, "is null")
    if isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
        raise _not_writable(path, f"has an integer of more than {_INTEGER_BITS} bits")
    return int.__repr__(value) if isinstance(value, int) else float.__repr__(value)


def _not_writable(path: tuple[str, ...], what: str) -> ConfigurationError:
    return invalid_setting(".".join(path), f"{what}, which TOML cannot hold: give the profile in Python")
