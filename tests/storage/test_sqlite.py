"""The thread that writes an SQLite file: who waits together is written together, and told after the commit."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from payasync.errors import ConfigurationError, StorageError
from payasync.storage.sqlite import ANOTHER, GONE, SqliteFile
from payasync.storage.sqlite_opening import EMPTY, Schema

SCHEMA: Final = Schema(name="inbox", application=0x1234, steps=("CREATE TABLE notes (text TEXT NOT NULL);\n",))
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


def damage(path: Path) -> None:
    """Overwrite a file."""
    path.write_bytes(b"\0" * 100_000)


def move_away(path: Path) -> None:
    """Let a file vanish from its path."""
    path.rename(path.with_name("elsewhere.db"))


def put_back(path: Path) -> None:
    """Let it be there again."""
    path.with_name("elsewhere.db").rename(path)


def empty(path: Path) -> None:
    """Leave nothing in a file."""
    path.write_bytes(b"")


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


async def test_commit_of_nothing_is_free(path: Path, file: SqliteFile) -> None:
    """Who only reads does not make the disk work."""
    await file.run(note("a"))
    before = commits(path)

    await asyncio.gather(*(file.run(notes) for _ in range(CALLERS)))

    assert before == commits(path)


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


async def test_mistake_closes_no_file(path: Path, file: SqliteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller's own mistake costs nobody a file that is opened, and checked, anew."""
    await file.run(note("a"))
    monkeypatch.setattr("payasync.storage.sqlite.opened", None)
    with pytest.raises(ConfigurationError):
        await file.run(raising(ConfigurationError("not here")))
    await file.run(note("b"))

    assert ["a", "b"] == on_disk(path)


async def test_file_that_is_held_is_unavailable(path: Path, file: SqliteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds the file for too long makes it unavailable, to all that wait and no longer than it is held."""
    monkeypatch.setattr("payasync.storage.sqlite_opening.LOCKED_SECONDS", 0.01)
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


async def test_file_that_is_damaged_later_is_unavailable(path: Path, file: SqliteFile) -> None:
    """A file that is overwritten while it is open raises none of SQLite's own errors."""
    await file.run(note("a"))
    damage(path)
    found = (await all_of(file, notes))[0]

    assert isinstance(found, StorageError | ConfigurationError)


@pytest.fixture(params=[(99,), (3,)], ids=["rollback", "wal"])
def _mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test with either way in which SQLite makes a commit durable."""
    monkeypatch.setattr("payasync.storage.sqlite_opening.WAL_SINCE", request.param)


@pytest.mark.usefixtures("_mode")
async def test_file_that_vanishes_is_not_begun_anew(path: Path, file: SqliteFile) -> None:
    """A file is made at the first use alone: an empty one would deny all that stood in it. Put back, it goes on."""
    await file.run(note("a"))
    move_away(path)
    ends = [(await all_of(file, notes))[0] for _ in range(3)]
    made = is_there(path)
    put_back(path)
    await file.run(note("b"))

    assert [f"the inbox '{path}' is unavailable: {GONE}"] * 3 == [end.args[0] for end in ends]
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
    assert [f"the inbox '{path}' is unavailable: {ANOTHER}"] * 2 == [end.args[0] for end in ends[-2:]]
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


async def test_closing_what_was_never_opened_makes_no_file(path: Path) -> None:
    """A program that only looked leaves nothing behind."""
    await SqliteFile(path, SCHEMA).aclose()

    assert not is_there(path)


async def test_closing_that_is_cancelled_closes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is in a hurry does not leave the file open, nor its thread behind."""
    monkeypatch.setattr("payasync.storage.sqlite_opening.WAL_SINCE", (3,))
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
from payasync.storage.sqlite_opening import Schema

file = SqliteFile(sys.argv[1], Schema(name="inbox", application=7, steps=("CREATE TABLE notes (text);",)))

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
