"""Settings that check their own types, so that a wrong one is refused where it is written, and by its name."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from inspect import iscoroutinefunction
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from attrs import Attribute, field, validators

from payasync.errors import ConfigurationError
from payasync.settings import is_header

Fields = list["Attribute[Any]"]

MOST_SHOWN: Final = 100
"""Characters of a wrong value that an error shows."""

_PLAIN: Final[dict[Any, tuple[tuple[type, ...], str]]] = {
    str: ((str,), "a text"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    NoneType: ((NoneType,), "nothing"),
}
_UNIONS: Final[tuple[Any, ...]] = (Union, UnionType)


def typed(section: str) -> Callable[[type, Fields], Fields]:
    """Return what gives each field of an attrs class a check of its type; it runs before the field's own.

    Args:
        section: The name of the whole, which stands before the field's in errors, such as `answer`.

    Raises:
        ConfigurationError: By the class, where a value is of another type; it names the field.
    """

    def transform(_: type, fields: Fields) -> Fields:
        return [each.evolve(validator=_both(_check(section), each.validator)) for each in fields]

    return transform


def rule(section: str, wanted: str, holds: Callable[[Any], bool]) -> Callable[[object, "Attribute[Any]", Any], None]:
    """Return a field's own check, which runs after that of its type.

    Args:
        section: As for `typed`.
        wanted: What the value must be, in words.
        holds: Whether it is.
    """

    def check(_: object, attribute: "Attribute[Any]", value: Any) -> None:
        if not holds(value):
            raise ConfigurationError(
                f"{section}.{attribute.name} must be {wanted}, not {shown(value)}", field=f"{section}.{attribute.name}"
            )

    return check


def rule_of_each(
    section: str, wanted: str, holds: Callable[[Any], bool]
) -> Callable[[object, "Attribute[Any]", Any], None]:
    """Return the check of each entry of a table, which is named; as `rule`."""

    def check(_: object, attribute: "Attribute[Any]", value: Mapping[str, Any]) -> None:
        for name, held in value.items():
            if not holds(held):
                key = f"{section}.{attribute.name}.{name}"
                raise ConfigurationError(f"{key} must be {wanted}, not {shown(held)}", field=key)

    return check


def check_function(name: str, given: object) -> None:
    """Refuse a setting that is not a plain function.

    Raises:
        ConfigurationError: It cannot be called, or is an `async` function.
    """
    if not callable(given) or iscoroutinefunction(given):
        raise ConfigurationError(f"{name} must be a plain function, not {given!r}", field=name)


def listed(given: Iterable[Any]) -> tuple[Any, ...]:
    """Return a list or a set as a tuple; what is none stays for the check of its type, as a text does."""
    several = isinstance(given, Sequence | AbstractSet) and not isinstance(given, str | bytes | bytearray | memoryview)
    return tuple(given) if several else given  # type: ignore[return-value] # the check refuses it


def named(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table as a dict of its own; what is none stays for the check of its type."""
    return dict(given) if isinstance(given, Mapping) else given


def named_lists(given: Mapping[str, Iterable[Any]]) -> dict[str, tuple[Any, ...]]:
    """Return a table of lists, its lists as tuples; what is none stays for the check of its type."""
    return {name: listed(value) for name, value in given.items()} if isinstance(given, Mapping) else given


def _both(first: Any, second: Any) -> Any:
    return first if second is None else validators.and_(first, second)


def _check(section: str) -> Callable[[object, "Attribute[Any]", object], None]:
    def check(_: object, attribute: "Attribute[Any]", value: object) -> None:
        if not fits(value, attribute.type):
            name = f"{section}.{attribute.name}" if section else attribute.name
            wrong, entry = _wrong(value, attribute.type)
            raise ConfigurationError(f"{name} must be {described(attribute.type)}, not {wrong}", field=name + entry)

    return check


def _wrong(value: object, kind: Any) -> tuple[str, str]:
    """Return what is wrong, and of a table only the entry that is, with its name as it stands behind the table's.

    Nothing is said that a table of texts holds: it may be a secret.
    """
    if get_origin(kind) is not Mapping:
        return shown(value), ""
    name_kind, inner = get_args(kind)
    hidden = inner is str or get_origin(inner) is Mapping
    if not isinstance(value, Mapping):
        return described(type(value)) if hidden else shown(value), ""
    name, held = next((k, v) for k, v in value.items() if not (fits(k, name_kind) and fits(v, inner)))
    return f"{shown(name)} with {described(type(held)) if hidden else shown(held)}", f".{name}" if fits(
        name, str
    ) else ""


def shown(value: object) -> str:
    """Return a value as it is written, as far as an error has room for it."""
    try:
        text = repr(list(value) if type(value) is tuple else value)
    except Exception:  # noqa: BLE001 - anybody's, or an integer of more digits than Python writes
        return described(type(value))
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def fits(value: object, kind: Any) -> bool:
    """Return whether a value is of a type; nothing is converted, and a boolean is no integer."""
    if kind is Any:
        return True
    if kind in _PLAIN:
        return type(value) in _PLAIN[kind][0] or (kind is str and isinstance(value, str))
    if get_args(kind):
        return _fits_made(value, get_origin(kind), get_args(kind))
    if getattr(kind, "_is_protocol", False):
        return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in _methods(kind))
    return isinstance(value, kind)


def _methods(protocol: type) -> list[str]:
    return [name for name in vars(protocol) if not name.startswith("_")]


def _fits_made(value: object, origin: object, inner: tuple[Any, ...]) -> bool:
    """Return whether a value is of a type that is made of others."""
    if origin is Literal:
        return any(fits(value, type(one)) and value == one for one in inner)
    if origin in _UNIONS:
        return any(fits(value, one) for one in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(one, inner[0]) for one in value)
    return isinstance(value, Mapping) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())


def described(kind: Any) -> str:
    """Return what a type asks for, in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind][1]
    if origin is Literal:
        return f"one of {', '.join(repr(one) for one in inner if one != '')}"
    if origin in _UNIONS:
        return " or ".join(described(one) for one in inner if one is not NoneType and one != Literal[""])
    if origin is tuple:
        return f"a list, each of it {described(inner[0])}"
    if origin is Mapping:
        return "a table" if inner[1] is Any else f"a table of names, each with {described(inner[1])}"
    return "anything" if kind is Any else _noun(kind)


def _noun(kind: type) -> str:
    return f"{'an' if kind.__name__[:1] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


_PATH: Final = "a dotted path, such as data.sign, without an empty step"
_IN_THE_DOCUMENT: Final = f"{_PATH}; a header cannot stand here"
_HEADER: Final = "header"


def a_path(section: str) -> Any:
    """Return the field of a dotted path, which is open until it is given."""
    return field(default="", validator=rule(section, _IN_THE_DOCUMENT, _is_path))


def a_compared_path(section: str) -> Any:
    """Return the field of a dotted path that has a default of its own until it is given."""
    return field(default=None, validator=rule(section, f"{_IN_THE_DOCUMENT}; or empty, to compare nothing", _is_path))


def _is_path(value: str | None) -> bool:
    return not value or ("" not in value.split(".") and not value.lower().startswith(f"{_HEADER}:"))


def _are_paths(value: tuple[str, ...]) -> bool:
    return all(path and _is_path(path) for path in value)


def _is_request_id(value: str) -> bool:
    place, colon, name = value.partition(":")
    return (place == _HEADER and is_header(name, "-")) if colon else _is_path(value)


def _is_bounds(value: tuple[int, ...]) -> bool:
    return len(value) in {0, 2} and sorted(value) == list(value)


def _are_refusals(value: tuple[int, ...]) -> bool:
    return all(400 <= status < 500 and status != 429 for status in value)  # noqa: PLR2004 - as in `verdicts`


def _is_final(value: int | None) -> bool:
    return value is None or 200 <= value < 600  # noqa: PLR2004 - as above


PATHS: Final = rule_of_each("notification", f"a list, each of it {_IN_THE_DOCUMENT}", _are_paths)
REQUEST_ID: Final = rule("answer", f"{_PATH} and without a colon, or header: and the name of a header", _is_request_id)
BOUNDS: Final = rule("accept", "[least, greatest], two integers", _is_bounds)
LENGTHS: Final = rule_of_each("accept", "1 or more", lambda value: value > 0)
REFUSALS: Final = rule(
    "http", "a list of statuses from 400 to 499 without 429: what the others mean is settled", _are_refusals
)
SECONDS: Final = rule(
    "recovery", "a number of seconds, 0 or more", lambda value: value is None or 0 <= value < math.inf
)
TOLERANCE: Final = rule("notification", "a number of seconds above 0", lambda value: value > 0)
FINAL: Final = rule("notification", "an HTTP status from 200 to 599", _is_final)
