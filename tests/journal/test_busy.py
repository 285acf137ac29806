"""A SQLite journal that cannot write, because another process locks its file for too long, or the disk is full."""

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from payasync import Call, OutcomeUnknownError, Reply, RetryPolicy, Send, Session, StorageError
from payasync.clocks import Pace
from payasync.journal import Reconciler, Report, SqliteJournal
from payasync.sandbox import Sandbox
from tests.journal.building import Clock, only, refund

CONNECT: Final = sqlite3.connect
LATER: Final = 3600.0
"""Seconds, after which any lease is over."""


@pytest.fixture
async def holder(path: Path, journal: SqliteJournal) -> AsyncIterator[sqlite3.Connection]:
    """Another connection to the file: it holds the file from `BEGIN EXCLUSIVE` to `ROLLBACK`."""
    await journal.list()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        yield db


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal waits 0.01 seconds for a locked file."""
    monkeypatch.setattr("payasync.storage.sqlite.LOCKED_SECONDS", 0.01)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A service with a paid order. It refuses a second send of the same write, so that tests notice one."""
    async with Sandbox(clock="frozen", repeated_refunds="refused") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1")
        yield sandbox


def once(sandbox: Sandbox, journal: SqliteJournal, *around: Any) -> Session:
    """Return a session that tries once and queries nothing afterwards."""
    return sandbox.session(journal=journal, retry=RetryPolicy(attempts=1, quota=0), middleware=around)


async def refunded(pay: Session, _: SqliteJournal) -> None:
    """Make a refund."""
    await pay.send(refund("R2"))


async def executed(pay: Session, _: SqliteJournal) -> None:
    """Make the refund that was queued first."""
    await pay.execute(1)


async def added(pay: Session, journal: SqliteJournal) -> None:
    """Queue a refund."""
    await journal.add(refund("R2"), merchant=pay.merchant_id)


@pytest.mark.parametrize("opened", [True, False], ids=["open", "not open yet"])
@pytest.mark.parametrize(("work", "done"), [(refunded, 1), (executed, 1), (added, 0)])
async def test_nothing_is_sent_while_the_file_is_held(
    sandbox: Sandbox,
    journal: SqliteJournal,
    path: Path,
    clock: Clock,
    *,
    holder: sqlite3.Connection,
    work: Callable[[Session, SqliteJournal], Any],
    done: int,
    opened: bool,
) -> None:
    """If the file is locked, calls raise `StorageError` and send nothing. After the lock is released, they succeed."""
    async with SqliteJournal(path, clock=clock) as another:
        used = journal if opened else another
        async with once(sandbox, used) as pay:
            await journal.add(refund(), merchant=pay.merchant_id)
            before = await journal.list()
            holder.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StorageError, match="database is locked") as caught:
                await work(pay, used)
            told = len(sandbox.ledger.calls("refunds.create"))
            holder.execute("ROLLBACK")
            during = await journal.list()
            await work(pay, used)

    assert (0, False, before) == (told, caught.value.sent, during)
    assert done == sandbox.ledger.refunds()


async def test_verdict_is_not_lost_while_the_file_is_held(
    sandbox: Sandbox,
    journal: SqliteJournal,
    clock: Clock,
    *,
    holder: sqlite3.Connection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If the journal cannot store a result, the caller still gets it. The reconciler finds it without a resend."""

    async def hold(call: Call, send: Send) -> Reply:
        reply = await send(call)
        holder.execute("BEGIN EXCLUSIVE")
        return reply

    async with once(sandbox, journal, hold) as pay:
        with caplog.at_level(logging.WARNING, "payasync"):
            answer = await pay.send(refund())
    holder.execute("ROLLBACK")
    between = (await only(journal)).state
    clock.advance(LATER)
    async with once(sandbox, journal) as pay:
        report = await Reconciler(pay, journal, pace=Pace(clock=clock)).run_once()
        again = await pay.send(refund())

    assert ("succeeded", "sending", "succeeded") == (answer.state, between, again.state)
    assert (Report(resolved=1), 0) == (report, again.attempts)
    assert ["intent 1 is succeeded, which the journal could not store"] == [
        record.getMessage() for record in caplog.records if record.name == "payasync"
    ]
    assert ["SBX_OK"] == [each.code for each in sandbox.ledger.calls("refunds.create")]


async def test_reconciler_comes_back_after_the_file_was_held(
    sandbox: Sandbox, journal: SqliteJournal, clock: Clock, holder: sqlite3.Connection
) -> None:
    """If the journal cannot store a query's result, the run raises `StorageError`. A later run queries again."""

    async def hold(call: Call, send: Send) -> Reply:
        reply = await send(call)
        if call.read:
            holder.execute("BEGIN EXCLUSIVE")
        return reply

    sandbox.faults.reset_after_commit("refunds.create")
    async with once(sandbox, journal) as pay, once(sandbox, journal, hold) as held:
        queued = await journal.add(refund(), merchant=pay.merchant_id)
        with pytest.raises(OutcomeUnknownError):
            await pay.execute(queued)
        with pytest.raises(StorageError, match="database is locked"):
            await Reconciler(held, journal, pace=Pace(clock=clock)).run_once()
        holder.execute("ROLLBACK")
        between = (await only(journal)).state
        clock.advance(LATER)
        report = await Reconciler(pay, journal, pace=Pace(clock=clock)).run_once()

    assert ("unknown", Report(resolved=1), "succeeded") == (between, report, (await only(journal)).state)
    assert 1 == len(sandbox.ledger.calls("refunds.create"))


def full_disk(*arguments: Any, **named: Any) -> sqlite3.Connection:
    """Connect to a file on a disk where it cannot grow."""
    db: sqlite3.Connection = CONNECT(*arguments, **named)
    db.execute("PRAGMA max_page_count = 1")  # SQLite takes the file's present size, which is greater
    return db


async def test_nothing_is_sent_while_the_disk_is_full(
    sandbox: Sandbox, journal: SqliteJournal, path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If *sending* finds no room on the disk, no byte leaves, and an error of ours says so."""
    await journal.list()
    monkeypatch.setattr(sqlite3, "connect", full_disk)
    numbers = [f"R{number}" for number in range(1, 101)]
    done = list[str]()
    async with SqliteJournal(path, clock=clock) as another, once(sandbox, another) as pay:
        with pytest.raises(StorageError, match="disk is full") as caught:  # noqa: PT012 - the first that has no room
            for number in numbers:
                await pay.send(refund(number, refund_amt=1))
                done.append(number)
        kept = await another.list()

    assert (False, numbers[len(done)]) == (caught.value.sent, caught.value.reference)
    assert len(done) == len(kept) == len(sandbox.ledger.calls("refunds.create")) == sandbox.ledger.refunds()
