import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final, Generic, Literal, TypeVar

import pytest
from attrs import field, frozen

from payasync.errors import InvalidArgumentError
from payasync.wire.response import STRICT, complaints, fitted

T = TypeVar("T")


class Colour(enum.Enum):
    """A word with a name."""

    RED = "red"


@frozen
class Inner:
    """A nested class."""

    paid: bool


@frozen
class Outer:
    """A class that holds others."""

    inner: Inner
    many: list[Inner] = field(factory=list)


@dataclass(frozen=True)
class Plain:
    """A class by the standard library."""

    paid: bool


@frozen
class Box(Generic[T]):
    """A class of whatever it holds."""

    inside: T


TAKEN: Final[list[tuple[Any, Any, Any]]] = [
    (str, "1", "1"),
    (int, 1, 1),
    (float, 1, 1),
    (date, "2027-01-31", date(2027, 1, 31)),
    (datetime, "2027-01-31T10:00:00+00:00", datetime(2027, 1, 31, 10, tzinfo=UTC)),
    (str | int, 1, 1),
    (str | float | None, 1.5, 1.5),
    (Literal["a", "b"], "b", "b"),
    (Colour, "red", Colour.RED),
    (list[int], [1, 2], [1, 2]),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[int, str], [1, "a"], (1, "a")),
    (Sequence[str], ["a"], ("a",)),
    (set[str], ["a", "a"], {"a"}),
    (Mapping[str, list[int]], {"a": [1]}, {"a": [1]}),
    (Outer, {"inner": {"paid": True}, "more": 1}, Outer(Inner(paid=True))),
    (Plain, {"paid": True}, Plain(paid=True)),
    (Box[int], {"inside": 1}, Box(1)),
]
REFUSED: Final[list[tuple[Any, Any]]] = [
    (str, 1),
    (int, "1"),
    (int, 1.0),
    (int, True),
    (bool, "false"),
    (bool, 1),
    (float, "1.5"),
    (bytes, "text"),
    (date, 20270131),
    (date, "31.01.2027"),
    (str | int, True),
    (str | None, 1),
    (Literal["a"], "b"),
    (Colour, "green"),
    (list[str], "abc"),
    (list[int], [1, "2"]),
    (tuple[str, ...], "abc"),
    (tuple[int, str], [1]),
    (set[str], "abc"),
    (dict[str, int], {"a": "1"}),
    (Outer, {"inner": {"paid": "true"}}),
    (Plain, ["paid"]),
    (Box[int], {"inside": "1"}),
    (Outer, "text"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), TAKEN)
def test_a_value_of_the_type_is_taken(kind: Any, value: object, expected: object) -> None:
    """What already is of the type that a class asks for becomes a part of it."""
    made = STRICT.structure(value, kind)

    assert expected == made
    assert type(expected) is type(made)


@pytest.mark.parametrize(("kind", "value"), REFUSED)
def test_nothing_is_converted(kind: Any, value: object) -> None:
    """No text becomes a number or a list of its letters, no number a truth value, no missing field a default."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever cattrs raises
        STRICT.structure(value, kind)

    assert complaints(caught.value, "data")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"inner": {"paid": "false"}}, "expected bool, got str @ data.inner.paid"),
        ({"inner": {"paid": 1}}, "expected bool, got int @ data.inner.paid"),
        ({"inner": {}}, "is missing @ data.inner.paid"),
        ({"inner": []}, "expected an object, got list @ data.inner"),
        ({"inner": None}, "expected an object, got NoneType @ data.inner"),
        ({"inner": {"paid": True}, "many": ["x"]}, "expected an object, got str @ data.many[0]"),
        ({"inner": {"paid": True}, "many": "x"}, "expected a list, got str @ data.many"),
        ({"inner": {"paid": True}, "many": [{"paid": 0}]}, "expected bool, got int @ data.many[0].paid"),
        (
            {"inner": {"paid": 0}, "many": 0},
            "expected bool, got int @ data.inner.paid; expected a list, got int @ data.many",
        ),
    ],
)
def test_complaints_name_the_place(value: object, expected: str) -> None:
    """Every place that does not fit is named, with what was expected there."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - a group of them
        STRICT.structure(value, Outer)

    assert expected == complaints(caught.value, "data")


def test_complaint_without_words_names_its_class() -> None:
    """An error that says nothing is still told apart."""
    assert "LookupError @ data" == complaints(LookupError(), "data")


def test_fitted_data() -> None:
    """Data that fits is of its class; what does not is our error, which says whose it is, and where."""
    assert Inner(paid=True) == fitted({"paid": True}, Inner, "the answer")
    with pytest.raises(InvalidArgumentError, match=r"the notification does not fit Inner: .* @ data\.paid") as refused:
        fitted({"paid": 1}, Inner, "the notification")

    assert ("Inner", "fits the notification's data") == (refused.value.field, refused.value.rule)
