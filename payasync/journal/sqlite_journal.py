"""A journal in one SQLite file, which several processes of one machine can share."""

import os
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, Final, TypeVar

from payasync.errors import ConfigurationError, StorageError
from payasync.journal.drafts import Keep
from payasync.journal.journal import Journal
from payasync.journal.rows import COLUMNS, TEXTS
from payasync.settings import check_function, invalid_setting
from payasync.storage import Present, Schema, Upgrade, read_migrations, with_columns
from payasync.storage.sqlite import MARKS, SqliteFile
from payasync.storage.sqlite_runner import sqlite_statement, to_rows, to_sqlite
from payasync.storage.transactions import Query, Work, run_transaction
from payasync.storage.writer_thread import Executor, WriterThread

T = TypeVar("T")

_READ: Final = ", ".join(f"CAST({name} AS BLOB) AS {name}" if name in TEXTS else name for name in COLUMNS)
"""sqlite3 would read no row at all if a text in one of them were not valid UTF-8."""
_CHANGE_NOTHING: Final = "DELETE FROM payasync_intents WHERE FALSE"
"""Begins a transaction on a connection that does not commit by itself, as any write does."""


def adapt(statement: str) -> str:
    """Return a statement that reads what can be read of a damaged row."""
    return with_columns(statement, _READ)


SCHEMA: Final = Schema(
    name="journal",
    migrations=read_migrations("payasync.journal", "sqlite"),
    application=0x5061796A,  # `Payj`
    adapt=adapt,
)


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
            Default: store the values at the profile's paths. Deprecated.
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
        self._file = SqliteFile(path, SCHEMA, clock=clock, migrate=migrate, executor=executor)
        self.present: Present = self._file.present
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

    def _run(self, work: Work[T], *, is_short: bool = False) -> Awaitable[T]:  # noqa: ARG002 - all share commits
        return self._file.start(work)

    async def _run_within(self, connection: Any, work: Work[T]) -> T:
        """Run work on a connection of sqlite3, or of a compatible library such as aiosqlite, and return its result.

        Raises:
            ConfigurationError: It is no connection to the file, or commits each statement by itself.
            StorageError: The file cannot be written now.
        """
        self._file.check_identity()
        now = self._file.now()

        async def execute(query: Query) -> list[dict[str, Any]]:
            values = {name: to_sqlite(value) for name, value in {"now": now, **query.values}.items()}
            return to_rows(*(await _fetch_rows(connection, sqlite_statement(query.statement, adapt).text, values)))

        try:
            marks = [(await _fetch_rows(connection, f"PRAGMA {name}"))[1][0][0] for name in MARKS]
            if marks != [SCHEMA.application, len(SCHEMA.migrations)]:
                await self.next_due()  # makes the file
            await self._check_connection(connection)
            done = await run_transaction(work(now), execute)
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"the journal {self._place!r} is unavailable: {error}", reason=str(error)) from None
        except AttributeError:
            raise self._refuse_connection(type(connection).__name__) from None
        self._file.remember_identity()
        return done

    async def _check_connection(self, connection: Any) -> None:
        _, databases = await _fetch_rows(connection, "PRAGMA database_list")
        file = next(each[2] for each in databases if each[1] == "main")
        if not file or not self._file.is_at(file):
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


async def _fetch_rows(connection: Any, statement: str, values: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
    """Return the description of the columns, and the rows."""
    cursor = await _await_if_needed(connection.execute(statement, values or {}))
    rows = await _await_if_needed(cursor.fetchall())
    await _await_if_needed(cursor.close())
    return cursor.description or (), rows


async def _await_if_needed(result: Any) -> Any:
    return await result if isawaitable(result) else result
