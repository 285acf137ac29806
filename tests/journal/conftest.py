from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from payasync.clocks import Clocks, use_clocks
from payasync.journal import Journal, PostgresJournal, SqliteJournal
from tests.journal.building import Clock

both_stores = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
"""Daily: a test of what each journal must do itself."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the SQLite journal is."""
    return tmp_path / "pay.db"


@pytest.fixture
def clock() -> Iterator[Clock]:
    """A clock that the test moves. All that runs in the test goes by it."""
    clock = Clock()
    use_clocks(clock.clocks())
    yield clock
    use_clocks(Clocks())


@pytest.fixture(params=["rollback", pytest.param("wal", marks=pytest.mark.long)])
async def journal(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, path: Path, clock: Clock
) -> AsyncIterator[SqliteJournal]:
    """An empty SQLite journal, with a rollback journal or with a write-ahead log."""
    del clock  # it need only stand
    monkeypatch.setattr("payasync.storage.sqlite.WAL_SINCE", (3,) if request.param == "wal" else (99,))
    async with SqliteJournal(path) as journal:
        yield journal


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
async def store(request: pytest.FixtureRequest, path: Path, clock: Clock) -> AsyncIterator[Journal]:
    """An empty journal, in SQLite or in PostgreSQL. Daily, only what the journals' contract needs has both."""
    journal: Journal
    if request.param == "sqlite":
        journal = SqliteJournal(path)
    else:
        journal = PostgresJournal(request.getfixturevalue("postgres_dsn"), clock=clock)
    yield journal
    await journal.aclose()
