"""A connection of the caller's own to the journal's file: what is kept by it commits with the caller's transaction."""

import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, TypeVar

from payasync.errors import ConfigurationError, StorageError
from payasync.journal.asking import Asked, Transaction, run
from payasync.journal.sqlite_rows import given, written
from payasync.sqlite_opening import Schema

_MARKS: Final = ("application_id", "user_version")

_NOTHING: Final = "DELETE FROM payasync_intents WHERE FALSE"
"""Changes nothing, and begins a transaction on a connection that does not commit by itself, as whatever writes does."""

T = TypeVar("T")


async def done_within(
    connection: Any, transaction: Transaction[T], *, path: str, schema: Schema, prepare: Callable[[], Awaitable[object]]
) -> T:
    """Return what is done by a connection of sqlite3's, or of what speaks as it does, such as aiosqlite.

    Args:
        connection: The caller's, who commits.
        transaction: What is to be done.
        path: The journal's file.
        schema: What must stand in it.
        prepare: Makes the file, or brings it up to date.

    Raises:
        ConfigurationError: It is no connection to that file, or commits each statement by itself.
        StorageError: The file cannot be written now.
    """
    try:
        if not await _is_prepared(connection, schema):
            await prepare()
        _check_file(await _rows(connection, "PRAGMA database_list"), path)
        await _check_transaction(connection)
        return await run(transaction, partial(_answer, connection))
    except (sqlite3.Error, OSError) as error:
        raise StorageError(f"the journal {path!r} is unavailable: {error}", reason=str(error)) from None
    except AttributeError:
        raise _refused(path, type(connection).__name__) from None


async def _answer(connection: Any, asked: Asked) -> list[Any]:
    return given(asked, await _rows(connection, asked.statement, written(asked.values)))


async def _is_prepared(connection: Any, schema: Schema) -> bool:
    marks = [(await _rows(connection, f"PRAGMA {name}"))[0][name] for name in _MARKS]
    return marks == [schema.application, len(schema.steps)]


def _check_file(databases: list[dict[str, Any]], path: str) -> None:
    found = next(each["file"] for each in databases if each["name"] == "main")
    if not found or not Path(found).samefile(path):
        raise _refused(path, repr(found) if found else "a database in memory")


async def _check_transaction(connection: Any) -> None:
    if not connection.in_transaction:
        await _rows(connection, _NOTHING)
    if not connection.in_transaction:
        raise ConfigurationError(
            "connection must be in a transaction, and this one commits each statement by itself: execute BEGIN first, "
            "or connect without isolation_level=None and autocommit=True",
            field="connection",
        )


def _refused(path: str, other: str) -> ConfigurationError:
    return ConfigurationError(
        f"connection must be one of sqlite3 or aiosqlite to the journal's own file, {path!r}, not {other}",
        field="connection",
    )


async def _rows(connection: Any, statement: str, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    cursor = await _got(connection.execute(statement, values or {}))
    names = [column[0] for column in cursor.description or ()]
    found = [tuple(row) for row in await _got(cursor.fetchall())]
    await _got(cursor.close())
    return [dict(zip(names, row, strict=True)) for row in found]


async def _got(result: Any) -> Any:
    return await result if isawaitable(result) else result
