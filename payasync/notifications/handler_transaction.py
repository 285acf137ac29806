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
Handle: TypeAlias = Callable[[Any], Awaitable[object]]
"""What is done with the connection of a transaction."""

TABLE: Final = "CREATE TABLE payasync_handled (event TEXT PRIMARY KEY, at TEXT)"
RIGHTS: Final = "GRANT SELECT, INSERT, DELETE ON payasync_handled TO ..."
PATIENCE: Final = 10.0
"""Seconds that a receiver waits, as it starts, for a database: what comes is kept without it."""

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

_MISSING: Final = "42P01"
_DENIED: Final = "42501"

logger: Final = logging.getLogger("payasync.notifications")


def hash_mark(handler: str, merchant: str, key: str) -> str:
    """Return what marks an event as done by a handler: hexadecimal digits, so that it is a literal anywhere.

    Args:
        handler: Its name.
        merchant: Whose event it is: order numbers are one merchant's own.
        key: The event's.
    """
    return hashlib.sha256(f"{handler}\n{merchant}\n{key}".encode()).hexdigest()


def build_insert(mark: str, at: datetime) -> str:
    """Return the statement that sets a mark; drivers differ in how they write parameters, so it has none."""
    return (
        f"INSERT INTO payasync_handled (event, at) VALUES ('{mark}', '{at.isoformat()}') "  # noqa: S608 - see above
        "ON CONFLICT DO NOTHING"
    )


class HandlerTransaction:
    """The transactions that a function of the caller's begins.

    Args:
        begin: Returns a context manager, plain or not, that gives a connection.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._proven = False
        self._lock: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run_once(self, mark: str, at: datetime, handle: Handle) -> bool:
        """Do something in a transaction, and mark it; `False` where it has been marked before, and was left undone.

        Args:
            mark: As `hash_mark` returns it.
            at: Now.
            handle: Gets the connection.

        Raises:
            ConfigurationError: The transaction is none, gives no connection, or swallows an error, or its driver does
                not say what it did.
        """
        await self.prove()
        ends = list[bool]()
        async with _enter(self._begin) as connection:
            is_new = await _change_row(connection, build_insert(mark, at))
            if is_new:
                await handle(connection)
            ends.append(is_new)
        if not ends:
            raise _refuse(SWALLOWED)
        return ends[0]

    async def prove(self) -> None:
        """Prove that it commits, and undoes on an error; once is enough.

        Raises:
            ConfigurationError: It does not.
        """
        if self._proven:
            return
        loop = asyncio.get_running_loop()
        if self._lock is None or self._loop is not loop:
            self._lock, self._loop = asyncio.Lock(), loop
        async with self._lock:
            if not self._proven:
                await prove(self._begin)
                self._proven = True


async def prove_all(transactions: Iterable[HandlerTransaction]) -> None:
    """Prove transactions before the first event comes; one whose database does not answer now is left until then.

    Raises:
        ConfigurationError: One loses what is done in it, or leaves what an error should undo.
    """
    proofs = (asyncio.wait_for(each.prove(), PATIENCE) for each in transactions)
    errors = await asyncio.gather(*proofs, return_exceptions=True)
    for error in errors:
        if isinstance(error, ConfigurationError):
            raise error
    for error in filter(None, errors):
        about = type(error).__name__
        logger.warning("a handler's transaction cannot be proven yet: %s. Its events wait in the inbox", about)


class _ProbeError(Exception):
    """Is raised inside a transaction, to see whether it is undone."""


class _ProbeCancelledError(asyncio.CancelledError):
    """The same of a handler that is cut off: no `except Exception` sees that."""


async def prove(begin: Begin) -> None:
    """Prove a transaction by a mark of its own, which is gone afterwards; make the table for marks, if it is missing.

    Args:
        begin: Returns a context manager, plain or not, that gives a connection.

    Raises:
        ConfigurationError: It loses what is done in it, or leaves what an error should undo; or nobody lets it keep
            marks. Whatever else is raised, such as by a database that does not answer, proves nothing.
    """
    try:
        for failure in (_ProbeError, _ProbeCancelledError):
            await _probe(begin, failure)
    except Exception as error:
        if any(_DENIED in _get_codes(each) for each in _list_causes(error)):
            raise _refuse(DENIED) from error
        raise


async def _probe(begin: Begin, failure: type[BaseException]) -> None:
    probe = token_hex(32)
    delete = f"DELETE FROM payasync_handled WHERE event = '{probe}'"  # noqa: S608 - its own digits
    await _set_first_mark(begin, build_insert(probe, datetime.now(UTC)))
    found, raised = await _fail_after(begin, delete, failure)
    undone = await _change_in_transaction(begin, delete)
    if not raised:
        raise _refuse(SWALLOWED)
    if not found:
        raise _refuse(LOST)
    if not undone:
        raise _refuse(LEFT)


async def _set_first_mark(begin: Begin, statement: str) -> None:
    """Set a mark, in a table that is made where it is missing."""
    if await _set_mark(begin, statement):
        return
    failure: Exception | None = None
    try:
        async with _enter(begin) as connection:
            await _execute(connection, TABLE)
    except Exception as error:  # noqa: BLE001 - another process may have made it just now: it is raised below, if not
        failure = error
    if not await _set_mark(begin, statement):
        raise failure or _refuse(LOST)


async def _set_mark(begin: Begin, statement: str) -> bool:
    """Set a mark; `False` where there is no table."""
    try:
        await _change_in_transaction(begin, statement)
    except Exception as error:
        if any(_MISSING in _get_codes(each) or "no such table" in str(each) for each in _list_causes(error)):
            return False
        raise
    return True


async def _change_in_transaction(begin: Begin, statement: str) -> bool:
    """Return whether a statement, in a transaction of its own, has changed its row."""
    async with _enter(begin) as connection:
        return await _change_row(connection, statement)
    raise _refuse(SWALLOWED)


async def _fail_after(begin: Begin, statement: str, failure: type[BaseException]) -> tuple[bool, bool]:
    """Return whether a statement changed its row in a transaction that fails, and whether the failure was raised."""
    changed = False
    try:
        async with _enter(begin) as connection:
            changed = await _change_row(connection, statement)
            _raise(failure)
    except BaseException as error:
        if not any(isinstance(each, failure) for each in _list_causes(error)):
            raise
        return changed, True
    return changed, False


def _raise(failure: type[BaseException]) -> None:
    raise failure("payasync proves that an error undoes this transaction: nothing is wrong")


@asynccontextmanager
async def _enter(begin: Begin) -> AsyncGenerator[Any]:
    """Enter a transaction, whichever kind of context manager it is.

    Raises:
        ConfigurationError: It is none, or gives no connection.
    """
    manager: Any = begin()
    if not hasattr(manager, "__aenter__") and not hasattr(manager, "__enter__"):
        rule = f"transaction must return a context manager, not {type(manager).__name__}"
        raise ConfigurationError(rule, field="transaction")
    async with manager if hasattr(manager, "__aenter__") else _enter_plain(manager) as connection:
        if connection is None:
            rule = "transaction gives no connection: its context manager must return one as it is entered"
            raise ConfigurationError(rule, field="transaction")
        yield connection


@asynccontextmanager
async def _enter_plain(manager: Any) -> AsyncGenerator[Any]:
    with manager as connection:
        yield connection


async def _change_row(connection: Any, statement: str) -> bool:
    """Return whether a statement has changed its row.

    Raises:
        ConfigurationError: The driver does not say.
    """
    result = await _execute(connection, statement)
    if isinstance(result, str):  # asyncpg's words, such as `INSERT 0 1`
        count: object = {"0": 0, "1": 1}.get(result.rpartition(" ")[2])
    else:
        count = getattr(result, "rowcount", None)
    if not isinstance(count, int) or count not in {0, 1}:
        raise _refuse(
            "this connection does not say whether a row was added. Give one of sqlite3, aiosqlite, psycopg, asyncpg or "
            "SQLAlchemy"
        )
    return count == 1


async def _execute(connection: Any, statement: str) -> Any:
    """Execute a statement by any driver; SQLAlchemy's sessions have a connection that takes one as it stands."""
    if not hasattr(connection, "exec_driver_sql") and callable(getattr(connection, "connection", None)):
        connection = await _resolve(connection.connection())
    return await _resolve((getattr(connection, "exec_driver_sql", None) or connection.execute)(statement))


async def _resolve(result: Any) -> Any:
    return await result if isawaitable(result) else result


def _get_codes(error: BaseException) -> tuple[object, ...]:
    return getattr(error, "sqlstate", None), getattr(error, "pgcode", None)


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and what it was raised over."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _refuse(rule: str) -> ConfigurationError:
    """Return an error that says what is wrong with a transaction."""
    return ConfigurationError(f"transaction: {rule}", field="transaction")
