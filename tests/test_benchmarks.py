"""The rules by which the benchmarks and the guard judge what they measure."""

from benchmarks.guard import risen
from benchmarks.rows import Figure


def test_guard_tolerance() -> None:
    """The guard names a count that is more than 3 % above the stored one, and one that is not stored, and no other."""
    expected: dict[float, list[str]] = {1000: [], 1030: [], 1031: ["call"], 500: []}

    assert expected == {counted: risen({"call": 1000}, {"call": counted}) for counted in expected}
    assert ["refund"] == risen({"call": 1000}, {"call": 1000, "refund": 5})


def test_budget() -> None:
    """A figure passes up to and including its budget, and a figure without one is not judged."""
    ratios = [Figure("ratio", value, most=0.9).passed for value in (0.9, 0.91)]
    rates = [Figure("rate", value, "/s", least=2000).passed for value in (2000, 1999)]

    assert [True, False, True, False, None] == [*ratios, *rates, Figure("rate", 1, "/s").passed]
