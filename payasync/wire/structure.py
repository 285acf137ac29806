"""Strict structuring with cattrs: a value must already be of the type that a class asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date, datetime
from typing import Any, Final, TypeVar, get_args, get_origin

from attrs import has
from cattrs import Converter, transform_error
from cattrs.cols import list_structure_factory
from cattrs.strategies import configure_union_passthrough

from payasync.errors import InvalidArgumentError

T = TypeVar("T")


def _exactly(kind: type) -> Any:
    def hook(value: object, _: object) -> object:
        if type(value) is not kind:
            raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
        return value

    return hook


def _number(value: object, _: object) -> float:
    if type(value) not in {int, float}:
        raise TypeError(f"expected a number, got {type(value).__name__}")
    return value  # type: ignore[return-value] # a number by now


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
        if not isinstance(value, Mapping):  # cattrs would say what `[]` cannot do
            raise TypeError(f"expected an object, got {type(value).__name__}")
        return structure(value, kind)

    return hook


def _strict_converter() -> Converter:
    """Return a converter that never turns a value of one type into another."""
    converter = Converter()
    for kind in (str, int, bool, bytes):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook(date, _dated(date))
    converter.register_structure_hook(datetime, _dated(datetime))
    converter.register_structure_hook_factory(_is_list, _listed)
    converter.register_structure_hook_factory(_is_class, _made)
    configure_union_passthrough(str | int | float | None, converter)
    return converter


STRICT: Final = _strict_converter()


def complaints(error: Exception, path: str) -> str:
    """Return what does not fit, and where, in the words of the hooks above."""
    return "; ".join(transform_error(error, path=path, format_exception=_words))


def fitted(data: Any, kind: type[T], whose: str) -> T:
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
        why = complaints(error, "data")
    name = getattr(kind, "__name__", str(kind))
    rule = f"fits {whose}'s data"
    raise InvalidArgumentError(f"{whose} does not fit {name}: {why}", field=name, rule=rule)


def _words(error: BaseException, _: type | None) -> str:
    if isinstance(error, KeyError):
        return "is missing"
    if isinstance(error, AttributeError):  # cattrs asked something else for its names
        return "expected an object"
    return str(error) or type(error).__name__
