"""A handler inside your own transaction: its effect, and the mark that it is done, are committed together."""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from inspect import isawaitable
from secrets import token_hex
from typing import Any, Final, TypeAlias, TypeVar

from payasync.clocks import utc_now
from payasync.errors import ConfigurationError
from payasync.middleware.observe import log
from payasync.storage.home import configured_path, find_home, quote_name
from payasync.transport.threads import call_in_thread, complete

Begin: TypeAlias = Callable[[], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
"""Returns a context manager that gives a connection. It commits at its end, and rolls back on an error."""

MARKS: Final = "payasync_handled"
TABLE: Final = f"CREATE TABLE {MARKS} (event TEXT PRIMARY KEY, at TEXT)"
RIGHTS: Final = "GRANT SELECT, INSERT, DELETE ON payasync_handled TO ..."
PATIENCE: Final = 10.0
"""Seconds that a starting receiver waits for a database."""

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
UNDONE: Final = "a failed statement or a rollback has undone it. Let the handler raise that error, or use a savepoint"
DENIED: Final = f"it may not store its marks. Have the database's owner execute: {TABLE}; {RIGHTS}"
MUTE: Final = (
    "this connection does not say whether a row was added. Give one of sqlite3, aiosqlite, psycopg, asyncpg or "
    "SQLAlchemy"
)
ASYNC: Final = (
    "a plain function needs a plain context manager, which `with` enters. Give one, such as engine.begin of "
    "SQLAlchemy's create_engine, or make the handler async def"
)

_UNDEFINED_TABLE: Final = "42P01"
_UNDEFINED_FUNCTION: Final = "42883"
_INSUFFICIENT_PRIVILEGE: Final = "42501"

T = TypeVar("T")

logger: Final = logging.getLogger("payasync.notifications")


def hash_mark(handler: str, merchant: str, key: str) -> str:
    """Return the mark of an event that a handler has handled: hexadecimal digits, so that it is safe in a statement.

    Args:
        handler: The handler's name.
        merchant: The merchant, because order numbers are unique for one merchant only.
        key: The event's key.
    """
    return hashlib.sha256(f"{handler}\n{merchant}\n{key}".encode()).hexdigest()


def build_insert(mark: str, at: datetime, marks: str = MARKS) -> str:
    """Return the statement that inserts a mark. It has no parameters, because drivers write them differently."""
    return (
        f"INSERT INTO {marks} (event, at) VALUES ('{mark}', '{at.isoformat()}') "  # noqa: S608 - see above
        "ON CONFLICT DO NOTHING"
    )


class _ProbeError(Exception):
    """Raised inside a transaction, to see whether it is rolled back."""


class _ProbeCancelledError(asyncio.CancelledError):
    """The same for a cancelled handler, because `except Exception` does not catch a cancellation."""


class HandlerTransaction:
    """The transactions of a handler.

    Args:
        begin: Begins each of them.
        plain: The handler is a plain function. Each transaction then runs, as a whole, in one thread without a loop.
    """

    def __init__(self, begin: Begin, *, plain: bool = False) -> None:
        self.plain: Final = plain
        self._begin: Begin = partial(_begin_plainly, begin) if plain else begin
        self._marks = MARKS
        self._checked = False

    def call(self, mark: str, at: datetime, handle: Callable[[Any], object]) -> bool | Coroutine[Any, Any, bool]:
        """Return `run_once`, or if the handler is plain, run it in this thread."""
        once = self.run_once(mark, at, handle)
        return complete(once) if self.plain else once

    async def run_once(self, mark: str, at: datetime, handle: Callable[[Any], object]) -> bool:
        """Call a function in a transaction, and insert its mark; return `False`, without a call, if the mark exists.

        PostgreSQL commits nothing, and says nothing, after a failed statement. So the mark is read before the end.

        Args:
            mark: As `hash_mark` returns it.
            at: The current time.
            handle: Gets the connection.

        Raises:
            ConfigurationError: As for `check`, or the function has returned from a transaction that was undone.
        """
        await self.check()
        async with _enter(self._begin) as connection:
            if await _changes_row(connection, build_insert(mark, at, self._marks)):
                await _resolve(handle(connection))
                if not await _has_row(connection, f"SELECT event FROM {self._marks} WHERE event = '{mark}'"):  # noqa: S608 - hexadecimal digits
                    raise _error(UNDONE)
                return True
            return False
        raise _error(SWALLOWED)

    async def check(self) -> None:
        """Check that the transaction commits, and that an error undoes it. Only the first call does anything.

        Each probe has a mark of its own, which it deletes. The table of marks is created if it is missing.

        Raises:
            ConfigurationError: The transaction loses its effects, or keeps them after an error; or it may not store
                marks, gives no connection, or has an unsupported driver. Any other error, such as of a database that
                does not respond, says nothing about the transaction.
        """
        if self._checked:
            return
        try:
            self._marks = await self._find_marks()
            for failure in (_ProbeError, _ProbeCancelledError):
                await self._probe(failure)
        except Exception as error:
            if _has_code(error, _INSUFFICIENT_PRIVILEGE):
                raise _error(DENIED) from error
            raise
        self._checked = True

    async def _find_marks(self) -> str:
        """Return the name of the table of marks; in PostgreSQL with its schema, which a pooler may hide."""
        try:
            await self._alone(_fetch_in, "SELECT sqlite_version()")
        except Exception as error:
            if not _has_code(error, _UNDEFINED_FUNCTION):
                raise
        else:
            return MARKS
        row = await self._alone(_fetch_in, find_home(MARKS))
        cells = [*row.values()] if isinstance(row, Mapping) else row
        value = cells[0] if cells and isinstance(cells, Sequence) else ""
        if "{" not in value:  # the connection makes objects of its own of rows: its path is believed
            return MARKS
        found = json.loads(row if isinstance(row, str) else value)
        # The caller may set a path of its own for each transaction, so that a schema on this one counts, too.
        path = [*configured_path(found["path"], "", found["role"]), *found["current"]]
        wanted = ("homes", "creatable", "schemas")
        home = next((each for kind in wanted for each in path if each in found[kind]), None)
        return MARKS if home is None else f"{quote_name(home)}.{MARKS}"

    async def _probe(self, failure: type[BaseException]) -> None:
        mark = token_hex(32)
        delete = f"DELETE FROM {self._marks} WHERE event = '{mark}'"  # noqa: S608 - its own digits
        await self._insert_first(build_insert(mark, utc_now(), self._marks))
        committed = raised = False
        try:
            async with _enter(self._begin) as connection:
                committed = await _changes_row(connection, delete)
                raise failure("payasync checks that an error undoes this transaction: nothing is wrong")  # noqa: TRY301 - the probe itself
        except BaseException as error:
            if not any(isinstance(each, failure) for each in _list_causes(error)):
                raise
            raised = True
        undone = await self._alone(_changes_row, delete)
        if not raised:
            raise _error(SWALLOWED)
        if not committed:
            raise _error(LOST)
        if not undone:
            raise _error(LEFT)

    async def _insert_first(self, insert: str) -> None:
        """Insert a mark, into a table that is created if it is missing."""
        if await self._insert(insert):
            return
        failure: Exception = _error(LOST)
        try:
            async with _enter(self._begin) as connection:
                await _execute(connection, TABLE.replace(MARKS, self._marks))
        except Exception as error:  # noqa: BLE001 - another process may have created it just now
            failure = error
        if not await self._insert(insert):
            raise failure

    async def _insert(self, insert: str) -> bool:
        """Insert a mark; return `False` if the table is missing."""
        try:
            await self._alone(_changes_row, insert)
        except Exception as error:
            if _has_code(error, _UNDEFINED_TABLE) or any("no such table" in str(each) for each in _list_causes(error)):
                return False
            raise
        return True

    async def _alone(self, execute: Callable[[Any, str], Coroutine[Any, Any, T]], statement: str) -> T:
        """Execute a statement in a transaction of its own, and return the result."""
        async with _enter(self._begin) as connection:
            return await execute(connection, statement)
        raise _error(SWALLOWED)


async def check_all(transactions: Iterable[HandlerTransaction]) -> None:
    """Check transactions before the first event. If a database does not respond now, its check is left until then.

    Raises:
        ConfigurationError: As for `HandlerTransaction.check`.
    """
    checks = (asyncio.wait_for(_check(each), PATIENCE) for each in transactions)
    errors = await asyncio.gather(*checks, return_exceptions=True)
    for error in errors:
        if isinstance(error, ConfigurationError):
            raise error
    for error in filter(None, errors):
        words = "a handler's transaction cannot be checked yet: %(error_type)s. Its events wait in the inbox"
        log(logger, logging.WARNING, "handler.not_checked", words, error_type=type(error).__name__)


async def _check(transaction: HandlerTransaction) -> None:
    if not transaction.plain:
        return await transaction.check()
    called = call_in_thread("payasync-handler", lambda: complete(transaction.check()))
    return (await asyncio.shield(called)).result()


@contextmanager
def _begin_plainly(begin: Begin) -> Generator[Any]:
    """Begin a transaction without a loop.

    Raises:
        ConfigurationError: It is not a plain context manager.
    """
    manager: Any = begin()
    if not hasattr(manager, "__enter__"):
        raise _error(ASYNC if hasattr(manager, "__aenter__") else _describe_wrong(manager))
    with manager as connection:
        yield connection


def _describe_wrong(manager: object) -> str:
    return f"it must return a context manager, not {type(manager).__name__}"


@asynccontextmanager
async def _enter(begin: Begin) -> AsyncGenerator[Any]:
    """Enter a transaction, whichever kind of context manager it is.

    Raises:
        ConfigurationError: It is not a context manager, or gives no connection.
    """
    manager: Any = begin()
    if not hasattr(manager, "__aenter__") and not hasattr(manager, "__enter__"):
        raise _error(_describe_wrong(manager))
    async with manager if hasattr(manager, "__aenter__") else _enter_plain(manager) as connection:
        if connection is None:
            raise _error("it gives no connection: its context manager must return one as it is entered")
        yield connection


@asynccontextmanager
async def _enter_plain(manager: Any) -> AsyncGenerator[Any]:
    with manager as connection:
        yield connection


async def _fetch_in(connection: Any, statement: str) -> Any:
    """Return the first row, or of asyncpg its first value; `None` if there is no row.

    Raises:
        ConfigurationError: The driver has no rows.
    """
    if hasattr(connection, "fetchval"):  # asyncpg
        return await connection.fetchval(statement)
    fetch = getattr(await _execute(connection, statement), "fetchone", None)
    if fetch is None:
        raise _error(MUTE)
    return await _resolve(fetch())


async def _has_row(connection: Any, statement: str) -> bool:
    """Return whether a statement finds a row; `False` also in an aborted transaction or on a lost connection.

    Neither commits anything, so that the handler must be called again.
    """
    try:
        return await _fetch_in(connection, statement) is not None
    except Exception:  # noqa: BLE001 - each driver has its own error, and `check` has read this table before
        return False


async def _changes_row(connection: Any, statement: str) -> bool:
    """Execute a statement, and return whether it has changed its row.

    Raises:
        ConfigurationError: The driver does not say.
    """
    result = await _execute(connection, statement)
    if isinstance(result, str):  # asyncpg returns a text, such as `INSERT 0 1`
        count: object = {"0": 0, "1": 1}.get(result.rpartition(" ")[2])
    else:
        count = getattr(result, "rowcount", None)
    if not isinstance(count, int) or count not in {0, 1}:
        raise _error(MUTE)
    return count == 1


async def _execute(connection: Any, statement: str) -> Any:
    """Execute a statement with any driver. A session of SQLAlchemy's has a connection that takes plain text."""
    if not hasattr(connection, "exec_driver_sql") and callable(getattr(connection, "connection", None)):
        connection = await _resolve(connection.connection())
    return await _resolve((getattr(connection, "exec_driver_sql", None) or connection.execute)(statement))


async def _resolve(result: Any) -> Any:
    return await result if isawaitable(result) else result


def _has_code(error: BaseException, code: str) -> bool:
    """Return whether PostgreSQL has refused something with a code; drivers name the attribute differently."""
    return any(code in {getattr(each, "sqlstate", None), getattr(each, "pgcode", None)} for each in _list_causes(error))


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and the errors that it was raised over."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _error(rule: str) -> ConfigurationError:
    return ConfigurationError(f"transaction: {rule}", field="transaction")
