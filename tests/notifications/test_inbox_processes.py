"""Inboxes that several processes use, some of which are killed."""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest

from payasync.notifications import verify
from payasync.notifications.inbox import Inbox, InboxEvent, Received
from payasync.notifications.ingest import build_received
from payasync.notifications.postgres_inbox import PostgresInbox
from payasync.notifications.sqlite_inbox import SqliteInbox
from payasync.testing import sign_notification
from tests.chaos.forked import Forked
from tests.notifications.merchant import CREDENTIALS, PAID, SIGNED

PROGRAM: Final = Path(__file__).with_name("inbox_process.py")
EVENTS: Final = 60
WORKERS: Final = 4
Place = Path | str
"""Of a file, or of a database."""
Start = Callable[..., Forked]


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


@pytest.fixture
def start(journal: str, path: Place, tmp_path: Path) -> Generator[Start]:
    """Start a process that uses the inbox; it is gone with the test."""
    with ExitStack() as stack:

        def start(what: str, number: int = 0) -> Forked:
            return stack.enter_context(Forked(PROGRAM, what, journal, str(path), str(number), folder=tmp_path))

        yield start


def said(process: Forked) -> str:
    """Return the next line that a process writes."""
    return process.stdout.readline().rstrip("\n")


def ended(process: Forked) -> list[str]:
    """Return the remaining lines of a process. `communicate` would lose lines that were read ahead."""
    lines = [line.rstrip("\n") for line in process.stdout]
    assert 0 == process.wait()
    return lines


def together(workers: Sequence[Forked]) -> list[list[str]]:
    """Let processes go on once all of them are ready, and return what each writes."""
    for worker in workers:
        assert "ready" == said(worker)
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    return [ended(worker) for worker in workers]


def paid(number: int) -> Received:
    """Return the inbox's record of a signed notification."""
    data = {**PAID, "outTradeNo": f"T{number}"}
    signed = sign_notification(data, profile=SIGNED, credentials=CREDENTIALS, kind="payment", id=f"msg_{number}")
    return build_received(
        verify(signed.raw, signed.headers, profile=SIGNED, credentials=CREDENTIALS), SIGNED, timed=True
    )


async def fill(inbox: Inbox) -> None:
    """Add events to the inbox."""
    await asyncio.gather(*(inbox.add(paid(number)) for number in range(EVENTS)))


async def used(path: Place, use: Callable[[Inbox], Any]) -> Any:
    """Open an inbox, and return what a function gets from it."""
    inbox: Inbox = SqliteInbox(path) if isinstance(path, Path) else PostgresInbox(path)
    try:
        return await use(inbox)
    finally:
        await inbox.aclose()


def events(path: Place) -> list[InboxEvent]:
    """Return all events."""
    found: list[InboxEvent] = asyncio.run(used(path, lambda inbox: inbox.events(limit=10**6)))
    return found


def whole(path: Place) -> bool:
    """Return whether SQLite's integrity check passes; `True` for PostgreSQL."""
    if isinstance(path, str):
        return True
    with closing(sqlite3.connect(path)) as db:
        return [("ok",)] == db.execute("PRAGMA integrity_check").fetchall()


@pytest.mark.parametrize("lives", [2, pytest.param(8, marks=pytest.mark.long)])
def test_nothing_that_was_acknowledged_is_lost_by_a_kill(lives: int, path: Place, start: Start) -> None:
    """If a process is killed at any moment, each event that it acknowledged is in the inbox once."""
    acknowledged = set[str]()
    for life in range(lives):
        keeping = start("keep", life)
        acknowledged |= {said(keeping) for _ in range(random.randint(1, 300))}  # noqa: S311 - moments are no secret
        keeping.kill()
        # The last line may be a part of one.
        acknowledged |= {line.rstrip("\n") for line in keeping.stdout if line.endswith("\n")}
        keeping.wait()
    keys = [event.key for event in events(path)]

    assert acknowledged <= set(keys)
    assert len(set(keys)) == len(keys)
    assert lives == len({key.partition("-")[0] for key in acknowledged})
    assert whole(path)


def test_receivers_of_four_processes_handle_each_event_once(path: Place, start: Start) -> None:
    """If four processes share an inbox, each event is handled once."""
    asyncio.run(used(path, fill))
    shares = together([start("dispatch") for _ in range(WORKERS)])

    assert list(range(1, EVENTS + 1)) == sorted(int(line) for share in shares for line in share)
    assert all(shares)
    assert {("done", 1)} == {(event.state, event.attempts) for event in events(path)}
