"""The thread that writes an SQLite file: who waits together is written together, and told after the commit."""

import asyncio
import errno
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync.errors import ConfigurationError, StorageError
from payasync.storage import Schema
from payasync.storage.sqlite import EMPTY, REPLACED, VANISHED, SqliteFile, journaling, open_database, transaction
from tests.journal.building import empty, move_away

SCHEMA: Final = Schema(name="inbox", application=0x1234, migrations=("CREATE TABLE notes (text TEXT NOT NULL);\n",))


CALLERS: Final = 100


CHANGES: Final = slice(24, 28)
"""Where the header of a file without a log counts the commits that changed it."""


SECONDS: Final = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file may be."""
    return tmp_path / "inbox.db"


@pytest.fixture
async def file(path: Path) -> AsyncIterator[SqliteFile]:
    """A file, closed with the test."""
    opened = SqliteFile(path, SCHEMA)
    yield opened
    await opened.aclose()


def note(text: str | None) -> Callable[[sqlite3.Connection], str | None]:
    """Return what writes a text, and gives it back."""

    def write(db: sqlite3.Connection) -> str | None:
        db.execute("INSERT INTO notes VALUES (?)", (text,))
        return text

    return write


def notes(db: sqlite3.Connection) -> list[str]:
    """Return what was written."""
    return [text for (text,) in db.execute("SELECT text FROM notes ORDER BY text")]


def on_disk(path: Path) -> list[str]:
    """Return what others see of it."""
    with closing(sqlite3.connect(path)) as db:
        return notes(db)


def commits(path: Path) -> int:
    """Return how often the file was changed."""
    return int.from_bytes(path.read_bytes()[CHANGES], "big")


@contextmanager
def held(path: Path) -> Generator[None]:
    """Hold the file, so that whoever writes waits."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def wait_for_ever(inside: Callable[[], object], go: threading.Event) -> Callable[[sqlite3.Connection], None]:
    """Return what tells that it has begun, and then keeps the thread until it may go."""

    def work(db: sqlite3.Connection) -> None:
        note("busy")(db)
        inside()
        assert go.wait(SECONDS)

    return work


@asynccontextmanager
async def busy(file: SqliteFile) -> AsyncGenerator["asyncio.Future[None]"]:
    """Keep the thread in the midst of a transaction."""
    loop, inside, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    working = asyncio.ensure_future(file.run(wait_for_ever(partial(loop.call_soon_threadsafe, inside.set), go)))
    await inside.wait()
    try:
        yield working
    finally:
        go.set()
        await asyncio.wait([working])


def is_there(path: Path) -> bool:
    """Return whether there is a file."""
    return path.exists()


def put_back(path: Path) -> None:
    """Let it be there again."""
    path.with_name("elsewhere.db").rename(path)


def delete(path: Path) -> None:
    """Let a file be no more."""
    path.unlink()


async def begun(*tasks: "asyncio.Future[Any]") -> None:
    """Let tasks come as far as they come by themselves."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)


async def all_of(file: SqliteFile, *works: Callable[[sqlite3.Connection], Any]) -> list[Any]:
    """Return what each of some works that wait together returned, or raised."""
    return await asyncio.gather(*(file.run(work) for work in works), return_exceptions=True)


async def test_nothing_is_opened_before_the_first_use(path: Path, file: SqliteFile) -> None:
    """To make the object is free: programs make it while they are imported."""
    made = is_there(path)
    await file.run(notes)

    assert (False, True) == (made, is_there(path))


async def test_caller_is_told_after_the_commit(path: Path, file: SqliteFile) -> None:
    """What a caller was told of, everybody sees."""
    told = await file.run(note("a"))

    assert ("a", ["a"]) == (told, on_disk(path))


async def test_callers_that_wait_share_a_commit(path: Path, file: SqliteFile) -> None:
    """While the disk is busy a hundred callers come, and they are written by one commit."""
    await file.run(notes)
    before = commits(path)
    async with busy(file):
        waiting = [asyncio.ensure_future(file.run(note(f"{number:03}"))) for number in range(CALLERS)]
        await begun(*waiting)
    told = await asyncio.gather(*waiting)

    assert 2 == commits(path) - before
    assert [*told, "busy"] == on_disk(path)


def raising(mistake: Exception) -> Callable[[sqlite3.Connection], None]:
    """Return what writes something, and then makes a mistake."""

    def mistaken(db: sqlite3.Connection) -> None:
        note("undone")(db)
        raise mistake

    return mistaken


@pytest.mark.parametrize("mistake", [ZeroDivisionError(), ConfigurationError("not here")])
async def test_who_fails_fails_alone(path: Path, file: SqliteFile, mistake: Exception) -> None:
    """What shares a transaction with a mistake is written all the same, and the mistake's own part is not."""
    async with busy(file):
        ends = asyncio.ensure_future(all_of(file, note("a"), raising(mistake), note("b"), note(None), note("c")))
        await begun(ends)
    first, second, third, fourth, fifth = await ends

    assert ["a", "b", "busy", "c"] == on_disk(path)
    assert ["a", "b", "c"] == [first, third, fifth]
    assert isinstance(second, type(mistake))
    assert isinstance(fourth, StorageError)


async def test_file_that_is_held_is_unavailable(path: Path, file: SqliteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds the file for too long makes it unavailable, to all that wait and no longer than it is held."""
    monkeypatch.setattr("payasync.storage.sqlite.LOCKED_SECONDS", 0.01)
    await file.run(note("a"))
    with held(path):
        ends = await all_of(file, note("b"), note("c"))
    await file.run(note("d"))

    assert [StorageError, StorageError] == [type(end) for end in ends]
    assert f"the inbox '{path}' is unavailable: database is locked" == str(ends[0])
    assert "database is locked" == ends[0].reason
    assert ["a", "d"] == on_disk(path)


async def test_full_disk_keeps_nothing_and_loses_nothing(path: Path, file: SqliteFile) -> None:
    """Where the disk is full nobody is told of a success; when there is room again, it goes on."""

    def fill(db: sqlite3.Connection) -> None:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")

    await file.run(note("a"))
    await file.run(fill)
    ends = await all_of(file, note("b"), note("c" * 100_000), note("d"))
    told = await all_of(file, note("e"), note("f" * 100_000))

    assert {StorageError} == {type(end) for end in ends}
    assert "database or disk is full" == ends[1].reason
    assert ["a", *told] == on_disk(path)


async def test_errors_are_each_callers_own(tmp_path: Path) -> None:
    """No two callers raise one and the same error: each adds its own traceback to it."""
    (tmp_path / "inbox.db").write_text("My passwords")
    file = SqliteFile(tmp_path / "inbox.db", SCHEMA)
    errors = await all_of(file, *[notes] * CALLERS)
    await file.aclose()

    assert {ConfigurationError} == {type(error) for error in errors}
    assert CALLERS == len({id(error) for error in errors})


@pytest.fixture(params=[(99,), (3,)], ids=["rollback", "wal"])
def _mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test with either way in which SQLite makes a commit durable."""
    monkeypatch.setattr("payasync.storage.sqlite.WAL_SINCE", request.param)


@pytest.mark.usefixtures("_mode")
async def test_file_that_vanishes_is_not_begun_anew(path: Path, file: SqliteFile) -> None:
    """A file is made at the first use alone: an empty one would deny all that stood in it. Put back, it goes on."""
    await file.run(note("a"))
    move_away(path)
    ends = [(await all_of(file, notes))[0] for _ in range(3)]
    made = is_there(path)
    put_back(path)
    await file.run(note("b"))

    assert [f"the inbox '{path}' is unavailable: {VANISHED}"] * 3 == [end.args[0] for end in ends]
    assert {StorageError} == {type(end) for end in ends}
    assert not made
    assert ["a", "b"] == await file.run(notes)


@pytest.mark.usefixtures("_mode")
@pytest.mark.parametrize("deleted", [False, True])
async def test_file_whose_place_another_takes_is_unavailable(path: Path, file: SqliteFile, *, deleted: bool) -> None:
    """What another process has made in its place knows nothing of what stood in it; it is not written, nor believed."""
    await file.run(note("a"))
    if deleted:
        delete(path)
        ends = await all_of(file, notes)
    else:
        move_away(path)
        ends = []
    for log in path.parent.glob("inbox.db-*"):
        log.unlink()
    other = SqliteFile(path, SCHEMA)
    await other.run(note("other"))
    ends += await all_of(file, notes, note("b"))
    await other.aclose()

    assert {StorageError} == {type(end) for end in ends}
    assert [f"the inbox '{path}' is unavailable: {REPLACED}"] * 2 == [end.args[0] for end in ends[-2:]]
    assert ["other"] == on_disk(path)


async def test_file_that_is_emptied_is_damaged(path: Path, file: SqliteFile) -> None:
    """What was in use, and has 0 bytes by now, is not begun anew, neither here nor by another process."""
    await file.run(note("a"))
    empty(path)
    other = SqliteFile(path, SCHEMA)
    ends = [(await all_of(each, notes))[0] for each in (file, file, other)]
    await other.aclose()

    assert {True} == {isinstance(end, StorageError | ConfigurationError) for end in ends}
    assert [f"path: cannot use '{path}' as the inbox: {EMPTY}"] * 2 == [end.args[0] for end in ends[1:]]


async def test_file_that_vanished_while_nobody_held_it_is_not_begun_anew(path: Path, file: SqliteFile) -> None:
    """What was in use stays known over a fork and an error, with which the file is closed."""
    await file.run(note("a"))
    file.pause()
    file.resume()
    delete(path)
    found = (await all_of(file, notes))[0]

    assert isinstance(found, StorageError)
    assert not is_there(path)


async def test_who_is_cancelled_before_its_turn_writes_nothing(path: Path, file: SqliteFile) -> None:
    """What nobody waits for any more, and was not begun, is not done."""
    async with busy(file):
        first, second = (asyncio.ensure_future(file.run(note(text))) for text in "ab")
        await begun(first, second)
        first.cancel()
        await asyncio.wait([first])
    await second

    assert first.cancelled()
    assert ["b", "busy"] == on_disk(path)


async def test_who_is_cancelled_midway_stops_nobody(path: Path, file: SqliteFile) -> None:
    """What was begun is finished, though its caller is gone."""
    async with busy(file) as first:
        first.cancel()
        await asyncio.wait([first])
    await file.run(note("c"))

    assert first.cancelled()
    assert ["busy", "c"] == on_disk(path)


async def test_closing_finishes_what_waits(path: Path) -> None:
    """Who came before the end is served; whoever comes after it is told that it is closed."""
    file = SqliteFile(path, SCHEMA)
    waiting = [asyncio.ensure_future(file.run(note(text))) for text in "ab"]
    await asyncio.sleep(0)
    await file.aclose()
    await file.aclose()
    with pytest.raises(StorageError, match="the inbox is closed"):
        await file.run(notes)

    assert ["a", "b"] == [task.result() for task in waiting] == on_disk(path)


async def test_closing_that_is_cancelled_closes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is in a hurry does not leave the file open, nor its thread behind."""
    monkeypatch.setattr("payasync.storage.sqlite.WAL_SINCE", (3,))
    log = path.with_name("inbox.db-wal")
    file = SqliteFile(path, SCHEMA)
    async with busy(file):
        hurried = asyncio.ensure_future(file.aclose())
        await begun(hurried)
        hurried.cancel()
        await asyncio.wait([hurried])
        before = is_there(log)
    for thread in threading.enumerate():
        if thread.name.startswith("payasync-inbox"):
            thread.join(SECONDS)

    assert hurried.cancelled()
    # Whoever closes last takes the log away.
    assert (True, False) == (before, is_there(log))
    assert ["busy"] == on_disk(path)


def test_loops_share_a_file(path: Path) -> None:
    """One object serves event loops one after the other, and at the same time in several threads."""
    file = SqliteFile(path, SCHEMA)

    def of_thread(thread: int) -> None:
        for number in range(20):
            asyncio.run(file.run(note(f"{thread}-{number:02}")))

    with ThreadPoolExecutor(3) as threads:
        for each in [threads.submit(of_thread, thread) for thread in range(3)]:
            each.result(SECONDS)
    asyncio.run(file.aclose())

    assert [f"{thread}-{number:02}" for thread in range(3) for number in range(20)] == on_disk(path)


def test_loop_that_ended_stops_nobody(path: Path) -> None:
    """Where a caller's event loop is gone before the disk was ready, the others are told all the same."""
    file, inside, go = SqliteFile(path, SCHEMA), threading.Event(), threading.Event()

    async def be_gone() -> None:
        waiting = asyncio.ensure_future(file.run(wait_for_ever(inside.set, go)))
        await begun(waiting)
        assert inside.wait(SECONDS)
        waiting.cancel()

    asyncio.run(be_gone())
    go.set()
    asyncio.run(asyncio.wait_for(file.run(note("b")), SECONDS))
    asyncio.run(file.aclose())

    assert ["b", "busy"] == on_disk(path)


AT_THE_END: Final = """
import asyncio, atexit, sys
from payasync.storage.sqlite import SqliteFile
from payasync.storage import Schema

file = SqliteFile(sys.argv[1], Schema(name="inbox", application=7, migrations=("CREATE TABLE notes (text);",)))

def write(text):
    asyncio.run(file.run(lambda db: db.execute("INSERT INTO notes VALUES (?)", (text,)).rowcount))

def end():
    write("late")
    asyncio.run(file.aclose())

write("early")
if "close" in sys.argv:
    atexit.register(end)
"""


@pytest.mark.parametrize(("how", "expected"), [("close", ["early", "late"]), ("forget", ["early"])])
def test_program_ends_by_itself(path: Path, how: str, expected: list[str]) -> None:
    """The thread keeps no program alive, and who closes at the very end, when no thread starts, closes well."""
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_END, str(path), how], capture_output=True, text=True, timeout=SECONDS, check=False
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert expected == on_disk(path)


TWO_VERSIONS: Final = Schema(
    name="inbox",
    application=0x1234,
    migrations=("CREATE TABLE notes (text TEXT NOT NULL);\n", "ALTER TABLE notes ADD COLUMN\n    colour TEXT;\n"),
)


OLDER: Final = evolve(TWO_VERSIONS, migrations=TWO_VERSIONS.migrations[:1])


DYING: Final = """
import os, signal, sys
from payasync.storage import Schema
from payasync.storage.sqlite import open_database

link = os.link

def die(*names):
    {first}
    os.kill(os.getpid(), signal.SIGKILL)

os.link = die
open_database(sys.argv[1], {schema})
"""


EXTRA: Final = 3


FULL: Final = 2


@pytest.fixture
def open_(path: Path) -> Iterator[Callable[[Schema], sqlite3.Connection]]:
    """Open the file; it is closed with the test."""
    with ExitStack() as stack:
        yield lambda schema: stack.enter_context(closing(open_database(str(path), schema)))


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
    monkeypatch.setattr("payasync.storage.sqlite.WAL_SINCE", since)

    db = open_(TWO_VERSIONS)
    found = [asked(db, pragma) for pragma in ("journal_mode", "synchronous", "fullfsync", "foreign_keys")]

    assert [mode, synchronous, 1, 1] == found


@pytest.mark.parametrize("given", ["inbox.db", Path("inbox.db")])
def test_path_is_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | Path) -> None:
    """A relative path means the folder in which it was given, whatever the program's folder is later."""
    monkeypatch.chdir(tmp_path)

    assert str(tmp_path / "inbox.db") == SqliteFile(given, TWO_VERSIONS).path


def test_nothing_else_is_left_beside_a_new_file(path: Path, open_: Callable[[Schema], sqlite3.Connection]) -> None:
    """A new file is made under another name, which is gone afterwards."""
    open_(TWO_VERSIONS)

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
        with closing(open_database(str(path), TWO_VERSIONS)) as db:
            db.execute("INSERT INTO notes VALUES ('first', NULL)")
        last(*names)

    last = os.link if linked else without_links
    monkeypatch.setattr(os, "link", outrun)
    with closing(open_database(str(path), TWO_VERSIONS)) as db:
        found = db.execute("SELECT text FROM notes").fetchall()

    assert [("first",)] == found
    assert [path] == list(path.parent.iterdir())


def test_file_system_without_hard_links(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is made there, too."""
    monkeypatch.setattr(os, "link", without_links)
    with closing(open_database(str(path), TWO_VERSIONS)) as db:
        db.execute("INSERT INTO notes VALUES ('a', NULL)")

    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert [path] == list(path.parent.iterdir())


@pytest.mark.parametrize("link", ["before", "after"])
def test_process_that_dies_while_it_makes_the_file(path: Path, link: str) -> None:
    """It leaves none, or the whole one; the next process opens that, or makes it."""
    code = DYING.format(first="link(*names)" if link == "after" else "", schema=TWO_VERSIONS)
    died = subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=False)
    left = path.stat().st_size if path.exists() else None
    with closing(open_database(str(path), TWO_VERSIONS)) as db:
        db.execute("INSERT INTO notes VALUES ('a', NULL)")

    assert -signal.SIGKILL == died.returncode
    assert left is None if link == "before" else left


@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_log_without_its_file_is_not_replayed(path: Path, end: str) -> None:
    """A log tells that its file was lost, and may hold the end of it: no new file is made beside it."""
    path.with_name(path.name + end).write_bytes(b"what was committed last")
    before = content(path.parent)
    with pytest.raises(ConfigurationError, match=f"it is missing, but '?{path}{end}'? is left beside it"):
        open_database(str(path), TWO_VERSIONS)

    assert before == content(path.parent)


def test_older_schema_is_brought_up_to_date(open_: Callable[[Schema], sqlite3.Connection]) -> None:
    """A file of an older version takes the steps that it lacks, and keeps what stands in it."""
    with closing(open_(OLDER)) as db:
        db.execute("INSERT INTO notes VALUES ('kept')")

    db = open_(TWO_VERSIONS)

    assert ("kept", None) == db.execute("SELECT * FROM notes").fetchone()
    assert (2, 0x1234) == (asked(db, "user_version"), asked(db, "application_id"))


def test_step_that_fails_changes_nothing(path: Path, open_: Callable[[Schema], sqlite3.Connection]) -> None:
    """An update is done wholly, or not at all."""
    open_(OLDER).close()
    before = content(path.parent)
    broken = evolve(
        TWO_VERSIONS, migrations=(*TWO_VERSIONS.migrations, "CREATE TABLE more (a);\nCREATE TABLE notes (a);\n")
    )
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
    open_database(
        str(path), evolve(TWO_VERSIONS, migrations=(*TWO_VERSIONS.migrations, "CREATE TABLE more (a);"))
    ).close()


def truncated(path: Path) -> None:
    """Leave the beginning of ours."""
    open_database(str(path), TWO_VERSIONS).close()
    path.write_bytes(path.read_bytes()[:4096])


def no_database(path: Path) -> None:
    """Leave a text."""
    path.write_text("My passwords\n" * 1000)


def left_empty(path: Path) -> None:
    """Leave nothing of ours."""
    open_database(str(path), TWO_VERSIONS).close()
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
    left_empty: "it is empty, so it is damaged, .*restore it from a backup",
}


@pytest.mark.parametrize(("leave", "why"), REFUSED.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_file_that_is_not_ours_stays_as_it_is(path: Path, leave: Callable[[Path], None], why: str) -> None:
    """A wrong path must not cost anybody a file: it is refused, and nothing in its folder has changed."""
    leave(path)
    before = content(path.parent)
    with pytest.raises(ConfigurationError, match=f"cannot use '{path}' as the inbox: .*{why}") as caught:
        open_database(str(path), TWO_VERSIONS)

    assert "path" == caught.value.field
    assert before == content(path.parent)


def test_log_of_another_program_stays_as_it_is(path: Path) -> None:
    """What another program has written into its log, and not yet into its file, is left for that program."""
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("PRAGMA journal_mode = WAL")
        theirs.execute("CREATE TABLE notes (a)")
        before = content(path.parent)
        with pytest.raises(ConfigurationError, match="another program"):
            open_database(str(path), TWO_VERSIONS)

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
        open_database(str(tmp_path / name), TWO_VERSIONS)


@pytest.mark.parametrize(("since", "beside"), [((99,), "inbox.db-journal"), ((3,), "inbox.db-wal")])
def test_what_a_crash_left_midway_is_undone(
    tmp_path: Path,
    open_: Callable[[Schema], sqlite3.Connection],
    monkeypatch: pytest.MonkeyPatch,
    since: tuple[int, ...],
    beside: str,
) -> None:
    """A process that dies inside a transaction leaves a file that opens, with what was committed and nothing else."""
    monkeypatch.setattr("payasync.storage.sqlite.WAL_SINCE", since)
    (tmp_path / "crashing").mkdir()
    with closing(open_database(str(tmp_path / "crashing/inbox.db"), TWO_VERSIONS)) as crashing:
        crashing.execute("INSERT INTO notes VALUES ('committed', NULL)")
        # So small that what is not committed is written all the same.
        crashing.execute("PRAGMA cache_size = 1")
        crashing.execute("BEGIN IMMEDIATE")
        crashing.executemany("INSERT INTO notes VALUES (?, NULL)", [("midway" * 1000,) for _ in range(50)])
        left = content(tmp_path / "crashing")
        crashing.execute("ROLLBACK")
    for name, found in left.items():
        (tmp_path / name).write_bytes(found)

    db = open_(TWO_VERSIONS)

    assert left[beside]
    assert 100_000 < sum(len(each) for each in left.values())
    assert [("committed",)] == db.execute("SELECT text FROM notes").fetchall()
    assert "ok" == asked(db, "integrity_check")


def test_transaction_holds_the_file_from_its_beginning(open_: Callable[[Schema], sqlite3.Connection]) -> None:
    """Who reads before it writes must not find that another has written meanwhile."""
    first, second = open_(TWO_VERSIONS), open_(TWO_VERSIONS)
    second.execute("PRAGMA busy_timeout = 0")
    with transaction(first), pytest.raises(sqlite3.OperationalError, match="locked"), transaction(second):
        pytest.fail("two transactions at once")


PROGRAM: Final = Path(__file__).with_name("sqlite_forking.py")


@pytest.mark.parametrize("journal", ["journal", pytest.param("log", marks=pytest.mark.long)])
@pytest.mark.parametrize("what", ["both", *(pytest.param(each, marks=pytest.mark.long) for each in ("closed", "load"))])
def test_nothing_is_lost_by_a_fork(tmp_path: Path, what: str, journal: str) -> None:
    """What parent or child was told of stands in the file, once, and the child inherits no handle of the file.

    SQLite forbids to carry a connection through a fork: the child would believe in locks that only the parent has.
    """
    path = tmp_path / "inbox.db"
    # Later Pythons warn of every fork beside a thread.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(PROGRAM), what, journal, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    with closing(sqlite3.connect(path)) as db:
        found = [text for (text,) in db.execute("SELECT text FROM notes ORDER BY text")]
        whole = db.execute("PRAGMA integrity_check").fetchone()[0]

    assert (0, "", "ok") == (done.returncode, done.stderr, whole)
    assert sorted(done.stdout.splitlines()) == found
