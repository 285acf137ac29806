"""A SQLite journal that cannot write, because another process locks its file for too long."""

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from payasync import Call, OutcomeUnknownError, Reply, RetryPolicy, Send, Session, StorageError
from payasync.clocks import Pace
from payasync.journal import Reconciler, Report, SqliteJournal
from payasync.sandbox import Sandbox
from tests.journal.building import Clock, only, refund

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


@pytest.mark.parametrize("opened", [True, False])
async def test_nothing_is_sent_while_the_file_is_held(
    sandbox: Sandbox, journal: SqliteJournal, path: Path, holder: sqlite3.Connection, *, opened: bool
) -> None:
    """If the file is locked, calls raise `StorageError` and send nothing. After the lock is released, they succeed."""
    async with SqliteJournal(path) as another:
        used = journal if opened else another
        async with once(sandbox, used) as pay:
            queued = await journal.add(refund(), merchant=pay.merchant_id)
            before = await journal.list()
            holder.execute("BEGIN EXCLUSIVE")
            for call in (pay.execute(queued), pay.send(refund("R2")), used.add(refund("R2"), merchant="M1")):
                with pytest.raises(StorageError, match="database is locked") as caught:
                    await call
                assert not caught.value.sent
            holder.execute("ROLLBACK")
            during, sends = await journal.list(), sandbox.ledger.calls("refunds.create")
            await pay.execute(queued)

    assert ([], before, 1) == (sends, during, sandbox.ledger.refunds())


@pytest.mark.parametrize("by", ["caller", "reconciler"])
async def test_result_is_not_lost_while_the_file_is_held(
    sandbox: Sandbox,
    journal: SqliteJournal,
    clock: Clock,
    *,
    holder: sqlite3.Connection,
    caplog: pytest.LogCaptureFixture,
    by: str,
) -> None:
    """If the journal cannot store a result, its caller still gets it, and a run fails. Later, the result is found."""

    async def hold(call: Call, send: Send) -> Reply:
        reply = await send(call)
        holder.execute("BEGIN EXCLUSIVE")
        return reply

    caplog.set_level(logging.WARNING, "payasync")
    async with once(sandbox, journal) as pay, once(sandbox, journal, hold) as held:
        if by == "caller":
            assert "succeeded" == (await held.send(refund())).state
            assert ["intent 1 is succeeded, which the journal could not store"] == caplog.messages
        else:
            sandbox.faults.reset_after_commit("refunds.create")
            with pytest.raises(OutcomeUnknownError):
                await pay.send(refund())
            with pytest.raises(StorageError, match="database is locked"):
                await Reconciler(held, journal, pace=Pace(clock=clock)).run_once()
        holder.execute("ROLLBACK")
        between = (await only(journal)).state
        clock.advance(LATER)
        report = await Reconciler(pay, journal, pace=Pace(clock=clock)).run_once()
        again = await pay.send(refund())

    assert ("sending" if by == "caller" else "unknown", Report(resolved=1)) == (between, report)
    assert ("succeeded", 0, 1) == (again.state, again.attempts, len(sandbox.ledger.calls("refunds.create")))
