"""Tables of the version before are upgraded, and changed back by the SQL of docs/how-to/going-live.md."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from attrs import evolve, frozen

from payasync.credentials import Hidden
from payasync.errors import ConfigurationError
from payasync.journal.intents import STATES
from payasync.journal.postgres_journal import SCHEMA as POSTGRES_JOURNAL
from payasync.journal.sqlite_journal import SCHEMA as SQLITE_JOURNAL
from payasync.notifications.postgres_inbox import SCHEMA as POSTGRES_INBOX
from payasync.notifications.sqlite_inbox import SCHEMA as SQLITE_INBOX
from payasync.storage import Schema
from payasync.storage.postgres import Database
from payasync.storage.sqlite import open_database
from tests.test_readme import blocks
from tests.works import asking

PAGE: Final = Path(__file__).parents[2] / "docs" / "how-to" / "going-live.md"
BACK: Final = [text for _, text in blocks(PAGE.read_text(encoding="utf-8"), "sql")]
INTENT: Final = """
INSERT INTO payasync_intents
    (operation, merchant, reference, number, intent, hash, request, queued, state, asked, lease, due, created, updated)
VALUES ('refunds.create', 'M1', '{state}', '{state}', '{state}', 'a', '{{"out_trade_no": "T1"}}', FALSE, '{state}', 3,
    {lease}, {due}, {moment}, {moment})"""
EVENT: Final = """
INSERT INTO payasync_events (key, digest, weak, verified, raw, headers, received_at, state, attempts, due, since)
VALUES ('{key}', 'd', FALSE, TRUE, {raw}, '{{}}', {moment}, '{state}', 2, {due}, {moment})"""
OLD_STATES: Final = ("pending", "leased", "done", "dead", "parked", "quarantined", "quarantined")
SUPERSEDE: Final = "UPDATE payasync_events SET state = 'superseded' WHERE key = 'quarantined 6'"


def rows_of(schema: Schema, moment: str, raw: str) -> str:
    """Return SQL that stores a row in each state that the version before has.

    Args:
        schema: Of a journal or an inbox.
        moment: A moment in SQL.
        raw: Two bytes in SQL.
    """
    if schema.name == "inbox":
        due = {"pending": moment, "leased": moment}
        rows = [
            EVENT.format(key=f"{state} {each}", state=state, due=due.get(state, "NULL"), moment=moment, raw=raw)
            for each, state in enumerate(OLD_STATES)
        ]
    else:
        leases, due = {"sending": moment}, {"unknown": moment, "accepted": moment}
        rows = [
            INTENT.format(state=state, lease=leases.get(state, "NULL"), due=due.get(state, "NULL"), moment=moment)
            for state in STATES
        ]
    return ";".join(rows)


@frozen
class InAFile:
    """The tables of a journal or an inbox in SQLite.

    Attributes:
        path: The file.
    """

    path: str

    async def use(self, schema: Schema) -> None:
        """Use the tables with a version of payasync, which makes or changes them if it must."""
        open_database(self.path, schema).close()

    def execute(self, script: str) -> None:
        """Execute SQL."""
        with closing(sqlite3.connect(self.path)) as db:
            db.executescript(script.replace("payasync_events", "events"))

    def store(self, schema: Schema) -> None:
        """Store a row in each state."""
        self.execute(rows_of(schema, "1798761600.0", "X'7B7D'"))
        if schema.name == "inbox":
            self.execute("INSERT INTO handled SELECT id, 'shop.paid' FROM events WHERE state = 'done'")
        # The ids of deleted rows are never given again.
        self.execute("UPDATE sqlite_sequence SET seq = 99")

    def content(self) -> Mapping[str, Any]:
        """Return the rows, the columns and the indexes."""
        with closing(sqlite3.connect(self.path)) as db:
            db.row_factory = sqlite3.Row
            names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
            indexes = db.execute("SELECT sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL").fetchall()
            rows = {name: [dict(row) for row in db.execute(f"SELECT * FROM {name}")] for (name,) in names}  # noqa: S608
            columns = {name: [tuple(row)[1:] for row in db.execute(f"PRAGMA table_info({name})")] for (name,) in names}
        return {"rows": rows, "columns": columns, "indexes": sorted(" ".join(sql.split()) for (sql,) in indexes)}


@frozen
class InPostgres:
    """The tables of a journal or an inbox in PostgreSQL.

    Attributes:
        dsn: The database.
    """

    dsn: str

    async def use(self, schema: Schema) -> None:
        """Use the tables with a version of payasync, which makes or changes them if it must."""
        database = Database(Hidden(self.dsn), schema, connections=1, clock=None)
        try:
            await database.run(asking("SELECT 1"))
        finally:
            await database.aclose()

    def execute(self, script: str) -> None:
        """Execute SQL."""
        with psycopg.connect(self.dsn, autocommit=True) as db:
            db.execute(script.encode())

    def store(self, schema: Schema) -> None:
        """Store a row in each state."""
        self.execute(rows_of(schema, "to_timestamp(1798761600)", "'{}'"))

    def content(self) -> Mapping[str, Any]:
        """Return the rows, the columns and the indexes."""
        of_tables = {
            "columns": "SELECT table_name, column_name, data_type, is_nullable, column_default "
            "FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, ordinal_position",
            "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname",
            "constraints": "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE conrelid <> 0 AND connamespace = 'public'::regnamespace ORDER BY 1, 2",
            "versions": "SELECT name, version FROM payasync_migrations ORDER BY name, version",
        }
        with psycopg.connect(self.dsn) as db:
            found = {name: db.execute(statement.encode()).fetchall() for name, statement in of_tables.items()}
            ours = "SELECT relname FROM pg_class WHERE relname IN ('payasync_intents', 'payasync_events')"
            ((table,),) = db.execute(ours).fetchall()
            rows = db.execute(f"SELECT * FROM {table} ORDER BY id".encode()).fetchall()  # noqa: S608 - one of ours
            return found | {"rows": rows}


CASES: Final = {
    "journal in SQLite": (SQLITE_JOURNAL, 3, BACK[0]),
    "inbox in SQLite": (SQLITE_INBOX, 1, BACK[1]),
    "journal in PostgreSQL": (POSTGRES_JOURNAL, 3, BACK[2]),
    "inbox in PostgreSQL": (POSTGRES_INBOX, 1, BACK[3]),
}


@pytest.mark.parametrize("case", CASES)
async def test_way_back(case: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The SQL of the guide takes upgraded tables back to what they were, and a later upgrade succeeds again.

    The version before refuses the tables until then. No row is lost, and a superseded event is held there.
    """
    schema, version, back = CASES[case]
    before = evolve(schema, migrations=schema.migrations[:version])
    in_postgres = schema in {POSTGRES_JOURNAL, POSTGRES_INBOX}
    tables = InPostgres(request.getfixturevalue("postgres_dsn")) if in_postgres else InAFile(str(tmp_path / "pay.db"))
    await tables.use(before)
    tables.store(schema)
    found = [tables.content()]
    await tables.use(schema)
    found.append(tables.content())
    if schema.name == "inbox":
        tables.execute(SUPERSEDE)
    with pytest.raises(ConfigurationError, match="a newer payasync made it"):
        await tables.use(before)
    tables.execute(back)
    await tables.use(before)
    found.append(tables.content())
    await tables.use(schema)
    found.append(tables.content())

    old, new, old_again, new_again = found
    assert old == old_again
    assert new == new_again != old
