"""How many notifications a second are received durably on one core, beside the same application without payasync."""

import asyncio
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.notifier import CONNECTIONS, post_all, posts
from benchmarks.receiver import ALONE, SETTLED, WITH_US

SLICES: Final = 12
NOTIFICATIONS: Final = 1000
BASELINE: Final = "the application alone"
RECEIVED: Final = "received durably"
DISPATCHED: Final = "received and dispatched"
SETTLE: Final = f"POST {SETTLED} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n".encode()
COMMITS: Final = slice(24, 28)
"""Where the header of a file without a log counts the commits that changed it."""


async def measure(port: int) -> dict[str, list[float]]:
    """Return the rates of each step, slice by slice in turns; the first of each only warms up."""
    rates: dict[str, list[float]] = {name: [] for name in (BASELINE, RECEIVED, DISPATCHED)}
    for number in range(SLICES + 1):
        slice_ = range(number * NOTIFICATIONS, (number + 1) * NOTIFICATIONS)
        alone = await post_all(port, posts(ALONE, slice_))
        received = await post_all(port, posts(WITH_US, slice_))
        settled = await post_all(port, [SETTLE])
        if number:
            rates[BASELINE].append(NOTIFICATIONS / alone)
            rates[RECEIVED].append(NOTIFICATIONS / received)
            rates[DISPATCHED].append(NOTIFICATIONS / (received + settled))
    return rates


@contextmanager
def serving(path: Path) -> Generator[int]:
    """Serve the application in a process, and if possible on a core, of its own; it is killed at the end."""
    command = [sys.executable, "-m", "benchmarks.receiver", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - ours
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


def show(rates: dict[str, list[float]]) -> None:
    """Print medians, spread and the ratio to the application alone."""
    baseline = statistics.median(rates[BASELINE])
    print(f"{'notifications on one core':28}{'a second':>10}{'spread':>18}{'ratio':>8}")
    for name, slices in rates.items():
        low, *_, high = statistics.quantiles(slices, n=10)
        middle = statistics.median(slices)
        print(f"{name:28}{middle:10,.0f}{f'{low:,.0f} to {high:,.0f}':>18}{middle / baseline:8.2f}")
    print(
        f"\n{SLICES} slices of {NOTIFICATIONS} each, over {CONNECTIONS} connections; received: verified, on the disk."
    )


def show_kept(path: Path) -> None:
    """Print what a killed application has left on the disk: all that it acknowledged."""
    acknowledged = (SLICES + 1) * NOTIFICATIONS
    with closing(sqlite3.connect(path)) as inbox:
        kept, done = inbox.execute("SELECT count(*), sum(state = 'done') FROM events").fetchone()
        logged = inbox.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert acknowledged == kept, f"{acknowledged} acknowledged, {kept} kept"
    commits = "" if logged else f", in {int.from_bytes(path.read_bytes()[COMMITS], 'big'):,} commits"
    print(f"Then killed: {acknowledged:,} acknowledged, {kept:,} kept, {done:,} of them dispatched{commits}.")


def main() -> None:
    """Measure on the disk of the current folder: that of temporary files may be none."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(prefix=".benchmark-", dir=".") as folder:
        inbox = Path(folder) / "inbox.db"
        with serving(inbox) as port:
            rates = asyncio.run(measure(port))
        show(rates)
        show_kept(inbox)


if __name__ == "__main__":
    main()
