"""A refund that is on the disk before it is sent, and its end after it: hand-written, without payasync.

This is what a journalled write must cost at least: hand-written aiohttp, and two durable commits that concurrent
refunds share, on one thread. It finds no duplicate, resolves no doubt, and shares its file with no other process.
"""

import asyncio
import hashlib
import hmac
import secrets
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias

import aiohttp
import orjson

KEY: Final = b"a signing key of the usual length"
PATH: Final = "/payment/refund"
WAL_SINCE: Final = (3, 51, 3)
TABLE: Final = "CREATE TABLE refunds (number TEXT PRIMARY KEY, state TEXT, request TEXT, outcome TEXT, updated REAL)"
BEGIN: Final = "INSERT INTO refunds (number, state, request, updated) VALUES (?, 'sending', ?, ?)"
END: Final = "UPDATE refunds SET state = ?, outcome = ?, updated = ? WHERE number = ?"

Job: TypeAlias = tuple[str, tuple[object, ...], "asyncio.Future[None]"]


class Writer:
    """Runs statements on one thread; those that wait together share a durable commit."""

    def __init__(self, path: Path) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._work, args=(path,))
        self._thread.start()

    async def run(self, statement: str, *values: object) -> None:
        """Return when the statement is on the disk."""
        done = self._loop.create_future()
        self._jobs.put((statement, values, done))
        await done

    async def aclose(self) -> None:
        """End the thread."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self, path: Path) -> None:
        db = sqlite3.connect(path, isolation_level=None)
        mode, synchronous = ("wal", "FULL") if sqlite3.sqlite_version_info >= WAL_SINCE else ("persist", "EXTRA")
        for statement in (f"PRAGMA journal_mode = {mode}", f"PRAGMA synchronous = {synchronous}", TABLE):
            db.execute(statement)
        going = True
        while going:
            waiting = [self._jobs.get(), *(self._jobs.get() for _ in range(self._jobs.qsize()))]
            jobs, going = [job for job in waiting if job], None not in waiting
            db.execute("BEGIN IMMEDIATE")
            for statement, values, _ in jobs:
                db.execute(statement, values)
            db.execute("COMMIT")
            self._loop.call_soon_threadsafe(_wake, jobs)
        db.close()


def _wake(jobs: list[Job]) -> None:
    for _, _, done in jobs:
        if not done.done():
            done.set_result(None)


def signed(number: str) -> dict[str, Any]:
    """Return the fields of a refund, with a nonce and a signature."""
    fields = {"merchantId": "M1", "outTradeNo": "T1", "outRefundNo": number, "totalAmt": 450, "refundAmt": 1}
    fields["nonceStr"] = secrets.token_hex(16)
    text = "&".join(f"{name}={value}" for name, value in sorted(fields.items()))
    return {**fields, "sign": hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()}


@asynccontextmanager
async def bare_refunding(base: str, path: Path | None) -> AsyncGenerator[Callable[[str], Awaitable[object]]]:
    """Give what makes a refund of a number, recorded in a new file, or not recorded if there is no path."""
    async with aiohttp.ClientSession() as http:

        async def send(number: str) -> dict[str, Any]:
            async with http.post(f"{base}{PATH}", json=signed(number)) as response:
                result: dict[str, Any] = await response.json()
                return result

        if path is None:
            yield send
            return
        writer = Writer(path)

        async def refund(number: str) -> None:
            request = orjson.dumps({"totalAmt": 450, "refundAmt": 1}).decode()
            await writer.run(BEGIN, number, request, time.time())
            result = await send(number)
            state = "succeeded" if result["code"] == "OK" else "rejected"
            await writer.run(END, state, orjson.dumps(result).decode(), time.time(), number)

        yield refund
        await writer.aclose()
