"""A session's retry budget: it keeps the load on a dead service near what it was."""

from typing import Final

RETRY_COST: Final = 5
TIMEOUT_COST: Final = 10


class Quota:
    """A bucket of tokens, shared by all calls of a session.

    Args:
        capacity: The tokens that it starts with, and never exceeds; 0 allows no retry.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.tokens = capacity

    def take(self, cost: int) -> bool:
        """Take the tokens of one retry; `False` where there are not enough."""
        if cost > self.tokens:
            return False
        self.tokens -= cost
        return True

    def pay_back(self, taken: int) -> None:
        """Give back what a call took that succeeded; one token where it took none."""
        self.tokens = min(self._capacity, self.tokens + max(1, taken))
