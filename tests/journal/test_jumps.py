"""If the wall clock is changed while a write is in doubt, the quarantine stays as long as it was."""

import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import CreatePayment, Idempotency, OutcomeUnknownError, RetryPolicy, Session
from payasync.clocks import Clocks, boot_tick, boot_time, use_clocks
from payasync.journal import Reconciler, Report, SqliteJournal
from payasync.profile.schema import Recovery
from payasync.sandbox import PROFILE, Sandbox
from payasync.wire.call import Call, Reply, Send
from tests.journal.building import LEASE, START, draft, refund

QUARANTINE: Final = 60.0
HOUR: Final = 3600.0
SLOW: Final = evolve(PROFILE, recovery=Recovery(quarantine=QUARANTINE))
ONCE: Final = RetryPolicy(attempts=1, quota=0)


class Machine:
    """A machine whose wall clock can be set. Its boot clock counts the seconds that pass."""

    identity = "a"
    boot = 100.0
    wall = START.timestamp()

    def clocks(self) -> Clocks:
        """Return its clocks."""
        return Clocks(
            wall=lambda: self.wall,
            boot=lambda: self.boot,
            tick=lambda: round(self.boot * 1e9),
            identity=lambda: self.identity,
        )

    async def reconcile(self, pay: Session, journal: SqliteJournal, seconds: float) -> Report:
        """Set the wall clock to so many seconds after the start, and reconcile."""
        self.wall = START.timestamp() + seconds
        return await Reconciler(pay, journal).run_once()


@pytest.fixture
def machine() -> Iterator[Machine]:
    """The machine on which the test runs."""
    made = Machine()
    use_clocks(made.clocks())
    yield made
    use_clocks(Clocks())


@pytest.fixture(params=["default", "given"])
async def journal(path: Path, machine: Machine, request: pytest.FixtureRequest) -> AsyncIterator[SqliteJournal]:
    """A journal that goes by the machine's wall clock, by default or because the function is given."""
    async with SqliteJournal(path, clock=(lambda: machine.wall) if request.param == "given" else None) as journal:
        yield journal


@pytest.fixture
async def pay(machine: Machine, journal: SqliteJournal) -> AsyncIterator[Session]:
    """A session whose refund was lost a moment ago, half a quarantine after it began."""

    async def delay(call: Call, send: Send) -> Reply:
        machine.boot += 0 if call.read else QUARANTINE / 2
        return await send(call)

    options: dict[str, Any] = {"journal": journal, "retry": ONCE, "middleware": [delay]}
    async with Sandbox(SLOW, clock="frozen") as sandbox, sandbox.session(**options) as pay:
        await sandbox.given.paid_order(out_trade_no="T1")
        sandbox.faults.reset_before("refunds.create")
        with pytest.raises(OutcomeUnknownError):
            await pay.send(refund())
        yield pay


async def test_clock_that_is_set_on(machine: Machine, pay: Session, journal: SqliteJournal) -> None:
    """If the wall clock is set forward, the boot clock still decides when the quarantine is over."""
    reports = list[Report]()
    for hours, seconds in ((1, 0.0), (2, QUARANTINE - 1), (3, 1.0)):
        machine.boot += seconds
        reports.append(await machine.reconcile(pay, journal, hours * HOUR))

    assert [Report(waiting=1), Report(waiting=1), Report(resolved=1, rejected=1)] == reports


async def test_clock_ends_the_lease_of_who_is_sending(machine: Machine, path: Path) -> None:
    """If the wall clock jumps during a send, the quarantine begins only when the lease ends by the boot clock."""
    reports = list[Report]()
    async with (
        SqliteJournal(path) as journal,
        Sandbox(evolve(PROFILE, recovery=Recovery(quarantine=1.0)), clock="frozen") as sandbox,
        sandbox.session(journal=journal, retry=ONCE) as pay,
    ):
        await sandbox.given.paid_order(out_trade_no="T1")
        await journal.begin(draft(refund(), merchant=pay.merchant_id), LEASE)
        for hours, seconds in ((1, 0.0), (2, LEASE), (3, 1.0)):
            machine.boot += seconds
            reports.append(await machine.reconcile(pay, journal, hours * HOUR))

    assert [Report(waiting=1), Report(waiting=1), Report(sent=1)] == reports


async def test_another_machine(machine: Machine, pay: Session, journal: SqliteJournal) -> None:
    """If the stored tick is another machine's, or from before a restart, the wall clock measures the quarantine."""
    machine.identity = "b"

    assert Report(resolved=1, rejected=1) == await machine.reconcile(pay, journal, QUARANTINE)


async def test_stale_tick(machine: Machine, pay: Session, journal: SqliteJournal, path: Path) -> None:
    """If the stored tick is an earlier attempt's, it does not shorten the quarantine."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE payasync_intents SET tick = ?", (f"a {machine.boot - QUARANTINE}",))

    assert Report(waiting=1) == await machine.reconcile(pay, journal, 1.0)


@pytest.mark.parametrize(
    ("seconds", "jump", "expected"),
    [
        (HOUR - 1, -HOUR, Report(sent=1)),
        (HOUR, -HOUR, Report(manual=1)),
        (HOUR, -2 * HOUR, Report(manual=1)),
        (60.0, HOUR, Report(manual=1)),
    ],
)
async def test_clock_that_is_set_back(
    machine: Machine, path: Path, seconds: float, jump: float, expected: Report
) -> None:
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
        machine.boot += seconds
        # If the wall clock was set back far enough, the next query is not due at first.
        reports = [await machine.reconcile(pay, journal, after) for after in (seconds + jump, 60.0)]

    assert [expected] == [report for report in reports if report.asked]


@pytest.mark.parametrize("has_one", [True, False])
def test_clock_that_counts_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch, *, has_one: bool) -> None:
    """`boot_time` and ticks count the machine's sleep. If no clock does, they are wall time and monotonic time."""
    boot = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if not has_one:  # the tests run on no machine without one
        monkeypatch.setattr("payasync.clocks.BOOT_CLOCK", None)
    for clock, found in (
        (boot if has_one else time.time, boot_time),
        (boot if has_one else time.monotonic, lambda: float(boot_tick().split(" ")[1])),
    ):
        assert sorted(times := [clock(), found(), clock()]) == times
