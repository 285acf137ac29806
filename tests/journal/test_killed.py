"""The journal when its process is killed by SIGKILL, and when its server is restarted."""

import asyncio
import signal
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
from attrs import evolve

from payasync import OutcomeUnknownError, RetryPolicy
from payasync.clocks import Pace, use_clocks, wall_time
from payasync.journal import Journal, PostgresJournal, Reconciler, SqliteJournal
from payasync.sandbox import Sandbox
from tests.chaos.forked import Forked
from tests.chaos.killing import lines
from tests.chaos.plan import Life, Strategy, clocks_ahead
from tests.chaos.run import was_done
from tests.cli.sandbox_process import environment
from tests.journal.building import LEASE, refund
from tests.postgres import postgres

PROGRAM: Final = Path(__file__).with_name("dying_process.py")
LATER: Final = 3600.0
"""Seconds, after which any lease, pause and quarantine is over."""
RUNS: Final = 3
MANY: Final = 20
LONG: Final = 200
NUMBERS: Final = ("R1", "R2", "R3")
"""A sender dies with the second: one refund is done by then, and one has not begun."""
ONCE: Final = RetryPolicy(attempts=1, quota=0)
DISCONNECT: Final = """
SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A service with a paid order. It refuses what it has done already: no second send goes unnoticed."""
    async with Sandbox(clock="frozen", repeated_refunds="refused") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        yield sandbox
        assert {"SBX_OK"} >= {each.code for each in sandbox.ledger.calls("refunds.create")}


def life_in(strategy: Strategy, place: Path | str, traces: Path) -> Life:
    """Return a process that dies nowhere."""
    return Life(strategy=strategy, journal=str(place), traces=str(traces), worker=0, first=0, last=0)


@pytest.fixture(params=["sqlite", "postgres"])
def life(request: pytest.FixtureRequest, path: Path, tmp_path: Path) -> Life:
    """A process that dies nowhere, with either journal."""
    strategy: Strategy = request.param
    return life_in(strategy, path if strategy == "sqlite" else request.getfixturevalue("postgres_dsn"), tmp_path)


def opened(life: Life, ahead: float = 0.0) -> Journal:
    """Return the journal, so many seconds later."""
    clocks = clocks_ahead(ahead)
    use_clocks(clocks)
    return (
        SqliteJournal(life.journal) if life.strategy == "sqlite" else PostgresJournal(life.journal, clock=clocks.wall)
    )


@contextmanager
def started(sandbox: Sandbox, what: str, life: Life, *numbers: str) -> Generator[Forked]:
    """Start a process; it is gone at the end."""
    with Forked(PROGRAM, what, life.json(), *numbers, environment=environment(sandbox)) as process:
        yield process


async def ended(process: Forked) -> tuple[int, list[str]]:
    """Return how a process ends, and what it writes until then."""
    out, errors = await asyncio.to_thread(process.communicate)
    assert not errors, errors
    return process.wait(), out.splitlines()


def disconnect(life: Life) -> None:
    """End all connections to the journal, because PostgreSQL notices only later that a process has died."""
    if life.strategy == "postgres":
        with psycopg.connect(life.journal) as connection:
            connection.execute(DISCONNECT)


async def states(life: Life) -> dict[str | None, str]:
    """Return the states of all refunds in the journal."""
    async with opened(life) as journal:
        return {each.reference: each.state for each in await journal.list(limit=LONG)}


async def test_sender_is_killed(sandbox: Sandbox, life: Life) -> None:
    """If a sender is killed after its send, the journal knows what may have been done, and no write is done twice."""
    with started(sandbox, "refund", evolve(life, fatal="answered", nth=2), *NUMBERS) as first:
        died = await ended(first)
    found, by_then = await states(life), [was_done(sandbox, number) for number in NUMBERS]
    with started(sandbox, "refund", evolve(life, life=1), *NUMBERS) as second:
        again = await ended(second)
    async with opened(life, LATER) as journal:
        asked = [(each.reference, each.state) for each in await journal.ask(9, LEASE)]

    assert (-signal.SIGKILL, ["R1 done 1"]) == died
    assert {"R1": "succeeded", "R2": "sending"} == found
    assert [True, True, False] == by_then
    assert (0, ["R1 done 0", "R2 OutcomeUnknownError", "R3 done 1"]) == again
    assert [True, True, True] == [was_done(sandbox, number) for number in NUMBERS]
    assert [("R2", "unknown")] == asked


async def test_reconciler_is_killed(sandbox: Sandbox, life: Life) -> None:
    """If a reconciler is killed after a resend, the next one ends both refunds, each of which is done once."""
    async with opened(life) as journal, sandbox.session(journal=journal, retry=ONCE) as pay:
        for number, arm in (("R1", sandbox.faults.reset_after_commit), ("R2", sandbox.faults.reset_before)):
            queued = await journal.add(refund(number), merchant=pay.merchant_id)
            arm("refunds.create")
            with pytest.raises(OutcomeUnknownError):
                await pay.execute(queued)
    dying = evolve(life, fatal="answered", nth=1, ahead=LATER)
    with started(sandbox, "reconcile", dying) as process:
        code, _ = await ended(process)
    disconnect(life)
    by_then = sandbox.ledger.refunds()
    for run in range(RUNS):
        async with opened(life, (2 + run) * LATER) as journal, sandbox.session(journal=journal) as pay:
            await Reconciler(pay, journal, pace=Pace(clock=wall_time)).run_once()

    assert (-signal.SIGKILL, "answered") == (code, lines(Path(dying.trace))[-1][0])
    assert 2 == by_then == sandbox.ledger.refunds()
    assert {"R1": "succeeded", "R2": "succeeded"} == await states(life)


@pytest.mark.long
@pytest.mark.parametrize("stop", ["fast", "immediate"])
async def test_postgres_is_restarted(sandbox: Sandbox, tmp_path: Path, stop: str) -> None:
    """While PostgreSQL is stopped, calls fail and send nothing. Every write that the service did is in the journal."""
    numbers = [f"R{number}" for number in range(LONG)]
    with postgres() as server:
        life = life_in("postgres", server.dsn, tmp_path)
        with started(sandbox, "refund", life, *numbers) as process:
            told = [await asyncio.to_thread(process.stdout.readline) for _ in range(MANY)]
            server.stop(stop)
            told += [await asyncio.to_thread(process.stdout.readline) for _ in range(MANY)]
            server.start()
            # Not by `communicate`, which loses what was read ahead.
            told += await asyncio.to_thread(process.stdout.readlines)
        found = await states(life)
    ends = dict(line.split(maxsplit=1) for line in told)
    made = {number for number in numbers if was_done(sandbox, number)}

    assert set(numbers) == ends.keys()
    assert {"done 1\n", "StorageError\n"} == set(ends.values())
    assert made == {number for number, end in ends.items() if end == "done 1\n"}
    assert {"succeeded", "sending"} >= set(found.values())
    assert made <= found.keys()
