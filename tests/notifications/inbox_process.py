"""Handles what is in an inbox in a process of its own; run as a program, with the journal and the path."""

import asyncio
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from payasync.notifications import Notification, Receiver
from payasync.notifications.inbox import Inbox
from payasync.notifications.postgres_inbox import PostgresInbox
from payasync.notifications.sqlite_inbox import SqliteInbox
from payasync.storage import sqlite
from tests.notifications.merchant import CREDENTIALS, SIGNED


def tell(word: object) -> None:
    """Write a line, at once and undivided."""
    os.write(1, f"{word}\n".encode())


def begin(event: int | None) -> None:
    """Make the file that marks an event as being handled, or print that it exists already."""
    try:
        Path(str(event)).touch(exist_ok=False)
    except FileExistsError:
        tell(f"{event} is handled twice at once")


def end(event: int | None) -> None:
    """Remove the event's file, and print the event."""
    Path(str(event)).unlink()
    tell(event)


def mark(word: str) -> None:
    """Make a file that says so of this process."""
    Path(f"{word}-{os.getpid()}").touch()


def marked(word: str) -> int:
    """Return of how many processes it is said."""
    return len(list(Path().glob(f"{word}-*")))


async def all_have_one() -> None:
    """Return once every process that was ready handles something: a fast one leaves the slow ones their share."""
    mark("busy")
    while marked("busy") < marked("ready"):  # noqa: ASYNC110 - no event of another process can be awaited
        await asyncio.sleep(0.005)


async def dispatch(inbox: Inbox) -> None:
    """Handle notifications, and tell of each; while one is handled, a file in this folder stands for it."""
    receiver = Receiver(profile=SIGNED, credentials=CREDENTIALS, inbox=inbox, concurrency=4)

    @receiver.on("*")
    async def handle(notification: Notification) -> None:
        begin(notification.id)
        await all_have_one()
        await asyncio.sleep(0.005)
        end(notification.id)

    await inbox.next_due()
    mark("ready")
    tell("ready")
    sys.stdin.readline()
    async with receiver:
        while await receiver.events("leased", limit=1) or await receiver.events("pending", limit=1):
            await receiver.settle()
    await inbox.aclose()


if __name__ == "__main__":
    if sys.argv[1] == "log":
        sqlite.WAL_SINCE = (3, 0, 0)  # type: ignore[misc] # as if SQLite were new enough
    asyncio.run(dispatch(PostgresInbox(sys.argv[2]) if sys.argv[1] == "postgres" else SqliteInbox(sys.argv[2])))
