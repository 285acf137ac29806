"""Strict structuring with cattrs: a value must already be of the type that a class asks for."""

from datetime import date, datetime
from typing import Any, Final

from cattrs import Converter


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


def strict_converter(**options: Any) -> Converter:
    """Return a converter that never turns a value of one type into another."""
    converter = Converter(**options)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook(date, _dated(date))
    converter.register_structure_hook(datetime, _dated(datetime))
    return converter


STRICT: Final = strict_converter()
