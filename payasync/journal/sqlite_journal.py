"""A journal in one SQLite file, which several processes of one machine can share."""

import json
import os
import re
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, lru_cache
from inspect import isawaitable
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson
from attrs import fields, frozen

from payasync.errors import ConfigurationError, StorageError
from payasync.journal.drafts import Keep
from payasync.journal.intents import Intent
from payasync.journal.journal import Journal
from payasync.journal.redaction import outcome_from_json
from payasync.journal.transactions import Query, Transaction, run_transaction
from payasync.settings import check_function
from payasync.storage import Schema, read_migrations
from payasync.storage.sqlite import MARKS, SqliteFile, escape_surrogates, utc_moment

T = TypeVar("T")

SCHEMA: Final = Schema(
    name="journal",
    migrations=read_migrations("payasync.journal", "sqlite"),
    application=0x5061796A,  # `Payj`
)

# A later payasync, to which another process was upgraded, may have added columns.
_COLUMNS: Final = tuple(each.name for each in fields(Intent))
_MOMENTS: Final = ("lease", "due", "created", "updated", "sent_at", "silent_since", "key_sent")
_NOTHING: Final = type(None)
_PLAIN: Final = frozenset({str, int, float, _NOTHING})
_CHANGE_NOTHING: Final = "DELETE FROM payasync_intents WHERE FALSE"
"""Begins a transaction on a connection that does not commit by itself, as any write does."""


def _converter(kind: type) -> Callable[[Any], Any] | None:
    """Return what makes a value of a type one that SQLite takes; `None` if SQLite takes it as it is."""
    if kind in _PLAIN:
        return None
    if kind is bool:
        return int  # sqlite3 would look for an adapter each time
    if issubclass(kind, datetime):
        return datetime.timestamp
    if issubclass(kind, timedelta):
        return timedelta.total_seconds
    return _to_json if issubclass(kind, Mapping) else None


def _to_sqlite(value: Any) -> Any:
    convert = _converter(type(value))
    return convert(value) if convert else value


def _to_json(value: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(value)).decode()


def _escape_text(value: Any) -> Any:
    return escape_surrogates(value) if isinstance(value, str) else value


@frozen
class SqliteStatement:
    """A statement as SQLite executes it fastest.

    Attributes:
        text: With a question mark for each value: SQLite finds a value faster by its place than by its name.
        pick: Returns the values in the order of their places.
        one: It changes one known row. `RETURNING` would take a quarter of the time, and is left out.
    """

    text: str
    pick: Callable[[Mapping[str, Any]], Sequence[Any]]
    one: bool


@frozen
class Binding:
    """How values of certain types are bound to a statement.

    Attributes:
        text: The statement, with NULL for each `None`: sqlite3 would look for an adapter of each, which takes longer
            than to bind it.
        pick: Returns the values that are not `None`.
        conversions: Which of these are converted, and how.
    """

    text: str
    pick: Callable[[Sequence[Any]], Sequence[Any]]
    conversions: Sequence[tuple[int, Callable[[Any], Any]]]

    def bind(self, values: Sequence[Any]) -> list[Any]:
        """Return values as SQLite takes them, but for half surrogate pairs."""
        given = list(self.pick(values))
        for place, convert in self.conversions:
            given[place] = convert(given[place])
        return given


@lru_cache(maxsize=256)
def _binding(text: str, kinds: tuple[type, ...]) -> Binding:
    """Return how values of these types are bound. A statement has few combinations of types."""
    places = [place for place, kind in enumerate(kinds) if kind is not _NOTHING]
    pick: Any = itemgetter(*places) if len(places) > 1 else lambda values: [values[place] for place in places]
    converters = (_converter(kinds[place]) for place in places)
    conversions = [(place, convert) for place, convert in enumerate(converters) if convert]
    marks = iter(kinds)
    return Binding(re.sub(r"\?", lambda _: "NULL" if next(marks) is _NOTHING else "?", text), pick, conversions)


@cache
def sqlite_statement(statement: str) -> SqliteStatement:
    """Return a statement as SQLite executes it fastest."""
    text = re.sub(r"/\* (INDEXED BY \w+|NOT INDEXED) \*/", r"\1", re.sub(r":\w+", "?", statement))
    changes = text.removesuffix(" RETURNING id")
    one = changes != text and ("INSERT" in changes or "WHERE id = ?" in changes)
    names = re.findall(r":(\w+)", statement)
    pick: Any = itemgetter(*names) if len(names) > 1 else lambda values: [values[name] for name in names]
    return SqliteStatement(changes if one else text, pick, one)


def _execute(db: sqlite3.Connection, query: Query) -> list[Any]:
    """Return the result of a query."""
    statement = sqlite_statement(query.statement)
    values = statement.pick(query.values)
    binding = _binding(statement.text, tuple(map(type, values)))
    given = binding.bind(values)
    try:
        cursor = db.execute(binding.text, given)
    except UnicodeEncodeError:
        cursor = db.execute(binding.text, [_escape_text(each) for each in given])
    if statement.one:
        return [query.values.get("id", cursor.lastrowid)] * cursor.rowcount
    return _read_results(query, cursor.description, cursor.fetchall())


def _read_results(query: Query, description: Sequence[Sequence[Any]], rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the intents that stand in rows, or one column of them, as the query says."""
    names = [column[0] for column in description]
    if query.column:
        place = names.index(query.column)
        return [row[place] for row in rows]
    return [_intent_of_row(dict(zip(names, row, strict=True))) for row in rows]


def _intent_of_row(row: Mapping[str, Any]) -> Intent:
    facts: dict[str, Any] = {
        **{name: row[name] for name in _COLUMNS},
        **{name: None if row[name] is None else utc_moment(row[name]) for name in _MOMENTS},
        "request": json.loads(row["request"]),
        "named": None if row["named"] is None else json.loads(row["named"]),
        "queued": bool(row["queued"]),
        "answered": bool(row["answered"]),
        "outcome": None if row["outcome"] is None else outcome_from_json(row["outcome"]),
    }
    return Intent(**facts)


class SqliteJournal(Journal):
    """Stores intents in an SQLite file; `Journal` documents its methods.

    Nothing is opened before the first use. A new file can be read by its owner alone; an existing file keeps its mode.
    A session does not close its journal, because others may use it: use `async with`, or call `aclose` at the end.

    `add(..., connection=)` takes a connection of sqlite3 or aiosqlite to the journal's own file, in which the caller
    may have tables, too. While its transaction has written and goes on, the journal cannot write: commit before
    anything is sent. A connection that commits each statement by itself is refused outside of a transaction.

    Args:
        path: The file. It is made at the first use. If it is deleted or replaced later, calls fail with `StorageError`
            until it is restored. Do not put it on a network file system.
        keep: A function of an operation and its arguments. It returns the arguments that may be stored. Default: of a
            direct call those that move money, of a queued request all but the customer's details.
        whole_answers: Store whole responses, without nonces, signatures and the customer's details of the request.
            Default: store the values at the profile's paths.
        clock: A function that returns seconds since 1970; leases end, and intents are due, by this clock.

    Attributes:
        recorder: What a session uses.

    Raises:
        ConfigurationError: `path` is not the path of a file, or `keep` or `clock` not a plain function. The first use
            raises it if the file is damaged or empty, or belongs to another program or a newer payasync. The file is
            not changed.
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
        """Finish what was begun, and close the file. Each later call raises `StorageError`."""
        await self._file.aclose()

    def _run(self, work: Callable[[datetime], Transaction[T]]) -> Awaitable[T]:
        now = utc_moment(self._clock())
        return self._file.start(lambda db: _run_on(db, work(now)))

    async def _run_within(self, connection: Any, work: Callable[[datetime], Transaction[T]]) -> T:
        """Run work on a connection of sqlite3, or of a compatible library such as aiosqlite, and return its result.

        Raises:
            ConfigurationError: It is no connection to the file, or commits each statement by itself.
            StorageError: The file cannot be written now.
        """
        self._file.check_identity()
        transaction = work(utc_moment(self._clock()))

        async def execute(query: Query) -> list[Any]:
            values = {name: _escape_text(_to_sqlite(value)) for name, value in query.values.items()}
            return _read_results(query, *(await _fetch_rows(connection, query.statement, values)))

        try:
            marks = [(await _fetch_rows(connection, f"PRAGMA {name}"))[1][0][0] for name in MARKS]
            if marks != [SCHEMA.application, len(SCHEMA.migrations)]:
                await self.next_due()  # makes the file
            await self._check_connection(connection)
            done = await run_transaction(transaction, execute)
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"the journal {self._place!r} is unavailable: {error}", reason=str(error)) from None
        except AttributeError:
            raise self._refuse_connection(type(connection).__name__) from None
        self._file.remember_identity()
        return done

    async def _check_connection(self, connection: Any) -> None:
        _, databases = await _fetch_rows(connection, "PRAGMA database_list")
        file = next(each[2] for each in databases if each[1] == "main")
        if not file or not _is_same_file(file, self._place):
            raise self._refuse_connection(repr(file) if file else "a database in memory")
        if not connection.in_transaction:
            await _fetch_rows(connection, _CHANGE_NOTHING)
        if not connection.in_transaction:
            raise ConfigurationError(
                "connection must be in a transaction, and this one commits each statement by itself: execute BEGIN "
                "first, or connect without isolation_level=None and autocommit=True",
                field="connection",
            )

    def _refuse_connection(self, other: str) -> ConfigurationError:
        return ConfigurationError(
            f"connection must be one of sqlite3 or aiosqlite to the journal's own file, {self._place!r}, not {other}",
            field="connection",
        )


def _is_same_file(first: str, second: str) -> bool:
    return Path(first).samefile(second)


def _run_on(db: sqlite3.Connection, transaction: Transaction[T]) -> T:
    """Run a transaction to its end, as `run_transaction` does, without awaiting."""
    try:
        query = next(transaction)
        while True:
            query = transaction.send(_execute(db, query))
    except StopIteration as end:
        result: T = end.value
        return result


async def _fetch_rows(connection: Any, statement: str, values: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
    """Return the description of the columns, and the rows."""
    cursor = await _await_if_needed(connection.execute(statement, values or {}))
    rows = await _await_if_needed(cursor.fetchall())
    await _await_if_needed(cursor.close())
    return cursor.description or (), rows


async def _await_if_needed(result: Any) -> Any:
    return await result if isawaitable(result) else result
