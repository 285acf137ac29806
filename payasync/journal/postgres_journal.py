"""A journal in a PostgreSQL database, which workers of several machines can share: extra `[postgres]`."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from payasync.credentials import Hidden, Secret
from payasync.errors import ConfigurationError
from payasync.journal.drafts import Keep
from payasync.journal.journal import Journal
from payasync.journal.rows import COLUMNS, JSON, MOMENTS, intent_of_row, with_columns
from payasync.journal.transactions import ORDER_OF, Query, Transaction, Write, run_transaction
from payasync.settings import check_function, invalid_setting
from payasync.storage import Present, Schema, Upgrade, read_migrations
from payasync.storage.postgres import CONNECTIONS, NOW, Database
from payasync.storage.postgres import Transaction as Rows

SCHEMA: Final = Schema(
    name="journal", table="payasync_intents", migrations=read_migrations("payasync.journal", "postgres")
)
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
            Default: store the values at the profile's paths.
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

    async def _run(self, work: Callable[[datetime], Transaction[T]]) -> T:
        return await self._database.run(lambda rows: run_transaction(work(rows.now), partial(_execute, rows)))

    async def _write(self, write: Write[T]) -> T:
        rows = await self._database.run_grouped(_grouped_statement(write.statement), _written(write.values))
        if rows:
            write.values["now"] = rows[0]["now"].astimezone(UTC)
            return write.complete(rows[0]["id"])
        # A number is repeated, a lease is lost, or another write of the group has failed.
        return await self._run(write.transaction)

    async def _run_within(self, connection: Any, work: Callable[[datetime], Transaction[T]]) -> T:
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
        if not self._home:
            self._home = await self._database.run(_fetch_home)

        async def within(rows: Rows) -> T:
            home = await _fetch_home(rows)
            if home != self._home:
                # The server may have been restarted.
                self._home = await self._database.run(_fetch_home)
            if home != self._home:
                raise _refuse_connection("one to the journal's own database")
            return await run_transaction(work(rows.now), partial(_execute, rows))

        return await self._database.within(connection, within)


async def _fetch_home(rows: Rows) -> list[dict[str, Any]]:
    """Return the identity of a database."""
    return await rows.rows(_HOME, {"home": rows.home})


async def _execute(rows: Rows, query: Query) -> list[Any]:
    found = await rows.rows(postgres_statement(query.statement, query.lock), _written(query.values))
    return [row[query.column] if query.column else intent_of_row(row) for row in found]


def _written(values: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: json.dumps(dict(values[name])) for name in JSON if values.get(name) is not None}
    return {**values, **texts}


@cache
def postgres_statement(statement: str, lock: str) -> str:
    """Return a statement as psycopg reads it."""
    text = with_columns(statement, _READ).replace(ORDER_OF, _ORDER_OF)
    return re.sub(r":(\w+)", r"%(\1)s", text) + f" {lock}"


@cache
def _grouped_statement(statement: str) -> str:
    """Return a statement that takes the time itself, and returns it."""
    return postgres_statement(f"{statement}, :now AS now", "").replace("%(now)s", NOW)


def _refuse_connection(rule: str) -> ConfigurationError:
    return invalid_setting("connection", f"must be {rule}")
