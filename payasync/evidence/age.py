"""How old the response to a query may be, because a cache on the way had it."""

import re
from collections import deque
from email.utils import parsedate_to_datetime
from math import inf
from typing import Final

from multidict import MultiMapping

POSTS: Final = 20
QUICK: Final = 1.0
"""Seconds within which the response to a POST shows the difference of the clocks."""
_TOLERANCE: Final = 2.0
"""Seconds. A date has no fractions, and clocks drift."""
_SECONDS: Final = re.compile(r"(?<![^\s,])[0-9]{1,12}(?![^\s,])")


class Dates:
    """The dates of the last responses that no cache can have had, because they are to a POST.

    They show by how much the clocks of the service and of this machine differ. Nothing is parsed before it is needed.
    """

    def __init__(self) -> None:
        # When each came, by our own clock, which counts while the machine is suspended, too; and its headers.
        self._receipts: deque[tuple[float, MultiMapping[str]]] = deque(maxlen=POSTS)

    def note(self, received: float, headers: MultiMapping[str]) -> None:
        """Remember the response to a POST that came quickly."""
        self._receipts.append((received, headers))

    def age(self, received: float, headers: MultiMapping[str]) -> float:
        """Return how many seconds before the query its response may have been made; 0 if nothing says so.

        Args:
            received: When the response came, by the clock of `note`.
            headers: Of the response. A cache adds `Age`, or leaves the `Date` of the service.
        """
        told = max(map(int, _SECONDS.findall(",".join(headers.getall("Age", ())))), default=0)
        usual = max((_lag(*each) for each in self._receipts), default=-inf)
        lag = _lag(received, headers)
        return max(float(told), lag - usual - _TOLERANCE if inf > usual > -inf else 0.0, 0.0)


def _lag(received: float, headers: MultiMapping[str]) -> float:
    """Return how far our clock is ahead of the date of a response; `-inf` without a date."""
    try:
        return received - parsedate_to_datetime(headers.get("Date", "")).timestamp()
    except (ValueError, OverflowError):
        return -inf
