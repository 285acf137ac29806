"""A journal in one SQLite file, which several processes of one machine can share."""

import os
import sqlite3
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache, partial
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from attrs import frozen

from payasync.clocks import utc_moment, wall_time
from payasync.errors import ConfigurationError, StorageError
from payasync.journal.drafts import Keep
from payasync.journal.journal import Journal
from payasync.journal.rows import COLUMNS, TEXTS, intent_of_row, with_columns
from payasync.journal.transactions import ADD, GROUPED, Query, Transaction, Write, run_transaction
from payasync.settings import check_function, invalid_setting
from payasync.storage import Present, Schema, Upgrade, read_migrations
from payasync.storage.sqlite import MARKS, SqliteFile
from payasync.storage.sqlite_statement import binding, execute, execute_bound, names_in, picker, to_sqlite, with_indexes
from payasync.storage.writer_thread import Executor, WriterThread

T = TypeVar("T")

SCHEMA: Final = Schema(
    name="journal",
    migrations=read_migrations("payasync.journal", "sqlite"),
    application=0x5061796A,  # `Payj`
)

_READ: Final = ", ".join(f"CAST({name} AS BLOB) AS {name}" if name in TEXTS else name for name in COLUMNS)
"""sqlite3 would read no row at all if a text in one of them were not valid UTF-8."""
SHARED: Final = (32, 16, 8, 4, 2)
"""How many transactions share a statement."""
ROWS: Final = "/* rows */"
_CHANGE_NOTHING: Final = "DELETE FROM payasync_intents WHERE FALSE"
"""Begins a transaction on a connection that does not commit by itself, as any write does."""


@frozen
class SqliteStatement:
    """A statement as SQLite executes it.

    Attributes:
        text: The statement.
        one: It changes one known row. `RETURNING` would take a quarter of the time, and is left out.
    """

    text: str
    one: bool


@cache
def sqlite_statement(statement: str) -> SqliteStatement:
    """Return a statement as SQLite executes it."""
    text = with_columns(with_indexes(statement), _READ)
    changes = text.removesuffix(" RETURNING id")
    one = changes != text and ("INSERT" in changes or "WHERE id = :id" in changes)
    return SqliteStatement(changes if one else text, one)


@cache
def shared_statement(statement: str) -> str:
    """Return one of `GROUPED` as several transactions share it: `ROWS` stands for their values."""
    text = sqlite_statement(statement).text
    if statement == ADD:
        # The ids are given, because SQLite does not say which new row has which id.
        text = text.replace("(operation", "(id, operation").replace("SELECT\n", "SELECT\n    :id,", 1)
    return text.replace("\nWHERE", f"\nFROM (VALUES {ROWS}) AS one\nWHERE", 1)


@lru_cache(maxsize=256)
def _with_rows(text: str, columns: int, rows: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return text.replace(ROWS, ", ".join([row] * rows))


@cache
def _row_picker(statement: str) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """Return a function that returns a statement's values, in the order of `names_in`."""
    return picker(names_in(sqlite_statement(statement).text))


def _execute(db: sqlite3.Connection, query: Query) -> list[Any]:
    """Return the result of a query."""
    statement = sqlite_statement(query.statement)
    cursor = execute(db, statement.text, query.values)
    if statement.one:
        return [query.values.get("id", cursor.lastrowid)] * cursor.rowcount
    return _read_results(query, cursor.description, cursor.fetchall())


def _read_results(query: Query, description: Sequence[Sequence[Any]], rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the intents that stand in rows, or one column of them, as the query says."""
    names = [column[0] for column in description]
    if query.column:
        place = names.index(query.column)
        return [row[place] for row in rows]
    return [intent_of_row(dict(zip(names, row, strict=True))) for row in rows]


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
        clock: A function that returns seconds since 1970, in place of the system's wall clock; leases end, and intents
            are due, by this clock. Quarantines and the lease of a sender also follow the machine's boot clock.
        migrate: Make a missing file, and migrate the tables of an earlier payasync. With `False`, the first use raises
            `ConfigurationError` instead.
        executor: Returns what runs the transactions, given a name. Default: a thread.

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
        clock: Callable[[], float] | None = None,
        migrate: bool = True,
        executor: Callable[[str], Executor] = WriterThread,
    ) -> None:
        if clock is not None:
            check_function("clock", clock)
        self._file = SqliteFile(path, SCHEMA, _run_all, migrate=migrate, executor=executor)
        self.present: Present = self._file.present
        self._clock = clock or wall_time
        super().__init__(keep, whole_answers=whole_answers)

    def __repr__(self) -> str:
        return f"SqliteJournal({self._place!r})"

    @property
    def _place(self) -> str:
        return self._file.path

    async def upgrade(self, *, dry_run: bool = False) -> Upgrade:
        """Make or migrate the tables, and return what was executed; with `dry_run`, execute nothing."""
        return await self._file.upgrade(dry_run=dry_run)

    async def aclose(self) -> None:
        """Finish what was begun, and close the file. Each later call raises `StorageError`."""
        await self._file.aclose()

    def _run(self, work: Callable[[datetime], Transaction[T]]) -> Awaitable[T]:
        now = utc_moment(self._clock())
        return self._file.start(partial(work, now))

    def _write(self, write: Write[T]) -> Awaitable[T]:
        write.values["now"] = utc_moment(self._clock())
        return self._file.start(write)

    async def _run_within(self, connection: Any, work: Callable[[datetime], Transaction[T]]) -> T:
        """Run work on a connection of sqlite3, or of a compatible library such as aiosqlite, and return its result.

        Raises:
            ConfigurationError: It is no connection to the file, or commits each statement by itself.
            StorageError: The file cannot be written now.
        """
        self._file.check_identity()
        transaction = work(utc_moment(self._clock()))

        async def execute(query: Query) -> list[Any]:
            values = {name: to_sqlite(value) for name, value in query.values.items()}
            statement = with_columns(query.statement, _READ)
            return _read_results(query, *(await _fetch_rows(connection, statement, values)))

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
            why = "must be in a transaction, and this one commits each statement by itself"
            advice = "execute BEGIN first, or connect without isolation_level=None and autocommit=True"
            raise invalid_setting("connection", f"{why}: {advice}")

    def _refuse_connection(self, other: str) -> ConfigurationError:
        rule = f"must be one of sqlite3 or aiosqlite to the journal's own file, {self._place!r}"
        return invalid_setting("connection", f"{rule}, not {other}")


def _is_same_file(first: str, second: str) -> bool:
    return Path(first).samefile(second)


Work: TypeAlias = Write[Any] | Callable[[], Transaction[Any]]
Row: TypeAlias = tuple[int, Write[Any], Sequence[Any]]
"""A write's place among those that run together, the write, and the values of its statement."""


def _run_all(db: sqlite3.Connection, works: Sequence[Work]) -> list[Any]:
    """Run transactions to their ends, and return their results.

    Writes share statements. Between two statements, this thread waits for the event loop's thread, which takes longer
    than a statement.
    """
    if len(works) == 1:
        return [_run_alone(db, works[0])]
    results: list[Any] = [None] * len(works)
    groups: defaultdict[tuple[str, tuple[type, ...]], list[Row]] = defaultdict(list)
    for place, work in enumerate(works):
        if isinstance(work, Write):
            row = _row_picker(work.statement)(work.values)
            groups[work.statement, tuple(map(type, row))].append((place, work, row))
        else:
            _run_groups(db, groups, results)
            results[place] = _run_alone(db, work)
    _run_groups(db, groups, results)
    return results


def _run_groups(
    db: sqlite3.Connection, groups: defaultdict[tuple[str, tuple[type, ...]], list[Row]], results: list[Any]
) -> None:
    """Run writes by statement and types of values, and put each result at its place. The groups are empty then."""
    for statement, kinds in sorted(groups, key=lambda group: GROUPED.index(group[0])):
        for part in _split(groups.pop((statement, kinds))):
            places, writes, rows = zip(*part, strict=True)
            changed = _execute_together(db, statement, kinds, writes, rows) if len(part) > 1 else None
            if changed:
                for place, write, intent_id in zip(places, writes, changed, strict=True):
                    results[place] = write.complete(intent_id)
            else:
                for place, write in zip(places, writes, strict=True):
                    results[place] = _run_alone(db, write)


def _split(group: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield parts of a group, of few sizes, so that SQLite keeps their statements."""
    first = 0
    while first < len(group):
        size = next((size for size in SHARED if size <= len(group) - first), 1)
        yield group[first : first + size]
        first += size


def _run_alone(db: sqlite3.Connection, work: Work) -> Any:
    """Run a transaction to its end, and return its result."""
    if not isinstance(work, Write):
        return _run_to_end(db, work())
    # Not `work.transaction`: most calls would pay for two generators.
    cursor = execute(db, sqlite_statement(work.statement).text, work.values)
    if cursor.rowcount:
        intent_id: Any = work.values.get("id", cursor.lastrowid)
        return work.complete(intent_id)
    return _run_to_end(db, work.otherwise())


def _run_to_end(db: sqlite3.Connection, transaction: Transaction[T]) -> T:
    """Run a transaction as `run_transaction` does."""
    result: list[Any] | None = None
    try:
        while True:
            result = _execute(db, transaction.send(result))
    except StopIteration as end:
        done: T = end.value
        return done


def _execute_together(
    db: sqlite3.Connection,
    statement: str,
    kinds: tuple[type, ...],
    writes: Sequence[Write[Any]],
    rows: Sequence[Sequence[Any]],
) -> Sequence[int] | None:
    """Return the intents that writes have changed by one statement, or `None` if one of them would change nothing.

    Then a number is stored already, or a lease is lost. Nothing was changed, and each write must run alone.
    """
    ids: Sequence[int]
    if statement == ADD:
        # The next numbers of intents, none of which was given before.
        found = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'payasync_intents'").fetchone()
        last = found[0] if found else 0
        ids = range(last + 1, last + 1 + len(rows))
        kinds, rows = (int, *kinds), [(own_id, *row) for own_id, row in zip(ids, rows, strict=True)]
    else:
        ids = [write.values["id"] for write in writes]
    bound = binding(shared_statement(statement), kinds, "one.column")
    given = bound.bind_all(rows)
    text = _with_rows(bound.text, len(given) // len(rows), len(rows))
    db.execute("SAVEPOINT together")
    done = execute_bound(db, text, given).rowcount == len(rows)
    if not done:
        db.execute("ROLLBACK TO together")
    db.execute("RELEASE together")
    return ids if done else None


async def _fetch_rows(connection: Any, statement: str, values: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
    """Return the description of the columns, and the rows."""
    cursor = await _await_if_needed(connection.execute(statement, values or {}))
    rows = await _await_if_needed(cursor.fetchall())
    await _await_if_needed(cursor.close())
    return cursor.description or (), rows


async def _await_if_needed(result: Any) -> Any:
    return await result if isawaitable(result) else result
