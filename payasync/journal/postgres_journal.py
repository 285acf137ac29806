"""A journal in a PostgreSQL database, which workers of several machines can share: extra `[postgres]`."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from payasync.credentials import Hidden, Secret
from payasync.errors import ConfigurationError
from payasync.journal.drafts import Keep
from payasync.journal.journal import Journal
from payasync.journal.rows import COLUMNS, JSON, MOMENTS
from payasync.journal.transactions import ORDER_OF
from payasync.settings import check_function, invalid_setting
from payasync.storage import Present, Schema, Upgrade, read_migrations, with_columns
from payasync.storage.postgres import CONNECTIONS, Database
from payasync.storage.transactions import Query, Transaction, Work

_AS_READ: Final = {
    **dict.fromkeys(JSON, "CAST({0} AS text) AS {0}"),
    **dict.fromkeys(MOMENTS, "CAST(extract(epoch FROM {0}) AS float8) AS {0}"),
}
_READ: Final = ", ".join(_AS_READ.get(name, "{0}").format(name) for name in COLUMNS)
"""psycopg would read no row at all if Python could not hold a value in one of them, such as `infinity`."""
_ORDER_OF: Final = "CASE WHEN strpos(CAST(request AS text), chr(92) || 'u0000') = 0 THEN request ->> 'out_trade_no' END"
"""As the index has it."""
_HOME: Final = """
SELECT current_database() AS name, pg_postmaster_start_time() AS server, CAST(relation.oid AS bigint) AS number
FROM pg_catalog.pg_class AS relation JOIN pg_catalog.pg_namespace AS home ON home.oid = relation.relnamespace
WHERE relation.relname = 'payasync_' || 'intents' AND home.nspname = %(home)s"""

T = TypeVar("T")


def adapt(statement: str) -> str:
    """Return a statement that reads what can be read of a damaged row."""
    return with_columns(statement, _READ).replace(ORDER_OF, _ORDER_OF)


SCHEMA: Final = Schema(
    name="journal", table="payasync_intents", migrations=read_migrations("payasync.journal", "postgres"), adapt=adapt
)


class PostgresJournal(Journal):
    """Stores intents in a PostgreSQL database; `Journal` documents its methods.

    Nothing is opened before the first use, which makes the tables `payasync_intents`, `payasync_services` and
    `payasync_migrations`. Leases end, and intents are due, by the server's clock. A session does not close its journal,
    because others may use it: use `async with`, or call `aclose` at the end.

    Args:
        dsn: Such as `postgresql://user:password@host/database`. libpq's variables give the missing parts.
        keep: A function of an operation and its arguments. It returns the arguments that may be stored. Default: of a
            direct call those that move money, of a queued request all but the customer's details.
        whole_answers: Store whole responses, without nonces, signatures and the customer's details of the request.
            Default: store the values at the profile's paths. Deprecated.
        connections: The most connections, for each process and event loop.
        clock: A function that returns seconds since 1970, in place of the server's clock. Quarantines and the lease of
            a sender also follow the machine's boot clock.
        schema: The schema of the tables, which must exist. Default: the one of the `search_path` that has the tables.
            The path is that of the DSN's `options`, else the one that is configured for the role. If there are no
            tables yet, they are made in the first schema of this path.
        migrate: Make missing tables, and migrate those of an earlier payasync. With `False`, the first use raises
            `ConfigurationError` instead.

    Attributes:
        recorder: What a session uses.

    Raises:
        ConfigurationError: `dsn` is no connection string, `keep` or `clock` is not a plain function, or `psycopg` is
            not installed. The first use raises it if the tables belong to another program or to a newer payasync, or
            cannot be made.
    """

    def __init__(
        self,
        dsn: str | Secret,
        *,
        keep: Keep | None = None,
        whole_answers: bool = False,
        connections: int = CONNECTIONS,
        clock: Callable[[], float] | None = None,
        schema: str | None = None,
        migrate: bool = True,
    ) -> None:
        given = Hidden(dsn)
        del dsn  # a traceback may show what is local
        if clock is not None:
            check_function("clock", clock)
        self._database = Database(given, SCHEMA, connections=connections, clock=clock, home=schema, migrate=migrate)
        self.present: Present = self._database.present
        self._home: list[dict[str, Any]] = []
        super().__init__(keep, whole_answers=whole_answers)

    def __repr__(self) -> str:
        return f"PostgresJournal({self._place!r})"

    @property
    def _place(self) -> str:
        return self._database.address.shown

    async def upgrade(self, *, dry_run: bool = False) -> Upgrade:
        """Make or migrate the tables, and return what was executed; with `dry_run`, execute nothing."""
        return await self._database.upgrade(dry_run=dry_run)

    async def aclose(self) -> None:
        """Finish what was begun, and close all connections. Each later call raises `StorageError`."""
        await self._database.aclose()

    async def _run(self, work: Work[T], *, is_short: bool = False) -> T:
        return await self._database.run(work, is_short=is_short)

    async def _run_within(self, connection: Any, work: Work[T]) -> T:
        """Run work in the transaction of a psycopg connection, and return its result.

        Raises:
            ConfigurationError: It is no such connection, is in no transaction, or leads to another database.
            StorageError: The work cannot be done now; the transaction has failed then.
        """
        if not isinstance(connection, psycopg.AsyncConnection):
            raise _refuse_connection(f"psycopg's AsyncConnection, not {type(connection).__name__}")
        if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
            rule = "in a transaction (`async with connection.transaction():`), and this one commits by itself"
            raise _refuse_connection(rule)
        self._home = self._home or await self._database.run(self._find_home)
        home = await self._database.within(connection, self._find_home)
        if home != self._home:
            # The server may have been restarted.
            self._home = await self._database.run(self._find_home)
        if home != self._home:
            raise _refuse_connection("one to the journal's own database")
        return await self._database.within(connection, work)

    def _find_home(self, _: datetime) -> Transaction[list[dict[str, Any]]]:
        """Return the identity of a database."""
        found: list[dict[str, Any]] = yield Query(_HOME, {"home": self._database.home})
        return found


def _refuse_connection(rule: str) -> ConfigurationError:
    return invalid_setting("connection", f"must be {rule}")
