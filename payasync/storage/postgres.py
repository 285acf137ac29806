"""A PostgreSQL database that is written from asyncio, in durable transactions: extra `[postgres]`.

Connections belong to the process and the event loop that they were made in. Those of a loop that `asyncio.run` ends
are closed on its way out; a forked child leaves its parent's alone, and makes its own.
"""

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import psycopg
from attrs import frozen
from psycopg import errors
from psycopg.rows import dict_row

from payasync.credentials import Hidden
from payasync.errors import ConfigurationError, StorageError
from payasync.storage.postgres_opening import Address, Connection, Schema, address, bring_up_to_date, connected

T = TypeVar("T")

ANSWER_SECONDS: Final = 30.0
"""How long a transaction may take: a server that is cut off says nothing at all."""
TRIES: Final = 3
CONNECTIONS: Final = 8

BEGIN: Final = """
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SELECT clock_timestamp() AS now,
    set_config('lock_timeout', '5s', true),
    set_config('idle_in_transaction_session_timeout', '30s', true),
    CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"""
"""Whatever the defaults are there: what is committed is on the disk, and who stops in the middle holds up nobody."""
_UNDONE: Final = (errors.UniqueViolation, errors.DeadlockDetected, errors.SerializationFailure)
"""Two transactions were in each other's way, and this one was undone wholly: it is done again."""


@frozen
class Transaction:
    """What is done together.

    Attributes:
        connection: Where.
        now: An aware moment: when it began.
    """

    connection: psycopg.AsyncConnection[Any]
    now: datetime

    async def rows(self, statement: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return what a statement finds or gives back, by the names of its columns; it may speak of `now`."""
        given = {"now": self.now, **(values or {})}
        async with self.connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(statement.encode(), {name: _kept(each) for name, each in given.items()}, prepare=False)
            return await cursor.fetchall() if cursor.description else []


def _kept(value: Any) -> Any:
    """Return a value that PostgreSQL takes: half a surrogate pair, or a zero, as its escape."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")
    return value


class _Connections:
    """Connections of one event loop, so many at most."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], most: int) -> None:
        self._connect = connect
        self._most = most
        self._room = asyncio.Semaphore(most)
        self._open: set[Connection] = set()
        self._idle: list[Connection] = []
        self.closed = False
        self._guard = self._closing()
        _finish(anext(self._guard))

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        """Commit what is done inside, or nothing of it where an exception leaves."""
        async with self._room:
            connection, now = await self._begun()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    yield Transaction(connection, now)
                    await connection.execute("COMMIT")
            except BaseException:
                self._drop(connection)
                raise
            self._idle.append(connection)

    async def _begun(self) -> tuple[Connection, datetime]:
        while self._idle:
            # One that idled may be dead; that shows before anything is done.
            with suppress(psycopg.Error, TimeoutError):
                return await self._begin(self._idle.pop())
        connection = await self._connect()
        self._open.add(connection)
        return await self._begin(connection)

    async def _begin(self, connection: Connection) -> tuple[Connection, datetime]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                cursor = await connection.execute(BEGIN.encode())
                cursor.nextset()
                row = await cursor.fetchone()
        except BaseException:
            self._drop(connection)
            raise
        return connection, row["now"] if row else datetime.now(UTC)

    def _drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.pgconn.finish()

    async def _closing(self) -> AsyncGenerator[None]:
        """Close with the loop: `asyncio.run` ends the async generators that were begun in its loop."""
        try:
            yield
        finally:
            self.dispose()

    async def aclose(self) -> None:
        """Finish what was begun, and close all of them, from within their own loop."""
        for _ in range(self._most):
            await self._room.acquire()
        await self._guard.aclose()

    def close_soon(self) -> None:
        """Close all of them, in a task of their own loop."""
        self._closing_task = asyncio.ensure_future(self.aclose())

    def dispose(self) -> None:
        """Close all of them, whatever they are at."""
        self.closed = True
        for connection in tuple(self._open):
            self._drop(connection)
        self._idle.clear()


class Database:
    """Runs functions in transactions of a PostgreSQL database. Nothing is opened before the first use.

    Args:
        dsn: Holds a connection string of libpq, or a `Secret` that is one.
        schema: What stands in it.
        connections: How many at most, for each process and event loop.
        clock: Returns seconds since 1970; without it, time is the server's, and so the same for all its clients.

    Raises:
        ConfigurationError: `dsn` is no connection string.
    """

    def __init__(
        self,
        dsn: Hidden,
        schema: Schema,
        *,
        connections: int = CONNECTIONS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.address: Final[Address] = address(dsn)
        self._schema = schema
        self._most = _count(connections)
        self._clock = clock
        self._closed = False
        self._pools: dict[asyncio.AbstractEventLoop, _Connections] = {}
        _DATABASES.add(self)

    async def run(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Return what a function of a transaction does, after it was committed.

        Args:
            work: It runs again, where it was undone because another transaction was in its way. Where it raises,
                nothing of it is kept.

        Raises:
            ConfigurationError: The tables are another program's, or a newer payasync's, or may not be made.
            StorageError: The database cannot be read or written now. Where the connection breaks at the commit, it
                may have been done all the same.
        """
        failure: Exception | None = None
        for _ in range(TRIES):
            if self._closed:
                raise StorageError(f"the {self._schema.name} is closed", reason="closed")
            try:
                async with self._current().transaction() as transaction:
                    return await work(self._timed(transaction))
            except _UNDONE as error:
                failure = error
            except (psycopg.Error, OSError) as error:
                failure = error
                break
        raise self.unavailable(failure)

    async def within(self, connection: psycopg.AsyncConnection[Any], work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Return what a function does in a transaction of the caller's own, who commits it.

        Raises:
            StorageError: It cannot be done now; the transaction has failed then.
        """
        try:
            (row,) = await Transaction(connection, datetime.now(UTC)).rows("SELECT clock_timestamp() AS now")
            return await work(self._timed(Transaction(connection, row["now"])))
        except (psycopg.Error, OSError) as error:
            failure = error
        raise self.unavailable(failure)

    def unavailable(self, error: Exception | None) -> StorageError:
        """Return what an error of the database means here."""
        why = "it gives no answer" if isinstance(error, TimeoutError) else self.address.hidden(str(error))
        return StorageError(f"the {self._schema.name} {self.address.shown!r} is unavailable: {why}", reason=why)

    def _timed(self, transaction: Transaction) -> Transaction:
        if self._clock is None:
            return transaction
        return Transaction(transaction.connection, datetime.fromtimestamp(self._clock(), UTC))

    def _current(self) -> _Connections:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None or pool.closed:
            self._sweep()
            pool = self._pools[loop] = _Connections(self._connected, self._most)
        return pool

    async def _connected(self) -> Connection:
        connection = await connected(self.address)
        try:
            await bring_up_to_date(connection, self._schema, self.address)
        except BaseException:
            connection.pgconn.finish()
            raise
        return connection

    def _sweep(self) -> None:
        for loop, pool in tuple(self._pools.items()):
            if loop.is_closed():
                del self._pools[loop]
                pool.dispose()

    async def aclose(self) -> None:
        """Finish what was begun in this loop, and close all connections; a second time does nothing."""
        self._closed = True
        self._sweep()
        here = asyncio.get_running_loop()
        pools, self._pools = self._pools, {}
        for loop, pool in pools.items():
            if loop is here:
                await pool.aclose()
            elif loop.is_running():
                with suppress(RuntimeError):  # it was closed meanwhile, and its connections with it
                    loop.call_soon_threadsafe(pool.close_soon)
            else:
                pool.dispose()

    def disown(self) -> None:
        """In a forked child: let go of the parent's connections, without a word to the server."""
        _INHERITED.append(self._pools)
        self._pools = {}


def _count(connections: int) -> int:
    if type(connections) is not int or connections < 1:
        raise ConfigurationError(
            f"connections must be an integer of 1 or more, not {connections!r}", field="connections"
        )
    return connections


def _finish(awaitable: Awaitable[object]) -> None:
    """Run to its end what waits for nothing."""
    with suppress(StopIteration):
        awaitable.__await__().send(None)


_DATABASES: Final[weakref.WeakSet[Database]] = weakref.WeakSet()
_INHERITED: Final[list[object]] = []
"""Kept until the child ends: who collects a connection would close it."""


def _disown_all() -> None:
    for each in tuple(_DATABASES):
        each.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
