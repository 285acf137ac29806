"""A signal's exception at any moment: what remembers that somebody is at work would wait for nobody."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from payasync import clocks as module
from payasync.clocks import BLOCKED, Deadlines
from payasync.storage import Schema
from payasync.storage.pending import PendingResult
from payasync.storage.sqlite import SqliteFile
from tests.inside import Time, turns
from tests.interruptions import Interrupted, Interruption, moments
from tests.storage.test_sqlite import SCHEMA, note

SECONDS: Final = 10


def ends(work: Callable[..., object], *args: Any) -> bool:
    """Return whether a function ends, in a thread of its own, because it may block."""
    thread = threading.Thread(target=work, args=args, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return not thread.is_alive()


def left(name: str) -> list[threading.Thread]:
    """Wait for threads of a name, and return those that do not end."""
    named = [each for each in threading.enumerate() if each.name == name]
    for each in named:
        each.join(SECONDS)
    return [each for each in named if each.is_alive()]


async def begin(work: Coroutine[Any, Any, object], number: int) -> list[str]:
    """Let a coroutine run until it waits, and interrupt it on the way. Return where, if it does not wait before."""
    with suppress(Interrupted), Interruption(number) as where:
        work.send(None)
    work.close()
    return where


def test_file_works_after_its_first_use_was_interrupted(tmp_path: Path) -> None:
    """Whatever a signal raises during the first use, the next call works, and the first is done whole or not at all."""
    found = set[tuple[str, ...]]()

    async def finish(file: SqliteFile) -> None:
        await file.run(note("second"))
        await file.aclose()

    def interrupt(number: int) -> list[str]:
        file = SqliteFile(tmp_path / f"{number}.db", SCHEMA)
        where = asyncio.run(begin(file.run(note("first")), number))
        assert ends(asyncio.run, finish(file)), where
        with closing(sqlite3.connect(file.path)) as db:
            found.add(tuple(text for (text,) in db.execute("SELECT text FROM notes ORDER BY text")))
        return where

    assert moments(interrupt) > 0
    assert {("second",), ("first", "second")} == found


def test_closing_that_was_interrupted_is_repeated(tmp_path: Path) -> None:
    """If a signal ends `aclose`, the next `aclose` closes the file, and ends its thread."""

    def interrupt(number: int) -> list[str]:
        file = SqliteFile(tmp_path / f"{number}.db", Schema(name=f"notes {number}", migrations=SCHEMA.migrations))
        asyncio.run(file.run(note("kept")))
        where = asyncio.run(begin(file.aclose(), number))
        assert ends(asyncio.run, file.aclose()), where
        assert not left(f"payasync-notes {number}"), where
        assert not [*tmp_path.glob(f"{number}.db-*")], where
        return where

    assert moments(interrupt) > 0


def test_deadlines_are_checked_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a signal raises in the first `add`, or in a check, later deadlines end, and there is one timer."""
    monkeypatch.setattr(module, "RESOLUTION", 0)

    async def interrupt(number: int) -> list[str]:
        loop, time = asyncio.get_running_loop(), Time()
        loop.set_exception_handler(lambda loop, context: None)  # noqa: ARG005 - asyncio calls it so
        deadlines = Deadlines(loop)
        with suppress(Interrupted), Interruption(number, "clocks.py") as where:
            _ = PendingResult(loop).within(deadlines, loop.time() + SECONDS)
            await turns(3)
        time.block(2 * BLOCKED)
        later = PendingResult(loop).within(deadlines, loop.time() + 1)
        await time.pass_by(2)
        assert later.done(), where
        deadlines.close()
        return where

    assert moments(lambda number: asyncio.run(interrupt(number))) > 0


def test_result_that_is_there_wakes_its_waiter() -> None:
    """Whatever a signal raises in `deliver`, no result is there for which its waiter still waits."""

    async def interrupt(number: int) -> list[str]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: None)  # noqa: ARG005 - asyncio calls it so
        pending = PendingResult(loop)
        waiting = asyncio.ensure_future(asyncio.wait_for(pending.within(Deadlines(loop), loop.time() + SECONDS), None))
        await turns(1)
        with Interruption(number, "pending.py") as where:
            loop.call_soon(pending.deliver, "stored")  # because no task can resume another one
            await turns(3)
        assert pending.done() == waiting.done(), where
        loop.call_soon(pending.deliver, "stored")  # nothing has come if the very beginning was interrupted
        await turns(3)
        assert "stored" == waiting.result(), where
        return where

    assert moments(lambda number: asyncio.run(interrupt(number))) > 0
