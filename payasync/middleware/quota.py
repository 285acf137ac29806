"""A session's retry budget: it keeps the load on a dead service near what it was."""

from math import inf
from typing import Final

RETRY_COST: Final = 5
TIMEOUT_COST: Final = 10
KEPT: Final = 10
"""For questions alone one token is kept for so many of the capacity."""


class Quota:
    """A bucket of tokens, shared by all calls of a session.

    Beside it stands a small one that successes fill, for questions about writes that may have been done: while
    the service works at all, failing reads cannot keep a refund from being asked about.

    Args:
        capacity: The tokens that it starts with, and never exceeds; 0 allows no retry.

    Attributes:
        tokens: How many are left.
        held_until: When the service wants further requests after a 429, by the event loop's clock.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._most_kept = capacity // KEPT
        self._kept = 0
        self.tokens = capacity
        self.held_until = -inf

    def take(self, cost: int, *, asking: bool = False) -> bool:
        """Take the tokens of one retry, or of one question; `False` where there are not enough."""
        if cost <= self.tokens:
            self.tokens -= cost
            return True
        if asking and cost <= self._kept:
            self._kept -= cost
            return True
        return False

    def pay_back(self, taken: int) -> None:
        """Give back what a call took that succeeded; one token where it took none, and one for questions."""
        if self.tokens < self._capacity:
            self.tokens = min(self._capacity, self.tokens + max(1, taken))
        if self._kept < self._most_kept:
            self._kept += 1
