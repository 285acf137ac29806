"""An inbox in one SQLite file, which several processes of one machine can share."""

import json
import os
import sqlite3
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

from payasync.notifications.inbox import StoredInbox, Transaction
from payasync.storage import Schema, read_migrations
from payasync.storage.sqlite import SqliteFile, escape_surrogates, fetch_rows, utc_moment

APPLICATION: Final = 0x50617969
"""`Payi`, in the header of the file, says whose it is."""
SCHEMA: Final = Schema(
    name="inbox", application=APPLICATION, migrations=read_migrations("payasync.notifications", "sqlite")
)
_HANDLERS: Final = "SELECT handler FROM handled WHERE event = :id"

T = TypeVar("T")


class SqliteInbox(StoredInbox):
    """Keeps notifications in an SQLite file; what it promises stands at `Inbox`.

    Nothing is opened before the first use. The file is its owner's alone, and payloads stand in it as they came.

    Args:
        path: The file's; it is made at the first use, where there is none, and never again: one that vanishes, or whose
            place another takes, is a `StorageError` until it is back. Not on a network's file system.
        clock: Returns seconds since 1970: what is due, and when a lease ends, goes by it.

    Raises:
        ConfigurationError: `path` is no path of a file. The first use raises it if the file is another program's, a
            newer payasync's, or damaged (as one of 0 bytes is). The file stays as it is.
    """

    _mark_handled = """
INSERT INTO handled SELECT id, :handler FROM events WHERE id = :id AND state = 'leased' AND fence = :fence
ON CONFLICT DO UPDATE SET handler = excluded.handler RETURNING event"""

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        self._file = SqliteFile(path, SCHEMA)
        self._clock = clock

    def __repr__(self) -> str:
        return f"SqliteInbox({self._file.path!r})"

    async def aclose(self) -> None:
        """Finish what was begun, and close the file; whatever is asked afterwards is a `StorageError`."""
        await self._file.aclose()

    async def _run(self, work: Callable[[datetime], Transaction[T]], key: str = "") -> T:  # noqa: ARG002 - one by one
        now = utc_moment(self._clock())
        return await self._file.run(lambda db: _execute(db, work(now), now))


def _execute(db: sqlite3.Connection, transaction: Transaction[T], now: datetime) -> T:
    """Run a transaction to its end."""
    try:
        statement, values = next(transaction)
        while True:
            given = {name: _encode(value) for name, value in {"now": now, **values}.items()}
            rows = fetch_rows(db, statement.replace("payasync_", ""), given)
            statement, values = transaction.send([_decode(db, row) for row in rows])
    except StopIteration as end:
        result: T = end.value
        return result


def _encode(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.timestamp()
    return escape_surrogates(value) if isinstance(value, str) else value


def _decode(db: sqlite3.Connection, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as PostgreSQL gives it."""
    if row.get("due") is not None:
        row["due"] = utc_moment(row["due"])
    if "raw" in row:
        handlers = [each["handler"] for each in fetch_rows(db, _HANDLERS, {"id": row["id"]})]
        row |= {"weak": bool(row["weak"]), "verified": bool(row["verified"]), "handled": handlers}
        row |= {"headers": json.loads(row["headers"]), "received_at": utc_moment(row["received_at"])}
    return row
