"""The journal when its process is killed by SIGKILL, at each step of the protocol, and when two processes share it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from payasync.cli.sandbox import environment_of
from payasync.errors import InvalidArgumentError
from payasync.journal import Journal, PostgresJournal, SqliteJournal
from payasync.sandbox import Sandbox
from tests.chaos.forked import Forked
from tests.inside import until
from tests.journal.building import LEASE
from tests.journal.refunding_process import BRIEF
from tests.postgres import postgres

PROGRAM: Final = Path(__file__).with_name("refunding_process.py")
SECONDS: Final = 60
MANY: Final = 20
LONG: Final = 200
LATER: Final = 3600.0
"""Seconds, after which any lease is over."""

Place = Path | str
"""Of a file, or of a database."""
Start = Callable[..., Forked]

NOTHING: Final = "nothing"
MOMENTS: Final = {
    "asking": (NOTHING, 0),
    "writing": (NOTHING, 0),
    "kept": ("sending", 0),
    "leaving": ("sending", 0),
    "received": ("sending", 1),
    "answered": ("sending", 1),
    "judged": ("sending", 1),
    "settling": ("sending", 1),
    "settled": ("accepted", 1),
}
"""By moment of death, what the journal says of the refund then, and how often the service has done it."""

long = pytest.mark.long


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A service with a paid order, which refuses a refund that is sent a second time."""
    async with Sandbox(clock="frozen", refunds="by hand", repeated_refunds="refused") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=45_000)
        yield sandbox


@pytest.fixture(params=["rollback", pytest.param("wal", marks=long), "postgres"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Test with either way in which SQLite makes a commit durable, and with PostgreSQL."""
    monkeypatch.setattr("payasync.storage.sqlite.WAL_SINCE", (3,) if request.param == "wal" else (99,))
    return str(request.param)


@pytest.fixture
def path(request: pytest.FixtureRequest, mode: str, tmp_path: Path) -> Place:
    """Where the journal is."""
    dsn: str = request.getfixturevalue("postgres_dsn") if mode == "postgres" else ""
    return dsn or tmp_path / "pay.db"


def opened(path: Place, clock: Callable[[], float] = time.time) -> Journal:
    """Return the journal that is there."""
    return SqliteJournal(path, clock=clock) if isinstance(path, Path) else PostgresJournal(path, clock=clock)


def surroundings(sandbox: Sandbox, folder: Path) -> dict[str, str]:
    """Return the variables by which a process finds the service."""
    file = folder / "service.toml"
    file.write_text(sandbox.profile.to_toml(), encoding="utf-8")
    return {**os.environ, **environment_of(sandbox, file)}


@pytest.fixture
def start(mode: str, sandbox: Sandbox, path: Place, tmp_path: Path) -> Generator[Start]:
    """Start a process that makes refunds; it is gone with the test."""
    with starting(mode, sandbox, path, tmp_path) as start:
        yield start


@contextmanager
def starting(mode: str, sandbox: Sandbox, path: Place, tmp_path: Path) -> Generator[Start]:
    """Return what starts processes that make refunds, all of them gone at the end."""
    environment = surroundings(sandbox, tmp_path)
    with ExitStack() as stack:

        def started(what: str, argument: str = "") -> Forked:
            return stack.enter_context(Forked(PROGRAM, what, mode, str(path), argument, environment=environment))

        yield started


@contextmanager
def child(*arguments: str, environment: dict[str, str]) -> Generator[subprocess.Popen[str]]:
    """Start a process of which we are the parent: only that one is told when it stops."""
    command = [sys.executable, "-W", "error", str(PROGRAM), *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def said(process: Forked, given: str = "") -> list[str]:
    """Return what a process has written until its end."""
    out, _ = await asyncio.to_thread(process.communicate, given)
    return out.splitlines()


async def state_of(journal: Journal, number: str) -> str:
    """Return the state of a refund in the journal."""
    found = await journal.find("refunds.create", number)
    return found[0].state if found else NOTHING


def done(sandbox: Sandbox, number: str) -> int:
    """Return how many refunds of a number the service has made, which is 1 at most; nobody has asked for a second."""
    assert {each.code for each in sandbox.ledger.calls("refunds.create")} <= set(sandbox.profile.answer.ok)
    try:
        sandbox.ledger.refund_state(number)
    except InvalidArgumentError:
        return 0
    return 1


@pytest.mark.parametrize("fatal", [each if each == "answered" else pytest.param(each, marks=long) for each in MOMENTS])
async def test_killed(sandbox: Sandbox, path: Place, start: Start, fatal: str) -> None:
    """Whenever it dies, what may have been done is known, and nothing is done a second time by itself."""
    expected, effects = MOMENTS[fatal]
    if fatal == "received":
        sandbox.faults.hang("refunds.create", order="R2", phase="after")
    first = start("one_by_one", fatal)
    if fatal == "received":
        await until(lambda: done(sandbox, "R2"))
        first.kill()
    before = await said(first)
    async with opened(path) as journal:
        found = [await state_of(journal, number) for number in ("R1", "R2", "R3")]
    died = [done(sandbox, number) for number in ("R1", "R2", "R3")]
    again = await said(start("one_by_one"))
    async with opened(path, clock=lambda: time.time() + LATER) as journal:
        open_ones = {each.reference: each for each in await journal.ask(9, LEASE)}

    assert (-signal.SIGKILL, ["R1 done 1"]) == (first.returncode, before)
    assert ["accepted", expected, NOTHING] == found
    assert [1, effects, 0] == died
    second = {NOTHING: "done 1", "sending": "OutcomeUnknownError", "accepted": "done 0"}[expected]
    assert ["R1 done 0", f"R2 {second}", "R3 done 1"] == again
    assert [1, effects or expected == NOTHING, 1] == [done(sandbox, number) for number in ("R1", "R2", "R3")]
    assert ("unknown" if expected == "sending" else "accepted") == open_ones["R2"].state


async def test_two_processes_send_once(sandbox: Sandbox, start: Start) -> None:
    """Of two that make the same refunds at the same moment, for each refund one sends."""
    numbers = [f"R{number}" for number in range(MANY)]
    processes = [start("at_once", str(MANY)) for _ in range(2)]
    for process in processes:
        assert "ready\n" == await asyncio.to_thread(process.stdout.readline)
    told = await asyncio.gather(*(said(process, "\n") for process in processes))
    ends = [line.split(maxsplit=1) for lines in told for line in lines]

    assert [0, 0] == [process.returncode for process in processes]
    assert [1] * MANY == [done(sandbox, number) for number in numbers]
    assert sorted(numbers) == sorted(number for number, end in ends if end == "done 1")
    assert {"done 0", "done 1", "OutcomeUnknownError"} >= {end for _, end in ends}
    assert 2 * MANY == len(ends)


@long
@pytest.mark.parametrize("how", ["stopped", "suspended"])
async def test_stopped_past_its_lease(sandbox: Sandbox, mode: str, path: Place, tmp_path: Path, how: str) -> None:
    """Who slept past the end of its call sends nothing when it wakes, nor touches what another has done since.

    Nor, where its machine was suspended, does who believes that no time has passed.
    """
    environment = surroundings(sandbox, tmp_path)
    async with AsyncExitStack() as stack:
        process = stack.enter_context(child(how, mode, str(path), "leaving", environment=environment))
        await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED)
        slept = time.monotonic()
        journal = await stack.enter_async_context(opened(path, clock=lambda: time.time() + LATER))
        pay = await stack.enter_async_context(sandbox.session(journal=journal))
        (asked,) = await journal.ask(9, LEASE)
        await journal.settle(asked, "rejected", reason="never arrived")
        await pay.refunds.create(out_trade_no="T1", out_refund_no="R2", total_amt=45_000, refund_amt=100)
        (before,) = await journal.list()
        # In real time: what it sleeps past is the system's own clock.
        await asyncio.sleep(slept + 2 * BRIEF - time.monotonic())
        process.send_signal(signal.SIGCONT)
        told, _ = await asyncio.to_thread(process.communicate, None, SECONDS)
        (after,) = await journal.list()

    assert ("R2 OutcomeUnknownError\n", 0) == (told, process.returncode)
    assert 1 == len(sandbox.ledger.calls("refunds.create"))
    assert ("accepted", before) == (before.state, after)


@long
@pytest.mark.parametrize("stop", ["fast", "immediate"])
async def test_postgres_is_restarted(sandbox: Sandbox, tmp_path: Path, stop: str) -> None:
    """While PostgreSQL is away nothing is sent; what was under way is known, and nothing is done a second time."""
    numbers = [f"R{number}" for number in range(LONG)]
    with postgres() as server, starting("postgres", sandbox, server.dsn, tmp_path) as start:
        process = start("many", str(LONG))
        told = [await asyncio.to_thread(process.stdout.readline) for _ in range(MANY)]
        server.stop(stop)
        told += [await asyncio.to_thread(process.stdout.readline) for _ in range(MANY)]
        server.start()
        # Not by `communicate`, which loses what was read ahead.
        told += await asyncio.to_thread(process.stdout.readlines)
        await asyncio.to_thread(process.wait)
        ends = dict(line.split(maxsplit=1) for line in told)
        effects = {number: done(sandbox, number) for number in numbers}
        async with opened(server.dsn) as journal:
            states = {number: await state_of(journal, number) for number in numbers}

    assert {"done 1\n": 1, "StorageError\n": 0}.items() >= {(end, effects[number]) for number, end in ends.items()}
    assert set(numbers) == ends.keys()
    assert {"done 1\n", "StorageError\n"} == set(ends.values())
    assert {"accepted", "sending", NOTHING} >= set(states.values())
    assert not {number for number in numbers if effects[number] and states[number] == NOTHING}
