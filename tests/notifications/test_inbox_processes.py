"""Inboxes that several processes use, some of which are killed."""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from payasync.notifications import verify
from payasync.notifications.inbox import Inbox, InboxEvent, Received
from payasync.notifications.ingest import build_received as kept
from payasync.notifications.postgres_inbox import PostgresInbox
from payasync.notifications.sqlite_inbox import SqliteInbox
from payasync.testing import sign_notification
from tests.chaos.forked import Forked
from tests.notifications.merchant import CREDENTIALS, PAID, SIGNED
from tests.postgres import postgres

PROGRAM: Final = Path(__file__).with_name("inbox_process.py")
EVENTS: Final = 60
WORKERS: Final = 4
LONG: Final = 60

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
    with started(journal, path, tmp_path) as start:
        yield start


@contextmanager
def started(journal: str, path: Place, folder: Path) -> Generator[Start]:
    """Return a function that starts processes in a folder, all of which are killed at the end."""
    with ExitStack() as stack:

        def start(what: str, number: int = 0) -> Forked:
            return stack.enter_context(Forked(PROGRAM, what, journal, str(path), str(number), folder=folder))

        yield start


def said(process: Forked) -> str:
    """Return the next line that a process writes."""
    return process.stdout.readline().rstrip("\n")


def ended(process: Forked) -> list[str]:
    """Return the remaining lines of a process. `communicate` would lose lines that were read ahead."""
    lines = [line.rstrip("\n") for line in process.stdout]
    assert 0 == process.wait()
    return lines


def go(process: Forked) -> None:
    """Give a process what it waits for."""
    process.stdin.write("\n")
    process.stdin.flush()


def together(workers: Sequence[Forked]) -> list[list[str]]:
    """Let processes go on once all of them are ready, and return what each writes."""
    for worker in workers:
        assert "ready" == said(worker)
    for worker in workers:
        go(worker)
    return [ended(worker) for worker in workers]


def paid(number: int) -> Received:
    """Return the inbox's record of a signed notification."""
    data = {**PAID, "outTradeNo": f"T{number}"}
    signed = sign_notification(data, profile=SIGNED, credentials=CREDENTIALS, kind="payment", id=f"msg_{number}")
    return kept(verify(signed.raw, signed.headers, profile=SIGNED, credentials=CREDENTIALS), SIGNED, timed=True)


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
def test_nothing_that_was_taken_is_lost_when_killed(lives: int, path: Place, start: Start) -> None:
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
    workers = [start("dispatch", LONG) for _ in range(WORKERS)]
    shares = [[line for line in share if line != "waits"] for share in together(workers)]

    assert list(range(1, EVENTS + 1)) == sorted(int(line) for share in shares for line in share)
    assert all(shares)
    assert {("done", 1)} == {(event.state, event.attempts) for event in events(path)}


RESTARTS: Final = 3
ENDED: Final = ""
"""What is read of a process that has ended, since the other one did all that was left."""
SHORT: Final = 2
"""Seconds of a lease: what was being handled when the server stopped is due again after it."""


@pytest.mark.long
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_restart_of_the_server_loses_nothing(mode: str, tmp_path: Path) -> None:
    """If PostgreSQL is restarted, the receivers go on by themselves, and every event is handled."""
    with postgres() as server, started("postgres", server.dsn, tmp_path) as start:
        asyncio.run(used(server.dsn, fill))
        workers = [start("dispatch", SHORT) for _ in range(2)]
        for worker in workers:
            assert "ready" == said(worker)
            go(worker)
        told = list[str]()
        for _ in range(RESTARTS):
            told += [said(worker) for worker in workers for _ in range(5)]
            server.stop(mode)
            server.start()
        told += [line for worker in workers for line in ended(worker)]
        handled = [int(line) for line in told if line not in {"waits", ENDED}]

        assert set(range(1, EVENTS + 1)) == set(handled)
        assert {"done"} == {event.state for event in events(server.dsn)}
