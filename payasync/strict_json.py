"""JSON documents: reading, writing, and dotted paths; strict where an amount or a number could be misread."""

import enum
import gc
import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, Literal, Self, TypeAlias

import orjson


class _Named(enum.Enum):
    """The type of values that are only themselves, also when copied or pickled."""

    def __repr__(self) -> str:
        return self.name


class _Absent(_Named):
    """The type of `ABSENT`: the default of optional arguments, because `None` is a value that can be sent."""

    ABSENT = "ABSENT"

    def __bool__(self) -> bool:
        return False


class _NotYet(_Named):
    """The type of `NOT_YET`: what `expect=` of a receiver returns, because `None` means that it expects nothing."""

    NOT_YET = "NOT_YET"


Absent: TypeAlias = Literal[_Absent.ABSENT]
ABSENT: Final = _Absent.ABSENT
NotYet: TypeAlias = Literal[_NotYet.NOT_YET]
NOT_YET: Final = _NotYet.NOT_YET


MAX_DEPTH: Final = 32

_PLAIN: Final = frozenset({str, int, bool, type(None)})
"""Types that cannot be misread: not nested, and no float that may have been an integer of many digits."""

_ROUNDED: Final = 2.0**63
"""The least float that may stand for an integer: orjson rounds those beyond 64 bits."""
_ROUNDED_DIGITS: Final = 19
"""The least digits of such an integer."""
_INTEGER_BITS: Final = 63
"""Bits of an integer that orjson writes, with or without a sign."""
_EASY_DIGITS: Final = 640
"""Digits of an integer that Python always converts. By default it refuses more than 4,300."""
MAX_DIGITS: Final = 5000
"""Digits of an integer that is read. Converting a million of them takes seconds, and no amount or number has more."""
_HUGE: Final = re.compile(rb"(?<![\deE.])(?<![eE][+-])\d{300,}(?![\d.eE])")
"""Finds an integer, or a text, of so many digits. It is no part of a number with a fraction or an exponent."""
_BEYOND: Final = 10**MAX_DIGITS
"""The value of an integer that is too long to be read: no time, no code and no amount equals it."""
_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")

_find_halves: Final = re.compile(
    rb"(\\[^u]|\\u[dD][89abAB]HH\\u[dD][c-fC-F]HH)|\\u[dD][89a-fA-F]HH".replace(b"H", b"[0-9a-fA-F]"), re.DOTALL
)
"""Finds the escape of half a surrogate pair. Group 1 is what stays: another escape, or a whole pair."""


class ExactNumber(float):
    """A number with the text that it was read from: `1.10` equals `1.1`, but is signed as another text."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> Self:
        """Read a number from its text."""
        number = super().__new__(cls, text)
        number.text = text
        return number


class LongInteger(int):
    """An integer of so many digits that Python may refuse to convert it to a text, with this text."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _read_integer(digits: str, value: int | None = None) -> int:
    """Return an integer, read by halves, because Python refuses to convert so many digits.

    Args:
        digits: The text of the integer.
        value: What an integer with too long a text has as its value. By default, it is refused.
    """
    if len(digits) <= _EASY_DIGITS:
        return int(digits)
    if len(digits) <= MAX_DIGITS:
        half, sign = len(digits) // 2, -1 if digits.startswith("-") else 1
        value = _read_integer(digits[:-half]) * int(10**half) + sign * _read_integer(digits[-half:])
    if value is None:
        raise ValueError("too many digits")
    number = LongInteger(value)
    number.text = digits
    return number


_Number: TypeAlias = Callable[[str], float]
_Pairs: TypeAlias = Callable[[list[tuple[str, Any]]], Any] | None


def dumps(value: object) -> bytes:
    """Return compact JSON with all digits, copied because the result of orjson occupies at least 4 KiB."""
    try:
        return b"%b" % orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits
        return orjson.dumps(with_digits(value))


def with_digits(value: object) -> Any:
    """Return a JSON value that orjson writes with all digits of its integers and of each `ExactNumber`."""
    if isinstance(value, dict):
        return {name: with_digits(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_digits(inner) for inner in value]
    if isinstance(value, int):
        return orjson.Fragment(str(value)) if value.bit_length() > _INTEGER_BITS else value
    return orjson.Fragment(value.text) if isinstance(value, ExactNumber) else value


def loads(raw: bytes) -> object:
    """Return a JSON document as it was received, `ABSENT` if it is not JSON, too deep, or has too long an integer."""
    try:
        document = orjson.loads(raw)
    except ValueError:
        mended = mend(raw)
        shortened = _HUGE.sub(b"1", mended)  # without what orjson takes for infinite
        if shortened == mended:
            return ABSENT if mended == raw else loads(mended)
        return ABSENT if loads(shortened) is ABSENT else _read(mended)
    if type(document) is dict and is_flat(document):
        return document  # the case of most responses
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _is_deep(document):
        return ABSENT
    return _read(raw) if _has_run(raw, _ROUNDED_DIGITS) and _is_rounded(document) else document


def mend(raw: bytes) -> bytes:
    """Return received JSON without a byte order mark, and with U+FFFD in place of each half of a surrogate pair."""
    raw = raw.removeprefix(BOM_UTF8)
    halves = b"\\ud" in raw or b"\\uD" in raw
    return _find_halves.sub(lambda found: found[1] or rb"\ufffd", raw) if halves else raw


def is_flat(members: Mapping[str, object]) -> bool:
    """Return whether all values of an object are texts, integers, booleans or null."""
    return _PLAIN.issuperset(map(type, members.values()))


def loads_exact(raw: bytes, *, number: _Number = float, received: bool = True) -> object:
    """Return a JSON document with exact integers; `ABSENT` as `loads`, and if an object has a name twice.

    If an object has a name twice, readers disagree about its value.

    Args:
        raw: The bytes.
        number: Reads the text of a number with a fraction or an exponent: `float`, or `ExactNumber`.
        received: The service sent it, so that it is mended first.
    """
    mended = mend(raw)
    if loads(mended) is ABSENT or not (received or mended == raw):
        return ABSENT
    return _read(mended, number, _refuse_duplicates)


def explain_unread(raw: bytes) -> str:
    """Return what received bytes are, in words, if they are no object or `loads_exact` refuses them."""
    document = loads_leniently(_HUGE.sub(b"1", raw))
    if not isinstance(document, dict):
        return "other bytes" if document is ABSENT else "a list" if isinstance(document, list) else "a single value"
    if loads(mend(raw)) is not ABSENT:
        return "one with a name twice in an object"
    other = f"one with a number that is not finite, or has more than {MAX_DIGITS} digits"
    return f"one nested deeper than {MAX_DEPTH}" if _is_deep(document) else other


def loads_leniently(raw: bytes, number: _Number = float) -> object:
    """Return a JSON document as most readers see it, `ABSENT` if there is none. Of two equal names, the last counts."""
    try:
        return _read(mend(raw), number, integer=_read_far)
    except RecursionError:
        return ABSENT


def _read(raw: bytes, number: _Number = float, pairs: _Pairs = None, integer: _Number = _read_integer) -> object:
    """Return a document that is JSON, with exact integers; `ABSENT` if a hook refuses it."""
    read = integer if _has_run(raw, _EASY_DIGITS) else int
    try:
        return _decoder(parse_int=read, parse_float=number, object_pairs_hook=pairs).decode(raw.decode())
    except ValueError:
        return ABSENT


_decoder: Final = lru_cache(maxsize=16)(json.JSONDecoder)
"""`json.loads` makes another one each time, which takes as long as to read a notification."""
_read_far: Final = partial(_read_integer, value=_BEYOND)


def _has_run(raw: bytes, digits: int) -> bool:
    """Return whether a document has so many digits in a row. Each fourth byte shows in most cases that it has not."""
    sample = raw[::4].translate(_AS_ZEROS)
    return b"0" * (digits // 4) in sample and b"0" * digits in raw.translate(_AS_ZEROS)


def _is_deep(document: object) -> bool:
    level = [document]
    for _ in range(MAX_DEPTH):
        level = gc.get_referents(*level)  # what is inside: a loop over all values takes five times as long
    return not {dict, list}.isdisjoint(map(type, level))


def _is_rounded(document: object) -> bool:
    """Return whether a document has a float that orjson may have made of an integer."""
    level = [document]
    while level:
        if float in set(map(type, level)) and any(type(each) is float and abs(each) >= _ROUNDED for each in level):
            return True
        level = gc.get_referents(*level)
    return False


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("duplicate name")
    return names


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
    return [copy_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
