"""The connections of anybody's driver: entered by its context manager, and given statements without parameters."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from inspect import isawaitable
from typing import Any, Final, TypeAlias

from payasync.errors import ConfigurationError

Begin: TypeAlias = Callable[[], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
"""Begins a transaction: the context manager gives its connection, commits at the end, and undoes all on an error."""

_MISSING: Final = "42P01"
_DENIED: Final = "42501"


@asynccontextmanager
async def entered(begin: Begin) -> AsyncGenerator[Any]:
    """Enter a transaction, whichever kind of context manager it is.

    Raises:
        ConfigurationError: It is none, or gives no connection.
    """
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


async def execute(connection: Any, statement: str) -> Any:
    """Execute a statement by any driver; SQLAlchemy's sessions have a connection that takes one as it stands."""
    if not hasattr(connection, "exec_driver_sql") and callable(getattr(connection, "connection", None)):
        connection = await _got(connection.connection())
    executing = getattr(connection, "exec_driver_sql", None) or connection.execute
    return await _got(executing(statement))


async def changes(connection: Any, statement: str) -> bool:
    """Return whether a statement has changed its row.

    Raises:
        ConfigurationError: The driver does not say.
    """
    count = _count(await execute(connection, statement))
    if count not in {0, 1}:
        raise ConfigurationError(
            "transaction: this connection does not say whether a row was added. Give one of sqlite3, aiosqlite, "
            "psycopg, asyncpg or SQLAlchemy",
            field="transaction",
        )
    return count == 1


async def _got(result: Any) -> Any:
    return await result if isawaitable(result) else result


def _count(result: Any) -> int | None:
    """Return how many rows a statement has changed: asyncpg says it in words, all others in a number."""
    if isinstance(result, str):
        said = result.rpartition(" ")[2]
        return int(said) if said.isdecimal() else None
    count: object = getattr(result, "rowcount", None)
    return count if isinstance(count, int) else None


def says_missing(error: BaseException) -> bool:
    """Return whether a driver's error says that there is no such table."""
    return any(_MISSING in _codes(each) or "no such table" in str(each) for each in behind(error))


def says_denied(error: BaseException) -> bool:
    """Return whether a driver's error says that somebody may not do that."""
    return any(_DENIED in _codes(each) for each in behind(error))


def _codes(error: BaseException) -> tuple[object, ...]:
    return getattr(error, "sqlstate", None), getattr(error, "pgcode", None)


def behind(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and what it was raised over."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
