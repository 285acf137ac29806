"""When periods begin: anchored to the day of the start."""

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync.sandbox import rules
from payasync.sandbox.model import Subscription
from payasync.sandbox.rules import STEPS, current_period, midnight, next_period, period_step


def walked(start: date, frequency: str, count: int) -> list[date]:
    """Return when the next periods begin."""
    begun = list[date]()
    day: date | None = start
    while day and len(begun) < count:
        day = next_period(day, frequency, start)
        begun += [day] if day else []
    return begun


def test_month_ends() -> None:
    """What begins on 31 January goes on on the last of each month, and not on the 28th of March."""
    expected = ["2027-02-28", "2027-03-31", "2027-04-30", "2027-05-31", "2027-06-30", "2027-07-31", "2027-08-31"]

    assert expected == [day.isoformat() for day in walked(date(2027, 1, 31), "monthly", 7)]


@pytest.mark.parametrize(
    ("start", "frequency", "expected"),
    [
        (date(2028, 1, 31), "monthly", ["2028-02-29", "2028-03-31"]),
        (date(2028, 2, 29), "yearly", ["2029-02-28", "2030-02-28", "2031-02-28", "2032-02-29"]),
        (date(2027, 11, 30), "quarterly", ["2028-02-29", "2028-05-30"]),
        (date(2027, 12, 15), "monthly", ["2028-01-15", "2028-02-15"]),
        (date(2027, 2, 26), "weekly", ["2027-03-05", "2027-03-12"]),
        (date(2028, 2, 28), "daily", ["2028-02-29", "2028-03-01"]),
        (date(2027, 1, 31), "MONTHLY", ["2027-02-28"]),
    ],
)
def test_frequencies(start: date, frequency: str, expected: list[str]) -> None:
    """Leap years and short months are counted as the calendar has them."""
    assert expected == [day.isoformat() for day in walked(start, frequency, len(expected))]


def test_frequency_that_has_changed() -> None:
    """Where a period began on another day than the start's, that day is the anchor from then on."""
    start, begun = date(2027, 1, 31), date(2027, 2, 7)
    days = [begun]
    for _ in range(2):
        days.append(next_period(days[-1], "monthly", start) or begun)

    assert [date(2027, 2, 7), date(2027, 3, 7), date(2027, 4, 7)] == days


@pytest.mark.parametrize("frequency", STEPS)
def test_calendar_ends(frequency: str) -> None:
    """After the last year there is no period."""
    assert next_period(date(9999, 12, 31), frequency, date(9999, 12, 31)) is None


@given(
    start=st.dates(date(1, 1, 1), date(2100, 12, 31)),
    days=st.integers(0, 5000),
    frequency=st.sampled_from(list(STEPS)),
)
def test_current_period_is_one_that_was_walked_to(start: date, days: int, frequency: str) -> None:
    """The period of a day began on the last day, of those that follow from the start, that is not after it."""
    today = start + timedelta(days=days)
    begun = current_period(start, frequency, today)
    following = next_period(begun, frequency, start)

    assert start <= begun <= today
    assert following is None or today < following
    if days < 400:
        assert begun in {start, *walked(start, frequency, days + 1)}


@given(start=st.dates(date(1, 1, 1), date(9000, 1, 1)), frequency=st.sampled_from(["monthly", "quarterly", "yearly"]))
def test_no_month_is_left_out(start: date, frequency: str) -> None:
    """Periods of months lie so many months apart, on the start's day or the month's last."""
    days = [start, *walked(start, frequency, 30)]
    months = [day.year * 12 + day.month for day in days]

    assert {period_step(frequency).months} == {after - before for before, after in pairwise(months)}
    assert [min(start.day, monthrange(day.year, day.month)[1]) for day in days] == [day.day for day in days]


def test_what_is_cancelled_is_not_renewed() -> None:
    """A timer that is late changes nothing."""
    cancelled = Subscription(
        subscription_id="S1",
        frequency="daily",
        amount=9,
        start_date=date(2027, 1, 31),
        customer="{}",
        state="cancelled",
    )

    assert cancelled is rules.renew(cancelled)


def test_midnight() -> None:
    """A day begins at midnight in UTC."""
    assert datetime(2027, 1, 31, tzinfo=UTC) == midnight(date(2027, 1, 31))
