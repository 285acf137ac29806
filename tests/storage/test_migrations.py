import asyncio
import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest
from attrs import evolve
from psycopg.conninfo import make_conninfo

from payasync.credentials import Hidden
from payasync.journal import PostgresJournal
from payasync.journal.postgres_journal import SCHEMA as POSTGRES_JOURNAL
from payasync.journal.sqlite_journal import SCHEMA as SQLITE_JOURNAL
from payasync.journal.sqlite_journal import SqliteJournal
from payasync.notifications.postgres_inbox import SCHEMA as POSTGRES_INBOX
from payasync.notifications.sqlite_inbox import SCHEMA as SQLITE_INBOX
from payasync.storage import Schema
from payasync.storage.postgres import MIGRATION_LOCK, Database
from payasync.storage.sqlite import SqliteFile
from tests.works import asking

FIRST: Final = {
    "journal in SQLite": (SQLITE_JOURNAL, "7a983e90b21fe05a"),
    "journal in PostgreSQL": (POSTGRES_JOURNAL, "00fcf822ed782ed8"),
    "inbox in SQLite": (SQLITE_INBOX, "2679d90f0009cd44"),
    "inbox in PostgreSQL": (POSTGRES_INBOX, "4b663be3bf02126c"),
}
INTENT: Final = """
INSERT INTO payasync_intents (operation, merchant, hash, request, queued, state, created, updated)
VALUES ('payments.create', 'M1', 'a', '{}', FALSE, 'manual', 0, 0)"""


@pytest.mark.parametrize(("schema", "digest"), FIRST.values(), ids=FIRST)
def test_script_that_has_made_stores_is_never_changed(schema: Schema, digest: str) -> None:
    """A store that exists takes only further scripts, so a new column needs a script of its own."""
    assert digest == hashlib.sha256(schema.migrations[0].encode()).hexdigest()[:16]


async def _make_older(path: Path) -> None:
    """Make the journal file of the first payasync, with a write."""
    file: SqliteFile = SqliteFile(path, evolve(SQLITE_JOURNAL, migrations=SQLITE_JOURNAL.migrations[:1]))
    await file.run(asking(INTENT))
    await file.aclose()


async def test_others_wait_while_a_file_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a process migrates a file, another one that opens it waits longer than for a usual lock, and then works."""
    path = tmp_path / "pay.db"
    await _make_older(path)
    monkeypatch.setattr("payasync.storage.sqlite.LOCKED_SECONDS", 0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as migrating:
        migrating.execute("BEGIN EXCLUSIVE")
        async with SqliteJournal(path) as journal:
            listing = asyncio.ensure_future(journal.list())
            await asyncio.wait({listing}, timeout=0.2)
            assert not listing.done()

            migrating.execute("COMMIT")
            assert [1] == [each.id for each in await listing]


async def test_others_wait_while_a_database_is_migrated(postgres_dsn: str) -> None:
    """While a process migrates PostgreSQL's tables, another one waits, whatever timeouts its role has."""
    older = Database(Hidden(postgres_dsn), evolve(POSTGRES_JOURNAL, migrations=POSTGRES_JOURNAL.migrations[:-1]))
    await older.run(asking("SELECT 1 AS one"))
    await older.aclose()
    impatient = make_conninfo(postgres_dsn, options="-c lock_timeout=1ms -c statement_timeout=1s")
    async with (
        await psycopg.AsyncConnection.connect(postgres_dsn, autocommit=True) as migrating,
        PostgresJournal(impatient) as journal,
    ):
        await migrating.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
        listing = asyncio.ensure_future(journal.list())
        waits = "SELECT count(*), pg_sleep(0.01) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not listing.done() and not (await (await migrating.execute(waits)).fetchall())[0][0]:
            pass
        await migrating.execute("SELECT pg_sleep(1.1)")  # longer than its role may wait
        assert not listing.done()

        await migrating.execute("SELECT pg_advisory_unlock(%s)", (MIGRATION_LOCK,))
        assert [] == await listing
