"""What a journal costs a refund: throughput with one and without, in turns, and what it costs as the journal grows."""

import asyncio
import itertools
import os
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Final

from benchmarks.clients import KEY, SCHEME
from benchmarks.server import static_server
from payasync import AnswerShape, CreateRefund, Credentials, Profile, Session
from payasync.journal import SqliteJournal

SLICES: Final = 12
REFUNDS: Final = 1000
CONCURRENT: Final = 64
BASELINE: Final = "without a journal"
JOURNALLED: Final = "journalled, SQLite"
PROFILE: Final = Profile(signature=SCHEME, answer=AnswerShape(code="code", ok=("OK",)))
FEW: Final = 1_000
MANY: Final = 1_000_000
ROUNDS: Final = 5
LOOKUPS: Final = 200

FILL: Final = """
    WITH RECURSIVE count (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM count WHERE i < ?)
    INSERT INTO payasync_intents (operation, merchant, reference, number, hash, request, queued, state, attempts,
        asked, fence, created, updated, sent_at, outcome, lease, due)
    SELECT operation, merchant, 'F' || i, 'F' || i, hash, request, queued,
        CASE i % 100 WHEN 0 THEN 'unknown' ELSE 'succeeded' END, attempts, asked, fence, created, updated, sent_at,
        outcome, NULL, CASE i % 100 WHEN 0 THEN created - i END
    FROM payasync_intents, count WHERE id = 1
"""
"""Copies of the first refund under numbers of their own, one in a hundred of them due to be asked about."""

Refund = Callable[[str], Awaitable[object]]


@asynccontextmanager
async def refunding(base: str, journal: SqliteJournal | None) -> AsyncGenerator[Refund]:
    """Give what makes a refund of a number."""
    credentials = Credentials("M1", signing_key=KEY)
    async with Session(base, credentials=credentials, profile=PROFILE, journal=journal) as pay:

        async def refund(number: str) -> None:
            await pay.send(CreateRefund(out_trade_no="T1", out_refund_no=number, total_amt=450, refund_amt=1))

        yield refund


async def one_slice(refund: Refund, numbers: list[str]) -> float:
    """Return how many refunds a second are made."""
    left = iter(numbers)

    async def worker() -> None:
        for number in left:
            await refund(number)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(CONCURRENT)))
    return len(numbers) / (time.perf_counter() - started)


async def measure(base: str, path: Path) -> dict[str, list[float]]:
    """Return the rates with a journal and without, slice by slice; the first of each only warms up."""
    rates: dict[str, list[float]] = {BASELINE: [], JOURNALLED: []}
    order, numbers = list(rates), itertools.count()
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(SqliteJournal(path))
        ways = {
            BASELINE: await stack.enter_async_context(refunding(base, None)),
            JOURNALLED: await stack.enter_async_context(refunding(base, journal)),
        }
        for slice_ in range(SLICES + 1):
            random.shuffle(order)
            for name in order:
                rate = await one_slice(ways[name], [f"R{next(numbers)}" for _ in range(REFUNDS)])
                if slice_:
                    rates[name].append(rate)
    return rates


async def fill(base: str, path: Path, rows: int) -> None:
    """Make a journal that has kept so many refunds."""
    async with SqliteJournal(path) as journal, refunding(base, journal) as refund:
        await refund("R1")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(FILL, (rows,))


async def timed(work: Callable[[], Awaitable[object]], times: int) -> float:
    """Return what one takes, in µs, one after the other."""
    started = time.perf_counter()
    for _ in range(times):
        await work()
    return (time.perf_counter() - started) / times * 1e6


async def looked_up(base: str, path: Path) -> dict[str, float]:
    """Return what a refund, a lookup and a claim take in a journal, in µs: the best of some rounds."""
    best: dict[str, float] = {}
    numbers = itertools.count()
    async with SqliteJournal(path) as journal, refunding(base, journal) as refund:

        async def look_up() -> None:
            assert await journal.find("refunds.create", f"F{random.randint(1, FEW)}")  # noqa: S311 - no secret

        async def claim() -> None:
            (intent,) = await journal.ask(1, 60)
            assert await journal.postpone(intent, intent.created)

        for _ in range(ROUNDS):
            rate = await one_slice(refund, [f"N{next(numbers)}" for _ in range(REFUNDS)])
            taken = {
                "a refund, 64 at a time": 1e6 / rate,
                "a lookup": await timed(look_up, LOOKUPS),
                "a claim, and its end": await timed(claim, LOOKUPS),
            }
            best = {name: min(cost, best.get(name, cost)) for name, cost in taken.items()}
    return best


def show(rates: dict[str, list[float]]) -> None:
    """Print medians, spread and the ratio to no journal."""
    baseline = statistics.median(rates[BASELINE])
    print(f"{'refunds':24}{'a second':>10}{'spread':>18}{'ratio':>8}")
    for name, slices in rates.items():
        low, *_, high = statistics.quantiles(slices, n=10)
        middle = statistics.median(slices)
        print(f"{name:24}{middle:10,.0f}{f'{low:,.0f} to {high:,.0f}':>18}{middle / baseline:8.2f}")
    print(f"\n{SLICES} slices of {REFUNDS} each, {CONCURRENT} at a time; journalled: on the disk before it is sent.")


def show_growth(few: dict[str, float], many: dict[str, float]) -> None:
    """Print what each costs in a small and in a large journal."""
    print(f"\n{'µs, in a journal of':24}{f'{FEW:,}':>10}{f'{MANY:,}':>18}{'ratio':>8}")
    for name, cost in few.items():
        print(f"{name:24}{cost:10,.0f}{many[name]:18,.0f}{many[name] / cost:8.2f}")


async def grow(base: str, folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return what each costs in a journal of few, and in one of many."""
    for rows in (FEW, MANY):
        await fill(base, folder / f"{rows}.db", rows)
    return await looked_up(base, folder / f"{FEW}.db"), await looked_up(base, folder / f"{MANY}.db")


def main() -> None:
    """Measure on the disk of the current folder: that of temporary files may be none."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(prefix=".benchmark-", dir=".") as folder, static_server() as base:
        show(asyncio.run(measure(base, Path(folder) / "pay.db")))
        show_growth(*asyncio.run(grow(base, Path(folder))))
