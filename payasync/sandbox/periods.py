"""When the periods of a subscription begin: anchored to the day of its start (spec: Subscription).

The words for frequencies are the sandbox's own.
"""

from calendar import monthrange
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from attrs import frozen


@frozen
class Step:
    """How long a period is: so many days, or so many months."""

    days: int = 0
    months: int = 0


STEPS: Final[Mapping[str, Step]] = {
    "daily": Step(days=1),
    "weekly": Step(days=7),
    "monthly": Step(months=1),
    "quarterly": Step(months=3),
    "yearly": Step(months=12),
}


def step(frequency: str) -> Step:
    """Return how long a period of a frequency is.

    Raises:
        KeyError: It is none of `STEPS`.
    """
    return STEPS[frequency.lower()]


def following(begun: date, frequency: str, start: date) -> date | None:
    """Return when the next period begins; `None` where the calendar ends before.

    Months are anchored to the day of the start: what began on 31 January goes on on 28 February and on 31
    March. Where the period began on another day, since the frequency has changed meanwhile, that day counts.

    Args:
        begun: When this period began.
        frequency: How often it is billed.
        start: When the first period began.
    """
    length = step(frequency)
    if length.days:
        return _after(begun, length.days)
    month = _month(begun)
    anchor = start.day if begun == _in_month(month, start.day) else begun.day
    return _in_month(month + length.months, anchor) if month + length.months <= _month(date.max) else None


def current(start: date, frequency: str, today: date) -> date:
    """Return when the period of a day began.

    Args:
        start: When the first period began, on this day or before.
        frequency: How often it is billed.
        today: The day.
    """
    length = step(frequency)
    if length.days:
        return start + timedelta(days=(today - start).days // length.days * length.days)
    first, passed = _month(start), (_month(today) - _month(start)) // length.months
    begun = _in_month(first + passed * length.months, start.day)
    return begun if begun <= today else _in_month(first + (passed - 1) * length.months, start.day)


def midnight(day: date) -> datetime:
    """Return the moment when a day begins, in UTC."""
    return datetime.combine(day, time(), UTC)


def _after(day: date, days: int) -> date | None:
    return day + timedelta(days=days) if (date.max - day).days >= days else None


def _month(day: date) -> int:
    return day.year * 12 + day.month - 1


def _in_month(month: int, day: int) -> date:
    """Return a day of a month, or its last day where it is shorter."""
    year, index = divmod(month, 12)
    return date(year, index + 1, min(day, monthrange(year, index + 1)[1]))
