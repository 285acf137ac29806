"""Building blocks of the inboxes' tests."""

from typing import Any

from payasync.notifications.inbox import Received
from tests.journal.building import START


def received(key: str = "payment:1", digest: str = "a", **facts: Any) -> Received:
    """Return a notification as the inbox gets it."""
    given: dict[str, Any] = {"raw": b"{}", "received_at": START, **facts}
    return Received(key=key, digest=digest, **given)
