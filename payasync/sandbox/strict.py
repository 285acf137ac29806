"""JSON as the sandbox takes it: what two readers could read differently is refused."""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn

from payasync.sandbox.values import RefusedError

MAX_DEPTH: Final = 32


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a request's body holds.

    Raises:
        RefusedError: It is no JSON in UTF-8, no object, it has a name twice, more than 32 levels, a number
            that is none, or a text with a lone surrogate.
    """
    try:
        document = json.loads(body.decode(), object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise _malformed(f"the body has more than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise _malformed(f"the body is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise _malformed("the body must be a JSON object")
    _check_values(document)
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return document


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too great")
    return number


def _check_values(document: object) -> None:
    level: list[object] = [document]
    for _ in range(MAX_DEPTH):
        for value in level:
            if isinstance(value, str):
                _check_text(value)
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return
    raise _malformed(f"the body has more than {MAX_DEPTH} levels")


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return _names_and_values(value)
    return value if isinstance(value, list) else ()


def _names_and_values(value: dict[str, Any]) -> Iterator[object]:
    yield from value
    yield from value.values()


def _check_text(text: str) -> None:
    if not encodable(text):
        raise _malformed("the body holds a lone surrogate")


def encodable(text: str) -> bool:
    """Return whether a text is valid Unicode: no lone surrogate stands in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _malformed(message: str) -> RefusedError:
    return RefusedError("invalid", message, status=400)
