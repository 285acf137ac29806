"""Forks with connections to PostgreSQL open; run as a program of its own, with what to do and where."""

import asyncio
import os
import sys
from datetime import datetime
from typing import Final

from payasync.credentials import Hidden
from payasync.storage import Schema
from payasync.storage.postgres import Database
from payasync.storage.transactions import Query, Transaction

SCHEMA: Final = Schema(name="notebook", migrations=("CREATE TABLE notes (text text);",))


async def note(notebook: Database, text: str) -> int:
    """Write a text, and return which process of the server wrote it."""

    def write(_: datetime) -> Transaction[int]:
        yield Query("INSERT INTO notes VALUES (:text)", {"text": text})
        (row,) = yield Query("SELECT pg_backend_pid() AS id", {})
        return int(row["id"])

    return await notebook.run(write)


def use(notebook: Database, what: str) -> None:
    """Have the child write, or close, or do nothing, and end as programs end."""
    loop = asyncio.new_event_loop()
    before = loop.run_until_complete(note(notebook, "before"))
    if child := os.fork():
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert before == loop.run_until_complete(note(notebook, "parent"))
        loop.run_until_complete(notebook.aclose())
        loop.close()
        os.write(1, b"parent child")
        return
    if what == "both":
        assert before != asyncio.run(note(notebook, "child"))
    if what != "inherited":
        asyncio.run(notebook.aclose())


if __name__ == "__main__":
    use(Database(Hidden(sys.argv[2]), SCHEMA), sys.argv[1])
