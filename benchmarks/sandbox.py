"""Rows about the sandbox: orders a second, and the time that its fixture adds to a test; and the whole test command."""

import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.rows import Figure, Run
from payasync.sandbox import Sandbox

ORDERS: Final = 500
SLICES: Final = 8
CONCURRENT: Final = 16
TESTS: Final = 40
TEST: Final = "import pytest\n@pytest.mark.parametrize('number', range({count}))\ndef test_one(number{fixture}): pass\n"
SUITE: Final = ("--numprocesses=auto", "--maxprocesses=4", "-q", "-m", "not long")


def sandbox(run: Run) -> Iterator[Figure]:
    """Signed orders at a sandbox in memory, which shares a core with its client."""

    async def measure() -> list[float]:
        rates: list[float] = []
        async with Sandbox() as service, service.session() as pay:
            numbers = itertools.count()

            async def worker() -> None:
                for number in left:
                    await pay.orders.place(
                        subject="Coffee",
                        body="Large coffee",
                        total_amt=450,
                        currency="CAD",
                        out_trade_no=f"T{number}",
                    )

            for _ in range(run.times(SLICES) + 1):
                left = itertools.islice(numbers, ORDERS)
                started = time.perf_counter()
                await asyncio.gather(*(worker() for _ in range(CONCURRENT)))
                rates.append(ORDERS / (time.perf_counter() - started))
        return rates[1:]

    yield Figure("sandbox and client on one core, orders", statistics.median(asyncio.run(measure())), "/s", least=1000)


def fixture(run: Run) -> Iterator[Figure]:
    """The time that the fixture `payasync_sandbox` adds to a test."""
    path, seconds = run.folder / "test_fixture.py", dict[str, list[float]]()
    for _ in range(run.times(4) + 1):
        for count, argument in itertools.product((1, TESTS), ("", ", payasync_sandbox")):
            path.write_text(TEST.format(count=count, fixture=argument), encoding="utf-8")
            seconds.setdefault(f"{count}{argument}", []).append(_pytest(path))
    # The least: the first run of each compiles, and other programs disturb some.
    one, many = (min(seconds[f"{count}, payasync_sandbox"]) - min(seconds[f"{count}"]) for count in (1, TESTS))
    yield Figure("fixture payasync_sandbox, over a bare test", (many - one) / (TESTS - 1) * 1e3, "ms", most=20)


def _pytest(path: Path) -> float:
    # Only this plugin: the others would be measured, too.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "payasync.pytest_plugin", "-c", os.devnull, str(path)]
    started = time.perf_counter()
    subprocess.run(command, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, capture_output=True, check=True)  # noqa: S603 - ours
    return time.perf_counter() - started


def tests(_: Run) -> Iterator[Figure]:
    """The daily tests."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "pytest", *SUITE], check=True)  # noqa: S603 - ours
    yield Figure("the daily tests", time.perf_counter() - started, "s", most=180)
