"""The database file: transactions, and whose file it is."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import pytest

from payasync.errors import ConfigurationError
from payasync.sandbox.database import APPLICATION, VERSION, Database
from payasync.sandbox.model import RefusedError

ADD: Final = "INSERT INTO keys VALUES (:name, 'x')"
COUNT: Final = "SELECT count(*) FROM keys"
PAGES_IN_HEADER: Final = 28
"""Where the header of an SQLite file says how many pages it has."""


@pytest.fixture
def database() -> Iterator[Database]:
    """An empty database."""
    opened = Database(":memory:")
    yield opened
    opened.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file may be."""
    return tmp_path / "sandbox.db"


def test_transaction_is_all_or_nothing(database: Database) -> None:
    """What an exception leaves behind is nothing, and nobody is told of a commit."""
    told = list[str]()
    database.on_commit(lambda: told.append("committed"))
    with suppress(ZeroDivisionError), database.transaction():
        database.changed(ADD, {"name": "a"})
        raise ZeroDivisionError
    undone = database.number(COUNT)
    with database.transaction():
        database.changed(ADD, {"name": "a"})

    assert (0, 1, ["committed"]) == (undone, database.number(COUNT), told)


def test_last_words_of_a_transaction(database: Database) -> None:
    """What is to be kept with each change is kept in the same transaction, or with it undone."""
    names = iter("abc")

    def fail_on_b() -> None:
        name = next(names)
        database.changed(ADD, {"name": name})
        if name == "b":
            raise ZeroDivisionError

    database.on_committing(fail_on_b)
    for _ in range(3):
        with suppress(ZeroDivisionError), database.transaction():
            database.changed(ADD, {"name": f"with {database.number(COUNT)}"})

    assert 4 == database.number(COUNT)


def test_attempt_undoes_itself_only(database: Database) -> None:
    """What is refused is undone, and what was done before it in the same transaction stays."""
    with database.transaction():
        database.changed(ADD, {"name": "a"})
        with suppress(RefusedError), database.attempt():
            database.changed(ADD, {"name": "b"})
            raise RefusedError("wrong_state", "no")

    assert 1 == database.number(COUNT)


def test_file_that_cannot_grow_is_busy(path: Path) -> None:
    """Where the disk is full a request is refused as one that may be tried again, and nothing of it is kept."""
    with closing(Database(str(path))) as database:
        database.number("PRAGMA max_page_count = 1")
        with pytest.raises(RefusedError, match="cannot be written: database or disk is full") as refused:
            fill(database)
        database.number("PRAGMA max_page_count = 1000000")
        with database.transaction():
            database.changed(ADD, {"name": "after"})

        assert ("busy", 1) == (refused.value.why, database.number(COUNT))


def fill(database: Database) -> None:
    """Write more than fits, in one transaction."""
    with database.transaction(), database.attempt():
        for count in range(1000):
            database.changed(ADD, {"name": f"{count:01000}"})


def test_file_is_its_owners(path: Path) -> None:
    """The keys stand in the file: nobody else reads it; it says whose it is, and of which schema."""
    Database(str(path)).close()

    with closing(sqlite3.connect(path)) as found:
        assert (APPLICATION, VERSION) == tuple(
            found.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
    assert 0 == path.stat().st_mode & 0o077


def test_one_sandbox_to_a_file(path: Path) -> None:
    """A second one is refused as often as it tries, in this process and in others, until the first has closed."""
    first, fields = Database(str(path)), list[str | None]()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="another sandbox has it open") as refused:
            Database(str(path))
        fields.append(refused.value.field)
    code = f"from payasync.sandbox.database import Database; Database({str(path)!r})"
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    with first.transaction():
        first.changed(ADD, {"name": "a"})
    first.close()
    with closing(Database(str(path))) as second:
        kept = second.number(COUNT)

    assert (["db", "db"], 1) == (fields, kept)
    assert "another sandbox has it open" in elsewhere.stderr


def another_programs(path: Path) -> None:
    """Make a database that is none of the sandbox's."""
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE orders (id)")


def of_another_version(path: Path) -> None:
    """Make a sandbox's file of another schema."""
    Database(str(path)).close()
    with closing(sqlite3.connect(path)) as made:
        made.execute(f"PRAGMA user_version = {VERSION + 1}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_text("notes\n" * 100), "is not a database"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + b"\0" * 84), "cannot use"),
        (another_programs, "of another program, or of an older payasync"),
        (of_another_version, f"its schema is of version {VERSION + 1}, and this payasync's of {VERSION}"),
        (lambda path: path.mkdir(), "is not a regular file. Name another file"),
    ],
)
def test_file_of_somebody_else(path: Path, make: Callable[[Path], object], words: str) -> None:
    """What is no sandbox's database of this version is refused with a clear word, and left as it is."""
    make(path)
    before = {file.name: file.is_file() and file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(ConfigurationError, match=words) as refused:
        Database(str(path))

    assert "db" == refused.value.field
    assert before == {file.name: file.is_file() and file.read_bytes() for file in path.parent.iterdir()}


def test_file_that_cannot_be_made(path: Path) -> None:
    """A folder that is not there is a mistake in the configuration, in our words."""
    with pytest.raises(ConfigurationError, match=r"db: cannot use .* No such file"):
        Database(str(path / "below"))


def test_empty_file_is_filled(path: Path) -> None:
    """A file that is there and empty becomes a sandbox's."""
    path.touch()
    Database(str(path)).close()
    with closing(Database(str(path))) as again:
        assert 0 == again.number(COUNT)


def test_file_of_a_sandbox_that_was_killed_half_way(path: Path) -> None:
    """Killed while the log is copied into the file, which then says that it is longer than it is, nothing is lost."""
    with closing(Database(str(path))) as database:
        with database.transaction():
            database.changed(ADD, {"name": "so long that the file grows" * 1000})
        files = {file: file.read_bytes() for file in path.parent.iterdir()}
    for file, content in files.items():
        file.write_bytes(content)
    with path.open("r+b") as header:
        header.seek(PAGES_IN_HEADER)
        header.write((1000).to_bytes(4, "big"))
    with closing(Database(str(path))) as again:
        assert 1 == again.number(COUNT)
