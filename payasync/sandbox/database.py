"""The sandbox's database file: SQLite and nothing else, one connection, one thread, one sandbox at a time.

Write-ahead logging with `synchronous = NORMAL`: a commit has left this process for the kernel when it returns,
so whatever kills the process, nothing is lost that was answered. Only where the machine itself stops may the
last commits be missing, and the rest is whole; to wait for the disk at each request is not worth it here.
"""

import os
import sqlite3
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, date, datetime
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeVar

from payasync.errors import ConfigurationError, InvalidArgumentError, PayasyncError
from payasync.sandbox.model import RefusedError, format_instant, micros
from payasync.settings import DATABASE, check_private, new_private

T = TypeVar("T")
MEMORY: Final = ":memory:"
APPLICATION: Final = 0x50617973
"""`Pays`, in the header of the file, says whose it is."""
VERSION: Final = 2
"""Of the schema; a file of another one is refused."""
LOCKED_SECONDS: Final = 0.25
"""How long the start waits for a sandbox that is just letting the file go."""
_MARKS: Final = ("application_id", "user_version")


class Database:
    """Runs statements; whoever changes something does it in one `transaction`.

    Args:
        path: The database's file, or `:memory:`.

    Raises:
        ConfigurationError: The file cannot be opened, another sandbox has it, or it is no sandbox's of this
            version; then it stays as it is.
    """

    def __init__(self, path: str) -> None:
        self._committing: Callable[[], object] = bool
        self._committed: Callable[[], object] = bool
        self._db = _opened(path)
        self.use_clock(partial(datetime.now, UTC))

    def on_commit(self, committed: Callable[[], object]) -> None:
        """Have a function called after each transaction that was committed."""
        self._committed = committed

    def on_committing(self, committing: Callable[[], object]) -> None:
        """Have a function called at the end of each transaction, inside it."""
        self._committing = committing

    def use_clock(self, now: Callable[[], datetime]) -> None:
        """Have the schema's triggers write the time of this clock; until then it is that of this machine."""
        self._db.create_function("sandbox_now", 0, lambda: format_instant(now()))

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Commit all that is done inside, or nothing of it where an exception leaves.

        Raises:
            RefusedError: The file cannot be written: the disk is full, or fails.
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._committing()
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise RefusedError("busy", f"the sandbox's database cannot be written: {error}") from error
            raise
        self._committed()

    @contextmanager
    def attempt(self) -> Generator[None]:
        """Undo what is done inside where an exception leaves; the transaction around it goes on."""
        self._db.execute("SAVEPOINT attempt")
        try:
            yield
        except BaseException:
            # A full disk has undone all of it already.
            with suppress(sqlite3.OperationalError):
                self._db.execute("ROLLBACK TO attempt")
            raise
        finally:
            with suppress(sqlite3.OperationalError):
                self._db.execute("RELEASE attempt")

    def changed(self, statement: str, values: Mapping[str, Any]) -> bool:
        """Run a statement that changes one row; `False` where it found none to change."""
        with self._run(statement, values) as cursor:
            return cursor.rowcount == 1

    def insert(self, statement: str, values: Mapping[str, Any]) -> int:
        """Keep a row, and return its number."""
        with self._run(statement, values) as cursor:
            return cursor.lastrowid or 0

    def read(self, kind: type[T], statement: str, **values: Any) -> list[T]:
        """Return what a statement finds, as values."""
        with self._run(statement, values) as cursor:
            return [kind(**dict(found)) for found in cursor]

    def first(self, kind: type[T], statement: str, **values: Any) -> T | None:
        """Return the first thing that a statement finds, as a value."""
        with self._run(statement, values) as cursor:
            found = cursor.fetchone()
            return kind(**dict(found)) if found else None

    def number(self, statement: str, **values: Any) -> int:
        """Return the one number that a statement finds."""
        with self._run(statement, values) as cursor:
            return int(cursor.fetchone()[0])

    def _run(self, statement: str, values: Mapping[str, Any]) -> closing[sqlite3.Cursor]:
        return closing(self._db.execute(statement, {name: written(value) for name, value in values.items()}))


def location(db: object) -> str:
    """Return where a database is, as a text.

    Raises:
        ConfigurationError: It is neither a path nor `:memory:`.
    """
    path = os.fspath(db) if isinstance(db, os.PathLike) else db
    if isinstance(path, str):
        return path
    raise ConfigurationError(f"db must be the path of a file, or {MEMORY!r}, not {db!r}", field="db")


def written(value: Any) -> Any:
    """Return a value as the database keeps it: moments as microseconds, days as ISO 8601.

    The ways of sqlite3 itself are deprecated.
    """
    if isinstance(value, datetime):
        return micros(value)
    return value.isoformat() if isinstance(value, date) else value


def _opened(path: str) -> sqlite3.Connection:
    try:
        _check_header(path)
        database = sqlite3.connect(path, timeout=LOCKED_SECONDS, isolation_level=None)
        try:
            _prepare(database)
        except BaseException:
            database.close()
            raise
    except (sqlite3.Error, OSError) as error:
        why = _explained(error)
    else:
        return database
    raise ConfigurationError(f"db: cannot use {path!r} as the sandbox's database: {why}", field="db")


def _explained(error: Exception) -> str:
    if isinstance(error, sqlite3.Error) and "locked" in str(error):
        return "another sandbox has it open: close that one first, or use another file"
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def _check_header(path: str) -> None:
    """Look at the file before SQLite may change it.

    SQLite itself reads it: opening and closing the file beside SQLite would release the locks that another sandbox of
    this process holds. A killed sandbox may have copied only a part of its log into the file. If the header cannot be
    read without the log, it is looked at again when the file is open.
    """
    if path == MEMORY or _made_now(Path(path)):
        return
    uri = f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1"
    with suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as database:
        _check_marks(database)


def _check_marks(database: sqlite3.Connection) -> None:
    application, version = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS)
    if application != APPLICATION:
        raise OSError("it is the database of another program, or of an older payasync: name another file")
    if version != VERSION:
        raise OSError(f"its schema is of version {version}, and this payasync's of {VERSION}: name another file")


def _made_now(path: Path) -> bool:
    """Make the file where there is none; return whether it is empty."""
    with suppress(FileExistsError):
        os.close(new_private(path))
    for suffix in DATABASE:
        check_private(f"{path}{suffix}")
    return path.stat().st_size == 0


def _prepare(database: sqlite3.Connection) -> None:
    database.row_factory = sqlite3.Row
    # Held until the end, so that there is one sandbox to a file.
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    if database.execute("PRAGMA page_count").fetchone()[0]:
        _check_marks(database)
    else:
        _create(database)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("BEGIN EXCLUSIVE")
    database.execute("COMMIT")


def _create(database: sqlite3.Connection) -> None:
    """Make the tables, all or none, and before there is a log: the header must tell whose file it is."""
    schema = resources.files("payasync.sandbox").joinpath("schema.sql").read_text(encoding="utf-8")
    marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
    try:
        database.executescript(f"BEGIN EXCLUSIVE; {marks} {schema} COMMIT;")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def by_hand(database: Database, **given: object) -> Generator[None]:
    """Commit all that is done inside, or nothing of it where it is refused.

    Args:
        database: Holds the transaction.
        given: The arguments of who asks for it: the number first, and what is to become of it last.

    Raises:
        InvalidArgumentError: It is refused.
        ConfigurationError: The database cannot be written.
    """
    try:
        with database.transaction():
            yield
    except RefusedError as refused:
        error = _told(refused, given)
    else:
        return
    raise error


def _told(refused: RefusedError, given: dict[str, object]) -> PayasyncError:
    if refused.why == "busy":
        return ConfigurationError(f"db: {refused.message}", field="db")
    numbered, *_, ended = (*given, *given)
    field = refused.argument if refused.argument in given else numbered if refused.why == "absent" else ended
    return InvalidArgumentError(
        f"{field}: {given[field]!r} is refused: {refused.message}",
        field=field,
        rule=refused.message,
        value=given[field],
    )
