"""Formats of dates, and the dates that texts in them mean. Each Python that payasync supports gets the same result."""

import re
from datetime import UTC, date, datetime
from typing import Final

from payasync.strict_json import encodable

_UNLIKE: Final = date(1999, 12, 31), date(2026, 1, 5)
"""Two days that differ in each part of a date."""
_READ_BY_ALL: Final = re.compile(r"(?:[^%]|%[aAbBcdfGHIjmMpSuUVwWxXyYzZ%])*", re.DOTALL)
"""Matches a format whose directives all Pythons read. Some read more, such as `%-d`."""
_YEAR: Final = re.compile("%[cGxyY]")


def tells_dates_apart(form: str) -> bool:
    """Return whether a format, as for `strftime`, writes unlike dates differently. An empty one leaves the point open.

    A zero ends the text on some Pythons, and a lone surrogate is an error on some: both are refused.
    """
    if "\0" in form or not encodable(form):
        return False
    one, other = (day.strftime(form) for day in _UNLIKE)
    return not form or one != other


def read_date(text: str, form: str) -> datetime | None:
    """Return the time that a text means; `None` if the format would not write the text so, or cannot be read.

    A date without a year is of the year 2000, which has each day.
    """
    if not _READ_BY_ALL.fullmatch(form):
        return None
    if not _YEAR.search(form.replace("%%", "")):
        # Python 3.13 and later warn of a day without a year, and 2000 was a leap year.
        text, form = f"2000 {text}", f"%Y {form}"
    try:
        found = datetime.strptime(text, form)  # noqa: DTZ007 - the format says whether it has a zone
    except (ValueError, re.error):  # `re.error`: a directive stands twice
        return None
    # `strptime` drops the name of a zone: only that of UTC means the same on each machine.
    return found if text in {found.strftime(form), found.replace(tzinfo=UTC).strftime(form)} else None
