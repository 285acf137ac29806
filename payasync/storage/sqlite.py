"""An SQLite file that is written from asyncio, in durable transactions."""

import asyncio
import os
import sqlite3
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from copy import copy
from datetime import datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from secrets import token_hex
from threading import Lock
from typing import Any, Final, TypeVar

from payasync.clocks import monotonic_time, utc_moment, wall_time
from payasync.errors import ConfigurationError, StorageError
from payasync.settings import DATABASE, check_private, lock_file, new_private, open_folder
from payasync.storage import Schema, Upgrade, upgrade_needed
from payasync.storage.pending import PendingResult
from payasync.storage.sqlite_runner import SqliteRunner
from payasync.storage.transactions import Work
from payasync.storage.writer_thread import Executor, WriterThread

T = TypeVar("T")

LOCKED_SECONDS: Final = 5.0
"""How long a transaction waits for that of another process."""
MIGRATED_SECONDS: Final = 600.0
"""How long a process waits while another one migrates the tables: a million rows may take a minute."""
SWITCHES: Final = 100
"""How often the journal mode is tried to be set while other processes use the file."""
LONGEST_GAP: Final = 0.01
"""Seconds that a transaction waits at most for the next job."""
LONGEST_WAIT: Final = 0.03
"""Seconds that a transaction waits at most for all jobs that may share it."""
GAPS: Final = 8
"""How many gaps a transaction waits at most."""
OLDEST: Final = (3, 37)
"""The first SQLite that knows strict tables."""
WAL_SINCE: Final = (3, 51, 3)
"""Before this SQLite, a write-ahead log that was reset at the wrong moment could damage the file."""
MARKS: Final = ("application_id", "user_version")
EMPTY: Final = (
    "it is empty, so it is damaged, and its data is lost: restore it from a backup. Delete it only if nothing was ever "
    "written to it, for example if your program connected to it before payasync made it"
)
LOG_LEFT: Final = (
    "it is missing, but {} is left beside it, which may hold part of its data: put the file back. Delete what is left "
    "only to start with an empty file"
)
VANISHED: Final = (
    "its file has vanished: put it back before you start any process, because a new process would make an empty file"
)
REPLACED: Final = (
    "another file has taken its file's place, without its data: put the first one back, or restart this process if the "
    "other file is the right one"
)


class VanishedError(OSError):
    """The file that was in use is no longer at its path, or its data is not in it."""


def journaling(version: tuple[int, ...]) -> tuple[str, str]:
    """Return the `journal_mode` and `synchronous` with which this SQLite survives a loss of power.

    `persist` overwrites the first bytes of its log at a commit, and waits for the disk. `delete` would make and delete
    a file for each commit, and wait for its folder, too.
    """
    return ("wal", "FULL") if version >= WAL_SINCE else ("persist", "EXTRA")


def _find_file(path: str) -> os.stat_result | None:
    # The file is not opened, because closing it again would release SQLite's locks.
    try:
        return os.stat(path)  # noqa: PTH116 - for each group of jobs; a `Path` takes longer than the look
    except (FileNotFoundError, NotADirectoryError):
        return None


class SqliteFile:
    """Runs transactions of a file, in a thread; transactions that wait together share a commit.

    Nothing is opened before the first use. Several event loops and several processes can use one file. The file is made
    at the first use only. If it is deleted or replaced later, calls fail with `StorageError` until it is back.

    Args:
        path: The file. If it is missing, it is made for its owner alone.
        schema: The tables.
        migrate: Make a missing file, and migrate older tables. Otherwise they are refused.
        clock: Returns seconds since 1970. Default: the time of day.
        executor: Returns what runs the transactions, given a name.

    Raises:
        ConfigurationError: `path` is not the path of a file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        *,
        clock: Callable[[], float] | None = None,
        migrate: bool = True,
        executor: Callable[[str], Executor] = WriterThread,
    ) -> None:
        given: object = os.fspath(path) if isinstance(path, os.PathLike) else path
        if not isinstance(given, str) or given in {"", ":memory:"} or "\0" in given:
            raise ConfigurationError(f"path must be that of the {schema.name}'s file, not {path!r}", field="path")
        self.path: Final = str(Path(given).absolute())
        self._schema = schema
        self._clock = clock or wall_time
        self._migrates = migrate
        self._executor = executor
        self._closed = False
        self._ended = False
        self._identity: tuple[int, int] | None = None
        self.reset()
        _FILES.add(self)

    def reset(self) -> None:
        """Forget the connection, the thread and the waiting jobs: after a fork they are the parent's."""
        self._waiting: list[PendingResult] = []
        self._draining = False
        self._expected = 0
        self._gap = 0.0
        self._enough: SimpleQueue[None] = SimpleQueue()
        self._using = Lock()
        self._db: sqlite3.Connection | None = None
        self._thread = self._executor(f"payasync-{self._schema.name}")

    async def run(self, work: Work[T]) -> T:
        """Return the result of a transaction that begins now, after it was committed.

        Args:
            work: Begins the transaction, in the file's thread. It is called a second time if another transaction of
                the same commit failed. If it raises, nothing that it wrote is kept.

        Raises:
            ConfigurationError: The file belongs to another program or to a newer payasync, or is not SQLite's.
            StorageError: The file cannot be used now: it is locked, full, failing, missing, or closed here.
        """
        result: T = await self.start(work)
        return result

    def start(self, work: Work[Any]) -> PendingResult:
        """Return the future result of `run`. If it is cancelled before its transaction begins, nothing is done."""
        job = PendingResult(asyncio.get_running_loop(), (work, self.now()))
        if self._closed:
            job.deliver(self._closed_error())
            return job
        try:
            self._waiting.append(job)
            # Only the thread says that it is at work. A signal's exception may end this call at any moment.
            if not self._draining:
                self._thread.submit(self._drain)
            elif len(self._waiting) == self._expected:
                self._enough.put(None)
        except BaseException:
            job.cancel()
            raise
        return job

    def now(self) -> datetime:
        """Return the present by the file's clock."""
        return utc_moment(self._clock())

    async def upgrade(self, *, dry_run: bool) -> Upgrade:
        """Make or migrate the tables, and return what was executed.

        Args:
            dry_run: Execute nothing.

        Raises:
            ConfigurationError: The file belongs to another program or to a newer payasync, or is damaged.
            StorageError: The file cannot be used now.
        """
        try:
            return await asyncio.to_thread(upgrade_database, self.path, self._schema, dry_run=dry_run)
        except (sqlite3.Error, OSError) as error:
            failure = self._convert(error)
        raise failure

    @asynccontextmanager
    async def present(self) -> AsyncGenerator[Callable[[], Awaitable[bool]]]:
        """Lock the folder together with others that do so, and yield a function that returns whether there are none."""
        try:
            descriptor = open_folder(self.path)  # the file would lose SQLite's own locks as it is closed
        except OSError as error:
            raise self._convert(error) from None

        async def is_alone() -> bool:
            alone, _ = lock_file(descriptor), lock_file(descriptor, shared=True)  # then as before
            return alone

        try:
            # Another program may ask just now; one that locks the folder for long is not waited for.
            for _ in range(20):
                if lock_file(descriptor, shared=True):
                    break
                await asyncio.sleep(0.01)
            yield is_alone
        finally:
            os.close(descriptor)

    def check_identity(self) -> None:
        """Refuse a file other than the one that was used first.

        Raises:
            StorageError: The file is missing, or was replaced.
        """
        try:
            self._check_identity()
        except OSError as error:
            raise self._convert(error) from None

    def is_at(self, path: str) -> bool:
        """Return whether the file is at a path."""
        return Path(path).samefile(self.path)

    def remember_identity(self) -> None:
        """Take the file at the path for the one in use, unless one is known."""
        found = _find_file(self.path)
        self._identity = self._identity or (found and (found.st_dev, found.st_ino))

    async def aclose(self) -> None:
        """Finish the waiting jobs, and close the file; a second call does nothing."""
        if not self._closed:
            # Not an `asyncio.Event`: with Python 3.14, a signal's exception may leave asyncio's own lock locked.
            closed = PendingResult(asyncio.get_running_loop())
            self._thread.submit(partial(self._close, closed))
            self._thread.close()
            self._closed = True  # last, so that a second call repeats what a signal's exception prevents
            await closed

    def pause(self) -> None:
        """Close the file, and keep it closed until `resume`."""
        self._using.acquire()
        self._disconnect()

    def resume(self) -> None:
        """End a pause."""
        self._using.release()

    def _drain(self) -> None:
        while self._waiting:
            self._draining = True
            try:
                self._run_waiting()
            finally:
                self._draining = False

    def _run_waiting(self) -> None:
        """Run what waits, in one transaction."""
        if len(self._waiting) < self._expected:
            self._wait_for_more()
        with self._using:
            jobs = self._waiting[:]
            del self._waiting[: len(jobs)]
            # `abandoned` alone would do, but is slower, and few are cancelled.
            jobs = [job for job in jobs if not (job.cancelled() and job.abandoned)]
            if not jobs:
                return
            began = monotonic_time()
            results = self._run_jobs(jobs)
        self._expected, self._gap = len(jobs), min(monotonic_time() - began, LONGEST_GAP)
        _deliver_results(jobs, results)

    def _wait_for_more(self) -> None:
        """Wait for as many jobs as came together before, as long as they keep coming."""
        # A commit takes as long as many jobs. A gap as long as the last transaction shows that no more will come.
        self._enough = SimpleQueue()
        count, until = 0, monotonic_time() + min(self._gap * GAPS, LONGEST_WAIT)
        while count < len(self._waiting) < self._expected and (left := until - monotonic_time()) > 0:
            count = len(self._waiting)
            with suppress(Empty):
                self._enough.get(timeout=min(self._gap, left))

    def _run_jobs(self, jobs: Sequence[PendingResult]) -> list[Any]:
        """Return what each job returned, or the error that it ended with."""
        if self._ended:
            # Another thread closed the file after `run` had looked.
            return [self._closed_error() for _ in jobs]
        try:
            db = self._connect()
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            return self._fail(jobs, error)
        try:
            with transaction(db):
                return SqliteRunner(db, self._schema).run_all([job.work for job in jobs])
        except Exception as error:  # noqa: BLE001 - as above
            if len(jobs) > 1 and not _concerns_file(error):
                return [self._run_jobs([job])[0] for job in jobs]
            return self._fail(jobs, error)

    def _connect(self) -> sqlite3.Connection:
        self._check_identity()
        if self._db is None:
            self._db = open_database(self.path, self._schema, migrate=self._migrates)
            self.remember_identity()
            self._check_identity()
        return self._db

    def _fail(self, jobs: Sequence[PendingResult], error: Exception) -> list[Exception]:
        if _concerns_file(error) and not isinstance(error, VanishedError):
            # The next job opens the file anew. A file that has vanished stays open, so that no other gets its identity.
            self._disconnect()
        return [self._convert(error) for _ in jobs]

    def _check_identity(self) -> None:
        if self._identity is None:
            return
        found = _find_file(self.path)
        if found is None:
            raise VanishedError(VANISHED)
        if (found.st_dev, found.st_ino) != self._identity:
            raise VanishedError(REPLACED)
        if not found.st_size:
            raise VanishedError(EMPTY)  # SQLite might not notice: a write-ahead log may still hold all pages

    def _convert(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error | OSError):
            return StorageError(f"the {self._schema.name} {self.path!r} is unavailable: {error}", reason=str(error))
        return copy(error) if isinstance(error, ConfigurationError) else error

    def _closed_error(self) -> StorageError:
        return StorageError(f"the {self._schema.name} is closed", reason="closed")

    def _close(self, closed: PendingResult) -> None:
        with self._using:
            self._ended = True
            self._disconnect()
        _call_in_loop(closed.get_loop(), closed.deliver, None)

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with closing(db), suppress(sqlite3.Error):
                if journaling(sqlite3.sqlite_version_info)[0] == "persist":
                    # Deletes the log, unless another process is using it.
                    db.execute("PRAGMA journal_mode = DELETE")


def _concerns_file(error: Exception) -> bool:
    """Return whether the file has failed, and not one job."""
    return isinstance(error, sqlite3.OperationalError | OSError) or type(error) is sqlite3.DatabaseError


def _deliver_results(jobs: Sequence[PendingResult], results: Sequence[Any]) -> None:
    """Wake each loop once, with all results that it waits for."""
    if len(jobs) == 1:
        _call_in_loop(jobs[0].get_loop(), jobs[0].deliver, results[0])
        return
    for loop in set(map(PendingResult.get_loop, jobs)):
        _call_in_loop(loop, _deliver, loop, zip(jobs, results, strict=True))


def _call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed, and nobody waits there any more
        loop.call_soon_threadsafe(callback, *args)


def _deliver(loop: asyncio.AbstractEventLoop, results: Iterator[tuple[PendingResult, Any]]) -> None:
    try:
        for job, result in results:
            if job.get_loop() is loop:
                job.deliver(result)
    except BaseException:  # a waiter ends the program: the others still need their results, to end in order
        loop.call_soon(_deliver, loop, results)
        raise


def open_database(path: str, schema: Schema, *, migrate: bool = True) -> sqlite3.Connection:
    """Return a connection to the file, which is made or migrated if necessary.

    Args:
        path: The file.
        schema: The tables.
        migrate: Make a missing file, and migrate older tables. Otherwise they are refused.

    Raises:
        ConfigurationError: The file belongs to another program or to a newer payasync, is empty, or is not SQLite's; it
            stays as it is. Or the file is missing, and its log is not. Or Python's SQLite is too old.
        sqlite3.OperationalError: The file cannot be opened now.
    """
    if sqlite3.sqlite_version_info < OLDEST:
        needed = ".".join(map(str, OLDEST))
        why = f"Python has SQLite {sqlite3.sqlite_version}, and {needed} is needed: use a newer Python, or PostgreSQL"
        raise _refuse_file(path, schema, why)
    try:
        # The logs are looked for first: a process that makes the file at this moment writes them after it.
        log = next((log for end in ("-wal", "-journal") if _find_file(log := path + end)), None)
        if _find_file(path) is None:
            if log:
                raise _refuse_file(path, schema, LOG_LEFT.format(log))
            if not migrate:
                raise _refuse_file(path, schema, f"there is no such file: {upgrade_needed(schema, 0)}")
            _make_file(path, schema)
        for suffix in DATABASE:
            check_private(path + suffix)
        return _prepare_connection(path, schema, _check_header(path, schema), migrate=migrate)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        why = error.strerror or str(error)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        why = str(error)
    raise _refuse_file(path, schema, why)


def upgrade_database(path: str, schema: Schema, *, dry_run: bool) -> Upgrade:
    """Make or migrate the tables, and return what was executed; with `dry_run`, execute nothing.

    Raises:
        ConfigurationError: As for `open_database`.
        sqlite3.OperationalError: The file cannot be opened now.
    """
    before = 0
    if _find_file(path) is not None:
        _check_header(path, schema)
        with closing(_open_connection(path, MIGRATED_SECONDS)) as db:
            before = _check_marks(db, path, schema)
    if not dry_run:
        open_database(path, schema).close()
    return Upgrade(place=path, before=before, after=len(schema.migrations), sql=_script(schema, before))


class transaction:  # noqa: N801 - used as a function
    """Commits all changes made inside, or none of them after an exception."""

    # Not a generator with `contextmanager`, which takes longer: each lone write would pay for it.
    __slots__ = ("_db",)

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db.cursor()

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None:
                self._db.execute("COMMIT")
        finally:
            # Still open after an exception, also of the commit. A full disk has undone all of it already.
            if self._db.connection.in_transaction:
                with suppress(sqlite3.OperationalError):
                    self._db.execute("ROLLBACK")


def _refuse_file(path: str, schema: Schema, why: str) -> ConfigurationError:
    return ConfigurationError(f"path: cannot use {path!r} as the {schema.name}: {why}", field="path", reason=why)


def _make_file(path: str, schema: Schema) -> None:
    """Make the file under another name, and rename it when its tables stand in it.

    Nobody sees an empty file: a process that is killed on the way leaves no file at the path, or the whole one.
    """
    made = Path(f"{path}.{token_hex(8)}.new")
    os.close(new_private(made))
    try:
        with closing(_open_connection(str(made))) as db:
            with transaction(db):
                _migrate(db, schema, 0)
            # Before another process can have the file open, because the change needs it alone.
            _set_journal_mode(db)
        try:
            os.link(made, path)
        except FileExistsError:
            return  # another process was faster: its file is as good, and may be in use
        except OSError:
            # A file system without hard links: a process killed in between leaves an empty file, which is refused.
            with suppress(FileExistsError):
                os.close(new_private(path))
                made.replace(path)
    finally:
        made.unlink(missing_ok=True)


def _check_header(path: str, schema: Schema) -> int:
    """Look at the file before SQLite may change it, and return the version of its tables, as far as it can be read.

    SQLite itself reads it: closing a file that was opened beside SQLite would release the locks of this process. A file
    that cannot be read this way may be being written; it is opened with locks then.
    """
    if not Path(path).stat().st_size:
        raise _refuse_file(path, schema, EMPTY)
    uri = f"{Path(path).as_uri()}?mode=ro&immutable=1"
    with suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as db:
        return _check_marks(db, path, schema)
    return 0


def _check_marks(db: sqlite3.Connection, path: str, schema: Schema) -> int:
    """Return the version of the tables in the file."""
    application, version = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in MARKS)
    known = len(schema.migrations)
    if application != schema.application:
        raise _refuse_file(path, schema, "it is the file of another program: name another file")
    if version > known:
        why = f"a newer payasync made it (schema {version}, here {known}): upgrade, or name another file"
        raise _refuse_file(path, schema, why)
    return int(version)


def _open_connection(path: str, timeout: float = LOCKED_SECONDS) -> sqlite3.Connection:
    # A process that forks closes it, in whichever thread.
    db = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        _, synchronous = journaling(sqlite3.sqlite_version_info)
        db.execute(f"PRAGMA synchronous = {synchronous}")
        # For macOS, where a plain fsync does not reach the disk.
        db.execute("PRAGMA fullfsync = ON")
        # Otherwise a savepoint may write a temporary file, and a container may have no folder for one.
        db.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        db.close()
        raise
    return db


def _prepare_connection(path: str, schema: Schema, shown: int, *, migrate: bool) -> sqlite3.Connection:
    db = _open_connection(path, LOCKED_SECONDS if shown == len(schema.migrations) else MIGRATED_SECONDS)
    try:
        with transaction(db):
            _migrate_allowed(db, path, schema, migrate=migrate)
        # After the first tables: the marks must stand in the file itself, not in a log beside it.
        _set_journal_mode(db)
        db.execute("PRAGMA foreign_keys = ON")
        db.execute(f"PRAGMA busy_timeout = {int(LOCKED_SECONDS * 1000)}")
    except BaseException:
        db.close()
        raise
    return db


def _migrate_allowed(db: sqlite3.Connection, path: str, schema: Schema, *, migrate: bool) -> None:
    """Migrate older tables, or refuse them."""
    version = _check_marks(db, path, schema)
    if version < len(schema.migrations) and not migrate:
        raise _refuse_file(path, schema, upgrade_needed(schema, version))
    _migrate(db, schema, version)


def _set_journal_mode(db: sqlite3.Connection) -> None:
    """Set the journal mode. Other processes may set it at the same moment, after an upgrade of Python's SQLite."""
    statement = f"PRAGMA journal_mode = {journaling(sqlite3.sqlite_version_info)[0]}"
    for _ in range(SWITCHES):
        try:
            db.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
        else:
            return
        # SQLite waits for a lock, but not to change the mode.
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")
    db.execute(statement)


def _migrate(db: sqlite3.Connection, schema: Schema, version: int) -> None:
    statement = ""
    for line in _script(schema, version).splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


def _script(schema: Schema, version: int) -> str:
    """Return what makes or migrates tables of a version; an empty text if they are up to date."""
    if version == len(schema.migrations):
        return ""
    marks = zip(MARKS, (schema.application, len(schema.migrations)), strict=True)
    return "\n".join([*schema.migrations[version:], *(f"PRAGMA {name} = {value};" for name, value in marks), ""])


_FILES: Final[weakref.WeakSet[SqliteFile]] = weakref.WeakSet()
_FORKING: Final = Lock()
_PAUSED: Final[list[SqliteFile]] = []


def _before_fork() -> None:
    _FORKING.acquire()
    for file in list(_FILES):
        file.pause()
        _PAUSED.append(file)


def _after_fork(finish: Callable[[SqliteFile], None]) -> None:
    while _PAUSED:
        finish(_PAUSED.pop())
    _FORKING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=partial(_after_fork, SqliteFile.resume),
        after_in_child=partial(_after_fork, SqliteFile.reset),
    )
