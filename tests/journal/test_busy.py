"""A journal in SQLite whose file another process holds for longer than anybody waits."""

import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from payasync import Call, OutcomeUnknownError, Reply, RetryPolicy, Send, Session, StorageError
from payasync.journal import Intent, Reconciler, Report, SqliteJournal
from payasync.middleware.retry import Pace
from payasync.sandbox import Sandbox
from tests.journal.building import Clock, refund

REFUND: Final[dict[str, Any]] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}
HOLDING: Final = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
db.close()
"""
LATER: Final = 3600.0
"""Seconds, after which any lease is over."""

pytestmark = pytest.mark.long


class Holder:
    """Another process, which holds the journal's file.

    Args:
        path: The file's.
        stack: Ends it with the test.
    """

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path = path
        self._stack = stack
        self._process: subprocess.Popen[str] | None = None

    def hold(self) -> None:
        """Hold it, until it is let go of."""
        command = [sys.executable, "-W", "error", "-c", HOLDING, str(self._path)]
        started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._process = self._stack.enter_context(started)
        self._stack.callback(started.kill)
        assert started.stdout is not None
        assert "held\n" == started.stdout.readline()

    def let_go(self) -> None:
        """Let go of it."""
        assert self._process is not None
        self._process.communicate("\n")
        assert 0 == self._process.returncode


@pytest.fixture
def holder(path: Path) -> Generator[Holder]:
    """What holds the file when it is told to."""
    with ExitStack() as stack:
        yield Holder(path, stack)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the file for longer than a moment."""
    monkeypatch.setattr("payasync.sqlite_opening.LOCKED_SECONDS", 0.01)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A service with a paid order, which refuses what it has done already: no second send goes unnoticed."""
    async with Sandbox(clock="frozen", repeated_refunds="refused") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1")
        yield sandbox


def once(sandbox: Sandbox, journal: SqliteJournal, *around: Any) -> Session:
    """Return a session that tries once, and asks nothing afterwards."""
    return sandbox.session(journal=journal, retry=RetryPolicy(attempts=1, quota=0), middleware=around)


async def refunded(pay: Session, _: SqliteJournal) -> None:
    """Make a refund."""
    await pay.refunds.create(**REFUND)


async def executed(pay: Session, _: SqliteJournal) -> None:
    """Make the refund that was queued first."""
    await pay.execute(1)


async def added(pay: Session, journal: SqliteJournal) -> None:
    """Queue a refund."""
    await journal.add(refund("R2"), merchant=pay.merchant_id)


async def only(journal: SqliteJournal) -> Intent:
    """Return the journal's only intention."""
    (intent,) = await journal.list()
    return intent


@pytest.mark.parametrize("opened", [True, False], ids=["open", "not open yet"])
@pytest.mark.parametrize(
    ("work", "queued", "done"),
    [(refunded, False, 1), (executed, True, 1), (added, False, 0)],
    ids=["call", "queued", "queueing"],
)
async def test_nothing_is_sent_while_the_file_is_held(
    sandbox: Sandbox,
    journal: SqliteJournal,
    path: Path,
    clock: Clock,
    *,
    holder: Holder,
    work: Callable[[Session, SqliteJournal], Any],
    queued: bool,
    done: int,
    opened: bool,
) -> None:
    """Where *sending* cannot be written, no byte leaves: an error of ours says so, and afterwards it goes on."""
    async with SqliteJournal(path, clock=clock) as another:
        used = journal if opened else another
        async with once(sandbox, used) as pay:
            if queued:
                await journal.add(refund(), merchant=pay.merchant_id)
            before = await journal.list()
            holder.hold()
            with pytest.raises(StorageError, match="database is locked") as caught:
                await work(pay, used)
            told = len(sandbox.ledger.calls("refunds.create"))
            holder.let_go()
            during = await journal.list()
            await work(pay, used)

    assert (0, False, before) == (told, caught.value.sent, during)
    assert done == sandbox.ledger.refunds()


async def test_verdict_is_not_lost_while_the_file_is_held(
    sandbox: Sandbox, journal: SqliteJournal, clock: Clock, holder: Holder, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller hears what the service said; the journal says *sending*, and learns it later without a second send."""

    async def hold(call: Call, send: Send) -> Reply:
        reply = await send(call)
        holder.hold()
        return reply

    async with once(sandbox, journal, hold) as pay:
        with caplog.at_level(logging.WARNING, "payasync"):
            answer = await pay.refunds.create(**REFUND)
    holder.let_go()
    between = (await only(journal)).state
    clock.advance(LATER)
    async with once(sandbox, journal) as pay:
        report = await Reconciler(pay, journal, pace=Pace(clock=clock)).run_once()
        again = await pay.refunds.create(**REFUND)

    assert ("succeeded", "sending", "succeeded") == (answer.state, between, again.state)
    assert (Report(resolved=1), 0) == (report, again.attempts)
    assert ["intention 1 is succeeded, which the journal could not keep"] == [
        record.getMessage() for record in caplog.records if record.name == "payasync"
    ]
    assert ["SBX_OK"] == [each.code for each in sandbox.ledger.calls("refunds.create")]


async def test_reconciler_comes_back_after_the_file_was_held(
    sandbox: Sandbox, journal: SqliteJournal, clock: Clock, holder: Holder
) -> None:
    """A word of the service that cannot be kept ends the run by an error of ours, and is asked for again later."""

    async def hold(call: Call, send: Send) -> Reply:
        reply = await send(call)
        if call.read:
            holder.hold()
        return reply

    sandbox.faults.reset_after_commit("refunds.create")
    async with once(sandbox, journal) as pay, once(sandbox, journal, hold) as held:
        queued = await journal.add(refund(), merchant=pay.merchant_id)
        with pytest.raises(OutcomeUnknownError):
            await pay.execute(queued)
        with pytest.raises(StorageError, match="database is locked"):
            await Reconciler(held, journal, pace=Pace(clock=clock)).run_once()
        holder.let_go()
        between = (await only(journal)).state
        clock.advance(LATER)
        report = await Reconciler(pay, journal, pace=Pace(clock=clock)).run_once()

    assert ("unknown", Report(resolved=1), "succeeded") == (between, report, (await only(journal)).state)
    assert 1 == len(sandbox.ledger.calls("refunds.create"))
