"""What goes into an SQLite file and comes out of it: rows, texts and moments."""

import asyncio
import os
import sqlite3
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import copy
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any, Final, Generic, TypeVar

from attrs import frozen

from payasync.errors import ConfigurationError, StorageError
from payasync.storage.sqlite_opening import Schema, VanishedError, checked_path, opened, place, transaction


def rows(db: sqlite3.Connection, statement: str, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return what a statement finds, by the names of its columns."""
    with closing(db.execute(statement, values or {})) as cursor:
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def text(given: str) -> str:
    """Return a text that SQLite takes: half a surrogate pair, which JSON can hold, as its escape."""
    return given.encode("utf-8", "backslashreplace").decode("utf-8")


def moment(seconds: float) -> datetime:
    """Return the aware moment that is so many seconds after the beginning of 1970."""
    return datetime.fromtimestamp(seconds, UTC)


T = TypeVar("T")

GONE: Final = (
    "its file has vanished, and nothing else knows what stood in it: put it back before any process is started anew, "
    "which would make an empty one"
)
ANOTHER: Final = (
    "another file has taken its file's place, and does not know what stood in that: put that one back, or start this "
    "process anew where the other is right"
)


@frozen(eq=False)
class _Job(Generic[T]):
    """What a caller waits for."""

    work: Callable[[sqlite3.Connection], T]
    future: "asyncio.Future[T]"


class SqliteFile:
    """Runs functions in transactions of a file, in a thread, and lets those that wait share a commit.

    Nothing is opened before the first use. Usable from several event loops, and by several processes. A file is made
    at the first use alone: one that vanishes later, or whose place another takes, is unavailable until it is back.

    Args:
        path: The file's; it is made, for its owner alone, where there is none.
        schema: What stands in it.

    Raises:
        ConfigurationError: `path` is no path of a file.
    """

    def __init__(self, path: str | os.PathLike[str], schema: Schema) -> None:
        self.path = checked_path(path, schema.name)
        self._schema = schema
        self._closed = False
        self._place: tuple[int, int] | None = None
        self.begin()
        _FILES.add(self)

    def begin(self) -> None:
        """Begin as if nothing had been opened: after a fork, who waits in the parent is told there."""
        self._waiting: list[_Job[Any]] = []
        self._draining = False
        self._lock = Lock()
        self._using = Lock()
        self._db: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"payasync-{self._schema.name}")

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what a function of the connection does, after it was committed.

        Args:
            work: Runs in the file's thread, inside a transaction that it shares with others; it runs a second
                time, where the first had to be undone because of another. Where it raises, nothing of it is kept.

        Raises:
            ConfigurationError: The file is another program's, a newer payasync's, or none of SQLite.
            StorageError: It cannot be read or written now: locked, full, failing, vanished, or closed here.
        """
        if self._closed:
            raise StorageError(f"the {self._schema.name} is closed", reason="closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.append(_Job(work, future))
            sleeping, self._draining = not self._draining, True
        if sleeping:
            self._submit(self._drain)
        return await future

    def check(self) -> None:
        """Refuse another file than the one that was used first.

        Raises:
            StorageError: It has vanished, or another stands in its place.
        """
        try:
            self._check_place()
        except OSError as error:
            raise self._failure(error) from None

    def remember(self) -> None:
        """Take the file that is at the path for the one that was used first, where none was."""
        self._place = self._place or place(self.path)

    async def aclose(self) -> None:
        """Finish what waits, and close the file; a second time does nothing."""
        if not self._closed:
            self._closed = True
            closed = asyncio.Event()
            self._submit(partial(self._close, partial(_tell, asyncio.get_running_loop(), closed.set)))
            self._thread.shutdown(wait=False)
            await closed.wait()

    def pause(self) -> None:
        """Close the file, and let nobody open it until `resume`."""
        self._using.acquire()
        self._lock.acquire()
        self._let_go()

    def resume(self) -> None:
        """End a pause."""
        self._lock.release()
        self._using.release()

    def _submit(self, work: Callable[[], object]) -> None:
        try:
            self._thread.submit(work)
        except RuntimeError:
            # The interpreter is ending and starts no thread any more.
            work()

    def _drain(self) -> None:
        while jobs := self._next():
            with self._using:
                ends = self._ends(jobs)
            _tell_all(jobs, ends)

    def _next(self) -> list[_Job[Any]]:
        with self._lock:
            jobs = [job for job in self._waiting if not job.future.cancelled()]
            self._waiting = []
            self._draining = bool(jobs)
            return jobs

    def _ends(self, jobs: Sequence[_Job[Any]]) -> list[Any]:
        """Return what each job returned, or the error that it ends with."""
        try:
            db = self._opened()
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            return self._failed(jobs, error)
        try:
            with transaction(db):
                return [job.work(db) for job in jobs]
        except Exception as error:  # noqa: BLE001 - as above
            if len(jobs) > 1 and not _of_file(error):
                return [self._ends([job])[0] for job in jobs]
            return self._failed(jobs, error)

    def _opened(self) -> sqlite3.Connection:
        self._check_place()
        if self._db is None:
            self._db = opened(self.path, self._schema)
            self.remember()
            self._check_place()
        return self._db

    def _failed(self, jobs: Sequence[_Job[Any]], error: Exception) -> list[Exception]:
        if _of_file(error) and not isinstance(error, VanishedError):
            # It is opened anew the next time; one that has vanished is held, so that no other gets its number.
            self._let_go()
        return [self._failure(error) for _ in jobs]

    def _check_place(self) -> None:
        if self._place is None:
            return
        found = place(self.path)
        if found != self._place:
            raise VanishedError(GONE if found is None else ANOTHER)

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error | OSError):
            return StorageError(f"the {self._schema.name} {self.path!r} is unavailable: {error}", reason=str(error))
        return copy(error) if isinstance(error, ConfigurationError) else error

    def _close(self, tell: Callable[[], None]) -> None:
        with self._using:
            self._let_go()
        tell()

    def _let_go(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def _of_file(error: Exception) -> bool:
    """Return whether what failed is the file, and not what one caller wanted of it."""
    return isinstance(error, sqlite3.OperationalError | OSError) or type(error) is sqlite3.DatabaseError


def _tell_all(jobs: Sequence[_Job[Any]], ends: Sequence[Any]) -> None:
    """Wake each loop once, for all that it waits for."""
    told: defaultdict[asyncio.AbstractEventLoop, list[tuple[_Job[Any], Any]]] = defaultdict(list)
    for job, end in zip(jobs, ends, strict=True):
        told[job.future.get_loop()].append((job, end))
    for loop, pairs in told.items():
        _tell(loop, _resolve, pairs)


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        # Closed: whoever waited there is gone.
        return


def _resolve(pairs: Sequence[tuple[_Job[Any], Any]]) -> None:
    for job, end in pairs:
        if job.future.done():
            continue
        if isinstance(end, Exception):
            job.future.set_exception(end)
        else:
            job.future.set_result(end)


_FILES: Final[weakref.WeakSet[SqliteFile]] = weakref.WeakSet()
_FORKING: Final = Lock()
_PAUSED: Final[list[SqliteFile]] = []


def _before_fork() -> None:
    _FORKING.acquire()
    for file in list(_FILES):
        file.pause()
        _PAUSED.append(file)


def _after_fork_in_parent() -> None:
    while _PAUSED:
        _PAUSED.pop().resume()
    _FORKING.release()


def _after_fork_in_child() -> None:
    while _PAUSED:
        _PAUSED.pop().begin()
    _FORKING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
