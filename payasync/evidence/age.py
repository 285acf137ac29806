"""How old the response to a query may be, because a cache on the way had it."""

import re
from collections import deque
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import inf
from typing import Final, TypeAlias

from multidict import MultiMapping

POSTS: Final = 20
QUICK: Final = 1.0
"""Seconds within which the response to a POST shows the difference of the clocks."""
_TOLERANCE: Final = 2.0
"""Seconds. A date has no fractions, and clocks drift."""
_SECONDS: Final = re.compile(r"(?<![^\s,])[0-9]{1,12}(?![^\s,])")


Posted: TypeAlias = deque[tuple[float, MultiMapping[str], float]]
"""The last responses to a POST, which no cache can have had: when each came, its headers, and how long it took.

They show by how much the clocks of the service and of this machine differ.
"""


def age_of(received: float, headers: MultiMapping[str], posted: Posted) -> float:
    """Return how many seconds before its query a response may have been made; 0 if nothing says so.

    Args:
        received: When it came, by a clock of ours that counts while the machine is suspended, too.
        headers: Of the response. A cache adds `Age`, or leaves the `Date` of the service.
        posted: Responses to compare its `Date` with.
    """
    stated = max(map(int, _SECONDS.findall(",".join(headers.getall("Age", ())))), default=0)
    lags = [(took <= QUICK, _lag(at, its)) for at, its, took in posted]
    # A slow one shows a larger difference, so that it is better than none.
    usual = max((lag for quick, lag in lags if quick or not any(each for each, _ in lags)), default=-inf)
    by_date = _lag(received, headers) - usual - _TOLERANCE if usual > -inf else 0.0
    return max(float(stated), by_date, 0.0)


def _lag(received: float, headers: MultiMapping[str]) -> float:
    """Return how far our clock is ahead of the date of a response; `-inf` without a date."""
    try:
        date = parsedate_to_datetime(headers.get("Date", ""))
        return received - (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return -inf
