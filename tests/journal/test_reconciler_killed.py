"""The reconciler when its process is killed by SIGKILL, at each of its steps: the next one goes on."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from chaos.forked import Forked, started
from payasync import OutcomeUnknownError, RetryPolicy, Session
from payasync.journal import Reconciler, SqliteJournal
from payasync.middleware.retry import Pace
from payasync.resources.refunds import CreateRefund
from payasync.sandbox import Sandbox
from tests.cli.sandbox_process import environment

PROGRAM: Final = Path(__file__).with_name("reconciling_process.py")
LATER: Final = 3600.0
"""Seconds, after which any lease, pause and quarantine is over."""
RUNS: Final = 3
NUMBERS: Final = ("R1", "R2", "R3")
"""The first was done, and its answer was lost; the others never arrived."""
FOUND: Final = ("claimed R1", "asking R1", "told R1", "judged R1", "settled R1")
SENT: Final = (
    "claimed R2",
    "asking R2",
    "told R2",
    "sending R2",
    "leaving R2",
    "answered R2",
    "judged R2",
    "settled R2",
)
"""Where it dies, in the order of what it does."""
DONE_BY_THEN: Final = {"answered R2", "judged R2", "settled R2"}

pytestmark = pytest.mark.long


class Ahead:
    """A clock that is ahead of the machine's."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        """Return seconds since 1970."""
        return time.time() + self.seconds


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A service with a paid order, which refuses what it has done already: no second send goes unnoticed."""
    async with Sandbox(clock="frozen", repeated_refunds="refused") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        yield sandbox


async def unknown_ones(sandbox: Sandbox, journal: SqliteJournal) -> None:
    """Queue three refunds, and have a worker lose each answer."""
    async with sandbox.session(journal=journal, retry=RetryPolicy(attempts=1, quota=0)) as pay:
        for number in NUMBERS:
            request = CreateRefund(out_trade_no="T1", out_refund_no=number, total_amt=450, refund_amt=100)
            queued = await journal.add(request, merchant=pay.merchant_id)
            arrives = number == NUMBERS[0]
            arm = sandbox.faults.reset_after_commit if arrives else sandbox.faults.reset_before
            arm("refunds.create")
            with pytest.raises(OutcomeUnknownError):
                await pay.execute(queued)


async def killed(sandbox: Sandbox, path: Path, ahead: float, fatal: str) -> int:
    """Run a reconciler that dies, and return how it ended."""
    with Forked(PROGRAM, str(path), str(ahead), fatal, environment=environment(sandbox)) as process:
        _, errors = await asyncio.to_thread(process.communicate)
        assert not errors, errors
        return process.wait()


async def settled(pay: Session, journal: SqliteJournal, clock: Ahead) -> None:
    """Reconcile often enough that nothing is open any more."""
    reconciler = Reconciler(pay, journal, pace=Pace(clock=clock))
    for _ in range(RUNS):
        clock.seconds += LATER
        await reconciler.run_once()


@pytest.mark.parametrize("fatal", [*FOUND, *SENT])
async def test_killed(sandbox: Sandbox, path: Path, fatal: str) -> None:
    """Wherever it dies, the next one ends what it had begun: nothing is lost, and nothing is done twice."""
    clock = Ahead()
    async with SqliteJournal(path, clock=clock) as journal:
        await unknown_ones(sandbox, journal)
        code = await killed(sandbox, path, LATER, fatal)
        by_then = sandbox.ledger.refunds()
        clock.seconds = LATER
        async with sandbox.session(journal=journal) as pay:
            await settled(pay, journal, clock)
        states = [each.state for each in await journal.list()]
    codes = [each.code for each in sandbox.ledger.calls("refunds.create")]

    assert -signal.SIGKILL == code
    assert (2 if fatal in DONE_BY_THEN else 1) == by_then
    assert ["succeeded"] * 3 == states
    assert ["SBX_OK"] * len(codes) == codes
    assert 300 == sandbox.ledger.refunded("T1")


async def test_not_killed(sandbox: Sandbox, path: Path) -> None:
    """The same process ends well where nothing kills it: so the deaths above are those that were meant."""
    async with SqliteJournal(path) as journal:
        await unknown_ones(sandbox, journal)
        arguments = (str(path), str(LATER), "never")
        ended = await asyncio.to_thread(started, PROGRAM, *arguments, environment=environment(sandbox))
        states = [each.state for each in await journal.list()]

    assert (0, "") == (ended.returncode, ended.stderr)
    assert (["succeeded"] * 3, 3) == (states, sandbox.ledger.refunds())
