from typing import Any

import pytest

from payasync.credentials import Secret
from payasync.settings import MOST_SHOWN, describe_value


class Odd:
    """Cannot be written."""

    def __repr__(self) -> str:
        raise LookupError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("SUCCESS", "'SUCCESS'"),
        (None, "None"),
        (("a", 1), "['a', 1]"),
        (Secret("sk_live"), "Secret('***')"),
        (Odd(), "an Odd"),
        ([Odd()], "a list"),
        (10**5_000, "an integer"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_value_is_shown_as_it_is_written(value: object, expected: str) -> None:
    """What was given stands in the error; what cannot be written is told by its type; a tuple was a list."""
    assert expected == describe_value(value)


@pytest.mark.parametrize("size", [MOST_SHOWN - 2, MOST_SHOWN - 1, 1_000_000])
def test_a_shown_value_is_cut(size: int) -> None:
    """A huge value does not make a huge error."""
    text = f"'{'x' * size}'"

    assert (text if size == MOST_SHOWN - 2 else f"{text[: MOST_SHOWN - 3]}...") == describe_value("x" * size)


def test_a_value_nested_without_end_is_shown() -> None:
    """An error about a value never fails on the value."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    assert "a list" == describe_value(deep)
