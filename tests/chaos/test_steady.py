from typing import Any

import pytest
from attrs import asdict

from tests.chaos.steady import BOUNDS, Sample, Soaked, growth

pytestmark = pytest.mark.long

FLAT = Sample(
    operations=0, resident=10**8, blocks=10**6, objects=50_000, ours=200, sockets=20, files=6, tasks=4, threads=3
)


def samples(gauge: str = "blocks", added: dict[int, int] | None = None, *, per_operation: float = 0) -> list[Sample]:
    """Return the samples of a run of two thousand operations.

    Args:
        gauge: What is not flat.
        added: To it, by sample.
        per_operation: So much it grows with each operation.
    """
    flat = asdict(FLAT)
    grown = [flat[gauge] + per_operation * number * 100 + (added or {}).get(number, 0) for number in range(20)]
    return [Sample(**flat | {"operations": 100 * number, gauge: held}) for number, held in enumerate(grown)]


def soaked(**facts: Any) -> Soaked:
    """Return what a run came to in which nothing grew."""
    given: dict[str, Any] = {"samples": samples(), "done": {"refund": 1}, "faults": {"hang": 1}}
    return Soaked(**(given | facts))


@pytest.mark.parametrize("per_operation", [0, 1, 2.5, -3])
def test_growth(per_operation: float) -> None:
    """What grows with each operation has grown by that of the second half."""
    assert 900 * per_operation == growth(samples(per_operation=per_operation), "blocks")


@pytest.mark.parametrize("number", range(20))
def test_one_sample_is_off(number: int) -> None:
    """One sample that is off, wherever it is, is no growth."""
    assert 0 == growth(samples(added={number: 10**9}), "blocks")


def test_first_half_warms_up() -> None:
    """What is there once, and stays, is no growth."""
    assert 0 == growth(samples(added=dict.fromkeys(range(10), -(10**9))), "blocks")


@pytest.mark.parametrize("gauge", BOUNDS)
def test_each_gauge_tells(gauge: str) -> None:
    """Whatever grows by more than it may is told, and what grows by no more is not."""
    most = BOUNDS[gauge] / 900
    still, grown = (soaked(samples=samples(gauge, per_operation=most * share)) for share in (0.99, 1.02))

    assert [] == still.flaws()
    assert [f"{gauge} grew by {BOUNDS[gauge] * 1.02:,.0f} over the second half, by more than {BOUNDS[gauge]:,}"] == (
        grown.flaws()
    )


@pytest.mark.parametrize("facts", [{"done": {"refund": 0}}, {"faults": {"refund": 0}}])
def test_what_never_happened_proves_nothing(facts: dict[str, Any]) -> None:
    """A run in which an errand or a fault never happened is no proof."""
    assert ["refund never happened, so that this proves little"] == soaked(**facts).flaws()
