"""What tests of inboxes are made of."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from payasync.notifications.inbox import Received

START: Final = datetime(2027, 1, 1, tzinfo=UTC)
LEASE: Final = 60.0
"""Seconds."""


class Clock:
    """A clock that stands until it is moved; a call returns seconds since 1970."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        """Return what time it is."""
        return self.now.timestamp()

    def advance(self, seconds: float) -> datetime:
        """Let time pass; return what time it is then."""
        self.now += timedelta(seconds=seconds)
        return self.now


def received(key: str = "payment:1", digest: str = "a", **facts: Any) -> Received:
    """Return a notification as it comes."""
    given: dict[str, Any] = {"raw": b"{}", "received_at": START, **facts}
    return Received(key=key, digest=digest, **given)
