"""JSON documents: reading, writing, and dotted paths; strict where an amount or a number could be misread."""

import enum
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, Self, TypeAlias

import orjson


class _Absent(enum.Enum):
    """The type of `ABSENT`: the default of optional arguments, because `None` is a value that can be sent."""

    ABSENT = "ABSENT"

    def __repr__(self) -> str:
        return self.value

    def __bool__(self) -> bool:
        return False


Absent: TypeAlias = Literal[_Absent.ABSENT]
ABSENT: Final = _Absent.ABSENT


MAX_DEPTH: Final = 32

_PLAIN: Final = frozenset({str, int, bool, type(None)})
"""Types that cannot be misread: not nested, and no float that may have been an integer of many digits."""

_LONG: Final = re.compile(rb"\d{19}").search
"""Finds an integer that may exceed 64 bits, such as an order number, which orjson would round to a float."""


class ExactNumber(float):
    """A number with the text that it was read from: `1.10` equals `1.1`, but is signed as another text."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> Self:
        """Read a number from its text."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def dumps(value: object) -> bytes:
    """Return compact JSON, copied because the result of orjson occupies at least 4 KiB."""
    return b"%b" % orjson.dumps(value)


def loads(raw: bytes) -> object:
    """Return a JSON document, or `ABSENT` if the bytes are not JSON or nested too deep."""
    try:
        document = orjson.loads(raw)
        if type(document) is dict and is_flat(document):
            return document  # the case of most responses
        suspicious = raw.count(b"{") + raw.count(b"[") > MAX_DEPTH
        if suspicious and _too_deep(document, MAX_DEPTH):
            return ABSENT
        return json.loads(raw) if _LONG(raw) else document
    except ValueError:
        return ABSENT


def is_flat(members: Mapping[str, object]) -> bool:
    """Return whether all values of an object are texts, integers, booleans or null."""
    return _PLAIN.issuperset(map(type, members.values()))


def loads_exact(raw: bytes, *, number: Callable[[str], float] = float) -> object:
    """Return a JSON document with exact integers; `ABSENT` as `loads`, and if an object has a name twice.

    If an object has a name twice, readers disagree about its value.

    Args:
        raw: The bytes.
        number: Reads the text of a number with a fraction or an exponent: `float`, or `ExactNumber`.
    """
    if loads(raw) is ABSENT:
        return ABSENT
    try:
        return json.loads(raw.decode(), object_pairs_hook=_refuse_duplicates, parse_float=number)
    except ValueError:
        return ABSENT


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("duplicate name")
    return names


def _too_deep(value: object, left: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return left == 0 or any(_too_deep(each, left - 1) for each in inner)


Paths: TypeAlias = str | tuple[str, ...]
"""A dotted path, or several: the first one that is there counts."""


def paths_of(given: Paths) -> tuple[str, ...]:
    """Return the paths of a key that takes one or several; none if the key is open."""
    return ((given,) if given else ()) if isinstance(given, str) else given


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


def at(document: object, path: str, default: object = ABSENT) -> Any:
    """Return the value at a dotted path. A number is a list index; the empty path is the whole document."""
    if type(document) is dict and path.isidentifier():  # most paths have one step
        return document.get(path, default)
    here = document
    for step in _steps(path):
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, list) and step.isdecimal() and int(step) < len(here):
            here = here[int(step)]
        else:
            return default
    return here


def first_at(document: object, paths: Paths, default: object = ABSENT) -> Any:
    """Return the value at a path, or at the first of several that is there; null and empty texts come last."""
    if isinstance(paths, str):
        return at(document, paths, default)
    found = [value for path in paths if (value := at(document, path)) is not ABSENT]
    return next((value for value in found if value is not None and value != ""), found[0] if found else default)


def is_one_of(value: object, allowed: Iterable[str | int]) -> bool:
    """Return whether a value is one of the codes, by type and value: `0` is not `False`, nor `"0"`."""
    for code in allowed:  # noqa: SIM110 - on the hot path, where a generator takes twice as long
        if value == code and isinstance(code, type(value)):
            return True
    return False


def find_flaw(value: object, left: int = MAX_DEPTH) -> str | None:
    """Return why a value cannot be sent as JSON, or `None` if it can."""
    if isinstance(value, str):
        return None if encodable(value) else "a text with a lone surrogate"
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**64 else "an integer beyond 64 bits"
    if type(value) is float:  # orjson refuses subclasses
        return None if math.isfinite(value) else "a number that is not finite"
    if isinstance(value, Mapping | list | tuple):
        return _find_inner_flaw(value, left)
    return f"a value of type {type(value).__name__}"


def _find_inner_flaw(value: Mapping[Any, Any] | list[Any] | tuple[Any, ...], left: int) -> str | None:
    if left == 0:
        return f"nested deeper than {MAX_DEPTH}"
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) and encodable(name) for name in value):
            return "an object with a name that is no text"
        value = list(value.values())
    return next((found for each in value if (found := find_flaw(each, left - 1))), None)


def encodable(text: str) -> bool:
    """Return whether a text is valid Unicode, free of lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def copy_plain(value: Any) -> Any:
    """Return a deep copy whose mappings are dicts and whose sequences are lists."""
    if type(value) in _PLAIN:  # spares most values the slow look for a Mapping
        return value
    if isinstance(value, Mapping):
        return {name: copy_plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [copy_plain(inner) for inner in value]
    return value
