"""Rows about the journal: refunds with one, beside a bare journalled program and beside no journal, and growth."""

import asyncio
import random
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.bare_journal import WAL_SINCE, bare_refunding
from benchmarks.bare_postgres import bare_refunding_postgres
from benchmarks.clients import REFUNDS, Refund, refunding
from benchmarks.counting import MEASURED, call_costs
from benchmarks.rows import Figure, Run
from benchmarks.server import static_server
from payasync.journal import Journal, PostgresJournal, SqliteJournal
from tests.postgres import Server

CONCURRENCIES: Final = (1, 16, 64)
SLICES: Final = 24
IN_SLICE: Final = 800
"""Refunds."""
COSTED: Final = 4000
"""Refunds whose cost is counted: so many that several full garbage collections are among them."""
TO_BARE: Final = 0.62
TO_NONE: Final = 0.46
FEW: Final = 1_000
MANY: Final = 1_000_000
ROUNDS: Final = 5
LOOKUPS: Final = 200
PRUNED: Final = 400
OLD: Final = timedelta(days=30)

FILL: Final = """
    WITH RECURSIVE count (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM count WHERE i < ?)
    INSERT INTO payasync_intents (operation, merchant, reference, number, hash, request, queued, state, attempts,
        asked, fence, created, updated, sent_at, outcome, lease, due)
    SELECT operation, merchant, 'F' || i, operation || ':F' || i, hash, request, queued,
        CASE i % 100 WHEN 0 THEN 'unknown' ELSE 'succeeded' END, attempts, asked, fence, created, updated, sent_at,
        outcome, NULL, CASE i % 100 WHEN 0 THEN created - i END
    FROM payasync_intents, count WHERE id = 1
"""
"""Copies of the first refund under numbers of their own, one in a hundred of them due to be asked about."""
AGE: Final = "UPDATE payasync_intents SET updated = updated - ? WHERE id BETWEEN 2 AND ? AND state = 'succeeded'"


async def rate(refund: Refund, numbers: list[str], concurrent: int) -> float:
    """Return how many refunds a second are made."""
    left = iter(numbers)

    async def worker() -> None:
        for number in left:
            await refund(number)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrent)))
    return len(numbers) / (time.perf_counter() - started)


async def rates(ways: dict[str, Refund], run: Run, concurrent: int) -> dict[str, float]:
    """Return the median rate of each way, measured in turns; the first slice of each only warms up.

    The order is random: in a fixed one, the largest garbage collections may fall into the slices of one way alone.
    """
    found: dict[str, list[float]] = {name: [] for name in ways}
    refunds = IN_SLICE if concurrent > 1 else IN_SLICE // 8
    for number in range(run.times(SLICES) + 1):
        for name, refund in random.sample([*ways.items()], len(ways)):
            numbers = [f"R{concurrent}-{number}-{index}" for index in range(refunds)]
            one = await rate(refund, numbers, concurrent)
            if number:
                found[name].append(one)
    return {name: statistics.median(each) for name, each in found.items()}


def sqlite(run: Run) -> Iterator[Figure]:
    """Journalled refunds on SQLite."""

    async def measure(base: str) -> dict[int, dict[str, float]]:
        async with AsyncExitStack() as stack:
            journal = await stack.enter_async_context(SqliteJournal(run.folder / "pay.db"))
            ways = {
                "payasync": await stack.enter_async_context(refunding(base, journal)),
                "bare": await stack.enter_async_context(bare_refunding(base, run.folder / "bare.db")),
                "none": await stack.enter_async_context(refunding(base, None)),
            }
            return {concurrent: await rates(ways, run, concurrent) for concurrent in CONCURRENCIES}

    with static_server() as base:
        found = asyncio.run(measure(base))
    for concurrent, each in found.items():
        yield from _beside("SQLite", concurrent, each, TO_BARE)
    yield Figure(
        "SQLite, 64 at a time, to no journal", found[64]["payasync"] / found[64]["none"], least=least_to_none()
    )


def sqlite_cost(run: Run) -> Iterator[Figure]:
    """What a journalled refund on SQLite costs."""
    with static_server() as base:
        costs = call_costs(tuple(REFUNDS), CONCURRENCIES, base, calls=run.times(COSTED))
    for index, concurrent in enumerate(CONCURRENCIES):
        ratio = costs["bare"][index] / costs["SQLite"][index]
        yield Figure(f"bare program to SQLite, {concurrent} at a time", ratio, least=TO_BARE, measured=MEASURED)
    ratio = costs["none"][-1] / costs["SQLite"][-1]
    yield Figure("no journal to SQLite, 64 at a time", ratio, least=least_to_none(), measured=MEASURED)


def least_to_none() -> float | None:
    """Return the budget of a journal beside none, which is for an SQLite with a write-ahead log."""
    return TO_NONE if sqlite3.sqlite_version_info >= WAL_SINCE else None


def postgres(run: Run) -> Iterator[Figure]:
    """Journalled refunds on PostgreSQL."""

    async def measure(base: str, dsn: str) -> dict[int, dict[str, float]]:
        async with AsyncExitStack() as stack:
            journal = await stack.enter_async_context(PostgresJournal(dsn))
            ways = {
                "payasync": await stack.enter_async_context(refunding(base, journal)),
                "bare": await stack.enter_async_context(bare_refunding_postgres(base, dsn)),
            }
            return {concurrent: await rates(ways, run, concurrent) for concurrent in CONCURRENCIES}

    with static_server() as base, durable_postgres() as dsn:
        found = asyncio.run(measure(base, dsn))
    for concurrent, each in found.items():
        yield from _beside("PostgreSQL", concurrent, each, TO_BARE if concurrent > 1 else None)


@contextmanager
def durable_postgres() -> Generator[str]:
    """Run a server that waits for the disk, unlike that of the tests."""
    # Another user runs it, who may not enter the current folder.
    with TemporaryDirectory(prefix="payasync-") as place:
        Path(place).chmod(0o755)
        server = Server(Path(place) / "s")
        server.make()
        server.start("-c fsync=on")
        try:
            yield server.dsn
        finally:
            server.remove()


def _beside(name: str, concurrent: int, found: dict[str, float], least: float | None = None) -> Iterator[Figure]:
    yield Figure(f"{name}, {concurrent} at a time", found["payasync"], "/s")
    ratio = found["payasync"] / found["bare"]
    yield Figure(f"{name}, {concurrent} at a time, to a bare program", ratio, least=least)


def growth(run: Run) -> Iterator[Figure]:
    """What operations of a journal on SQLite cost in a large one, beside a small one."""
    large = MANY // 10 if run.quick else MANY
    with static_server() as base:
        few, many = (asyncio.run(_costs(base, run, rows)) for rows in (FEW, large))
    for name, cost in many.items():
        yield Figure(f"{name}, {large:,} rows", cost, "µs", measured="CPU time")
        yield Figure(f"{name}, {large:,} rows to {FEW:,}", cost / few[name], most=2.0, measured="CPU time")


async def _costs(base: str, run: Run, rows: int) -> dict[str, float]:
    """Return the CPU time of operations of a journal in µs: the least of some rounds."""
    path, best = run.folder / f"{rows}.db", dict[str, float]()
    await _fill(base, path, rows)
    async with SqliteJournal(path) as journal:

        async def look_up() -> None:
            assert await journal.find("refunds.create", f"F{random.randint(PRUNED + 1, FEW)}")  # noqa: S311 - no secret

        async def claim() -> None:
            (intent,) = await journal.ask(1, 60)
            assert await journal.postpone(intent, intent.created)

        for index in range(ROUNDS):
            _age(path, index)
            taken = {
                "lookup": await _timed(look_up, LOOKUPS),
                "claim": await _timed(claim, LOOKUPS),
                "next due": await _timed(journal.next_due, LOOKUPS),
                "prune, per row": await _timed(partial(_prune, journal), 1) / (PRUNED // ROUNDS),
            }
            best = {name: min(cost, best.get(name, cost)) for name, cost in taken.items()}
    return best


async def _fill(base: str, path: Path, rows: int) -> None:
    async with SqliteJournal(path) as journal, refunding(base, journal) as refund:
        await refund("R1")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(FILL, (rows,))


def _age(path: Path, index: int) -> None:
    """Make some ended rows old, so that they are pruned."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(AGE, (2 * OLD.total_seconds(), (index + 1) * PRUNED // ROUNDS))


async def _prune(journal: Journal) -> None:
    assert await journal.prune(datetime.now(UTC) - OLD)


async def _timed(work: Callable[[], Awaitable[object]], times: int) -> float:
    """Return the CPU time of one in µs, one after the other: waiting for the disk would hide what grows."""
    started = time.process_time()
    for _ in range(times):
        await work()
    return (time.process_time() - started) / times * 1e6
