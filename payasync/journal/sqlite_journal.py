"""A journal in one SQLite file, which several processes of one machine can share."""

import os
import sqlite3
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

from payasync.checks import check_function
from payasync.journal.asking import Transaction
from payasync.journal.callers_connection import done_within
from payasync.journal.drafting import Keep
from payasync.journal.sqlite_rows import given, written
from payasync.journal.stored import StoredJournal
from payasync.migrations import steps
from payasync.sqlite import SqliteFile
from payasync.sqlite_opening import Schema
from payasync.sqlite_values import moment, rows

APPLICATION: Final = 0x5061796A
"""`Payj`, in the header of the file, says whose it is."""

T = TypeVar("T")


SCHEMA: Final = Schema(name="journal", application=APPLICATION, steps=steps("payasync.journal", "sql", "sqlite"))


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
        now = moment(self._clock())
        return await self._file.run(lambda db: _done(db, work(now)))

    async def _within(self, connection: Any, work: Callable[[datetime], Transaction[T]]) -> T:
        self._file.check()
        transaction = work(moment(self._clock()))
        done = await done_within(connection, transaction, path=self._file.path, schema=SCHEMA, prepare=self.next_due)
        self._file.remember()
        return done


def _done(db: sqlite3.Connection, transaction: Transaction[T]) -> T:
    """Run a transaction to its end."""
    try:
        asked = next(transaction)
        while True:
            asked = transaction.send(given(asked, rows(db, asked.statement, written(asked.values))))
    except StopIteration as end:
        done: T = end.value
        return done
