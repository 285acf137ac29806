"""What becomes of an event: how often it is tried, and how long it waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync.notifications.transitions import (
    ATTEMPTS,
    LONGEST_REASON,
    LONGEST_WAIT,
    MOST_INTERRUPTIONS,
    Transition,
    describe_error,
    draw_upper_half,
    limit_interruptions,
    longest_wait,
    shorten,
)


def test_waits_grow_up_to_an_hour() -> None:
    """Each wait can be four times as long as the one before, however many there were."""
    assert [1, 4, 16, 64, 256, 1024, 3600, 3600] == [longest_wait(failures) for failures in range(1, 9)]
    assert 3600 == longest_wait(1000)


@given(st.floats(0.1, LONGEST_WAIT))
def test_wait_is_at_least_half_as_long_as_it_can_be(bound: float) -> None:
    """Those who failed together do not come again together, and none of them runs out of attempts by chance."""
    assert bound / 2 <= draw_upper_half(bound) <= bound


def test_attempts_last_for_days() -> None:
    """An outage of a day, of the shop or of the service, costs no event; the usual time is three days."""
    bounds = [longest_wait(failures) for failures in range(1, ATTEMPTS)]
    day = 86400

    assert sum(bounds) / 2 > 1.9 * day
    assert 2.9 * day < sum(bounds) * 3 / 4 < 3 * day


@pytest.mark.parametrize(
    ("attempts", "failures"), [(1, 0), (MOST_INTERRUPTIONS, 0), (MOST_INTERRUPTIONS + 1, 1), (100, 99)]
)
def test_what_failed_was_not_cut_off(attempts: int, failures: int) -> None:
    """What came to an end counts as a failure, and not as an attempt that ended the process."""
    assert limit_interruptions(attempts, failures) is None


@pytest.mark.parametrize(("attempts", "failures"), [(MOST_INTERRUPTIONS + 1, 0), (MOST_INTERRUPTIONS + 100, 99)])
def test_what_is_cut_off_again_and_again_is_given_up(attempts: int, failures: int) -> None:
    """A crash or a shutdown is no failure; but an event at which the process ends each time is dead."""
    assert Transition(
        "dead", f"cut off {MOST_INTERRUPTIONS} times: its handler may end the process"
    ) == limit_interruptions(attempts, failures)


def test_reason_is_one_line() -> None:
    """An error is told by its class and its text, whatever that holds."""
    assert "ValueError: a b c" == describe_error(ValueError("a\nb\r\n\tc"))
    assert "ValueError" == describe_error(ValueError())


def test_reason_is_short() -> None:
    """A reason is cut where nobody reads on."""
    long = describe_error(ValueError("x" * 10_000))

    assert LONGEST_REASON == len(long)
    assert long.endswith("x…")
    assert "x" * LONGEST_REASON == shorten("x" * LONGEST_REASON)


def test_error_that_cannot_be_told_has_its_class() -> None:
    """An error whose text raises is an error all the same."""

    class Unspeakable(Exception):  # noqa: N818 - it is one
        def __str__(self) -> str:
            raise ValueError("no text")

    assert "Unspeakable" == describe_error(Unspeakable())
