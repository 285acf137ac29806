"""Forks with an SQLite file open; run as a program of its own, with what to do, the journal and the path."""

import asyncio
import itertools
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Final

from payasync.storage import Schema, sqlite
from payasync.storage.sqlite import SqliteFile
from payasync.storage.transactions import Query, Transaction

SCHEMA: Final = Schema(name="inbox", application=0x1234, migrations=("CREATE TABLE notes (text TEXT NOT NULL);\n",))
WRITERS: Final = 16
CHILDREN: Final = 10


async def note(file: SqliteFile, text: str) -> None:
    """Write a text, and print it after the commit."""

    def write(_: datetime) -> Transaction[None]:
        yield Query("INSERT INTO notes VALUES (:text)", {"text": text})

    await file.run(write)
    os.write(1, f"{text}\n".encode())


def well(child: int) -> None:
    """Wait for a child, which must end with exit code 0."""
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def forked(path: str) -> int:
    """Fork; the child has no handle of the file, or of what stands beside it."""
    if child := os.fork():
        return child
    handles = Path("/proc/self/fd")
    inherited = [link for link in handles.iterdir() if os.path.realpath(link).startswith(path)]
    assert not inherited, inherited
    return 0


def use(file: SqliteFile, what: str) -> None:
    """Have the child write and end as programs end, or close its file, before the parent goes on."""
    asyncio.run(note(file, "before"))
    if child := forked(file.path):
        well(child)
        asyncio.run(note(file, "parent"))
    elif what == "both":
        asyncio.run(note(file, "child"))
        return
    asyncio.run(file.aclose())


async def _writer(file: SqliteFile, numbers: "itertools.count[int]", enough: asyncio.Event) -> None:
    while not enough.is_set():
        await note(file, f"parent {next(numbers)}")


async def under_load(file: SqliteFile) -> None:
    """Fork again and again while others write, at whatever moment of a transaction that is."""
    numbers, enough = itertools.count(), asyncio.Event()
    writers = [asyncio.ensure_future(_writer(file, numbers, enough)) for _ in range(WRITERS)]
    children = list[int]()
    for number in range(CHILDREN):
        for _ in range(number):
            await note(file, f"between {next(numbers)}")
        child = forked(file.path)
        if not child:
            asyncio.run(note(file, f"child {number}"))
            os._exit(0)
        children.append(child)
    enough.set()
    await asyncio.gather(*writers)
    for child in children:
        well(child)
    await file.aclose()


if __name__ == "__main__":
    what, journal, path = sys.argv[1:]
    if journal == "log":
        sqlite.WAL_SINCE = (3, 0, 0)  # type: ignore[misc] # as if SQLite were new enough
    opened = SqliteFile(path, SCHEMA)
    asyncio.run(under_load(opened)) if what == "load" else use(opened, what)
