"""An inbox in a PostgreSQL database, which web workers of several machines can share: extra `[postgres]`."""

import re
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Final, TypeVar

from payasync.credentials import Hidden, Secret
from payasync.notifications.inbox import StoredInbox, Transaction
from payasync.storage import Schema, read_migrations
from payasync.storage.postgres import CONNECTIONS, Database
from payasync.storage.postgres import Transaction as Rows

SCHEMA: Final = Schema(name="inbox", migrations=read_migrations("payasync.notifications", "postgres"))
_LOCK_KEY: Final = "SELECT pg_advisory_xact_lock(hashtextextended('payasync_events:' || :key, 0))"
"""Two bodies under one key, at once, would both be the first; the lock ends with the transaction."""

T = TypeVar("T")


class PostgresInbox(StoredInbox):
    """Keeps notifications in a PostgreSQL database; what it promises stands at `Inbox`.

    Nothing is opened before the first use; the tables, `payasync_events` and `payasync_migrations`, are made then.
    What is due, and when a lease ends, goes by the server's clock, and not by those of its clients.

    Args:
        dsn: Such as `postgresql://user:password@host/database`; what is not in it, libpq's variables say.
        connections: How many are opened at most, for each process and event loop.
        clock: Returns seconds since 1970, in place of the server's clock.

    Raises:
        ConfigurationError: `dsn` is no connection string, or `psycopg` is not installed. Where the tables are another
            program's, a newer payasync's, or may not be made, whatever is asked first raises it.
    """

    _mark_handled = """
UPDATE payasync_events SET handled = array_append(array_remove(handled, :handler), :handler)
WHERE id = :id AND state = 'leased' AND fence = :fence RETURNING id"""

    def __init__(
        self, dsn: str | Secret, *, connections: int = CONNECTIONS, clock: Callable[[], float] | None = None
    ) -> None:
        given = Hidden(dsn)
        del dsn  # a traceback may show what is local
        self._database = Database(given, SCHEMA, connections=connections, clock=clock)

    def __repr__(self) -> str:
        return f"PostgresInbox({self._database.address.shown!r})"

    async def aclose(self) -> None:
        """Finish what was begun, and close all connections; whatever is asked afterwards is a `StorageError`."""
        await self._database.aclose()

    async def _run(self, work: Callable[[datetime], Transaction[T]], key: str = "") -> T:
        async def execute(rows: Rows) -> T:
            if key:
                await rows.rows(to_psycopg(_LOCK_KEY), {"key": key})
            transaction = work(rows.now)
            try:
                statement, values = next(transaction)
                while True:
                    statement, values = transaction.send(await rows.rows(to_psycopg(statement), values))
            except StopIteration as end:
                result: T = end.value
                return result

        return await self._database.run(execute)


@cache
def to_psycopg(statement: str) -> str:
    """Return a statement as psycopg reads it, with the row locks that SQLite takes for comments."""
    statement = re.sub(r":(\w+)", r"%(\1)s", statement).replace("/*", "").replace("*/", "")
    return statement.replace("json_each(", "json_array_elements_text(")
