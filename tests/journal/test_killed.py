"""The journal when its process is killed by SIGKILL at each step of the protocol, and when two processes share it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
from attrs import evolve

from payasync import OutcomeUnknownError, RetryPolicy
from payasync.clocks import Pace
from payasync.errors import InvalidArgumentError
from payasync.journal import Journal, PostgresJournal, Reconciler, SqliteJournal
from payasync.sandbox import Sandbox
from tests.chaos.forked import Forked
from tests.chaos.killing import lines
from tests.chaos.plan import Life, Strategy
from tests.cli.sandbox_process import environment
from tests.journal.building import LEASE, refund
from tests.journal.stopped_process import BRIEF
from tests.postgres import postgres

PROGRAM: Final = Path(__file__).with_name("dying_process.py")
STOPPED: Final = Path(__file__).with_name("stopped_process.py")
LATER: Final = 3600.0
"""Seconds, after which any lease, pause and quarantine is over."""
RUNS: Final = 3
MANY: Final = 20
LONG: Final = 200
NUMBERS: Final = ("R1", "R2", "R3")
"""A sender dies with the second: one refund is done by then, and one has not begun."""
NOTHING: Final = "nothing"
STEPS: Final = {
    "asking": (NOTHING, 0),
    "writing": (NOTHING, 0),
    "kept": ("sending", 0),
    "leaving": ("sending", 0),
    "answered": ("sending", 1),
    "judged": ("sending", 1),
    "settling": ("sending", 1),
    "settled": ("succeeded", 1),
}
"""By step at which a sender dies, what the journal then says of the refund, and how often the service has done it."""
FIRST: Final = tuple((step, 1) for step in ("claimed", "inquiring", "judged", "settling", "settled"))
"""Where a reconciler dies at the first refund, which was done."""
UNSENT: Final = (("claimed", 2), ("inquiring", 2), ("kept", 1), ("leaving", 1))
SENT: Final = (("answered", 1), ("judged", 2), ("settling", 2), ("settled", 2))
"""Where it dies at the second refund, which it sends again."""
ONCE: Final = RetryPolicy(attempts=1, quota=0)
DISCONNECT: Final = """
SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""

long = pytest.mark.long


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
    kind = SqliteJournal if life.strategy == "sqlite" else PostgresJournal
    return kind(life.journal, clock=lambda: time.time() + ahead)


@contextmanager
def started(sandbox: Sandbox, what: str, life: Life, *numbers: str) -> Generator[Forked]:
    """Start a process; it is gone at the end."""
    with Forked(PROGRAM, what, life.json(), *numbers, environment=environment(sandbox)) as process:
        yield process


async def ended(process: Forked, given: str = "") -> tuple[int, list[str]]:
    """Return how a process ends, and what it writes until then."""
    out, errors = await asyncio.to_thread(process.communicate, given)
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


def done(sandbox: Sandbox, number: str) -> bool:
    """Return whether the service has made a refund."""
    try:
        sandbox.ledger.refund_state(number)
    except InvalidArgumentError:
        return False
    return True


@pytest.mark.parametrize("fatal", [each if each == "answered" else pytest.param(each, marks=long) for each in STEPS])
async def test_sender_is_killed(sandbox: Sandbox, life: Life, fatal: str) -> None:
    """If a sender is killed at any step, the journal knows what may have been done, and no write is done twice."""
    expected, effects = STEPS[fatal]
    with started(sandbox, "refund", evolve(life, fatal=fatal, nth=2), *NUMBERS) as first:
        died = await ended(first)
    found, by_then = await states(life), [done(sandbox, number) for number in NUMBERS]
    with started(sandbox, "refund", evolve(life, life=1), *NUMBERS) as second:
        again = await ended(second)
    async with opened(life, LATER) as journal:
        asked = [(each.reference, each.state) for each in await journal.ask(9, LEASE)]
    repeated = {NOTHING: "done 1", "sending": "OutcomeUnknownError", "succeeded": "done 0"}[expected]

    assert (-signal.SIGKILL, ["R1 done 1"]) == died
    assert ["succeeded", expected, NOTHING] == [found.get(number, NOTHING) for number in NUMBERS]
    assert [True, bool(effects), False] == by_then
    assert (0, ["R1 done 0", f"R2 {repeated}", "R3 done 1"]) == again
    assert [True, bool(effects) or expected == NOTHING, True] == [done(sandbox, number) for number in NUMBERS]
    assert ([("R2", "unknown")] if expected == "sending" else []) == asked


@pytest.mark.parametrize(
    "fatal", [each if each == SENT[0] else pytest.param(each, marks=long) for each in (*FIRST, *UNSENT, *SENT)]
)
async def test_reconciler_is_killed(sandbox: Sandbox, life: Life, fatal: tuple[str, int]) -> None:
    """If a reconciler is killed at any step, the next one ends both refunds, each of which is done once."""
    async with opened(life) as journal, sandbox.session(journal=journal, retry=ONCE) as pay:
        for number, arm in (("R1", sandbox.faults.reset_after_commit), ("R2", sandbox.faults.reset_before)):
            queued = await journal.add(refund(number), merchant=pay.merchant_id)
            arm("refunds.create")
            with pytest.raises(OutcomeUnknownError):
                await pay.execute(queued)
    dying = evolve(life, fatal=fatal[0], nth=fatal[1], ahead=LATER)
    with started(sandbox, "reconcile", dying) as process:
        code, _ = await ended(process)
    disconnect(life)
    by_then = sandbox.ledger.refunds()
    for run in range(RUNS):
        ahead = (2 + run) * LATER
        async with opened(life, ahead) as journal, sandbox.session(journal=journal) as pay:
            await Reconciler(pay, journal, pace=Pace(clock=lambda: time.time() + ahead)).run_once()  # noqa: B023 - awaited here

    assert (-signal.SIGKILL, fatal[0]) == (code, lines(Path(dying.trace))[-1][0])
    assert (2 if fatal in SENT else 1) == by_then
    assert ({"R1": "succeeded", "R2": "succeeded"}, 2) == (await states(life), sandbox.ledger.refunds())


async def test_two_processes_send_once(sandbox: Sandbox, life: Life) -> None:
    """Of two processes that make the same refunds at the same moment, one sends each refund."""
    numbers = [f"R{number}" for number in range(MANY)]
    with ExitStack() as stack:
        lives = [evolve(life, worker=worker) for worker in range(2)]
        processes = [stack.enter_context(started(sandbox, "together", each, *numbers)) for each in lives]
        for process in processes:
            assert "ready\n" == await asyncio.to_thread(process.stdout.readline)
        told = await asyncio.gather(*(ended(process, "\n") for process in processes))
    ends = [line.split(maxsplit=1) for _, written in told for line in written]

    assert [0, 0] == [code for code, _ in told]
    assert all(done(sandbox, number) for number in numbers)
    assert sorted(numbers) == sorted(number for number, end in ends if end == "done 1")
    assert {"done 0", "done 1", "OutcomeUnknownError"} >= {end for _, end in ends}
    assert 2 * MANY == len(ends)


@contextmanager
def child(sandbox: Sandbox, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """Start a program as our own child, because only its parent learns that a process has stopped."""
    command = [sys.executable, "-W", "error", str(STOPPED), *arguments]
    with subprocess.Popen(command, env=environment(sandbox), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@long
@pytest.mark.parametrize("how", ["stopped", "suspended"])
async def test_sender_is_stopped_past_its_lease(sandbox: Sandbox, life: Life, how: str) -> None:
    """If a sender sleeps past its lease, it sends nothing when it wakes, and changes nothing in the journal.

    This also holds if its machine was suspended, so that its clock stood still.
    """
    with child(sandbox, how, life.strategy, life.journal) as process:
        await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED)
        slept = time.monotonic()
        async with opened(life, LATER) as journal, sandbox.session(journal=journal) as pay:
            (asked,) = await journal.ask(9, LEASE)
            await journal.settle(asked, "rejected", reason="never arrived")
            await pay.refunds.create(out_trade_no="T1", out_refund_no="R2", total_amt=450, refund_amt=1)
            (before,) = await journal.list()
            # In real time, because the sender sleeps past the system's own clock.
            await asyncio.sleep(slept + 2 * BRIEF - time.monotonic())
            process.send_signal(signal.SIGCONT)
            words, _ = await asyncio.to_thread(process.communicate)
            (after,) = await journal.list()

    assert ("OutcomeUnknownError", 0) == (words, process.returncode)
    assert 1 == len(sandbox.ledger.calls("refunds.create"))
    assert ("succeeded", before) == (before.state, after)


@long
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
    made = {number for number in numbers if done(sandbox, number)}

    assert set(numbers) == ends.keys()
    assert {"done 1\n", "StorageError\n"} == set(ends.values())
    assert made == {number for number, end in ends.items() if end == "done 1\n"}
    assert {"succeeded", "sending"} >= set(found.values())
    assert made <= found.keys()
