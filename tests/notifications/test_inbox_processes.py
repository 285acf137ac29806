"""Inboxes that several processes use."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from payasync.notifications.inbox import Inbox, InboxEvent
from payasync.notifications.postgres_inbox import PostgresInbox
from payasync.notifications.sqlite_inbox import SqliteInbox
from tests.chaos.forked import Forked
from tests.notifications.merchant import received

PROGRAM: Final = Path(__file__).with_name("inbox_process.py")
EVENTS: Final = 60
WORKERS: Final = 4
Place = Path | str
"""Of a file, or of a database."""


@pytest.fixture(params=["journal", pytest.param("log", marks=pytest.mark.long), "postgres"])
def journal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Test with a rollback journal, a write-ahead log, and PostgreSQL."""
    monkeypatch.setattr("payasync.storage.sqlite.WAL_SINCE", (3,) if request.param == "log" else (99,))
    return str(request.param)


@pytest.fixture
def path(request: pytest.FixtureRequest, journal: str, tmp_path: Path) -> Place:
    """Where the inbox is."""
    dsn: str = request.getfixturevalue("postgres_dsn") if journal == "postgres" else ""
    return dsn or tmp_path / "inbox.db"


async def fill(inbox: Inbox) -> None:
    """Add events to the inbox."""
    await asyncio.gather(*(inbox.add(received(str(number))) for number in range(EVENTS)))


async def used(path: Place, use: Callable[[Inbox], Any]) -> Any:
    """Open an inbox, and return what a function gets from it."""
    inbox: Inbox = SqliteInbox(path) if isinstance(path, Path) else PostgresInbox(path)
    try:
        return await use(inbox)
    finally:
        await inbox.aclose()


def test_receivers_of_four_processes_handle_each_event_once(path: Place, journal: str, tmp_path: Path) -> None:
    """If four processes share an inbox, each event is handled once."""
    asyncio.run(used(path, fill))
    with ExitStack() as stack:
        workers = [stack.enter_context(Forked(PROGRAM, journal, str(path), folder=tmp_path)) for _ in range(WORKERS)]
        for worker in workers:
            assert "ready\n" == worker.stdout.readline()
        for worker in workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
        # `communicate` would lose lines that were read ahead.
        shares = [[int(line) for line in worker.stdout] for worker in workers]
        ends = [worker.wait() for worker in workers]
    events: list[InboxEvent] = asyncio.run(used(path, lambda inbox: inbox.events(limit=EVENTS + 1)))

    assert [0] * WORKERS == ends
    assert list(range(1, EVENTS + 1)) == sorted(number for share in shares for number in share)
    assert all(shares)
    assert {("done", 1)} == {(event.state, event.attempts) for event in events}
