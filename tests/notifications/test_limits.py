"""How a receiver behaves: what its settings may be."""

from datetime import timedelta
from typing import Any

import pytest
from attrs import asdict, evolve

from payasync import ConfigurationError
from payasync.notifications.limits import DispatchLimits, ReceptionLimits

TAKEN: dict[str, Any] = {"max_bytes": 1 << 20, "max_waiting": 1000}
DISPATCHED: dict[str, Any] = {
    "attempts": 100,
    "concurrency": 10,
    "handler_timeout": 300.0,
    "lease": 60.0,
    "retention": timedelta(days=30),
}


def limits(**changed: Any) -> ReceptionLimits | DispatchLimits:
    """Return usual limits, but for one."""
    if changed.keys() <= TAKEN.keys():
        return ReceptionLimits(**{**TAKEN, **changed})
    return DispatchLimits(**{**DISPATCHED, **changed})


@pytest.mark.parametrize("name", ["attempts", "concurrency", "max_bytes", "max_waiting"])
@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None, 1 << 64])
def test_counts_are_integers(name: str, value: Any) -> None:
    """A number of things is an integer above 0; the error names it."""
    with pytest.raises(ConfigurationError, match=f"{name} must be an integer") as caught:
        limits(**{name: value})

    assert name == caught.value.field


@pytest.mark.parametrize("name", ["lease", "handler_timeout"])
@pytest.mark.parametrize("value", [0, -1, True, "1", None, float("nan"), float("inf"), timedelta(seconds=1)])
def test_times_are_numbers_of_seconds(name: str, value: Any) -> None:
    """A lease that never ends would lose an event, as would a handler; one of no length would give it to two."""
    with pytest.raises(ConfigurationError, match=f"{name} must be"):
        limits(**{name: value})


@pytest.mark.parametrize("value", [timedelta(0), timedelta(days=-1), timedelta.max, 30, None])
def test_retention_is_a_time(value: Any) -> None:
    """How long is said with a unit."""
    with pytest.raises(ConfigurationError, match="retention must be"):
        limits(retention=value)


def test_usual_limits_are_taken() -> None:
    """What the receiver has by default is allowed, and so is an integer for a number of seconds."""
    assert TAKEN == asdict(ReceptionLimits(**TAKEN))
    assert DISPATCHED == asdict(DispatchLimits(**DISPATCHED))
    assert 1 == evolve(DispatchLimits(**DISPATCHED), lease=1).lease
