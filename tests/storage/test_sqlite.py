"""The thread that writes a SQLite file: callers that wait together share a commit, and get results after it."""

import asyncio
import errno
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync.clocks import Deadlines
from payasync.errors import ConfigurationError, StorageError
from payasync.storage import Schema
from payasync.storage.sqlite import EMPTY, REPLACED, VANISHED, SqliteFile, journaling, open_database, transaction
from payasync.storage.sqlite_runner import binding
from payasync.storage.transactions import Query, Transaction
from tests.journal.building import move_away

SCHEMA: Final = Schema(name="inbox", application=0x1234, migrations=("CREATE TABLE notes (text TEXT NOT NULL);\n",))


ANOTHER: Final = "it is the file of another program: name another file"
CALLERS: Final = 100


SECONDS: Final = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a file that does not exist yet."""
    return tmp_path / "inbox.db"


@pytest.fixture
async def file(path: Path) -> AsyncIterator[SqliteFile]:
    """A file, closed with the test."""
    opened = SqliteFile(path, SCHEMA)
    yield opened
    await opened.aclose()


def note(text: str | None) -> Callable[[datetime], Transaction[str | None]]:
    """Return a job that writes a text, and returns it."""

    def write(_: datetime) -> Transaction[str | None]:
        yield Query("INSERT INTO notes VALUES (:text)", {"text": text})
        return text

    return write


def notes(_: datetime) -> Transaction[list[str]]:
    """Return what was written."""
    return [row["text"] for row in (yield Query("SELECT text FROM notes ORDER BY text", {}))]


def on_disk(path: Path) -> list[str]:
    """Return what other connections read."""
    with closing(sqlite3.connect(path)) as db:
        return [text for (text,) in db.execute("SELECT text FROM notes ORDER BY text")]


def commits(path: Path) -> int:
    """Return how often the file was changed, by its header, with what still stands in its write-ahead log."""
    log = Path(f"{path}-wal")
    frames = log.read_bytes() if log.exists() else b""
    page = int.from_bytes(frames[8:12], "big")
    logged = (frames[place + 4 : place + 8] for place in range(32, len(frames), page + 24))
    # The last frame of a commit says how many pages the file has then; the others say 0.
    return int.from_bytes(path.read_bytes()[24:28], "big") + sum(map(any, logged))


def wait_for_ever(inside: Callable[[], object], go: threading.Event) -> Callable[[datetime], Transaction[None]]:
    """Return a job that reports that it has begun, and then blocks the thread until an event is set."""

    def work(now: datetime) -> Transaction[None]:
        yield from note("busy")(now)
        inside()
        assert go.wait(SECONDS)

    return work


@asynccontextmanager
async def busy(file: SqliteFile) -> AsyncGenerator["asyncio.Future[None]"]:
    """Block the thread inside a transaction."""
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


def delete(path: Path) -> None:
    """Delete a file."""
    path.unlink()


async def begun(*tasks: "asyncio.Future[Any]") -> None:
    """Let tasks begin."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)


async def all_of(file: SqliteFile, *works: Callable[[datetime], Transaction[Any]]) -> list[Any]:
    """Return what each of some jobs that wait together returned, or raised."""
    return await asyncio.gather(*(file.run(work) for work in works), return_exceptions=True)


async def test_callers_that_wait_share_a_commit(path: Path, file: SqliteFile) -> None:
    """A hundred calls that come during a commit share the next one."""
    await file.run(notes)
    before = commits(path)
    async with busy(file):
        waiting = [asyncio.ensure_future(file.run(note(f"{number:03}"))) for number in range(CALLERS)]
        await begun(*waiting)
    told = await asyncio.gather(*waiting)

    assert 2 == commits(path) - before
    assert [*told, "busy"] == on_disk(path)


def raising(mistake: Exception) -> Callable[[datetime], Transaction[None]]:
    """Return a job that writes something, and then raises."""

    def mistaken(now: datetime) -> Transaction[None]:
        yield from note("undone")(now)
        raise mistake

    return mistaken


@pytest.mark.parametrize("mistake", [ZeroDivisionError(), ConfigurationError("not here")])
async def test_who_fails_fails_alone(path: Path, file: SqliteFile, mistake: Exception) -> None:
    """If one job of a shared transaction fails, only its changes are undone. The other jobs are committed."""
    async with busy(file):
        ends = asyncio.ensure_future(all_of(file, note("a"), raising(mistake), note("b"), note(None), note("c")))
        await begun(ends)
    first, second, third, fourth, fifth = await ends

    assert ["a", "b", "busy", "c"] == on_disk(path)
    assert ["a", "b", "c"] == [first, third, fifth]
    assert isinstance(second, type(mistake))
    assert isinstance(fourth, StorageError)


async def test_file_that_is_held_is_unavailable(path: Path, file: SqliteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process holds the file for too long, all waiting calls fail. Later calls succeed."""
    monkeypatch.setattr("payasync.storage.sqlite.LOCKED_SECONDS", 0.01)
    await file.run(note("a"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        ends = await all_of(file, note("b"), note("c"))
    await file.run(note("d"))

    assert [StorageError, StorageError] == [type(end) for end in ends]
    assert f"the inbox '{path}' is unavailable: database is locked" == str(ends[0])
    assert "database is locked" == ends[0].reason
    assert ["a", "d"] == on_disk(path)


async def test_full_disk_keeps_nothing_and_loses_nothing(path: Path, file: SqliteFile) -> None:
    """If the disk is full, the calls fail. When there is room again, calls succeed."""

    def fill(_: datetime) -> Transaction[None]:
        (row,) = yield Query("PRAGMA page_count", {})
        yield Query(f"PRAGMA max_page_count = {row['page_count']}", {})

    await file.run(note("a"))
    await file.run(fill)
    ends = await all_of(file, note("b"), note("c" * 100_000), note("d"))
    told = await all_of(file, note("e"), note("f" * 100_000))

    assert {StorageError} == {type(end) for end in ends}
    assert "database or disk is full" == ends[1].reason
    assert ["a", *told] == on_disk(path)


async def test_errors_are_each_callers_own(path: Path, file: SqliteFile) -> None:
    """Each caller raises an error of its own, because each adds its own traceback."""
    ours(path, size=0)
    errors = await all_of(file, *[notes] * CALLERS)

    assert {ConfigurationError} == {type(error) for error in errors}
    assert CALLERS == len({id(error) for error in errors})


@pytest.fixture(params=[(99,), (3,)], ids=["rollback", "wal"])
def _mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test with a rollback journal and with a write-ahead log."""
    monkeypatch.setattr("payasync.storage.sqlite.WAL_SINCE", request.param)


@pytest.mark.usefixtures("_mode")
@pytest.mark.parametrize("deleted", [False, True])
async def test_file_that_vanishes_or_is_replaced_is_unavailable(path: Path, file: SqliteFile, *, deleted: bool) -> None:
    """If the file is gone while in use, no new one is made, and no other one is used. If it is back, calls succeed."""
    await file.run(note("a"))
    if deleted:
        file.pause()  # as for a fork
        file.resume()
        delete(path)
    else:
        move_away(path)
    ends = [(await all_of(file, notes))[0] for _ in range(3)]
    made = is_there(path)
    for log in path.parent.glob("inbox.db-*"):
        log.unlink()
    other = SqliteFile(path, SCHEMA)
    await other.run(note("other"))
    ends += await all_of(file, notes, note("b"))
    await other.aclose()
    texts = on_disk(path)
    if not deleted:
        path.with_name("elsewhere.db").replace(path)
        await file.run(note("b"))
        texts += await file.run(notes)

    assert not made
    assert {StorageError} == {type(end) for end in ends}
    unavailable = f"the inbox '{path}' is unavailable: "
    assert deleted or [f"{unavailable}{VANISHED}"] * 3 == [str(end) for end in ends[:3]]
    assert [f"{unavailable}{REPLACED}"] * 2 == [str(end) for end in ends[3:]]
    assert ["other", *([] if deleted else ["a", "b"])] == texts


async def test_file_that_is_emptied_is_damaged(path: Path, file: SqliteFile) -> None:
    """If the file in use is emptied, it is not used, and no tables are made in it."""
    await file.run(note("a"))
    os.truncate(path, 0)
    ends = [(await all_of(file, notes))[0] for _ in range(2)]

    assert [f"the inbox '{path}' is unavailable: {EMPTY}"] * 2 == [str(end) for end in ends]


@pytest.mark.parametrize("begun_first", [False, True])
async def test_cancelled_caller(path: Path, file: SqliteFile, *, begun_first: bool) -> None:
    """If a call is cancelled before its job begins, nothing is written. A job that has begun is finished."""
    async with busy(file) as first:
        waiting, second = (asyncio.ensure_future(file.run(note(text))) for text in "ab")
        await begun(waiting, second)
        cancelled = first if begun_first else waiting
        cancelled.cancel()
        await asyncio.wait([cancelled])
    await second

    assert cancelled.cancelled()
    assert [*("a" if begun_first else ""), "b", "busy"] == on_disk(path)


async def test_closing_finishes_what_waits(path: Path) -> None:
    """Closing finishes the waiting jobs. Later calls fail."""
    file = SqliteFile(path, SCHEMA)
    waiting = [asyncio.ensure_future(file.run(note(text))) for text in "ab"]
    await asyncio.sleep(0)
    await file.aclose()
    await file.aclose()
    with pytest.raises(StorageError, match="the inbox is closed"):
        await file.run(notes)

    assert ["a", "b"] == [task.result() for task in waiting] == on_disk(path)


@pytest.mark.usefixtures("_mode")
async def test_closed_file_leaves_no_log(path: Path) -> None:
    """Closing deletes the log, so that somebody who moves or deletes the file later finds the file alone."""
    file = SqliteFile(path, SCHEMA)
    await file.run(note("a"))
    await file.aclose()

    assert [path] == list(path.parent.iterdir())


async def test_call_during_which_another_thread_closes_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another thread closes the file while a call begins, the call fails, and does not open the file again."""
    file, loop = SqliteFile(path, SCHEMA), asyncio.get_running_loop()

    def close_first() -> asyncio.AbstractEventLoop:
        monkeypatch.undo()
        with ThreadPoolExecutor(1) as another:
            another.submit(lambda: asyncio.run(file.aclose())).result(SECONDS)
        return loop

    monkeypatch.setattr(asyncio, "get_running_loop", close_first)
    with pytest.raises(StorageError, match="the inbox is closed"):
        await file.run(note("late"))

    assert not is_there(path)


async def test_closing_that_is_cancelled_closes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If closing is cancelled, the file is closed all the same, and its thread ends."""
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


def test_loops_share_a_commit(path: Path) -> None:
    """Callers in several event loops whose jobs share a commit get their results in their own loops.

    In debug mode, asyncio refuses to give a result from another thread.
    """
    file, inside, go, together = SqliteFile(path, SCHEMA), threading.Event(), threading.Event(), threading.Barrier(3)

    async def call(text: str) -> str | None:
        waiting = asyncio.ensure_future(file.run(note(text)))
        await begun(waiting)
        together.wait(SECONDS)
        return await asyncio.wait_for(waiting, SECONDS)

    def of_thread(text: str) -> str | None:
        return asyncio.run(call(text), debug=True)

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(lambda: asyncio.run(file.run(wait_for_ever(inside.set, go))))
        assert inside.wait(SECONDS)
        ends = [threads.submit(of_thread, text) for text in ("a", "b")]
        together.wait(SECONDS)
        go.set()
        found = [first.result(SECONDS), *(each.result(SECONDS) for each in ends)]
    asyncio.run(file.aclose())

    assert [None, "a", "b"] == found
    assert ["a", "b", "busy"] == on_disk(path)


def test_waiter_that_ends_the_program_stops_nobody(path: Path) -> None:
    """If a caller ends the program as soon as it has its result, those that shared its commit still get theirs."""
    file, seen = SqliteFile(path, SCHEMA), list[str]()

    async def call(text: str, deadlines: Deadlines) -> None:
        pending = file.start(note(text)).within(deadlines, deadlines.time() + SECONDS)
        try:
            seen.append(await pending)
        except asyncio.CancelledError:
            seen.append(await asyncio.wait_for(pending.final(), SECONDS))
            raise
        raise SystemExit(3)

    async def main() -> None:
        deadlines = Deadlines(asyncio.get_running_loop())
        async with busy(file):
            calls = [asyncio.ensure_future(call(text, deadlines)) for text in "abc"]
            await begun(*calls)
        await asyncio.wait(calls)

    with pytest.raises(SystemExit):
        asyncio.run(main())
    asyncio.run(file.aclose())

    assert ["a", "b", "c"] == sorted(seen)


def test_loop_that_ended_stops_nobody(path: Path) -> None:
    """If the event loop of a caller is closed before the commit, the other callers get their results."""
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


def test_marks_of_values_have_no_number() -> None:
    """A value stands at each of its places, because Python 3.12.0 to 3.12.3 warns of a mark such as `?1`."""
    bound = binding("SELECT :a, :b, :none, :a", (int, bool, type(None)))

    assert ("SELECT ?, ?, NULL, ?", (7, 1, 7)) == (bound.text, bound.bind([7, True, None]))


TWO_VERSIONS: Final = evolve(
    SCHEMA, migrations=(*SCHEMA.migrations, "ALTER TABLE notes ADD COLUMN\n    colour TEXT;\n")
)


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


@pytest.fixture
def open_(path: Path) -> Iterator[Callable[[Schema], sqlite3.Connection]]:
    """Open the file; it is closed with the test."""
    with ExitStack() as stack:
        yield lambda schema: stack.enter_context(closing(open_database(str(path), schema)))


def ours(path: Path, schema: Schema = TWO_VERSIONS, size: int | None = None) -> None:
    """Make a database of payasync, cut to so many bytes."""
    open_database(str(path), schema).close()
    os.truncate(path, path.stat().st_size if size is None else size)


def content(folder: Path) -> dict[str, bytes]:
    """Return what stands in each file of a folder."""
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def asked(db: sqlite3.Connection, pragma: str) -> Any:
    """Return what a connection says of itself."""
    return db.execute(f"PRAGMA {pragma}").fetchone()[0]


def test_journal_by_version() -> None:
    """A write-ahead log is used only from the SQLite that cannot damage it. Each commit waits for the disk."""
    found = {version: journaling(version) for version in ((3, 40, 1), (3, 51, 2), (3, 51, 3), (3, 52, 0), (4, 0, 0))}

    assert {("persist", "EXTRA")} == {each for version, each in found.items() if version < (3, 51, 3)}
    assert {("wal", "FULL")} == {each for version, each in found.items() if version >= (3, 51, 3)}


@pytest.mark.usefixtures("_mode")
def test_connection_is_durable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection has the `journal_mode` and the `synchronous` that `journaling` returns, and no temporary file.

    A new file has its mode before another process can open it, because a change needs it alone. In a container, only
    the journal's own folder may be writable.
    """
    marks: list[bytes] = []
    link = os.link

    def look(made: Path, to: str) -> None:
        marks.append(made.read_bytes()[18:20])
        link(made, to)

    monkeypatch.setattr(os, "link", look)
    with closing(open_database(str(path), TWO_VERSIONS)) as db:
        found = [asked(db, pragma) for pragma in ("journal_mode", "synchronous", "fullfsync", "temp_store")]
    mode, synchronous = journaling(sqlite3.sqlite_version_info)

    assert [mode, {"FULL": 2, "EXTRA": 3}[synchronous], 1, 2] == found
    assert [{"persist": b"\x01\x01", "wal": b"\x02\x02"}[mode]] == marks


def test_newer_sqlite_waits_to_change_the_journal_mode(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade of SQLite, the journal mode of a file is changed as soon as no other process writes to it.

    SQLite itself would refuse the change, without waiting.
    """
    monkeypatch.setattr("payasync.storage.sqlite.WAL_SINCE", (99,))
    ours(path)
    monkeypatch.setattr("payasync.storage.sqlite.WAL_SINCE", (3,))
    other = sqlite3.connect(path, isolation_level=None)
    done: list[str] = []

    def follow(statement: str) -> None:
        done.append(statement)
        if statement == "PRAGMA journal_mode = wal" and done.count(statement) == 1:
            other.execute("BEGIN IMMEDIATE")
        elif statement == "BEGIN EXCLUSIVE":
            other.rollback()

    class Followed(sqlite3.Connection):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            self.set_trace_callback(follow)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Followed))
    with closing(other), closing(open_database(str(path), TWO_VERSIONS)) as db:
        mode = asked(db, "journal_mode")

    assert "wal" == mode
    assert 2 == done.count("PRAGMA journal_mode = wal")


@pytest.mark.parametrize("given", ["inbox.db", Path("inbox.db")])
def test_path_is_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | Path) -> None:
    """A relative path refers to the working directory at the time when the path was given."""
    monkeypatch.chdir(tmp_path)

    assert str(tmp_path / "inbox.db") == SqliteFile(given, TWO_VERSIONS).path


def without_links(*_: object) -> None:
    """Fail as `os.link` does where the file system has no hard links."""
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("linked", [True, False])
def test_who_is_faster_makes_the_file(path: Path, monkeypatch: pytest.MonkeyPatch, *, linked: bool) -> None:
    """If another maker links the file first, that file is used, also on a file system without hard links."""

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
    assert {path} == {*path.parent.iterdir()} - {path.with_name(f"{path.name}-journal")}
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("link", ["before", "after"])
def test_process_that_dies_while_it_makes_the_file(path: Path, link: str) -> None:
    """A process that is killed while it makes the file leaves no file, or the whole one. The next process opens it."""
    code = DYING.format(first="link(*names)" if link == "after" else "", schema=TWO_VERSIONS)
    died = subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=False)
    left = path.exists() and path.stat().st_size
    ours(path)

    assert -signal.SIGKILL == died.returncode
    assert (link == "after") is bool(left)


def test_step_that_fails_changes_nothing(path: Path, open_: Callable[[Schema], sqlite3.Connection]) -> None:
    """If one step of a migration fails, nothing of it is done."""
    open_(SCHEMA).close()
    before = content(path.parent)
    broken = evolve(
        TWO_VERSIONS, migrations=(*TWO_VERSIONS.migrations, "CREATE TABLE more (a);\nCREATE TABLE notes (a);\n")
    )
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        open_(broken)

    assert before == content(path.parent)


def theirs(path: Path, *statements: str) -> Callable[[], object]:
    """Make a database of another program, which is open until a function is called."""
    db = sqlite3.connect(path, isolation_level=None)
    for statement in (*statements, "CREATE TABLE notes (a)"):
        db.execute(statement)
    return db.close


NEWER: Final = evolve(TWO_VERSIONS, migrations=(*TWO_VERSIONS.migrations, "CREATE TABLE more (a);"))
NOT_OURS: Final[dict[str, tuple[Callable[[Path], object], str]]] = {
    "another program's": (lambda path: theirs(path, "PRAGMA application_id = 7")(), ANOTHER),
    "nobody's": (lambda path: theirs(path)(), ANOTHER),
    "in use": (lambda path: theirs(path, "PRAGMA journal_mode = WAL"), ANOTHER),
    "newer": (lambda path: ours(path, NEWER), "a newer payasync made it .schema 3, here 2.: upgrade, or name another"),
    "cut": (lambda path: ours(path, size=4096), "malformed"),
    "emptied": (lambda path: ours(path, size=0), "it is empty, so it is damaged, .*restore it from a backup"),
    "text": (lambda path: path.write_text("My passwords\n" * 1000), "file is not a database"),
    "short text": (lambda path: path.write_text("My passwords"), "file is not a database"),
    "missing": (lambda path: Path(f"{path}-wal").write_bytes(b"last"), "it is missing, but '?.*-wal'? is left beside"),
    "missing, too": (lambda path: Path(f"{path}-journal").write_bytes(b"last"), "it is missing, but '?.*-journal'? is"),
}
"""How a file came to be, and why it is refused. If it is missing, a log may hold part of its data."""


@pytest.mark.parametrize(("leave", "why"), NOT_OURS.values(), ids=NOT_OURS)
def test_file_that_is_not_ours_stays_as_it_is(path: Path, leave: Callable[[Path], object], why: str) -> None:
    """A file that is not payasync's is refused, and nothing in its folder changes."""
    close = leave(path)
    before = content(path.parent)
    with pytest.raises(ConfigurationError, match=f"cannot use '{path}' as the inbox: .*{why}") as caught:
        open_database(str(path), TWO_VERSIONS)

    assert "path" == caught.value.field
    assert before == content(path.parent)
    if callable(close):
        close()


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
    """A path where no file can be is refused, with the reason."""
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match=why):
        open_database(str(tmp_path / name), TWO_VERSIONS)


@pytest.mark.usefixtures("_mode")
def test_what_a_crash_left_midway_is_undone(tmp_path: Path, open_: Callable[[Schema], sqlite3.Connection]) -> None:
    """If a process dies inside a transaction, its file opens with what was committed, and nothing else."""
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

    assert left.get("inbox.db-journal") or left["inbox.db-wal"]
    assert 100_000 < sum(len(each) for each in left.values())
    assert [("committed",)] == db.execute("SELECT text FROM notes").fetchall()
    assert "ok" == asked(db, "integrity_check")


def test_transaction_holds_the_file_from_its_beginning(open_: Callable[[Schema], sqlite3.Connection]) -> None:
    """A transaction locks the file at its beginning, so that a second one cannot begin."""
    first, second = open_(TWO_VERSIONS), open_(TWO_VERSIONS)
    second.execute("PRAGMA busy_timeout = 0")
    with transaction(first), pytest.raises(sqlite3.OperationalError, match="locked"), transaction(second):
        pytest.fail("two transactions at once")


PROGRAM: Final = Path(__file__).with_name("sqlite_forking.py")


@pytest.mark.parametrize("journal", ["journal", pytest.param("log", marks=pytest.mark.long)])
@pytest.mark.parametrize("what", ["both", *(pytest.param(each, marks=pytest.mark.long) for each in ("closed", "load"))])
def test_nothing_is_lost_by_a_fork(path: Path, what: str, journal: str) -> None:
    """If a process forks, the file has all that parent and child write, once. The child inherits no handle of the file.

    SQLite forbids using a connection after a fork: the child would rely on locks that only the parent has.
    """
    # Later Pythons warn of every fork beside a thread.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(PROGRAM), what, journal, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    with closing(sqlite3.connect(path)) as db:
        whole = asked(db, "integrity_check")

    assert (0, "", "ok") == (done.returncode, done.stderr, whole)
    assert sorted(done.stdout.splitlines()) == on_disk(path)


async def test_old_sqlite_is_refused(path: Path, file: SqliteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """If Python's SQLite is too old, the error names its version and what to do, and no file is made."""
    monkeypatch.setattr("payasync.storage.sqlite.OLDEST", (99, 1))
    with pytest.raises(ConfigurationError, match=rf"SQLite {sqlite3.sqlite_version}, and 99.1 is needed: use a newer"):
        await file.run(notes)

    assert {} == content(path.parent)
