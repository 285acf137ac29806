"""An inbox in one SQLite file, which several processes of one machine can share."""

import json
import os
import sqlite3
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar

from payasync.clocks import utc_moment, wall_time
from payasync.notifications.inbox import Inbox, Statements
from payasync.storage import Schema, Upgrade, read_migrations
from payasync.storage.sqlite import SqliteFile
from payasync.storage.sqlite_statement import fetch_rows, with_indexes
from payasync.storage.writer_thread import Executor, WriterThread

APPLICATION: Final = 0x50617969
"""`Payi`: the application id in the header of the file."""
SCHEMA: Final = Schema(
    name="inbox", application=APPLICATION, migrations=read_migrations("payasync.notifications", "sqlite")
)
_MARK: Final = """
INSERT INTO handled SELECT id, :handler FROM events WHERE id = :id AND state = 'leased' AND fence = :fence
ON CONFLICT DO UPDATE SET handler = excluded.handler RETURNING event"""
_HANDLERS: Final = "SELECT event, handler FROM handled WHERE event IN (SELECT value FROM json_each(:ids))"

T = TypeVar("T")


class SqliteInbox(Inbox):
    """Stores notifications in an SQLite file, as `Inbox` promises.

    The file is opened at the first use. Only its owner can read it (mode 0600). Payloads are stored as they were
    received.

    Args:
        path: The path of the file, not on a network file system. The first use creates a missing file. If the file is
            deleted or replaced while in use, calls fail with `StorageError` until it is restored.
        clock: Returns seconds since 1970; due times and leases follow it. Default: the time of day.
        migrate: Make a missing file, and migrate older tables, as for `SqliteJournal`.
        executor: Returns what runs the transactions, given a name. Default: a thread.

    Raises:
        ConfigurationError: `path` is not the path of a file. The first use raises it if the file belongs to another
            program or a newer payasync, or is damaged, as one of 0 bytes is. The file is not changed.
    """

    _mark_handled = _MARK

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] | None = None,
        migrate: bool = True,
        executor: Callable[[str], Executor] = WriterThread,
    ) -> None:
        self._file = SqliteFile(path, SCHEMA, migrate=migrate, executor=executor)
        self._clock = clock or wall_time

    def __repr__(self) -> str:
        return f"SqliteInbox({self._file.path!r})"

    async def upgrade(self, *, dry_run: bool = False) -> Upgrade:
        """Make or migrate the tables, and return what was executed; with `dry_run`, execute nothing."""
        return await self._file.upgrade(dry_run=dry_run)

    async def aclose(self) -> None:
        """Finish what has begun, and close the file; any later call raises `StorageError`."""
        await self._file.aclose()

    async def _run(self, work: Callable[[datetime], Statements[T]], *keys: str | None) -> T:  # noqa: ARG002 - one by one
        now = utc_moment(self._clock())
        return await self._file.run(lambda db: _execute(db, work(now), now))


@cache
def sqlite_statement(statement: str) -> str:
    """Return a statement as SQLite executes it."""
    return with_indexes(statement).replace("payasync_", "")


def _execute(db: sqlite3.Connection, statements: Statements[T], now: datetime) -> T:
    """Execute the statements of a transaction, and return its result."""
    try:
        statement, values = next(statements)
        while True:
            rows = fetch_rows(db, sqlite_statement(statement), {"now": now, **values})
            statement, values = statements.send(_decode(db, rows) if rows else rows)
    except StopIteration as end:
        result: T = end.value
        return result


def _decode(db: sqlite3.Connection, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows as PostgreSQL gives them."""
    events = {row["id"]: row for row in rows if "raw" in row}
    for row in events.values():
        row |= {"weak": bool(row["weak"]), "verified": bool(row["verified"]), "handled": []}
        row |= {"headers": json.loads(row["headers"]), "received_at": utc_moment(row["received_at"])}
    for each in fetch_rows(db, _HANDLERS, {"ids": json.dumps(list(events))}) if events else ():
        events[each["event"]]["handled"].append(each["handler"])
    for row in rows:
        row |= {name: utc_moment(row[name]) for name in ("due", "event_time") if row.get(name) is not None}
    return rows
