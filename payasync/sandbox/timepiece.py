"""The sandbox's time itself, as it goes on inside."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta

from payasync.sandbox.pace import LATEST, Pace


class Timepiece:
    """Shows the time; it never goes backwards.

    Args:
        pace: How fast it goes.
        at: What it shows first.
        ticks: Real seconds; they only grow.
    """

    def __init__(self, pace: Pace, at: datetime, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._rate = pace.rate
        self._ticks = ticks
        self._at = at
        self._since = ticks()
        self._held: datetime | None = None

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return self._held or self.reading()

    def reading(self) -> datetime:
        """Return the time, whatever moment is held."""
        passed = (self._ticks() - self._since) * self._rate
        return self._at + timedelta(seconds=min(passed, (LATEST - self._at).total_seconds()))

    def move_to(self, moment: datetime) -> None:
        """Go on from a later moment; an earlier one changes nothing."""
        self._at, self._since = max(moment, self.reading()), self._ticks()

    def seconds_until(self, moment: datetime) -> float | None:
        """Return the real seconds until a moment; 0 where it has come, and `None` where time stands before it."""
        left = (moment - self.now()).total_seconds()
        if left <= 0:
            return 0.0
        return left / self._rate if self._rate else None

    @contextmanager
    def held(self, moment: datetime) -> Generator[None]:
        """Show one moment for as long as something is done, without a pause, that fell due then."""
        self._held = moment
        try:
            yield
        finally:
            self._held = None
