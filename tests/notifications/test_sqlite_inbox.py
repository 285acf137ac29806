import asyncio
import inspect
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from payasync.errors import StorageError
from payasync.notifications.sqlite_inbox import SqliteInbox
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


def test_inbox_says_where_it_is(path: Path) -> None:
    """Who has several tells them apart."""
    assert f"SqliteInbox('{path}')" == repr(SqliteInbox(path))


def test_clock_is_that_of_the_machine() -> None:
    """Unless another is given, what is due goes by the time of day, which all processes share."""
    assert time.time is inspect.signature(SqliteInbox).parameters["clock"].default
