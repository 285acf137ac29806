"""The rules by which the benchmarks and the guard judge what they measure."""

import pytest

from benchmarks.guard import risen
from benchmarks.rows import Figure


@pytest.mark.parametrize(("counted", "expected"), [(1000, []), (1030, []), (1031, ["call"]), (500, [])])
def test_guard_tolerance(counted: float, expected: list[str]) -> None:
    """The guard names a count that is more than 3 % above the stored one, and no other."""
    assert expected == risen({"call": 1000}, {"call": counted})


def test_guard_new_operation() -> None:
    """The guard names an operation whose count is not stored, so that nobody forgets to store it."""
    assert ["refund"] == risen({"call": 1000}, {"call": 1000, "refund": 5})


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (Figure("ratio", 0.9, most=0.9), True),
        (Figure("ratio", 0.91, most=0.9), False),
        (Figure("rate", 2000, "/s", least=2000), True),
        (Figure("rate", 1999, "/s", least=2000), False),
        (Figure("rate", 1, "/s"), None),
    ],
)
def test_budget(figure: Figure, expected: object) -> None:
    """A figure passes up to and including its budget, and a figure without one is not judged."""
    assert expected is figure.passed
