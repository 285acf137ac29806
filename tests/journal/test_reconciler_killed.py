"""The reconciler, on each journal, when its process is killed by SIGKILL at each of its steps: the next one goes on."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from attrs import evolve

from payasync import OutcomeUnknownError, RetryPolicy
from payasync.journal import Journal, PostgresJournal, Reconciler, SqliteJournal
from payasync.sandbox import Sandbox
from payasync.settings import Pace
from tests.chaos.forked import Forked, started
from tests.chaos.killing import lines
from tests.chaos.plan import Life, Strategy
from tests.cli.sandbox_process import environment
from tests.journal.building import refund

PROGRAM: Final = Path(__file__).with_name("dying_reconciler.py")
LATER: Final = 3600.0
"""Seconds, after which any lease, pause and quarantine is over."""
RUNS: Final = 3
ONCE: Final = RetryPolicy(attempts=1, quota=0)
FIRST: Final = tuple((step, 1) for step in ("claimed", "inquiring", "judged", "settling", "settled"))
"""Where it dies at the first refund, which was done, in the order of what it does."""
SECOND: Final = (
    ("claimed", 2),
    ("inquiring", 2),
    ("kept", 1),
    ("leaving", 1),
    ("answered", 1),
    ("judged", 2),
    ("settling", 2),
    ("settled", 2),
)
"""Where it dies at the second one, which it sends again."""
SENT: Final = SECOND[4:]
DAILY: Final = ("answered", 1)
"""What was sent again is done, and the journal does not say so."""
FATAL: Final = [each if each == DAILY else pytest.param(*each, marks=pytest.mark.long) for each in (*FIRST, *SECOND)]


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A service with a paid order, which refuses what it has done already: no second send goes unnoticed."""
    async with Sandbox(clock="frozen", repeated_refunds="refused") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        yield sandbox


@pytest.fixture(params=["sqlite", "postgres"])
def life(request: pytest.FixtureRequest, path: Path, tmp_path: Path) -> Life:
    """A process that dies nowhere, by a clock by which all that is open is due."""
    strategy: Strategy = request.param
    place = str(path if strategy == "sqlite" else request.getfixturevalue("postgres_dsn"))
    return Life(strategy=strategy, journal=place, traces=str(tmp_path), worker=0, first=0, last=0, ahead=LATER)


def opened(life: Life, ahead: float = 0.0) -> Journal:
    """Return the journal, so many seconds later."""
    kind = SqliteJournal if life.strategy == "sqlite" else PostgresJournal
    return kind(life.journal, clock=lambda: time.time() + ahead)


async def unknown_ones(sandbox: Sandbox, life: Life) -> None:
    """Queue two refunds, and have a worker lose the answer to the first, and the second one itself."""
    async with opened(life) as journal, sandbox.session(journal=journal, retry=ONCE) as pay:
        for number, arm in (("R1", sandbox.faults.reset_after_commit), ("R2", sandbox.faults.reset_before)):
            queued = await journal.add(refund(number), merchant=pay.merchant_id)
            arm("refunds.create")
            with pytest.raises(OutcomeUnknownError):
                await pay.execute(queued)


async def lived(sandbox: Sandbox, life: Life) -> int:
    """Run a reconciler in a process, and return how that ended."""
    with Forked(PROGRAM, life.json(), environment=environment(sandbox)) as process:
        _, errors = await asyncio.to_thread(process.communicate)
        assert not errors, errors
        return process.wait()


async def reconciled(sandbox: Sandbox, life: Life, ahead: float) -> None:
    """Run a reconciler here, so many seconds later."""
    async with opened(life, ahead) as journal, sandbox.session(journal=journal) as pay:
        await Reconciler(pay, journal, pace=Pace(clock=lambda: time.time() + ahead)).run_once()


async def states(life: Life) -> list[str]:
    """Return the states of all that is in the journal."""
    async with opened(life) as journal:
        return [each.state for each in await journal.list()]


@pytest.mark.parametrize(("fatal", "nth"), FATAL)
async def test_killed(sandbox: Sandbox, life: Life, fatal: str, nth: int) -> None:
    """Wherever it dies, the next one ends what it had begun: nothing is lost, and nothing is done twice."""
    await unknown_ones(sandbox, life)
    code = await lived(sandbox, evolve(life, fatal=fatal, nth=nth))
    by_then = sandbox.ledger.refunds()
    for run in range(RUNS):
        await reconciled(sandbox, life, (2 + run) * LATER)

    assert (-signal.SIGKILL, fatal) == (code, lines(Path(life.trace))[-1][0])
    assert (2 if (fatal, nth) in SENT else 1) == by_then
    assert (["succeeded"] * 2, 2) == (await states(life), sandbox.ledger.refunds())
    assert {"SBX_OK"} == {each.code for each in sandbox.ledger.calls("refunds.create")}


@pytest.mark.long
async def test_not_killed(sandbox: Sandbox, life: Life) -> None:
    """The same process ends well where nothing kills it, and comes to the steps above, in their order."""
    await unknown_ones(sandbox, life)
    ended = await asyncio.to_thread(started, PROGRAM, life.json(), environment=environment(sandbox))
    steps = [(moment, number) for moment, number in lines(Path(life.trace)) if moment not in {"flying", "resting"}]

    assert [*((step, "R1") for step, _ in FIRST), *((step, "R2") for step, _ in SECOND)] == steps
    assert (0, "") == (ended.returncode, ended.stderr)
    assert (["succeeded"] * 2, 2) == (await states(life), sandbox.ledger.refunds())
