import asyncio
import inspect
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from payasync.errors import StorageError
from payasync.notifications.inbox import InboxEvent
from payasync.notifications.sqlite_inbox import APPLICATION, SCHEMA, SqliteInbox
from tests.journal.building import Clock
from tests.notifications.inbox_building import received


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the inbox is."""
    return tmp_path / "inbox.db"


@pytest.fixture
async def inbox(path: Path, clock: Clock) -> AsyncIterator[SqliteInbox]:
    """An empty inbox."""
    inbox = SqliteInbox(path, clock=clock)
    yield inbox
    await inbox.aclose()


async def test_inbox_that_vanishes_takes_nothing(path: Path, inbox: SqliteInbox) -> None:
    """What was handled would be new to an empty one, and handled again: the service is told to come again instead."""
    await inbox.add(received())
    await asyncio.to_thread(path.unlink)
    for _ in range(2):
        with pytest.raises(StorageError, match="its file has vanished"):
            await inbox.add(received())

    assert not await asyncio.to_thread(path.exists)


def made_by_version_1(path: Path) -> None:
    """Make an inbox as it was once, with an event that was verified and one that was not."""
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(SCHEMA.steps[0])
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute("PRAGMA user_version = 1")
        for verified in (1, 0):
            db.execute(
                "INSERT INTO events (key, digest, weak, verified, raw, headers, received_at, state, since) "
                "VALUES (?, 'a', 0, ?, x'7b7d', '{}', 0, 'done', 0)",
                (f"verified {verified}", verified),
            )
    path.chmod(0o600)


async def test_inbox_of_an_older_version_forgets_no_key(path: Path) -> None:
    """It noted of no event whether a signed time bounds how late it can come again: each key stays."""
    made_by_version_1(path)
    inbox = SqliteInbox(path)
    try:
        forgotten = await inbox.forget(datetime.now(UTC))
    finally:
        await inbox.aclose()

    assert (1, [("verified 1", b"")]) == (forgotten, [(each.key, each.raw) for each in await reopened(path)])


async def reopened(path: Path) -> list[InboxEvent]:
    """Return what an inbox holds, as who opens it anew finds it."""
    inbox = SqliteInbox(path)
    try:
        return await inbox.events()
    finally:
        await inbox.aclose()


def test_inbox_says_where_it_is(path: Path) -> None:
    """Who has several tells them apart."""
    assert f"SqliteInbox('{path}')" == repr(SqliteInbox(path))


def test_clock_is_that_of_the_machine() -> None:
    """Unless another is given, what is due goes by the time of day, which all processes share."""
    assert time.time is inspect.signature(SqliteInbox).parameters["clock"].default
