"""A handler inside a transaction of the caller's own: its effect, and the mark that it is done, commit together."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime
from inspect import isawaitable
from secrets import token_hex
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


TABLE: Final = "CREATE TABLE payasync_handled (event TEXT PRIMARY KEY, at TEXT)"
RIGHTS: Final = "GRANT SELECT, INSERT, DELETE ON payasync_handled TO ..."


def mark(handler: str, merchant: str, key: str) -> str:
    """Return what marks an event as done by a handler: hexadecimal digits, so that it is a literal anywhere.

    Args:
        handler: Its name.
        merchant: Whose event it is: order numbers are one merchant's own.
        key: The event's.
    """
    return hashlib.sha256(f"{handler}\n{merchant}\n{key}".encode()).hexdigest()


def marking(digits: str, at: datetime) -> str:
    """Return the statement that sets a mark; drivers differ in how they write parameters, so it has none."""
    return (
        f"INSERT INTO payasync_handled (event, at) VALUES ('{digits}', '{at.isoformat()}') "  # noqa: S608 - see above
        "ON CONFLICT DO NOTHING"
    )


def unmarking(digits: str) -> str:
    """Return the statement that takes a mark away."""
    return f"DELETE FROM payasync_handled WHERE event = '{digits}'"  # noqa: S608 - as above


LOST: Final = (
    "what was done in it is not there afterwards: its context manager must commit at its end. Give one that does, "
    "such as SQLAlchemy's engine.begin or async_sessionmaker(engine).begin, or psycopg's pool.connection"
)
LEFT: Final = (
    "what was done in it stays after an error, which must undo it: no autocommit. Of asyncpg, give a context manager "
    "that acquires a connection and enters its transaction()"
)
SWALLOWED: Final = (
    "its context manager swallowed an error, and nobody can say what was committed. Let it raise what it was left with"
)
DENIED: Final = f"it may not keep its marks. Have the database's owner execute: {TABLE}; {RIGHTS}"


class _ProbeError(Exception):
    """Is raised inside a transaction, to see whether it is undone."""


class _ProbeCancelledError(asyncio.CancelledError):
    """The same of a handler that is cut off: no `except Exception` sees that."""


_PROBES: Final = (_ProbeError, _ProbeCancelledError)


def wrong(rule: str) -> ConfigurationError:
    """Return an error that says what is wrong with a transaction."""
    return ConfigurationError(f"transaction: {rule}", field="transaction")


async def prove(begin: Begin) -> None:
    """Prove a transaction by a mark of its own, which is gone afterwards; make the table for marks, if it is missing.

    Args:
        begin: Returns a context manager, plain or not, that gives a connection.

    Raises:
        ConfigurationError: It loses what is done in it, or leaves what an error should undo; or nobody lets it keep
            marks. Whatever else is raised, such as by a database that does not answer, proves nothing.
    """
    try:
        for failure in _PROBES:
            await _prove(begin, failure)
    except Exception as error:
        if says_denied(error):
            raise wrong(DENIED) from error
        raise


async def _prove(begin: Begin, failure: type[BaseException]) -> None:
    probe = token_hex(32)
    await _kept(begin, marking(probe, datetime.now(UTC)))
    found, raised = await _failed(begin, unmarking(probe), failure)
    undone = await _changed(begin, unmarking(probe))
    if not raised:
        raise wrong(SWALLOWED)
    if not found:
        raise wrong(LOST)
    if not undone:
        raise wrong(LEFT)


async def _kept(begin: Begin, statement: str) -> None:
    """Set a mark, in a table that is made where it is missing."""
    if await _in_table(begin, statement):
        return
    failure: Exception | None = None
    try:
        async with entered(begin) as connection:
            await execute(connection, TABLE)
    except Exception as error:  # noqa: BLE001 - another process may have made it just now: it is raised below, if not
        failure = error
    if not await _in_table(begin, statement):
        raise failure or wrong(LOST)


async def _in_table(begin: Begin, statement: str) -> bool:
    """Set a mark; `False` where there is no table."""
    try:
        await _changed(begin, statement)
    except Exception as error:
        if says_missing(error):
            return False
        raise
    return True


async def _changed(begin: Begin, statement: str) -> bool:
    """Return whether a statement, in a transaction of its own, has changed its row."""
    async with entered(begin) as connection:
        return await changes(connection, statement)
    raise wrong(SWALLOWED)


async def _failed(begin: Begin, statement: str, failure: type[BaseException]) -> tuple[bool, bool]:
    """Return whether a statement has changed its row, in a transaction that fails, and whether that was told."""
    changed = False
    try:
        async with entered(begin) as connection:
            changed = await changes(connection, statement)
            _fail(failure)
    except BaseException as error:
        if not any(isinstance(each, failure) for each in behind(error)):
            raise
        return changed, True
    return changed, False


def _fail(failure: type[BaseException]) -> None:
    raise failure("payasync proves that an error undoes this transaction: nothing is wrong")


logger: Final = logging.getLogger("payasync.notifications")

Within: TypeAlias = Callable[[Any], Awaitable[object]]
"""What is done with the connection of a transaction."""

PATIENCE: Final = 10.0
"""Seconds that a receiver waits, as it starts, for a database: what comes is kept without it."""


class Transactions:
    """The transactions that a function of the caller's begins.

    Args:
        begin: Returns a context manager, plain or not, that gives a connection.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._proven = False
        self._turn: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def once(self, digits: str, at: datetime, handle: Within) -> bool:
        """Do something in a transaction, and mark it; `False` where it has been marked before, and was left undone.

        Args:
            digits: The mark.
            at: Now.
            handle: Gets the connection.

        Raises:
            ConfigurationError: The transaction is none, gives no connection, or swallows an error, or its driver does
                not say what it did.
        """
        await self.prove()
        ends = list[bool]()
        async with entered(self._begin) as connection:
            fresh = await changes(connection, marking(digits, at))
            if fresh:
                await handle(connection)
            ends.append(fresh)
        if not ends:
            raise wrong(SWALLOWED)
        return ends[0]

    async def prove(self) -> None:
        """Prove that it commits, and undoes on an error; once is enough.

        Raises:
            ConfigurationError: It does not.
        """
        if self._proven:
            return
        loop = asyncio.get_running_loop()
        if self._turn is None or self._loop is not loop:
            self._turn, self._loop = asyncio.Lock(), loop
        async with self._turn:
            if not self._proven:
                await prove(self._begin)
                self._proven = True


async def prove_all(transactions: Iterable[Transactions]) -> None:
    """Prove transactions before the first event comes; one whose database does not answer now is left until then.

    Raises:
        ConfigurationError: One loses what is done in it, or leaves what an error should undo.
    """
    proofs = await asyncio.gather(*map(_proven, transactions), return_exceptions=True)
    for error in proofs:
        if isinstance(error, ConfigurationError):
            raise error
    for error in proofs:
        if error is not None:
            about = type(error).__name__
            logger.warning("a handler's transaction cannot be proven yet: %s. Its events wait in the inbox", about)


async def _proven(transactions: Transactions) -> None:
    async with asyncio.timeout(PATIENCE):
        await transactions.prove()
