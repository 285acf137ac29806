"""Whose an SQLite file is, how it is opened, and what makes a commit durable."""

import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from attrs import frozen

from payasync.errors import ConfigurationError
from payasync.settings import DATABASE, check_private, new_private

LOCKED_SECONDS: Final = 5.0
"""How long a transaction waits for that of another process."""
WAL_SINCE: Final = (3, 51, 3)
"""Before this SQLite, a write-ahead log that was reset at the wrong moment could damage the file."""
EMPTY: Final = (
    "it is empty, so it is damaged, and whatever stood in it is lost: restore it from a backup. Delete it only if "
    "nothing was ever written to it, for example if your program connected to it before payasync had made it"
)
LEFT: Final = (
    "it is missing, but {} is left beside it, which may hold part of what stood in it: put the file back. Delete "
    "what is left only if you mean to begin anew"
)
_MARKS: Final = ("application_id", "user_version")


class VanishedError(OSError):
    """A file that was in use is not at its path any more."""


@frozen(kw_only=True)
class Schema:
    """Whose file it is, and what stands in it.

    Attributes:
        name: What errors call it, such as `inbox`.
        application: The number in the file's header that says whose it is.
        steps: SQL, each leading from one version to the next; a new file takes them all.
    """

    name: str
    application: int
    steps: Sequence[str]


def journaling(version: tuple[int, ...]) -> tuple[str, str]:
    """Return the `journal_mode` and `synchronous` with which this SQLite loses no commit with the power."""
    return ("wal", "FULL") if version >= WAL_SINCE else ("delete", "EXTRA")


def checked_path(path: object, name: str) -> str:
    """Return the absolute path of a file.

    Raises:
        ConfigurationError: It is none, or a database in memory, which would lose what was promised.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if isinstance(text, str) and text not in {"", ":memory:"} and "\0" not in text:
        return str(Path(text).absolute())
    raise ConfigurationError(f"path must be that of the {name}'s file, not {path!r}", field="path")


def place(path: str) -> tuple[int, int] | None:
    """Return what tells a file from another that takes its place; `None` where there is none.

    The file is not opened: to close it again would let go of SQLite's locks.
    """
    try:
        found = Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def opened(path: str, schema: Schema) -> sqlite3.Connection:
    """Return a connection to the file, which is made or brought up to date where it has to be.

    Raises:
        ConfigurationError: It is another program's, a newer payasync's, empty, or none of SQLite; it stays as it is. Or
            it is missing, and its log is not.
        sqlite3.OperationalError: It cannot be opened now.
    """
    try:
        # Looked for first: whoever makes the file at this moment writes them after it.
        left = _left(path)
        if place(path) is None:
            if left:
                raise _refused(path, schema, LEFT.format(left))
            _make(path, schema)
        for suffix in DATABASE:
            check_private(path + suffix)
        _check_header(path, schema)
        return _connected(path, schema)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        why = error.strerror or str(error)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        why = str(error)
    raise _refused(path, schema, why)


@contextmanager
def transaction(db: sqlite3.Connection) -> Generator[None]:
    """Commit all that is done inside, or nothing of it where an exception leaves."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # A full disk has undone all of it already.
        if db.in_transaction:
            with suppress(sqlite3.OperationalError):
                db.execute("ROLLBACK")
        raise


def _refused(path: str, schema: Schema, why: str) -> ConfigurationError:
    return ConfigurationError(f"path: cannot use {path!r} as the {schema.name}: {why}", field="path", reason=why)


def _make(path: str, schema: Schema) -> None:
    """Make the file under another name, and give it its own when its tables stand in it: nobody sees it empty.

    A process that is killed on the way leaves no file at the path, or the whole one.
    """
    made = Path(f"{path}.{token_hex(8)}.new")
    os.close(new_private(made))
    try:
        with closing(_connection(str(made))) as db, transaction(db):
            _upgrade(db, schema, 0)
        _give_name(made, path)
    finally:
        made.unlink(missing_ok=True)


def _left(path: str) -> str:
    """Return the log that SQLite keeps beside a file, if there is one: it would be replayed into whatever is there."""
    return next((log for end in ("-wal", "-journal") if place(log := path + end)), "")


def _give_name(made: Path, path: str) -> None:
    """Give a file its name, unless another process was faster: its file is as good, and may be in use."""
    try:
        os.link(made, path)
    except FileExistsError:
        return
    except OSError:
        # A file system without hard links: who is killed in between leaves an empty file, which is refused.
        with suppress(FileExistsError):
            os.close(new_private(path))
            made.replace(path)


def _check_header(path: str, schema: Schema) -> None:
    """Look at the file before SQLite may change it.

    Through SQLite all the same: to open and close the file beside it would let go of the locks that another
    connection of this process holds. What cannot be read so, may be being written: it is opened with locks then.
    """
    if not Path(path).stat().st_size:
        raise _refused(path, schema, EMPTY)
    uri = f"{Path(path).as_uri()}?mode=ro&immutable=1"
    with suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as db:
        _check_marks(db, path, schema)


def _check_marks(db: sqlite3.Connection, path: str, schema: Schema) -> int:
    """Return the version of what stands in the file."""
    application, version = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS)
    if application != schema.application:
        raise _refused(path, schema, "it is the file of another program: name another file")
    if version > len(schema.steps):
        why = f"a newer payasync made it (schema {version}, here {len(schema.steps)}): upgrade, or name another file"
        raise _refused(path, schema, why)
    return int(version)


def _connection(path: str) -> sqlite3.Connection:
    # Whoever forks closes it, in whichever thread.
    db = sqlite3.connect(path, timeout=LOCKED_SECONDS, isolation_level=None, check_same_thread=False)
    _, synchronous = journaling(sqlite3.sqlite_version_info)
    db.execute(f"PRAGMA synchronous = {synchronous}")
    # On macOS alone, where to synchronise does not reach the disk otherwise.
    db.execute("PRAGMA fullfsync = ON")
    return db


def _connected(path: str, schema: Schema) -> sqlite3.Connection:
    db = _connection(path)
    try:
        with transaction(db):
            _upgrade(db, schema, _check_marks(db, path, schema))
        # After the first tables: the marks must stand in the file itself, not in a log beside it.
        db.execute(f"PRAGMA journal_mode = {journaling(sqlite3.sqlite_version_info)[0]}")
        db.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        db.close()
        raise
    return db


def _upgrade(db: sqlite3.Connection, schema: Schema, version: int) -> None:
    if version == len(schema.steps):
        return
    for step in schema.steps[version:]:
        for statement in _statements(step):
            db.execute(statement)
    db.execute(f"PRAGMA application_id = {schema.application}")
    db.execute(f"PRAGMA user_version = {len(schema.steps)}")


def _statements(script: str) -> Generator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
