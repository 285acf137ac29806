"""How an SQLite file of ours is opened: durable, private, and nobody else's."""

import errno
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync.errors import ConfigurationError
from payasync.storage.sqlite_opening import Schema, checked_path, journaling, opened, transaction

SCHEMA: Final = Schema(
    name="inbox",
    application=0x1234,
    steps=("CREATE TABLE notes (text TEXT NOT NULL);\n", "ALTER TABLE notes ADD COLUMN\n    colour TEXT;\n"),
)
OLDER: Final = evolve(SCHEMA, steps=SCHEMA.steps[:1])
ROOT: Final = Path(__file__).parents[1]
DYING: Final = """
import os, signal, sys
from payasync.storage.sqlite_opening import Schema, opened

link = os.link

def die(*names):
    {first}
    os.kill(os.getpid(), signal.SIGKILL)

os.link = die
opened(sys.argv[1], {schema})
"""
EXTRA: Final = 3
FULL: Final = 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file may be."""
    return tmp_path / "inbox.db"


@pytest.fixture
def open_(path: Path) -> Iterator[Callable[[Schema], sqlite3.Connection]]:
    """Open the file; it is closed with the test."""
    with ExitStack() as stack:
        yield lambda schema: stack.enter_context(closing(opened(str(path), schema)))


def made(path: Path, *statements: str) -> None:
    """Make a database by hand."""
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def content(folder: Path) -> dict[str, bytes]:
    """Return what stands in each file of a folder."""
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def asked(db: sqlite3.Connection, pragma: str) -> Any:
    """Return what a connection says of itself."""
    return db.execute(f"PRAGMA {pragma}").fetchone()[0]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ((3, 40, 1), ("delete", "EXTRA")),
        ((3, 51, 2), ("delete", "EXTRA")),
        ((3, 51, 3), ("wal", "FULL")),
        ((3, 52, 0), ("wal", "FULL")),
        ((4, 0, 0), ("wal", "FULL")),
    ],
)
def test_journal_by_version(version: tuple[int, ...], expected: tuple[str, str]) -> None:
    """A write-ahead log only where SQLite has mended what could damage it; each commit waits for the disk."""
    assert expected == journaling(version)


@pytest.mark.parametrize(("since", "mode", "synchronous"), [((99,), "delete", EXTRA), ((3,), "wal", FULL)])
def test_connection_is_durable(
    open_: Callable[[Schema], sqlite3.Connection],
    monkeypatch: pytest.MonkeyPatch,
    since: tuple[int, ...],
    mode: str,
    synchronous: int,
) -> None:
    """The connection that writes has the journal and the care that were decided on."""
    monkeypatch.setattr("payasync.storage.sqlite_opening.WAL_SINCE", since)

    db = open_(SCHEMA)
    found = [asked(db, pragma) for pragma in ("journal_mode", "synchronous", "fullfsync", "foreign_keys")]

    assert [mode, synchronous, 1, 1] == found


@pytest.mark.parametrize("given", ["inbox.db", Path("inbox.db")])
def test_path_is_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: object) -> None:
    """A relative path means the folder in which it was given, whatever the program's folder is later."""
    monkeypatch.chdir(tmp_path)

    assert str(tmp_path / "inbox.db") == checked_path(given, "inbox")


def test_nothing_else_is_left_beside_a_new_file(path: Path, open_: Callable[[Schema], sqlite3.Connection]) -> None:
    """A new file is made under another name, which is gone afterwards."""
    open_(SCHEMA)

    assert [path] == [each for each in path.parent.iterdir() if "-" not in each.name]
    assert 1 == path.stat().st_nlink


def without_links(*_: object) -> None:
    """Fail as `os.link` does where the file system has no hard links."""
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("linked", [True, False])
def test_who_is_faster_makes_the_file(path: Path, monkeypatch: pytest.MonkeyPatch, *, linked: bool) -> None:
    """Of two that make a file at the same moment one does, and what it wrote by then stays; both use that one."""

    def outrun(*names: Any) -> None:
        monkeypatch.setattr(os, "link", last)
        with closing(opened(str(path), SCHEMA)) as db:
            db.execute("INSERT INTO notes VALUES ('first', NULL)")
        last(*names)

    last = os.link if linked else without_links
    monkeypatch.setattr(os, "link", outrun)
    with closing(opened(str(path), SCHEMA)) as db:
        found = db.execute("SELECT text FROM notes").fetchall()

    assert [("first",)] == found
    assert [path] == list(path.parent.iterdir())


def test_file_system_without_hard_links(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is made there, too."""
    monkeypatch.setattr(os, "link", without_links)
    with closing(opened(str(path), SCHEMA)) as db:
        db.execute("INSERT INTO notes VALUES ('a', NULL)")

    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert [path] == list(path.parent.iterdir())


@pytest.mark.parametrize("link", ["before", "after"])
def test_process_that_dies_while_it_makes_the_file(path: Path, link: str) -> None:
    """It leaves none, or the whole one; the next process opens that, or makes it."""
    code = DYING.format(first="link(*names)" if link == "after" else "", schema=SCHEMA)
    died = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, timeout=60, check=False)
    left = path.stat().st_size if path.exists() else None
    with closing(opened(str(path), SCHEMA)) as db:
        db.execute("INSERT INTO notes VALUES ('a', NULL)")

    assert -signal.SIGKILL == died.returncode
    assert left is None if link == "before" else left


@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_log_without_its_file_is_not_replayed(path: Path, end: str) -> None:
    """A log tells that its file was lost, and may hold the end of it: no new file is made beside it."""
    path.with_name(path.name + end).write_bytes(b"what was committed last")
    before = content(path.parent)
    with pytest.raises(ConfigurationError, match=f"it is missing, but '?{path}{end}'? is left beside it"):
        opened(str(path), SCHEMA)

    assert before == content(path.parent)


def test_older_schema_is_brought_up_to_date(open_: Callable[[Schema], sqlite3.Connection]) -> None:
    """A file of an older version takes the steps that it lacks, and keeps what stands in it."""
    with closing(open_(OLDER)) as db:
        db.execute("INSERT INTO notes VALUES ('kept')")

    db = open_(SCHEMA)

    assert ("kept", None) == db.execute("SELECT * FROM notes").fetchone()
    assert (2, 0x1234) == (asked(db, "user_version"), asked(db, "application_id"))


def test_step_that_fails_changes_nothing(path: Path, open_: Callable[[Schema], sqlite3.Connection]) -> None:
    """An update is done wholly, or not at all."""
    open_(OLDER).close()
    before = content(path.parent)
    broken = evolve(SCHEMA, steps=(*SCHEMA.steps, "CREATE TABLE more (a);\nCREATE TABLE notes (a);\n"))
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        open_(broken)

    assert before == content(path.parent)


def another_programs(path: Path) -> None:
    """Leave a database that is not ours."""
    made(path, "PRAGMA application_id = 7", "CREATE TABLE notes (a)")


def nobodys(path: Path) -> None:
    """Leave a database that does not say whose it is."""
    made(path, "CREATE TABLE notes (a)")


def newer(path: Path) -> None:
    """Leave ours, of a later version."""
    opened(str(path), evolve(SCHEMA, steps=(*SCHEMA.steps, "CREATE TABLE more (a);"))).close()


def truncated(path: Path) -> None:
    """Leave the beginning of ours."""
    opened(str(path), SCHEMA).close()
    path.write_bytes(path.read_bytes()[:4096])


def no_database(path: Path) -> None:
    """Leave a text."""
    path.write_text("My passwords\n" * 1000)


def empty(path: Path) -> None:
    """Leave nothing of ours."""
    opened(str(path), SCHEMA).close()
    path.write_bytes(b"")


def short_text(path: Path) -> None:
    """Leave a text that is shorter than the header of a database."""
    path.write_text("My passwords")


REFUSED: Final[dict[Callable[[Path], None], str]] = {
    another_programs: "it is the file of another program: name another file",
    nobodys: "it is the file of another program: name another file",
    newer: "a newer payasync made it .schema 3, here 2.: upgrade, or name another file",
    truncated: "malformed",
    no_database: "file is not a database",
    short_text: "file is not a database",
    empty: "it is empty, so it is damaged, .*restore it from a backup",
}


@pytest.mark.parametrize(("leave", "why"), REFUSED.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_file_that_is_not_ours_stays_as_it_is(path: Path, leave: Callable[[Path], None], why: str) -> None:
    """A wrong path must not cost anybody a file: it is refused, and nothing in its folder has changed."""
    leave(path)
    before = content(path.parent)
    with pytest.raises(ConfigurationError, match=f"cannot use '{path}' as the inbox: .*{why}") as caught:
        opened(str(path), SCHEMA)

    assert "path" == caught.value.field
    assert before == content(path.parent)


def test_log_of_another_program_stays_as_it_is(path: Path) -> None:
    """What another program has written into its log, and not yet into its file, is left for that program."""
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("PRAGMA journal_mode = WAL")
        theirs.execute("CREATE TABLE notes (a)")
        before = content(path.parent)
        with pytest.raises(ConfigurationError, match="another program"):
            opened(str(path), SCHEMA)

        assert {"inbox.db", "inbox.db-wal", "inbox.db-shm"} == before.keys()
        assert before == content(path.parent)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing/inbox.db", "No such file or directory"),
        ("file/inbox.db", "Not a directory"),
        ("", "is not a regular file. Name another file"),
        ("dangling", "'dangling' is a symbolic link, and links are not followed"),
    ],
)
def test_place_where_no_file_can_be_is_refused(tmp_path: Path, name: str, why: str) -> None:
    """A folder that is not there is the configuration's fault, and the error says what is wrong with it."""
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")

    with pytest.raises(ConfigurationError, match=why):
        opened(str(tmp_path / name), SCHEMA)


@pytest.mark.parametrize(("since", "beside"), [((99,), "inbox.db-journal"), ((3,), "inbox.db-wal")])
def test_what_a_crash_left_midway_is_undone(
    tmp_path: Path,
    open_: Callable[[Schema], sqlite3.Connection],
    monkeypatch: pytest.MonkeyPatch,
    since: tuple[int, ...],
    beside: str,
) -> None:
    """A process that dies inside a transaction leaves a file that opens, with what was committed and nothing else."""
    monkeypatch.setattr("payasync.storage.sqlite_opening.WAL_SINCE", since)
    (tmp_path / "crashing").mkdir()
    with closing(opened(str(tmp_path / "crashing/inbox.db"), SCHEMA)) as crashing:
        crashing.execute("INSERT INTO notes VALUES ('committed', NULL)")
        # So small that what is not committed is written all the same.
        crashing.execute("PRAGMA cache_size = 1")
        crashing.execute("BEGIN IMMEDIATE")
        crashing.executemany("INSERT INTO notes VALUES (?, NULL)", [("midway" * 1000,) for _ in range(50)])
        left = content(tmp_path / "crashing")
        crashing.execute("ROLLBACK")
    for name, found in left.items():
        (tmp_path / name).write_bytes(found)

    db = open_(SCHEMA)

    assert left[beside]
    assert 100_000 < sum(len(each) for each in left.values())
    assert [("committed",)] == db.execute("SELECT text FROM notes").fetchall()
    assert "ok" == asked(db, "integrity_check")


def test_transaction_holds_the_file_from_its_beginning(open_: Callable[[Schema], sqlite3.Connection]) -> None:
    """Who reads before it writes must not find that another has written meanwhile."""
    first, second = open_(SCHEMA), open_(SCHEMA)
    second.execute("PRAGMA busy_timeout = 0")
    with transaction(first), pytest.raises(sqlite3.OperationalError, match="locked"), transaction(second):
        pytest.fail("two transactions at once")
