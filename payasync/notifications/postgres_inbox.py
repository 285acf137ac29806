"""An inbox in a PostgreSQL database, which several machines can share: extra `[postgres]`."""

import json
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from payasync.credentials import Hidden, Secret
from payasync.notifications.inbox import SQL, Inbox
from payasync.storage import Schema, Upgrade, read_migrations
from payasync.storage.postgres import CONNECTIONS, Database, escape_text
from payasync.storage.transactions import Query, Transaction, Work

SCHEMA: Final = Schema(
    name="inbox", table="payasync_events", migrations=read_migrations("payasync.notifications", "postgres")
)
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

    _mark_handled = SQL["mark_in_postgres"]

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

    async def _run(self, work: Work[T], *keys: str | None) -> T:
        return await self._database.run(partial(_run_locked, work, keys))


def _run_locked(work: Work[T], keys: tuple[str | None, ...], now: datetime) -> Transaction[T]:
    """Run a transaction while no other one has one of its keys."""
    # They are locked in one order, so that no two transactions wait for each other.
    if given := sorted(map(escape_text, filter(None, keys))):
        yield Query(SQL["lock"], {"keys": json.dumps(given, ensure_ascii=False)})
    return (yield from work(now))
