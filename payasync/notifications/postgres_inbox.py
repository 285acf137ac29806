"""An inbox in a PostgreSQL database, which several machines can share: extra `[postgres]`."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Final, TypeVar

from payasync.credentials import Hidden, Secret
from payasync.notifications.inbox import Inbox, Statements
from payasync.storage import Schema, Upgrade, read_migrations
from payasync.storage.postgres import CONNECTIONS, Database, Transaction, escape_text

SCHEMA: Final = Schema(
    name="inbox", table="payasync_events", migrations=read_migrations("payasync.notifications", "postgres")
)
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('payasync_events:' || value, 0)) FROM json_each(:keys)"
"""Without it, two concurrent bodies with one key would both be the first; it ends with the transaction."""
_MARK: Final = """
UPDATE payasync_events SET handled = array_append(array_remove(handled, :handler), :handler)
WHERE id = :id AND state = 'leased' AND fence = :fence RETURNING id"""

T = TypeVar("T")


class PostgresInbox(Inbox):
    """Stores notifications in a PostgreSQL database, as `Inbox` promises.

    The first use connects, and creates the tables `payasync_events`, `payasync_facts` and `payasync_migrations`. Due
    times and leases follow the server's clock, not those of its clients.

    Args:
        dsn: Such as `postgresql://user:password@host/database`. libpq's variables complete it.
        connections: The most that are opened, for each process and event loop.
        clock: Returns seconds since 1970, in place of the server's clock.
        schema: The schema of the tables, as for `PostgresJournal`.
        migrate: Make missing tables, and migrate older ones, as for `PostgresJournal`.

    Raises:
        ConfigurationError: `dsn` is not a connection string, or `psycopg` is not installed. The first use raises it
            if the tables belong to another program or a newer payasync, or cannot be created.
    """

    _mark_handled = _MARK

    def __init__(
        self,
        dsn: str | Secret,
        *,
        connections: int = CONNECTIONS,
        clock: Callable[[], float] | None = None,
        schema: str | None = None,
        migrate: bool = True,
    ) -> None:
        given = Hidden(dsn)
        del dsn  # a traceback may show what is local
        self._database = Database(given, SCHEMA, connections=connections, clock=clock, home=schema, migrate=migrate)

    def __repr__(self) -> str:
        return f"PostgresInbox({self._database.address.shown!r})"

    async def upgrade(self, *, dry_run: bool = False) -> Upgrade:
        """Make or migrate the tables, and return what was executed; with `dry_run`, execute nothing."""
        return await self._database.upgrade(dry_run=dry_run)

    async def aclose(self) -> None:
        """Finish what has begun, and close all connections; any later call raises `StorageError`."""
        await self._database.aclose()

    async def _run(self, work: Callable[[datetime], Statements[T]], *keys: str | None) -> T:
        async def execute(transaction: Transaction) -> T:
            # They are locked in one order, so that no two transactions wait for each other.
            if given := sorted(map(escape_text, filter(None, keys))):
                await transaction.rows(to_psycopg(_LOCK), {"keys": json.dumps(given, ensure_ascii=False)})
            statements = work(transaction.now)
            try:
                statement, values = next(statements)
                while True:
                    statement, values = statements.send(await transaction.rows(to_psycopg(statement), values))
            except StopIteration as end:
                result: T = end.value
                return result

        return await self._database.run(execute)


@cache
def to_psycopg(statement: str) -> str:
    """Return a statement as psycopg reads it, with the row locks that SQLite takes for comments."""
    statement = re.sub(r"/\* (FOR [^*]+) \*/", r"\1", re.sub(r":(\w+)", r"%(\1)s", statement))
    return statement.replace("json_each(", "json_array_elements_text(")
