"""A journal in a PostgreSQL database, which workers of several machines can share: extra `[postgres]`."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache, partial
from typing import Any, Final, TypeVar

import psycopg
from attrs import fields
from psycopg.pq import TransactionStatus

from payasync.credentials import Hidden, Secret
from payasync.errors import ConfigurationError
from payasync.journal.entries import Keep, outcome_from_text
from payasync.journal.intents import Intent
from payasync.journal.store import StoredJournal
from payasync.journal.transactions import Asked, Transaction, run
from payasync.settings import check_function
from payasync.storage import Schema, read_migrations
from payasync.storage.postgres import CONNECTIONS, Database
from payasync.storage.postgres import Transaction as Rows

SCHEMA: Final = Schema(name="journal", migrations=read_migrations("payasync.journal", "postgres"))
_COLUMNS: Final = tuple(each.name for each in fields(Intent))
_PLACE: Final = """
SELECT current_database() AS name, pg_postmaster_start_time() AS server, to_regclass('payasync_intents')::oid AS number
"""

T = TypeVar("T")


class PostgresJournal(StoredJournal):
    """Keeps intentions in a PostgreSQL database; what it promises stands at `Journal`.

    Nothing is opened before the first use; the tables, `payasync_intents`, `payasync_services` and
    `payasync_migrations`, are made then.
    When a lease ends, and what is due, goes by the server's clock, and not by those of its clients. A session does not
    close its journal, which others may use, too: use it with `async with`, or call `aclose` at the end.

    Args:
        dsn: Such as `postgresql://user:password@host/database`; what is not in it, libpq's variables say.
        keep: Returns, of an operation and its arguments, those that may be kept. Without it, a direct call's are those
            that move money, and those of what is queued all but the customer's details.
        whole_answers: Keep the service's answers whole, but for nonces, signatures and the customer's details as far as
            they are known from the request; else what the profile's paths lead to.
        connections: How many are opened at most, for each process and event loop.
        clock: Returns seconds since 1970, in place of the server's clock.

    Attributes:
        recorder: What a session uses.

    Raises:
        ConfigurationError: `dsn` is no connection string, `keep` or `clock` no plain function, or `psycopg` is not
            installed. Where the tables are another program's, a newer payasync's, or may not be made, whatever is asked
            first raises it.
    """

    def __init__(
        self,
        dsn: str | Secret,
        *,
        keep: Keep | None = None,
        whole_answers: bool = False,
        connections: int = CONNECTIONS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        given = Hidden(dsn)
        del dsn  # a traceback may show what is local
        if clock is not None:
            check_function("clock", clock)
        self._database = Database(given, SCHEMA, connections=connections, clock=clock)
        self._home: list[dict[str, Any]] = []
        super().__init__(keep, whole_answers=whole_answers, clock=clock)

    def __repr__(self) -> str:
        return f"PostgresJournal({self._place!r})"

    @property
    def _place(self) -> str:
        return self._database.address.shown

    async def aclose(self) -> None:
        """Finish what was begun, and close all connections; whatever is asked afterwards is a `StorageError`."""
        await self._database.aclose()

    async def _run(self, work: Callable[[datetime], Transaction[T]]) -> T:
        return await self._database.run(lambda rows: run(work(rows.now), partial(_answer, rows)))

    async def _within(self, connection: Any, work: Callable[[datetime], Transaction[T]]) -> T:
        """Return what is done in the transaction of a connection of psycopg's.

        Raises:
            ConfigurationError: It is none, it is in no transaction, or it leads to another database.
            StorageError: It cannot be done now; the transaction has failed then.
        """
        _check_connection(connection)
        if not self._home:
            self._home = await self._database.run(_place)

        async def within(rows: Rows) -> T:
            await self._check_place(await _place(rows))
            return await run(work(rows.now), partial(_answer, rows))

        return await self._database.within(connection, within)

    async def _check_place(self, place: list[dict[str, Any]]) -> None:
        if place != self._home:
            # The server may have been started anew.
            self._home = await self._database.run(_place)
        if place != self._home:
            raise _refused("one to the journal's own database, with its search_path")


async def _place(rows: Rows) -> list[dict[str, Any]]:
    """Return what tells a database apart."""
    return await rows.rows(_PLACE)


async def _answer(rows: Rows, asked: Asked) -> list[Any]:
    values = asked.values.items()
    written = {name: json.dumps(dict(each)) if isinstance(each, Mapping) else each for name, each in values}
    found = await rows.rows(as_postgres(asked.statement, asked.lock), written)
    return [row[asked.column] if asked.column else _intent(row) for row in found]


@cache
def as_postgres(statement: str, lock: str) -> str:
    """Return a statement as psycopg reads it."""
    return re.sub(r":(\w+)", r"%(\1)s", statement) + f" {lock}"


def _intent(row: dict[str, Any]) -> Intent:
    facts: dict[str, Any] = {name: row[name] for name in _COLUMNS}
    if facts["outcome"] is not None:
        facts["outcome"] = outcome_from_text(facts["outcome"])
    return Intent(**facts)


def _check_connection(connection: object) -> None:
    if not isinstance(connection, psycopg.AsyncConnection):
        raise _refused(f"psycopg's AsyncConnection, not {type(connection).__name__}")
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise _refused("in a transaction (`async with connection.transaction():`), and this one commits by itself")


def _refused(rule: str) -> ConfigurationError:
    return ConfigurationError(f"connection must be {rule}", field="connection")
