"""Rows about notifications: how many a second one core receives durably, and how many it also handles."""

import asyncio
import sqlite3
import statistics
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.notifier import post_all, posts
from benchmarks.receiver import ALONE, SETTLED, WITH_US
from benchmarks.rows import Figure, Run

SLICES: Final = 8
NOTIFICATIONS: Final = 1000
CONNECTIONS: Final = (1, 16, 64)
SETTLE: Final = f"POST {SETTLED} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n".encode()


def notifications(run: Run) -> Iterator[Figure]:
    """Notifications that are received, and handled; then the application is killed, and all of them must be there."""
    path, slices = run.folder / "inbox.db", run.times(SLICES) + 1
    with _serving(path) as port:
        rates = {connections: asyncio.run(_rates(port, slices, connections)) for connections in CONNECTIONS}
    _check_stored(path, slices * NOTIFICATIONS * len(CONNECTIONS))
    for connections, each in rates.items():
        least = {"received": 2000, "handled": 1000} if connections == max(CONNECTIONS) else {}
        for what, found in each.items():
            yield Figure(f"{what}, {connections} at a time", statistics.median(found), "/s", least=least.get(what))


async def _rates(port: int, slices: int, connections: int) -> dict[str, list[float]]:
    """Return the rates of each step, slice by slice in turns; the first of each only warms up."""
    rates: dict[str, list[float]] = {"no payasync": [], "received": [], "handled": []}
    for number in range(slices):
        first = (slices * CONNECTIONS.index(connections) + number) * NOTIFICATIONS
        slice_ = range(first, first + NOTIFICATIONS)
        alone = await post_all(port, posts(ALONE, slice_), connections)
        received = await post_all(port, posts(WITH_US, slice_), connections)
        settled = await post_all(port, [SETTLE])
        if number:
            rates["no payasync"].append(NOTIFICATIONS / alone)
            rates["received"].append(NOTIFICATIONS / received)
            rates["handled"].append(NOTIFICATIONS / (received + settled))
    return rates


@contextmanager
def _serving(path: Path) -> Generator[int]:
    """Serve the application in a process, and if possible on a core, of its own; it is killed at the end."""
    command = [sys.executable, "-m", "benchmarks.receiver", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - ours
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


def _check_stored(path: Path, acknowledged: int) -> None:
    with closing(sqlite3.connect(path)) as inbox:
        stored, done = inbox.execute("SELECT count(*), sum(state = 'done') FROM events").fetchone()
    assert acknowledged == stored == done, f"{acknowledged} acknowledged, {stored} stored, {done} done"
