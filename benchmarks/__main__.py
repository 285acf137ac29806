"""Slices of all clients, interleaved in one process; CPU time per call, as medians and ratios."""

import asyncio
import os
import random
import statistics
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from benchmarks import journal, receive
from benchmarks.clients import CLIENTS, Call
from benchmarks.server import static_server

SLICES: Final = 30
CALLS: Final = 1000
CONCURRENT: Final = 64
BASELINE: Final = "hand-written aiohttp"
OTHERS: Final = {"receive": receive.main, "journal": journal.main}

# glibc trims the heap and faults it in again, which costs one client 13 µs a call and another nothing.
STEADY_MALLOC: Final = {"MALLOC_TRIM_THRESHOLD_": "67108864", "MALLOC_MMAP_THRESHOLD_": "33554432"}


async def one_slice(call: Call) -> float:
    """Return the CPU time of one call in µs, over a slice of concurrent ones."""
    left = iter(range(CALLS))

    async def worker() -> None:
        for _ in left:
            await call()

    started = time.process_time()
    await asyncio.gather(*(worker() for _ in range(CONCURRENT)))
    return (time.process_time() - started) / CALLS * 1e6


async def measure(base: str) -> dict[str, list[float]]:
    """Return the slices of each client, in µs per call; the first of each only warms up."""
    costs: dict[str, list[float]] = {name: [] for name in CLIENTS}
    order = list(CLIENTS)
    async with AsyncExitStack() as stack:
        calls = {name: await stack.enter_async_context(client(base)) for name, client in CLIENTS.items()}
        for number in range(SLICES + 1):
            random.shuffle(order)
            for name in order:
                cost = await one_slice(calls[name])
                if number:
                    costs[name].append(cost)
    return costs


def show(costs: dict[str, list[float]]) -> None:
    """Print medians, spread and the ratio to aiohttp written by hand."""
    baseline = statistics.median(costs[BASELINE])
    print(f"{'CPU of a signed call':24}{'µs':>8}{'spread':>14}{'ratio':>8}")
    for name, slices in costs.items():
        low, *_, high = statistics.quantiles(slices, n=10)
        middle = statistics.median(slices)
        print(f"{name:24}{middle:8.1f}{f'{low:.0f} to {high:.0f}':>14}{middle / baseline:8.2f}")
    print(f"\n{SLICES} slices of {CALLS} calls each, {CONCURRENT} at a time; spread: from the first to the last tenth.")


def main() -> None:
    """Measure, with an allocator that holds still; `receive` and `journal` measure other things.

    With the path of an SVG file, also save a picture.
    """
    what = sys.argv[1:]
    if what and what[0] in OTHERS:
        OTHERS[what[0]]()
        return
    if any(os.environ.get(name) != value for name, value in STEADY_MALLOC.items()):
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *what], {**os.environ, **STEADY_MALLOC})  # noqa: S606 - itself
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with static_server() as base:
        costs = asyncio.run(measure(base))
    show(costs)
    if what:
        from benchmarks import plot  # noqa: PLC0415 - only a picture needs matplotlib

        plot.save(costs, BASELINE, Path(what[0]))


if __name__ == "__main__":
    main()
