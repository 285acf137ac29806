"""A journal in one SQLite file, which several processes of one machine can share."""

import json
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson
from attrs import fields

from payasync.errors import ConfigurationError, StorageError
from payasync.journal.entries import Keep, outcome_from_text
from payasync.journal.intents import Intent
from payasync.journal.store import StoredJournal
from payasync.journal.transactions import Asked, Transaction, run
from payasync.settings import check_function
from payasync.storage import Schema, read_migrations
from payasync.storage.sqlite import SqliteFile, escape_surrogates, fetch_rows, utc_moment

# A later payasync, to which another process was upgraded, may have added some.
_COLUMNS: Final = tuple(each.name for each in fields(Intent))


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a statement as SQLite takes them."""
    return {name: _written(value) for name, value in values.items()}


def _written(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, Mapping):
        return orjson.dumps(dict(value)).decode()
    return escape_surrogates(value) if isinstance(value, str) else value


def given(asked: Asked, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the intentions that stand in rows, or one column of them, whichever was asked for."""
    return [row[asked.column] if asked.column else _intent(row) for row in rows]


def _intent(row: Mapping[str, Any]) -> Intent:
    moments = ("lease", "due", "created", "updated", "sent_at", "silent_since")
    facts: dict[str, Any] = {
        **{name: row[name] for name in _COLUMNS},
        **{name: None if row[name] is None else utc_moment(row[name]) for name in moments},
        "request": json.loads(row["request"]),
        "named": None if row["named"] is None else json.loads(row["named"]),
        "queued": bool(row["queued"]),
        "answered": bool(row["answered"]),
        "outcome": None if row["outcome"] is None else outcome_from_text(row["outcome"]),
    }
    return Intent(**facts)


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
    return marks == [schema.application, len(schema.migrations)]


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


APPLICATION: Final = 0x5061796A
"""`Payj`, in the header of the file, says whose it is."""


SCHEMA: Final = Schema(
    name="journal", application=APPLICATION, migrations=read_migrations("payasync.journal", "sqlite")
)


class SqliteJournal(StoredJournal):
    """Keeps intentions in an SQLite file; what it promises stands at `Journal`.

    Nothing is opened before the first use. A file that is made is its owner's alone; one that was there keeps its mode.
    A session does not close its journal, which
    others may use, too: use it with `async with`, or call `aclose` at the end.

    `add(..., connection=)` takes a connection of sqlite3 or aiosqlite to the journal's own file, in which the caller
    may have tables, too; one that commits each statement by itself is refused outside of a transaction. As long as its
    transaction has written and goes on, nothing else of the journal can: commit before anything is sent.

    Args:
        path: The file's; it is made at the first use, where there is none, and never again: one that vanishes, or whose
            place another takes, is a `StorageError` until it is back. Not on a network's file system.
        keep: Returns, of an operation and its arguments, those that may be kept. Without it, a direct call's are those
            that move money, and those of what is queued all but the customer's details.
        whole_answers: Keep the service's answers whole, but for nonces, signatures and the customer's details as far as
            they are known from the request; else what the profile's paths lead to.
        clock: Returns seconds since 1970: when a lease ends, and what is due, goes by it.

    Attributes:
        recorder: What a session uses.

    Raises:
        ConfigurationError: `path` is no path of a file; `keep` or `clock` no plain function. The first use raises it if
            the file is another program's, a newer payasync's, or damaged (as one of 0 bytes is). The file stays as it
            is.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep: Keep | None = None,
        whole_answers: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_function("clock", clock)
        self._file = SqliteFile(path, SCHEMA)
        self._clock = clock
        super().__init__(keep, whole_answers=whole_answers, clock=None if clock is time.time else clock)

    def __repr__(self) -> str:
        return f"SqliteJournal({self._place!r})"

    @property
    def _place(self) -> str:
        return self._file.path

    async def aclose(self) -> None:
        """Finish what was begun, and close the file; whatever is asked afterwards is a `StorageError`."""
        await self._file.aclose()

    async def _run(self, work: Callable[[datetime], Transaction[T]]) -> T:
        now = utc_moment(self._clock())
        return await self._file.run(lambda db: _done(db, work(now)))

    async def _within(self, connection: Any, work: Callable[[datetime], Transaction[T]]) -> T:
        self._file.check_identity()
        transaction = work(utc_moment(self._clock()))
        done = await done_within(connection, transaction, path=self._file.path, schema=SCHEMA, prepare=self.next_due)
        self._file.remember_identity()
        return done


def _done(db: sqlite3.Connection, transaction: Transaction[T]) -> T:
    """Run a transaction to its end."""
    try:
        asked = next(transaction)
        while True:
            asked = transaction.send(given(asked, fetch_rows(db, asked.statement, written(asked.values))))
    except StopIteration as end:
        done: T = end.value
        return done
