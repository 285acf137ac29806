"""How a receiver behaves: what its settings may be."""

from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from payasync import ConfigurationError
from payasync.notifications.limits import Limits

USUAL: dict[str, Any] = {
    "attempts": 8,
    "concurrency": 10,
    "lease": 60.0,
    "max_bytes": 1 << 20,
    "max_waiting": 1000,
    "retention": timedelta(days=30),
}


@pytest.mark.parametrize("name", ["attempts", "concurrency", "max_bytes", "max_waiting"])
@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None, 1 << 64])
def test_counts_are_integers(name: str, value: Any) -> None:
    """A number of things is an integer above 0; the error names it."""
    with pytest.raises(ConfigurationError, match=f"{name} must be an integer") as caught:
        Limits(**{**USUAL, name: value})

    assert name == caught.value.field


@pytest.mark.parametrize("value", [0, -1, True, "1", None, float("nan"), float("inf"), timedelta(seconds=1)])
def test_lease_is_a_number_of_seconds(value: Any) -> None:
    """A lease that never ends would lose an event; one of no length would give it to two."""
    with pytest.raises(ConfigurationError, match="lease must be"):
        Limits(**{**USUAL, "lease": value})


@pytest.mark.parametrize("value", [timedelta(0), timedelta(days=-1), timedelta.max, 30, None])
def test_retention_is_a_time(value: Any) -> None:
    """How long is said with a unit."""
    with pytest.raises(ConfigurationError, match="retention must be"):
        Limits(**{**USUAL, "retention": value})


def test_usual_limits_are_taken() -> None:
    """What the receiver has by default is allowed, and so is an integer for a number of seconds."""
    assert USUAL == {name: getattr(Limits(**USUAL), name) for name in USUAL}
    assert 1 == evolve(Limits(**USUAL), lease=1).lease
