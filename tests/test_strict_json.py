import copy
import enum
import json
import pickle
import re
from decimal import Decimal
from itertools import product
from types import MappingProxyType
from typing import Any, Final

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from payasync.strict_json import (
    ABSENT,
    MAX_DEPTH,
    NOT_YET,
    at,
    copy_plain,
    dumps,
    find_flaw,
    first_at,
    loads,
    loads_exact,
    loads_leniently,
)

TEXTS: Final = st.text(st.characters(exclude_categories=[]))
SCALARS: Final = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary() | st.dates()
ANYTHING: Final = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner) | st.dictionaries(TEXTS | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


class Number(enum.IntEnum):
    """An integer with a name."""

    ONE = 1


class Fraction(float):
    """A float with a class of its own."""


def nested(depth: int, kind: type[Any]) -> object:
    """Return this many containers inside each other."""
    value: Any = kind()
    for _ in range(depth - 1):
        value = {"a": value} if kind is dict else [value]
    return value


def cyclic() -> list[Any]:
    """Return a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


def test_dumps_is_compact() -> None:
    """The body is compact JSON that keeps the order of the fields."""
    assert b'{"b":1,"a":["\xc3\xa9",null]}' == dumps({"b": 1, "a": ["é", None]})


NO_JSON: Final = (
    *(b"", b"{", b"\xff", b'{"a":NaN}', b"<html>", b'"\\ud8"', b"\xef\xbb\xbf", b'"\xed\xa0\x80"'),
    *(
        b"[" * 100_000,
        b"[" * 900 + b"9" * 30 + b"]" * 900,
        b"[" * 100_000 + b"9" * 900,
        b"[" * 33 + b"9" * 900 + b"]" * 33,
    ),
    *(b"1e999", b"1e" + b"9" * 400, b"9" * 400 + b".5", b"9" * 400 + b"e1", b"0" * 400, b"[1e999,%b]" % (b"9" * 400)),
    *(b"7" * 5001, b'{"a":[-%b]}' % (b"7" * 1_000_000)),
)


def test_what_is_no_json_is_absent() -> None:
    """An unreadable response is `ABSENT`, unlike a `null`. Deep nesting or long numbers raise nothing."""
    for raw in NO_JSON:
        assert loads(raw) is ABSENT, raw[:50]
    assert loads(b"null") is None
    assert loads_leniently(b"[" * 1_000_000 + b"]" * 1_000_000) is ABSENT


HUGE: Final = [*map(int, ("1" + "0" * 308, "-" + "9" * 640)), 10**641, -(7**3000), 10**5000 - 1]
"""Integers that orjson takes for infinite, and some that Python does not convert to a text."""


@given(value=st.integers() | st.dictionaries(st.text(), st.integers()))
@example([10**19, 2**64 - 1, 2**64, -(2**63) - 1, 10**30])
@example(-(2**63) - 1)
@example({"orderNo": -(2**63) - 1})
def test_exact_integers(value: object) -> None:
    """Integers of any length are read exactly."""
    written = json.dumps(value).encode()

    assert [repr(value)] * 2 == [repr(loads(written)), repr(loads_exact(written))]


def test_huge_integers() -> None:
    """Integers of thousands of digits are read exactly, written, copied and pickled, and have a text."""
    for value, (form, path) in product(
        HUGE, {"%b": "", '{"a":%b}': "a", '[{"a":[1.5,"7",%b]},1e300]': "0.a.2"}.items()
    ):
        digits = str(Decimal(value))
        raw = form.encode() % digits.encode()
        for found in (loads(raw), loads_exact(raw)):
            number, pickled = at(found, path), pickle.dumps(found)

            assert (value, digits) == (number, f"{number}")
            assert raw.replace(b"1e300", b"1e+300") == dumps(found).replace(b"1e300", b"1e+300")
            assert found == copy.deepcopy(found) == pickle.loads(pickled)  # noqa: S301 - made two lines above


@given(TEXTS)
@example("\\ud83d")
@example("\ud83d\ud83d\ude00\ude00")
@example("\\\ud83d")
def test_halves_of_surrogate_pairs(text: str) -> None:
    """In what is received, each half of a surrogate pair is U+FFFD. A byte order mark is skipped."""
    raw = b"\xef\xbb\xbf" + json.dumps([{text: text}, 2**64]).encode()
    whole = re.sub("[\ud800-\udfff]", "\ufffd", json.loads(json.dumps(text)))

    assert [[{whole: whole}, 2**64]] * 2 == [loads(raw), loads_exact(raw)]


def test_half_of_a_surrogate_pair_in_capitals() -> None:
    """The digits of an escape may be capitals.

    What a user typed, or what the sandbox is asked, must have no byte order mark and no half surrogate pair.
    """
    for half in (b"\\uD83D", b"\\uDE00", b"\\uDb7f", b"\\udC00"):
        assert ["\ufffd"] == loads(b'["%b"]' % half) == loads_exact(b'["%b"]' % half)
    for raw in (b"\xef\xbb\xbf{}", b'["\\ud83d"]'):
        assert loads_exact(raw, received=False) is ABSENT
    assert {"a": "\U0001f600"} == loads_exact(b'{"a":"\\ud83d\\ude00"}', received=False)


def test_what_two_readers_could_take_for_two() -> None:
    """`loads_exact` refuses invalid JSON, and a name that stands twice in one object."""
    twice = b'{"a":1,"a":1}', b'[{"b":{"a":1,"\\u0061":2}}]'
    for raw in (*twice, b"", b"{", b"\xff", b"1e999", b"[" * 33 + b"]" * 33):
        assert loads_exact(raw) is ABSENT
    assert [{"a": {"a": 1}}, {"a": None}] == loads_exact(b'[{"a":{"a":1}},{"a":null}]')


def test_depth_is_bounded_both_ways() -> None:
    """Documents may be 32 containers deep, sent and received, and no deeper.

    A long flat document, and brackets in texts, do not count as depth.
    """
    kinds: tuple[type[Any], ...] = (dict, list)
    for kind in kinds:
        deepest, too_deep = nested(MAX_DEPTH, kind), nested(MAX_DEPTH + 1, kind)

        assert find_flaw(deepest) is None
        assert deepest == loads(orjson.dumps(deepest))
        assert f"nested deeper than {MAX_DEPTH}" == find_flaw(too_deep)
        assert loads(orjson.dumps(too_deep)) is ABSENT
    flat = [{"text": "[{" * 40}] * 40
    assert flat == loads(orjson.dumps(flat))


def test_path() -> None:
    """A dotted path finds object members by name and list items by number; a missing one is `ABSENT`."""
    document: dict[str, Any] = {"a": {"b": [10, {"c": None}]}, "0": "zero"}
    missing = "a.b.2", "a.b.-1", "a.b.x", "a.b.0.c", "a.c", "a.", "a.b.²"
    expected = {"": document, "a.b": document["a"]["b"], "a.b.0": 10, "a.b.1.c": None, "0": "zero"}
    expected |= dict.fromkeys(missing, ABSENT)

    assert expected == {path: at(document, path) for path in expected}


def test_first_of_several_paths() -> None:
    """Of several paths, the first one that is there counts; null and empty texts come last."""
    document = {"null": None, "empty": "", "zero": 0, "one": 1, "list": ["A"]}
    expected: dict[str | tuple[str, ...], object] = {
        "null": None,
        "none": ABSENT,
        (): ABSENT,
        ("none", "zero", "one"): 0,
        ("null", "empty", "list.0", "one"): "A",
        ("none", "null", "empty"): None,
        ("empty", "null"): "",
        ("list.1", "none"): ABSENT,
    }

    assert expected == {paths: first_at(document, paths) for paths in expected}


FLAWS: Final[list[tuple[object, str | None]]] = [
    *((value, None) for value in ("text", None, True, 1.5, Number.ONE, -(2**63), 2**64 - 1)),
    ([1, ("a", {"b": None})], None),
    (MappingProxyType({"a": 1}), None),
    ("\ud800", "a text with a lone surrogate"),
    *((value, "an integer beyond 64 bits") for value in (-(2**63) - 1, 2**64, 10**5000)),
    *((float(value), "a number that is not finite") for value in ("nan", "-inf")),
    (Fraction(1.5), "a value of type Fraction"),
    *((value, f"a value of type {type(value).__name__}") for value in (b"", {1}, object())),
    *((value, "an object with a name that is no text") for value in ({1: "a"}, {"\ud800": "a"})),
    ({"a": [1, {"b": object()}]}, "a value of type object"),
    (cyclic(), f"nested deeper than {MAX_DEPTH}"),
]


def test_flaw() -> None:
    """The flaw of a value that cannot be sent as JSON is named; nothing is converted."""
    assert [flaw for _, flaw in FLAWS] == [find_flaw(value) for value, _ in FLAWS]


@given(ANYTHING)
def test_what_has_no_flaw_can_be_sent(value: object) -> None:
    """Every value without a flaw survives a round trip."""
    if find_flaw(value) is None:
        assert copy_plain(value) == loads(dumps(copy_plain(value)))


def test_plain_copies_all_the_way_down() -> None:
    """A plain copy shares no mutable part, and holds only plain types."""
    inner = {"b": [1]}
    given = MappingProxyType({"a": inner, "t": ({"c": 1},)})
    copy = copy_plain(given)
    inner["b"].append(2)

    assert {"a": {"b": [1]}, "t": [{"c": 1}]} == copy
    assert dict is type(copy)


def test_named_value() -> None:
    """`ABSENT` is false, `NOT_YET` is true; both show their names, and stay one object when copied or pickled."""
    named: list[tuple[object, str, bool]] = [(ABSENT, "ABSENT", False), (NOT_YET, "NOT_YET", True)]
    for value, name, is_true in named:
        assert (name, is_true) == (repr(value), bool(value))
        assert copy.deepcopy(value) is value
        assert pickle.loads(pickle.dumps(value)) is value  # noqa: S301 - made in the same line
