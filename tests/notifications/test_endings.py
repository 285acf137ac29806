"""What becomes of an event: how often it is tried, and how long it waits."""

import pytest

from payasync.notifications.endings import (
    DONE,
    LONGEST_REASON,
    Ending,
    again,
    bounded,
    dead,
    in_short,
    longest_wait,
    parked,
    quarantined,
    told,
    worn_out,
)


@pytest.mark.parametrize(("attempt", "state"), [(1, "pending"), (7, "pending"), (8, "dead"), (9, "dead")])
def test_last_attempt_is_followed_by_none(attempt: int, state: str) -> None:
    """What fails is tried again, up to so many times; the reason stays."""
    assert Ending(state, "why") == bounded(again("why"), attempt, 8)  # type: ignore[arg-type]


@pytest.mark.parametrize("ending", [DONE, dead("why"), parked("why"), quarantined("why")])
def test_ends_stay_ends(ending: Ending) -> None:
    """Only what would be tried again is bounded."""
    assert ending == bounded(ending, 8, 8)


def test_waits_grow_up_to_an_hour() -> None:
    """Each wait can be four times as long as the one before, however many there were."""
    assert [1, 4, 16, 64, 256, 1024, 3600, 3600] == [longest_wait(attempt) for attempt in range(1, 9)]
    assert 3600 == longest_wait(1000)


@pytest.mark.parametrize(("attempt", "over"), [(1, False), (9, False), (32, False), (33, True)])
def test_what_is_cut_off_each_time_is_given_up(attempt: int, over: bool) -> None:  # noqa: FBT001 - what is expected
    """An attempt that a crash cut off is no failure; what ends the process four times as often is dead."""
    assert over == (worn_out(attempt, 8) is not None)


def test_reason_is_one_line() -> None:
    """An error is told by its class and its text, whatever that holds."""
    assert "ValueError: a b c" == told(ValueError("a\nb\r\n\tc"))
    assert "ValueError" == told(ValueError())


def test_reason_is_short() -> None:
    """A reason is cut where nobody reads on."""
    long = told(ValueError("x" * 10_000))

    assert LONGEST_REASON == len(long)
    assert long.endswith("x…")
    assert "x" * LONGEST_REASON == in_short("x" * LONGEST_REASON)


def test_error_that_cannot_be_told_has_its_class() -> None:
    """An error whose text raises is an error all the same."""

    class Unspeakable(Exception):  # noqa: N818 - it is one
        def __str__(self) -> str:
            raise ValueError("no text")

    assert "Unspeakable" == told(Unspeakable())
