"""JSON data as an attrs class, strictly: no value becomes one of another type."""

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date, datetime
from typing import Any, Final, TypeVar, get_args, get_origin

from attrs import has
from cattrs import Converter, transform_error
from cattrs.cols import list_structure_factory
from cattrs.strategies import configure_union_passthrough

from payasync.errors import InvalidArgumentError, clean

T = TypeVar("T")


def _exactly(expected: str, *kinds: type) -> Any:
    def hook(value: object, _: object) -> object:
        if type(value) not in kinds:
            raise TypeError(f"expected {expected}, got {type(value).__name__}")
        return value

    return hook


def _dated(kind: type[date]) -> Any:
    def hook(value: object, _: object) -> date:
        if not isinstance(value, str):
            raise TypeError(f"expected an ISO 8601 text, got {type(value).__name__}")
        return kind.fromisoformat(value)

    return hook


_LISTS: Final[dict[Any, Any]] = {list: list, tuple: tuple, set: set, frozenset: frozenset, Sequence: tuple}
"""What a JSON array can become."""


def _is_list(kind: Any) -> bool:
    return (get_origin(kind) or kind) in _LISTS and get_args(kind)[1:] in {(), (...,)}


def _listed(kind: Any, converter: Converter) -> Any:
    make = _LISTS[get_origin(kind) or kind]
    whole: Any = list[(*get_args(kind), Any)[0]]  # type: ignore[misc] # known only now
    structure = list_structure_factory(whole, converter)

    def hook(value: object, _: object) -> Any:
        if not isinstance(value, list | tuple):  # cattrs would take a text for a list of its letters
            raise TypeError(f"expected a list, got {type(value).__name__}")
        return make(structure(value, whole))

    return hook


def _is_class(kind: Any) -> bool:
    return has(kind) or is_dataclass(get_origin(kind) or kind)


def _made(kind: Any, converter: Converter) -> Any:
    structure = converter.gen_structure_attrs_fromdict(kind)

    def hook(value: object, _: object) -> Any:
        if not isinstance(value, Mapping):  # the words of cattrs would be those of `[]`
            raise TypeError(f"expected an object, got {type(value).__name__}")
        return structure(value, kind)

    return hook


def _strict_converter() -> Converter:
    """Return a converter that never turns a value of one type into another."""
    converter = Converter()
    for kind in (str, int, bool, bytes):
        converter.register_structure_hook(kind, _exactly(kind.__name__, kind))
    converter.register_structure_hook(float, _exactly("a number", int, float))
    converter.register_structure_hook(date, _dated(date))
    converter.register_structure_hook(datetime, _dated(datetime))
    converter.register_structure_hook_factory(_is_list, _listed)
    converter.register_structure_hook_factory(_is_class, _made)
    configure_union_passthrough(str | int | float | None, converter)
    return converter


STRICT: Final = _strict_converter()


def structure_as(data: Any, kind: type[T], whose: str) -> T:
    """Return data as an attrs class, strictly.

    Args:
        data: As JSON has it.
        kind: The class.
        whose: Where the data comes from, for the error.

    Raises:
        InvalidArgumentError: The data does not fit the class; the message says where.
    """
    try:
        return STRICT.structure(data, kind)
    except Exception as error:  # noqa: BLE001 - whatever a hook of the class raises, it does not fit
        why = clean("; ".join(transform_error(error, path="data", format_exception=_words)))
    name = getattr(kind, "__name__", str(kind))
    rule = f"fits {whose}'s data"
    raise InvalidArgumentError(f"{whose} does not fit {name}: {why}", field=name, rule=rule)


def _words(error: BaseException, _: type | None) -> str:
    if isinstance(error, KeyError):
        return "is missing"
    if isinstance(error, AttributeError):  # cattrs asked something else for its names
        return "expected an object"
    return str(error) or type(error).__name__
