"""If the wall clock is changed while a write is in doubt, the quarantine stays as long as it was."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest
import time_machine
from attrs import evolve

from payasync import CreatePayment, Idempotency, OutcomeUnknownError, RetryPolicy, Session
from payasync.clocks import boot_tick, boot_time
from payasync.journal import Reconciler, Report, SqliteJournal
from payasync.profile.schema import Recovery
from payasync.sandbox import PROFILE, Sandbox
from payasync.wire.call import Call, Reply, Send
from tests.foreign.recorder import Recorder
from tests.inside import until
from tests.journal.building import LEASE, Clock, draft, refund
from tests.journal.service import LOST, QUERY, SAYS, WRITE, said
from tests.journal.test_in_time import CLOSE, NUMBER, PLACE, Orders, order, ordering
from tests.matrix.cells import session

QUARANTINE: Final = 60.0
HOUR: Final = 3600.0
SLOW: Final = evolve(PROFILE, recovery=Recovery(quarantine=QUARANTINE))
ONCE: Final = RetryPolicy(attempts=1, quota=0)


class Ticks:
    """A monotonic clock that the test moves."""

    whose = "a"
    seconds = 100.0

    def __call__(self) -> str:
        """Return this moment."""
        return f"{self.whose} {self.seconds}"


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    """The monotonic clock that measures quarantines."""
    made = Ticks()
    monkeypatch.setattr("payasync.journal.journal.boot_tick", made)
    return made


@pytest.fixture(params=[None, time.time], ids=["default", "given"])
async def journal(path: Path, request: pytest.FixtureRequest) -> AsyncIterator[SqliteJournal]:
    """A journal that goes by the machine's clock."""
    async with SqliteJournal(path, clock=request.param) as journal:
        yield journal


@pytest.fixture
async def pay(ticks: Ticks, journal: SqliteJournal) -> AsyncIterator[Session]:
    """A session whose refund was lost a moment ago, half a quarantine after it began."""

    async def delay(call: Call, send: Send) -> Reply:
        ticks.seconds += 0 if call.read else QUARANTINE / 2
        return await send(call)

    options: dict[str, Any] = {"journal": journal, "retry": ONCE, "middleware": [delay]}
    async with Sandbox(SLOW, clock="frozen") as sandbox, sandbox.session(**options) as pay:
        await sandbox.given.paid_order(out_trade_no="T1")
        sandbox.faults.reset_before("refunds.create")
        with pytest.raises(OutcomeUnknownError):
            await pay.send(refund())
        yield pay


async def later(pay: Session, journal: SqliteJournal, seconds: float) -> Report:
    """Set the clock on, and reconcile."""
    with time_machine.travel(time.time() + seconds):
        return await Reconciler(pay, journal).run_once()


async def test_clock_that_is_set_on(ticks: Ticks, pay: Session, journal: SqliteJournal) -> None:
    """If the wall clock is set forward, the monotonic clock still decides when the quarantine is over."""
    reports = [await later(pay, journal, HOUR)]
    ticks.seconds += QUARANTINE - 1
    reports.append(await later(pay, journal, 2 * HOUR))
    ticks.seconds += 1
    reports.append(await later(pay, journal, 3 * HOUR))

    assert [Report(waiting=1), Report(waiting=1), Report(resolved=1, rejected=1)] == reports


async def test_clock_ends_the_lease_of_who_is_sending(ticks: Ticks, path: Path) -> None:
    """If the wall clock jumps during a send, the quarantine begins only when the lease ends by the monotonic clock."""
    async with (
        SqliteJournal(path) as journal,
        Sandbox(evolve(PROFILE, recovery=Recovery(quarantine=1.0)), clock="frozen") as sandbox,
        sandbox.session(journal=journal, retry=ONCE) as pay,
    ):
        await sandbox.given.paid_order(out_trade_no="T1")
        await journal.begin(draft(refund(), merchant=pay.merchant_id), LEASE)
        reports = [await later(pay, journal, HOUR)]
        ticks.seconds += LEASE
        reports.append(await later(pay, journal, 2 * HOUR))
        ticks.seconds += 1.0
        reports.append(await later(pay, journal, 3 * HOUR))

    assert [Report(waiting=1), Report(waiting=1), Report(sent=1)] == reports


async def test_clock_ends_no_quarantine_of_an_accepted_repeat(ticks: Ticks, journal: SqliteJournal) -> None:
    """If the wall clock jumps after a repeat was accepted, an old "failed" still counts only after the quarantine."""
    says = {WRITE: said("PROCESSING"), QUERY: said("REFUND_FAILED")}
    states = list[str]()
    with Recorder(by_path=says) as service:
        async with session(service, SAYS, journal=journal, retry=ONCE) as pay:
            for jump, seconds in ((0.0, 0.0), (HOUR, 0.0), (2 * HOUR, QUARANTINE - 1), (3 * HOUR, 1.0)):
                if jump <= HOUR:
                    await pay.send(refund())
                ticks.seconds += seconds
                await later(pay, journal, jump + 1)
                states += [each.state for each in await journal.list()]

    assert ["rejected", "accepted", "accepted", "rejected"] == states


async def test_another_machine(ticks: Ticks, pay: Session, journal: SqliteJournal) -> None:
    """If the stored tick is another machine's, or from before a restart, the wall clock measures the quarantine."""
    ticks.whose = "b"

    assert Report(resolved=1, rejected=1) == await later(pay, journal, QUARANTINE)


async def test_stale_tick(ticks: Ticks, pay: Session, journal: SqliteJournal, path: Path) -> None:
    """If the stored tick is an earlier attempt's, it does not shorten the quarantine."""
    ticks.seconds -= QUARANTINE
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE payasync_intents SET tick = ?", (ticks(),))
    ticks.seconds += QUARANTINE

    assert Report(waiting=1) == await later(pay, journal, 1.0)


@pytest.mark.parametrize(
    ("seconds", "jump", "expected"),
    [
        (HOUR - 1, -HOUR, Report(sent=1)),
        (HOUR, -HOUR, Report(manual=1)),
        (HOUR, -2 * HOUR, Report(manual=1)),
        (60.0, HOUR, Report(manual=1)),
    ],
)
async def test_clock_that_is_set_back(ticks: Ticks, path: Path, seconds: float, jump: float, expected: Report) -> None:
    """If the wall clock is set back, no idempotency key lasts longer. If it is set forward, keys end earlier."""
    lasting = Idempotency(header="Idempotency-Key", lifetime=HOUR)
    profile = evolve(PROFILE, idempotency=lasting, answer=evolve(PROFILE.answer, payment_id=""))
    async with (
        SqliteJournal(path) as journal,
        Sandbox(profile) as sandbox,
        sandbox.session(journal=journal, retry=ONCE) as pay,
    ):
        sandbox.faults.reset_after_commit("payments.create")
        number = await journal.add(CreatePayment(amount=5, currency="CAD"), merchant=pay.merchant_id)
        with pytest.raises(OutcomeUnknownError):
            await pay.execute(number)
        ticks.seconds += seconds
        # If the wall clock was set back far enough, the next query is not due at first.
        reports = [await later(pay, journal, seconds + jump), await later(pay, journal, 60.0)]

    assert [expected] == [report for report in reports if report.asked]


@pytest.mark.parametrize("has_one", [True, False])
def test_boot_time(monkeypatch: pytest.MonkeyPatch, *, has_one: bool) -> None:
    """`boot_time` counts the machine's sleep. If the machine has no such clock, it returns the wall clock's time."""
    if not has_one:
        monkeypatch.setattr("payasync.clocks.BOOT_CLOCK", None)
    expected = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if has_one else time.time

    assert sorted(times := [expected(), boot_time(), expected()]) == times


@pytest.mark.parametrize("has_one", [True, False])
def test_tick_counts_seconds(monkeypatch: pytest.MonkeyPatch, *, has_one: bool) -> None:
    """A tick holds seconds of the clock that counts the machine's sleep, or else of the monotonic clock."""
    if not has_one:
        monkeypatch.setattr("payasync.clocks.BOOT_CLOCK", None)
    expected = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if has_one else time.monotonic
    times = [expected(), float(boot_tick().split(" ")[1]), expected()]

    assert sorted(times) == times


@pytest.fixture
async def ended(ticks: Ticks, journal: SqliteJournal) -> AsyncIterator[Orders]:
    """An order that ended, so that it may be placed again."""
    del ticks
    async with ordering(journal, Clock()) as orders:
        await orders.called(PLACE)
        await journal.told("orders.place", NUMBER, "closed", {}, merchant="M1")
        yield orders


async def test_jump_ends_no_quarantine_of_a_close(ticks: Ticks, ended: Orders) -> None:
    """If the wall clock jumps forward after a second place was lost, "closed" may still be of the first order."""
    ended.says |= {"/payment/unifiedorder": LOST, "/payment/orderquery": order("CLOSED")}
    await ended.called(PLACE)
    ticks.seconds += 2
    with time_machine.travel(time.time() + HOUR):
        close = await ended.called(CLOSE)

    assert isinstance(close, OutcomeUnknownError)


async def test_clock_that_is_set_back_hides_no_late_place(ticks: Ticks, ended: Orders) -> None:
    """If the wall clock is set back while a second place and a close are in flight, the close is in doubt, too."""
    placed, closed = Event(), Event()
    says = {"/payment/unifiedorder": order("PENDING", placed), "/payment/closeorder": order("CLOSED", closed)}
    ended.says |= says
    placing = asyncio.create_task(ended.called(PLACE))
    await until(lambda: ended.received("/payment/unifiedorder") > 1)
    closing = asyncio.create_task(ended.called(CLOSE))
    await until(lambda: ended.received("/payment/closeorder") > 0)
    ticks.seconds += 1
    with time_machine.travel(time.time() - HOUR):
        placed.set()
        await placing
        closed.set()
        close = await closing

    assert isinstance(close, OutcomeUnknownError)
