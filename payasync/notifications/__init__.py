"""Notifications: receive each one once, believe none unverified (docs/reference/service.md#notifications)."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from payasync.clocks import Pace
from payasync.notifications.inbox import Added, Claim, Inbox, InboxEvent, Received
from payasync.notifications.ingest import Answer
from payasync.notifications.notification import Notification, parse
from payasync.notifications.receiver import Receiver
from payasync.notifications.sqlite_inbox import SqliteInbox
from payasync.notifications.verification import verify
from payasync.notifications.worker import Expected
from payasync.settings import from_extra

if TYPE_CHECKING:
    from payasync.notifications.postgres_inbox import PostgresInbox

__all__ = [
    "Added",
    "Answer",
    "Claim",
    "Expected",
    "Inbox",
    "InboxEvent",
    "Notification",
    "Pace",
    "PostgresInbox",
    "Received",
    "Receiver",
    "SqliteInbox",
    "parse",
    "verify",
]

if not TYPE_CHECKING and find_spec("psycopg") is None:  # `import *` would fail
    __all__ = [each for each in __all__ if each != "PostgresInbox"]


def __getattr__(name: str) -> Any:
    if name == "PostgresInbox":
        return from_extra("postgres", "payasync.notifications.postgres_inbox", name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
