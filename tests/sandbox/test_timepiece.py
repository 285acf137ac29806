"""The time as it goes on inside."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from payasync.sandbox.clock import LATEST, Pace, Timepiece

NOON: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)


class Ticks:
    """Real seconds, as a test wants them."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        """Return them."""
        return self.seconds


@pytest.mark.parametrize(("rate", "minutes"), [(0.0, 0), (1.0, 1), (60.0, 60)])
def test_pace(rate: float, minutes: int) -> None:
    """A real minute is no minute, one, or as many as the factor says."""
    ticks = Ticks()
    timepiece = Timepiece(Pace(rate), NOON, ticks=ticks)
    ticks.seconds += 60

    assert NOON + minutes * MINUTE == timepiece.now()


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_moves_forward_only(rate: float) -> None:
    """A later moment is gone on from; an earlier one changes nothing."""
    timepiece = Timepiece(Pace(rate), NOON, ticks=Ticks())
    timepiece.move_to(NOON + MINUTE)
    timepiece.move_to(NOON)

    assert NOON + MINUTE == timepiece.now()


def test_goes_on_from_where_it_was_moved() -> None:
    """What has passed before the move is not counted twice."""
    ticks = Ticks()
    timepiece = Timepiece(Pace(), NOON, ticks=ticks)
    ticks.seconds += 60
    timepiece.move_to(NOON + 5 * MINUTE)
    ticks.seconds += 60

    assert NOON + 6 * MINUTE == timepiece.now()


@pytest.mark.parametrize(("rate", "expected"), [(0.0, None), (1.0, 60.0), (60.0, 1.0)])
def test_seconds_until(rate: float, expected: float | None) -> None:
    """How long somebody has to wait is told in real seconds; for a time that stands, that is for ever."""
    timepiece = Timepiece(Pace(rate), NOON, ticks=Ticks())

    assert (expected, 0.0) == (timepiece.seconds_until(NOON + MINUTE), timepiece.seconds_until(NOON - MINUTE))


def test_held_moment() -> None:
    """While something is done that fell due earlier, the time is that moment; the reading goes on."""
    timepiece = Timepiece(Pace(0.0), NOON, ticks=Ticks())
    with timepiece.held(NOON - MINUTE):
        inside = timepiece.now(), timepiece.reading()

    assert ((NOON - MINUTE, NOON), NOON) == (inside, timepiece.now())


def test_time_ends() -> None:
    """The calendar ends, and the time with it."""
    ticks = Ticks()
    timepiece = Timepiece(Pace(100_000.0), LATEST - MINUTE, ticks=ticks)
    ticks.seconds += 1e9

    assert LATEST == timepiece.now()
