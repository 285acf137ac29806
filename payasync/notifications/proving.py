"""The proof that a transaction is one: what is done in it is there afterwards, and is undone on an error.

Only then is a mark there where its effect is, and nowhere else. A context manager that does not commit would lose
every effect, and one that commits each statement by itself would lose those of handlers that fail once.
"""

import asyncio
from datetime import UTC, datetime
from secrets import token_hex
from typing import Final

from payasync.errors import ConfigurationError
from payasync.notifications.drivers import Begin, behind, changes, entered, execute, says_denied, says_missing
from payasync.notifications.marks import RIGHTS, TABLE, marking, unmarking

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
