"""The thread that writes a file."""

import gc
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from payasync.storage.writer_thread import WriterThread
from tests.storage.test_sqlite import SECONDS, on_disk


def fail() -> None:
    """Fail as no function of the project does."""
    raise KeyboardInterrupt


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of the thread: threads of earlier tests may still be ending."""
    return str(request.node.name)


def threads_named(name: str) -> list[threading.Thread]:
    """Return the threads that go on."""
    return [each for each in threading.enumerate() if each.name == name]


def test_thread_ends_with_its_user(name: str) -> None:
    """The thread ends when nobody refers to it, and first runs what it was given."""
    writer, go, ran = WriterThread(name), threading.Event(), list[str]()
    writer.submit(partial(go.wait, SECONDS))
    writer.submit(partial(ran.append, "given before"))
    (thread,) = threads_named(name)
    del writer
    gc.collect()
    go.set()
    thread.join(SECONDS)

    assert ([], ["given before"]) == (threads_named(name), ran)


def test_failure_does_not_end_the_thread(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that fails after all is reported, and later ones still run, so that the file can be closed."""
    writer, ended, reported = WriterThread(name), threading.Event(), list[object]()
    # What a program itself may set, to report such failures.
    monkeypatch.setattr(threading, "excepthook", lambda failure: reported.append(failure.exc_type))
    writer.submit(fail)
    writer.submit(ended.set)

    assert ended.wait(SECONDS)
    assert [KeyboardInterrupt] == reported


@pytest.mark.parametrize("first", [True, False])
def test_function_after_the_end_runs_last(name: str, *, first: bool) -> None:
    """A function that comes too late runs in the thread that brings it, after all earlier ones, if there were any."""
    writer, go, ran = WriterThread(name), threading.Event(), list[str]()
    if first:
        writer.submit(partial(go.wait, SECONDS))
        writer.submit(lambda: ran.append(threading.current_thread().name))
    writer.close()
    late = threading.Thread(target=writer.submit, args=(lambda: ran.append(threading.current_thread().name),))
    late.start()
    go.set()
    late.join(SECONDS)

    assert [*([name] if first else []), late.name] == ran


PROGRAM: Final = """
import asyncio, atexit, multiprocessing, sys, threading
from payasync.storage import Schema
from payasync.storage.sqlite import SqliteFile
from payasync.storage.transactions import Query

file = SqliteFile(sys.argv[1], Schema(name="inbox", application=7, migrations=("CREATE TABLE notes (text);",)))

def write(now):
    threading.main_thread().join()
    yield Query("INSERT INTO notes VALUES ('begun')", dict())

def write_late(now):
    yield Query("INSERT INTO notes VALUES ('late')", dict())

async def begin():
    file.start(write)

def end():
    asyncio.run(file.run(write_late))
    asyncio.run(file.aclose())

def program():
    asyncio.run(begin())

{run}
"""
CHILD: Final = """
child = multiprocessing.get_context("fork").Process(target=program)
child.start()
child.join()
"""


@pytest.mark.parametrize(
    ("run", "expected"),
    [("program()", ["begun"]), (CHILD, ["begun"]), ("atexit.register(end)\nprogram()", ["begun", "late"])],
    ids=["program", "child of multiprocessing", "closed at exit"],
)
def test_program_finishes_what_it_began(tmp_path: Path, run: str, expected: list[str]) -> None:
    """A program first finishes the writes that it began. It can close the file at exit, when no thread can start."""
    path = tmp_path / "file.db"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(run=run), str(path)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert expected == on_disk(path)
