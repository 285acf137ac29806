"""A handler inside a transaction of the caller's own: its effect, and the mark that it is done, commit together.

The mark is a row in a table beside the effect. So an event that is dispatched again, after a crash between that
commit and the inbox's, finds its mark, and has no second effect.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from datetime import datetime
from inspect import isawaitable
from typing import Any, Final, TypeAlias

from payasync.errors import ConfigurationError

Begin: TypeAlias = Callable[[], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
"""Begins a transaction: the context manager gives its connection, commits at the end, and undoes all on an error."""
Within: TypeAlias = Callable[[Any], Awaitable[object]]
"""What is done with the connection of a transaction."""

TABLE: Final = "CREATE TABLE IF NOT EXISTS payasync_handled (event TEXT PRIMARY KEY, at TEXT)"


def mark(handler: str, key: str) -> str:
    """Return what marks an event as done by a handler: hexadecimal digits, so that it is a literal anywhere.

    Args:
        handler: Its name.
        key: The event's.
    """
    return hashlib.sha256(f"{handler}\n{key}".encode()).hexdigest()


def marking(digits: str, at: datetime) -> str:
    """Return the statement that sets a mark; drivers differ in how they write parameters, so it has none."""
    return (
        f"INSERT INTO payasync_handled (event, at) VALUES ('{digits}', '{at.isoformat()}') "  # noqa: S608 - see above
        "ON CONFLICT DO NOTHING"
    )


class Transactions:
    """The transactions that a function of the caller's begins.

    Args:
        begin: Returns a context manager, plain or not, that gives a connection.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._prepared = False
        self._turn: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def once(self, digits: str, at: datetime, handle: Within) -> bool:
        """Do something in a transaction, and mark it; `False` where it has been marked before, and was left undone.

        Args:
            digits: The mark.
            at: Now.
            handle: Gets the connection.

        Raises:
            ConfigurationError: The transaction gives no connection, or swallows an error, or its driver does not say
                what it did.
        """
        if not self._prepared:
            await self._prepare()
        ends = list[bool]()
        async with _entered(self._begin) as connection:
            fresh = await _executed(connection, marking(digits, at))
            if fresh:
                await handle(connection)
            ends.append(fresh)
        if not ends:
            raise ConfigurationError(
                "transaction: its context manager swallowed an error, and nobody can say what was committed. Let it "
                "raise what it was left with",
                field="transaction",
            )
        return ends[0]

    async def _prepare(self) -> None:
        """Make the table, in a transaction of its own: PostgreSQL lets no two make one at a time."""
        loop = asyncio.get_running_loop()
        if self._turn is None or self._loop is not loop:
            self._turn, self._loop = asyncio.Lock(), loop
        async with self._turn:
            if not self._prepared:
                async with _entered(self._begin) as connection:
                    await _execute(connection, TABLE)
                self._prepared = True


@asynccontextmanager
async def _entered(begin: Begin) -> AsyncGenerator[Any]:
    """Enter a transaction, whichever kind of context manager it is."""
    async with _managed(begin()) as connection:
        if connection is None:
            raise ConfigurationError(
                "transaction gives no connection: its context manager must return one as it is entered",
                field="transaction",
            )
        yield connection


def _managed(manager: Any) -> AbstractAsyncContextManager[Any]:
    if hasattr(manager, "__aenter__"):
        return manager  # type: ignore[no-any-return] # what has that is one
    if hasattr(manager, "__enter__"):
        return _awaited(manager)
    raise ConfigurationError(
        f"transaction must return a context manager, not {type(manager).__name__}", field="transaction"
    )


@asynccontextmanager
async def _awaited(manager: Any) -> AsyncGenerator[Any]:
    with manager as connection:
        yield connection


async def _executed(connection: Any, statement: str) -> bool:
    """Return whether a statement has added a row."""
    added = _added(await _execute(connection, statement))
    if added not in {0, 1}:
        raise ConfigurationError(
            "transaction: this connection does not say whether a row was added. Give one of sqlite3, aiosqlite, "
            "psycopg, asyncpg or SQLAlchemy",
            field="transaction",
        )
    return added == 1


async def _execute(connection: Any, statement: str) -> Any:
    """Execute a statement by any driver; SQLAlchemy's sessions have a connection that takes one as it stands."""
    if not hasattr(connection, "exec_driver_sql") and callable(getattr(connection, "connection", None)):
        connection = await _got(connection.connection())
    execute = getattr(connection, "exec_driver_sql", None) or connection.execute
    return await _got(execute(statement))


async def _got(result: Any) -> Any:
    return await result if isawaitable(result) else result


def _added(result: Any) -> int | None:
    """Return how many rows a statement has added: asyncpg says it in words, all others in a number."""
    if isinstance(result, str):
        said = result.rpartition(" ")[2]
        return int(said) if said.isdecimal() else None
    count: object = getattr(result, "rowcount", None)
    return count if isinstance(count, int) else None
