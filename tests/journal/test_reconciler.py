"""The reconciler against the sandbox, whose ledger has the truth, with clocks that the tests move."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final, cast
from unittest.mock import AsyncMock

import pytest
from attrs import evolve

from payasync import (
    ConfigurationError,
    InvalidArgumentError,
    NotSentError,
    OutcomeUnknownError,
    RetryPolicy,
    Session,
    StorageError,
)
from payasync.clocks import Pace, running_task
from payasync.journal import Journal, Patience, Reconciler, Report, Result
from payasync.journal import reconciler as module
from payasync.journal.intents import Intent, doubt_since
from payasync.journal.reconciler import SILENT
from payasync.profile.schema import Accept, Recovery
from payasync.resources.orders import PlaceOrder
from payasync.resources.refunds import CreateRefund
from payasync.sandbox import PROFILE, Sandbox
from payasync.wire.call import Call, Layer, Reply, Send
from payasync.wire.request import Request
from tests.inside import turns, until
from tests.journal.building import Clock, only
from tests.journal.conftest import both_stores

QUARANTINE: Final = 60.0
ONCE: Final = RetryPolicy(attempts=1, quota=0)
"""A call ends with its first attempt, and asks nothing afterwards: that is the reconciler's."""
SLOW: Final = evolve(PROFILE, recovery=Recovery(quarantine=QUARANTINE))


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A sandbox whose profile has a quarantine of a minute."""
    async with Sandbox(SLOW, clock="frozen") as sandbox:
        yield sandbox


@pytest.fixture
def journal(store: Journal) -> Journal:
    """An empty journal."""
    return store


def once(sandbox: Sandbox, journal: Journal, *middleware: Layer) -> Session:
    """Return a session that leaves unknown writes to the reconciler."""
    return sandbox.session(journal=journal, retry=ONCE, middleware=middleware)


@pytest.fixture
async def pay(sandbox: Sandbox, journal: Journal) -> AsyncIterator[Session]:
    """A session that leaves unknown writes to the reconciler."""
    async with once(sandbox, journal) as pay:
        yield pay


@pytest.fixture
def reconciler(pay: Session, journal: Journal, clock: Clock) -> Reconciler:
    """A reconciler with the journal's clock."""
    return reconciling(pay, journal, clock)


def reconciling(pay: Session, journal: Journal, clock: Clock, **settings: Any) -> Reconciler:
    """Return a reconciler with the journal's clock, whose waits are that clock's, and always the longest."""

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    return Reconciler(pay, journal, pace=Pace(clock=clock, sleep=sleep, jitter=lambda bound: bound), **settings)


async def refund(sandbox: Sandbox, number: str = "R1", amount: int = 200) -> CreateRefund:
    """Return a refund of an order that was paid."""
    order = await sandbox.given.paid_order(total_amt=450)
    return CreateRefund(out_trade_no=order, out_refund_no=number, total_amt=450, refund_amt=amount)


async def lost(pay: Session, request: Request[Any]) -> None:
    """Send a write whose response does not come."""
    with pytest.raises(OutcomeUnknownError):
        await pay.send(request)


async def never_arrived(sandbox: Sandbox, pay: Session, journal: Journal, clock: Clock) -> None:
    """Have a worker send a queued refund that does not arrive, and let the quarantine pass."""
    number = await queued(sandbox, pay, journal)
    sandbox.faults.reset_before("refunds.create")
    with pytest.raises(OutcomeUnknownError):
        await pay.execute(number)
    clock.advance(QUARANTINE)


async def interrupt(run: "asyncio.Task[Any]") -> None:
    """Cancel a run, which must hear of it, and wait for its end."""
    run.cancel()
    await asyncio.wait({run})
    assert run.cancelled()


@both_stores
async def test_interrupted_payment_needs_a_person_from_the_end_of_its_lease(
    sandbox: Sandbox, pay: Session, reconciler: Reconciler, clock: Clock
) -> None:
    """`manual` lists an unknown payment that no query names, before and after a run. Its doubt begins with its call."""
    begun = clock.now
    hanging = sandbox.faults.hang("payments.create", phase="after")
    call = asyncio.ensure_future(pay.payments.create(amount=1000, currency="USD"))
    await until(lambda: hanging.fired)
    await interrupt(call)
    shown = [await reconciler.manual()]
    clock.advance(3600)
    shown.append(await reconciler.manual())
    await reconciler.run_once()
    shown.append(await reconciler.manual())

    assert [[], ["sending"], ["manual"]] == [[each.state for each in several] for several in shown]
    assert begun == doubt_since(shown[-1][0])


@both_stores
async def test_absent_response_counts_when_the_quarantine_is_over(
    sandbox: Sandbox, pay: Session, journal: Journal, reconciler: Reconciler, clock: Clock
) -> None:
    """The response "not found" leaves a write unknown during the quarantine. After it, the write can be repeated."""
    request = await refund(sandbox)
    sandbox.faults.reset_before("refunds.create")
    await lost(pay, request)
    reports, reasons = list[Report](), list[str]()
    for seconds in (0.0, QUARANTINE - 0.001, 0.001):
        reports.append(await later(reconciler, clock, seconds))
        reasons.append((await only(journal)).reason)

    assert [Report(waiting=1), Report(waiting=1), Report(resolved=1, rejected=1)] == reports
    assert "the service does not know it yet, and it may still arrive" == reasons[0]
    assert "never arrived: the service does not know it" == reasons[2]
    assert "succeeded" == (await pay.send(request)).state
    assert 1 == sandbox.ledger.refunds()


async def test_second_send_that_is_declined_is_reported(
    journal: Journal, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """If the reconciler's resend fails, the run reports it to `on_result` and logs it, once."""
    heard = list[Result]()
    async with Sandbox(SLOW, clock="frozen", refunds="fail") as sandbox, once(sandbox, journal) as pay:
        await never_arrived(sandbox, pay, journal, clock)
        caplog.clear()
        reports = [await reconciling(pay, journal, clock).run_once(heard.append) for _ in range(2)]

    assert [Report(sent=1, rejected=1), Report()] == reports
    assert [(True, "the refund's state is failed")] == [(each.rejected, each.reason) for each in heard]
    assert ["intent 1 (refunds.create, R1) was not done: the refund's state is failed"] == warnings(caplog)


async def test_what_another_run_ends_is_reported_by_that_run(
    journal: Journal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another run ends the write after this run's resend, this run does not report it as rejected."""
    get, heard = journal.get, list[Result]()

    async def overtaken(intent_id: int) -> Intent | None:
        for held in await journal.ask(1, 60.0):
            await journal.settle(held, "rejected", reason="the refund's state is failed")
        return await get(intent_id)

    async with Sandbox(SLOW, clock="frozen", refunds="by hand") as sandbox, once(sandbox, journal) as pay:
        await never_arrived(sandbox, pay, journal, clock)
        monkeypatch.setattr(journal, "get", overtaken)
        # One query at a time: a second one could claim the accepted write before `overtaken` does.
        report = await reconciling(pay, journal, clock, concurrency=1).run_once(heard.append)

    assert Report(sent=1) == report
    assert [("sent", "sending", False)] == [(each.end, each.state, each.rejected) for each in heard]


async def test_queued_that_no_worker_has_sent_is_counted(
    sandbox: Sandbox, pay: Session, journal: Journal, reconciler: Reconciler, clock: Clock
) -> None:
    """A run counts its merchant's queued writes that are unsent after five minutes, tried by a worker or not."""
    tried = await queued(sandbox, pay, journal)
    untried = await journal.add(await refund(sandbox, "R2"), merchant=pay.merchant_id)
    await journal.add(await refund(sandbox), merchant="another")
    fault, reports = sandbox.faults.refuse(), list[Report]()
    for seconds in (299, 1):
        with pytest.raises(NotSentError):
            await pay.execute(tried)
        reports.append(await later(reconciler, clock, seconds))
    unsent = await reconciler.unsent()
    fault.disarm()
    await pay.execute(tried)

    assert [Report(), Report(unsent=2)] == reports
    assert [(tried, 2, True), (untried, 0, False)] == [(each.id, each.attempts, bool(each.reason)) for each in unsent]
    assert [untried] == [each.id for each in await reconciler.unsent()]


@both_stores
async def test_accepted_is_asked_about_until_it_ends(journal: Journal, clock: Clock) -> None:
    """The reconciler asks about an accepted refund with growing pauses, until the service has ended it."""
    async with Sandbox(SLOW, clock="frozen", refunds="by hand") as sandbox, once(sandbox, journal) as pay:
        reconciler, reports, pauses = reconciling(pay, journal, clock), list[Report](), [0.0]
        sandbox.faults.reset_after_commit("refunds.create")
        await lost(pay, await refund(sandbox))
        for _ in range(4):
            reports.append(await later(reconciler, clock, pauses[-1]))
            pauses.append(((await journal.next_due() or clock.now) - clock.now).total_seconds())
        await sandbox.bank.settle_refund("R1", "failed")
        reports.append(await later(reconciler, clock, pauses[-1]))

    assert [Report(resolved=1), *[Report(waiting=1)] * 3, Report(resolved=1, rejected=1)] == reports
    assert [0.0, 2.0, 4.0, 8.0, 16.0] == pauses
    assert "the refund's state is failed" == (await only(journal)).reason


async def test_accepted_that_is_denied_is_shown_to_a_person(journal: Journal, clock: Clock) -> None:
    """If the service no longer knows an accepted write, the reconciler lists it for a person, and sends nothing."""
    async with Sandbox(SLOW, clock="frozen", refunds="by hand") as sandbox, Sandbox(SLOW, clock="frozen") as forgetful:
        async with sandbox.session(journal=journal) as pay:
            await pay.send(await refund(sandbox))
        async with once(forgetful, journal) as pay:
            reconciler = reconciling(pay, journal, clock, patience=Patience(questions=2))
            reports, shown = list[Report](), list[list[Intent]]()
            for _ in range(2):
                reports.append(await later(reconciler, clock, 3600))
                shown.append(await reconciler.manual())
        sent = len(forgetful.ledger.calls("refunds.create"))

    assert ([Report(waiting=1)] * 2, 0) == (reports, sent)
    assert [[], [("accepted", "accepted before, and now the service does not know it")]] == [
        [(each.state, each.reason) for each in several] for several in shown
    ]


async def test_quarantine_that_is_given(sandbox: Sandbox, pay: Session, journal: Journal, clock: Clock) -> None:
    """The reconciler's own `quarantine` replaces the profile's."""
    await lost_ones(sandbox, pay)
    reconciler = reconciling(pay, journal, clock, quarantine=2 * QUARANTINE)

    assert [Report(waiting=1), Report(resolved=1, rejected=1)] == [await later(reconciler, clock) for _ in range(2)]


async def test_one_query_is_one_request(sandbox: Sandbox, journal: Journal, clock: Clock) -> None:
    """If a query fails, the reconciler does not retry it in the same run, whatever the session's retry policy."""
    async with sandbox.session(journal=journal) as pay:
        await lost_ones(sandbox, pay.with_options(retry=ONCE))
        failing = sandbox.faults.server_error("refunds.status", times=None)
        await reconciling(pay, journal, clock).run_once()

    assert 1 == failing.fired


@pytest.mark.parametrize("other", ["merchant", "service"])
async def test_only_its_own_writes_are_asked_about(
    sandbox: Sandbox, journal: Journal, reconciler: Reconciler, other: str
) -> None:
    """The reconciler queries only its own merchant's writes. If they went to another service, a run raises an error."""
    merchant = str(sandbox.credentials.merchant_id) if other == "service" else "another"
    await journal.bind(merchant, "https://pay.example")
    number = await journal.add(await refund(sandbox), merchant=merchant)
    claimed = (await journal.claim(number, 0.0)).intent
    await journal.settle(claimed, "unknown")
    if other == "service":
        with pytest.raises(ConfigurationError, match=r"sent to https://pay\.example, and this session's service is"):
            await reconciler.run_once()
    else:
        assert (Report(), [], []) == (await reconciler.run_once(), await reconciler.due(), await reconciler.manual())

    assert [] == sandbox.ledger.calls("refunds.status")
    assert "unknown" == (await only(journal)).state


async def test_no_more_concurrent_queries_than_it_may(sandbox: Sandbox, journal: Journal, clock: Clock) -> None:
    """`concurrency` limits how many queries of a run are in flight."""
    waiting, counts, all_there = list[str | None](), list[int](), asyncio.Event()

    async def counted(call: Call, send: Send) -> Reply:
        if call.read:
            waiting.append(call.reference)
            if len(waiting) == 3:
                await turns(1000)
                all_there.set()
            await all_there.wait()
            counts.append(len(waiting))
            waiting.remove(call.reference)
        return await send(call)

    async with once(sandbox, journal, counted) as pay:
        await lost_ones(sandbox, pay, 12)
        await reconciling(pay, journal, clock, concurrency=3).run_once()

    assert 3 == max(counts)


@pytest.mark.parametrize("queues", [False, True])
async def test_who_is_overtaken_changes_nothing(
    sandbox: Sandbox, journal: Journal, clock: Clock, *, queues: bool
) -> None:
    """If a person ends a write during its query, the reconciler changes nothing and sends nothing."""

    async def resolving(call: Call, send: Send) -> Reply:
        if call.read:
            await journal.resolve(1, as_="succeeded", reason="seen in the back office")
        return await send(call)

    async with once(sandbox, journal, resolving) as pay:
        await (never_arrived(sandbox, pay, journal, clock) if queues else lost_ones(sandbox, pay))
        report = await later(reconciling(pay, journal, clock), clock)
    intent = await only(journal)

    assert Report(lost=1) == report
    assert ("succeeded", "seen in the back office") == (intent.state, intent.reason)
    assert 0 == sandbox.ledger.refunds()


class Slow:
    """A journal's method that has done what it is to, by default `settle`, and takes its time to say so.

    Attributes:
        kept: It has.
        gate: Opened, it says so.
        error: Raised then, in place of that.
    """

    error: Exception | None = None

    def __init__(self, journal: Journal, patch: pytest.MonkeyPatch, name: str = "settle") -> None:
        self._does = getattr(journal, name)
        self.kept, self.gate = asyncio.Event(), asyncio.Event()
        patch.setattr(journal, name, self)

    async def __call__(self, *given: Any, **facts: Any) -> Any:
        """Keep it."""
        kept = await self._does(*given, **facts)
        self.kept.set()
        await self.gate.wait()
        if self.error:
            raise self.error
        return kept


async def test_interrupted_run_gives_back_what_it_is_about_to_hold(
    sandbox: Sandbox, pay: Session, journal: Journal, *, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a run is interrupted while it claims a write, it releases the claim, so that the write is due."""
    await lost_ones(sandbox, pay)
    slow = Slow(journal, monkeypatch, name="ask")
    run = asyncio.ensure_future(reconciler.run_once())
    await slow.kept.wait()
    slow.gate.set()
    await interrupt(run)

    assert 1 == len(await reconciler.due())


@pytest.fixture
async def slow(sandbox: Sandbox, pay: Session, journal: Journal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Slow:
    """A journal that is slow to settle. It has one refund, which never arrived."""
    await lost_ones(sandbox, pay)
    clock.advance(QUARANTINE)
    return Slow(journal, monkeypatch)


async def test_journal_that_hangs_holds_no_interrupted_run(
    slow: Slow, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the journal hangs, an interrupted run ends anyway. A result that is stored later is still reported."""
    monkeypatch.setattr(module, "INTERRUPTED_SECONDS", 0)
    heard = list[Result]()
    run = asyncio.ensure_future(reconciler.run_once(heard.append))
    await slow.kept.wait()
    await interrupt(run)
    unreported = not heard
    slow.gate.set()
    await until(lambda: heard)

    assert (True, ["R0"]) == (unreported, [each.intent.reference for each in heard])


async def test_interrupted_run_says_what_it_could_not_keep(
    slow: Slow, reconciler: Reconciler, caplog: pytest.LogCaptureFixture
) -> None:
    """If an interrupted run cannot store a result, it ends as cancelled, and the log has the journal's error."""
    slow.error = StorageError("the journal is full")
    run = asyncio.ensure_future(reconciler.run_once())
    await slow.kept.wait()
    slow.gate.set()
    await interrupt(run)

    assert slow.error in [each.exc_info[1] for each in caplog.records if each.exc_info]


async def test_worker_that_fails_silences_no_other(
    sandbox: Sandbox, pay: Session, journal: Journal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one worker's `settle` fails, the run raises its error. Results stored by other workers are still reported."""
    await lost_ones(sandbox, pay, 2)
    clock.advance(QUARANTINE)
    slow, heard, asked = Slow(journal, monkeypatch), list[Result](), list[Intent]()

    async def settle(intent: Intent, *given: Any, **facts: Any) -> Any:
        asked.append(intent)
        if len(asked) == 1:
            return await slow(intent, *given, **facts)
        await slow.kept.wait()
        raise StorageError("the journal is full")

    monkeypatch.setattr(journal, "settle", settle)
    run = asyncio.ensure_future(reconciling(pay, journal, clock, concurrency=2).run_once(heard.append))
    await until(lambda: len(asked) == 2)
    await turns(100)
    slow.gate.set()
    with pytest.raises(StorageError, match="the journal is full"):
        await run

    assert [(asked[0].id, True)] == [(each.intent.id, each.rejected) for each in heard]


@pytest.mark.parametrize(
    ("interruption", "expected"), [("cancel", asyncio.CancelledError), ("timeout", TimeoutError), ("", StorageError)]
)
async def test_run_that_is_interrupted_while_it_fails(
    pay: Session, journal: Journal, clock: Clock, *, monkeypatch: pytest.MonkeyPatch, interruption: str, expected: type
) -> None:
    """A cancellation wins over the error of a worker, and a timeout around the run is over. Nothing stays requested."""
    failed, gate, limits = asyncio.Event(), asyncio.Event(), list[asyncio.Timeout]()

    async def ask(*_: Any, **__: Any) -> list[Intent]:
        if not failed.is_set():
            failed.set()
            raise StorageError("the journal is full")
        await gate.wait()
        return []

    async def ended() -> tuple[type[BaseException], int]:
        with pytest.raises((asyncio.CancelledError, TimeoutError, StorageError)) as caught:  # noqa: PT012 - within a limit
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                await reconciling(pay, journal, clock, concurrency=2).run_once()
        return caught.type, running_task().cancelling()

    monkeypatch.setattr(journal, "ask", ask)
    run = asyncio.ensure_future(ended())
    await failed.wait()
    await turns(10)
    if interruption == "cancel":
        run.cancel()
    if interruption == "timeout":
        limits[0].reschedule(0)
    await turns(10)
    gate.set()

    assert (expected, int(interruption == "cancel")) == await run


async def test_interrupted_run_forgets_nothing(
    sandbox: Sandbox, pay: Session, journal: Journal, reconciler: Reconciler
) -> None:
    """If a run is interrupted during a query, it releases the write with its stored facts unchanged."""
    await pay.payments.create(amount=1000, currency="USD")
    (held,) = await journal.ask(1, 60.0)
    await journal.postpone(held, held.created, "HTTP 403", denied=3, silent_since=held.created, odd=1, silent=2)
    before = await only(journal)
    hanging = sandbox.faults.hang("payments.status")
    run = asyncio.ensure_future(reconciler.run_once())
    await until(lambda: hanging.fired)
    await interrupt(run)

    assert before == evolve(await only(journal), asked=before.asked, fence=before.fence)


async def test_journal_that_fails_before_a_second_send(
    sandbox: Sandbox, pay: Session, journal: Journal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the journal cannot store *sending*, the run raises `StorageError` without a resend. The next run resends."""
    reconciler = reconciling(pay, journal, clock)
    await never_arrived(sandbox, pay, journal, clock)
    with monkeypatch.context() as patch:
        patch.setattr(journal, "claim", AsyncMock(side_effect=StorageError("the journal is full")))
        with pytest.raises(StorageError):
            await reconciler.run_once()
    before = sandbox.ledger.refunds()

    assert (0, Report(sent=1), 1) == (before, await reconciler.run_once(), sandbox.ledger.refunds())


async def test_session_without_the_journal(sandbox: Sandbox, pay: Session, journal: Journal, clock: Clock) -> None:
    """A second send is recorded in the reconciler's journal, whether or not the session has that journal."""
    await never_arrived(sandbox, pay, journal, clock)
    async with sandbox.session() as session:
        report = await reconciling(session, journal, clock).run_once()

    assert (Report(sent=1), "succeeded") == (report, (await only(journal)).state)


async def test_queued_one_that_the_profile_refuses_now(
    sandbox: Sandbox, pay: Session, journal: Journal, clock: Clock
) -> None:
    """If the profile no longer allows a queued write, it becomes *manual* after `patience.questions` runs."""
    await never_arrived(sandbox, pay, journal, clock)
    strict = evolve(SLOW, accept=Accept(required={"refunds.create": ("refund_desc",)}))
    async with sandbox.session(journal=journal, profile=strict) as session:
        reconciler = reconciling(session, journal, clock, patience=Patience(questions=2))
        reports = [await later(reconciler, clock), await later(reconciler, clock)]

    assert [Report(waiting=1), Report(manual=1)] == reports
    assert "cannot be sent again" in (await only(journal)).reason


@pytest.mark.parametrize("error", [KeyError("tenant"), NotSentError("no network")])
async def test_query_that_fails_stops_no_other_one(
    sandbox: Sandbox, journal: Journal, clock: Clock, error: Exception
) -> None:
    """If queries fail, the writes wait with the error as reason. A run stops only after `SILENT` silent ones in a row.

    An error of a middleware is silence for its write, and does not stop the run.
    """
    silent = isinstance(error, NotSentError)
    count, answered = (2 * SILENT - 1, f"R{SILENT - 1}") if silent else (SILENT + 1, f"R{SILENT}")

    async def fail(call: Call, send: Send) -> Reply:
        if call.read and call.reference != answered:
            raise error
        return await send(call)

    async with once(sandbox, journal, fail) as pay:
        await lost_ones(sandbox, pay, count)
        report = await reconciling(pay, journal, clock, concurrency=1).run_once()
    stored = {each.reference: each for each in await journal.list()}
    last = stored.pop(answered)
    expected = "no network" if silent else "KeyError: 'tenant'"

    assert Report(waiting=count) == report
    assert (True, 0, 0) == (last.reason.startswith("the service does not know it"), last.odd, last.silent)
    assert {("unknown", None, expected, 1)} == {
        (each.state, each.lease, each.reason, each.silent) for each in stored.values()
    }


@pytest.mark.parametrize("begun", [True, False])
async def test_second_send_that_fails_oddly_stops_nothing_else(
    sandbox: Sandbox, journal: Journal, clock: Clock, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    """If a middleware or the journal raises an unexpected error in a resend, the write waits, and the run goes on."""
    fails = list[bool]()

    async def odd(call: Call, send: Send) -> Reply:
        if fails and not call.read:
            raise KeyError("tenant")
        return await send(call)

    async def unreadable(*_: object) -> Any:
        raise KeyError("tenant")

    async with once(sandbox, journal, odd) as pay:
        await never_arrived(sandbox, pay, journal, clock)
        fails.append(True)
        if not begun:
            monkeypatch.setattr(journal.recorder, "queued", unreadable)
        report = await reconciling(pay, journal, clock).run_once()
    intent = await only(journal)

    # On a clock that stands, what was sent again is due in the same run.
    assert (Report(sent=1, waiting=1) if begun else Report(waiting=1)) == report
    assert ("unknown", None, 2 if begun else 1) == (intent.state, intent.lease, intent.attempts)
    assert begun or "KeyError: 'tenant'" == intent.reason


async def test_run_ends_though_time_passes(sandbox: Sandbox, journal: Journal, clock: Clock) -> None:
    """A run queries each write once. Writes that come due again during the run wait for the next one."""

    async def slow(call: Call, send: Send) -> Reply:
        clock.advance(10)
        return await send(call)

    async with once(sandbox, journal, slow) as pay:
        await lost_ones(sandbox, pay, 2)
        reconciler = reconciling(pay, journal, clock, concurrency=1)
        report, due = await reconciler.run_once(), await reconciler.due()

    assert (Report(waiting=2), 2) == (report, len(due))
    assert 2 == len(sandbox.ledger.calls("refunds.status"))


async def test_what_somebody_must_hear_of_is_logged(
    sandbox: Sandbox, pay: Session, reconciler: Reconciler, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A run logs a warning for each write that was not done, orders included, and for each that a person must end."""
    await lost_ones(sandbox, pay)
    sandbox.faults.reset_after_commit("refunds.create")
    done = await refund(sandbox, "R2")
    await lost(pay, done)
    sandbox.faults.reset_before("orders.place")
    await lost(pay, PlaceOrder(out_trade_no="T9", total_amt=450, currency="CAD"))
    sandbox.faults.reset_after_commit("payments.create")
    with pytest.raises(OutcomeUnknownError):
        await pay.payments.create(amount=1000, currency="USD", intent="invoice-42")
    caplog.clear()
    report, again = await later(reconciler, clock), await pay.send(done)

    assert Report(resolved=3, rejected=2, manual=1) == report
    assert (True, 0) == (again.recovered, again.attempts)
    never = "was not done: never arrived: the service does not know it"
    nameless = "it has no number: the service cannot be asked what happened to it"
    assert [
        f"intent 1 (refunds.create, R0) {never}",
        f"intent 3 (orders.place, T9) {never}",
        f"intent 4 (payments.create, invoice-42) needs a person: {nameless}",
    ] == sorted(warnings(caplog))


async def test_order_that_is_closed_unpaid_needs_nobody(
    sandbox: Sandbox, pay: Session, journal: Journal, reconciler: Reconciler, caplog: pytest.LogCaptureFixture
) -> None:
    """A cart that is cancelled after its response was lost ends at INFO: no warning asks a person to look."""
    caplog.set_level("INFO")
    sandbox.faults.reset_after_commit("orders.place")
    with pytest.raises(OutcomeUnknownError):
        await pay.orders.place(out_trade_no="T9", total_amt=450, currency="CAD")
    await pay.orders.close("T9")
    caplog.clear()
    report = await reconciler.run_once()
    (record,) = (each for each in caplog.records if each.name == "payasync")

    assert (Report(resolved=1, rejected=1), "rejected") == (report, (await journal.list("rejected"))[0].state)
    assert ("INFO", "reconciler.order_unpaid") == (record.levelname, vars(record)["event_name"])
    assert "intent 1 (orders.place, T9) ended without a payment: the order's state is closed" == record.getMessage()


async def test_due_knows_all_and_changes_nothing(
    sandbox: Sandbox, pay: Session, journal: Journal, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`due` returns every write that a run would query, across all pages, and changes nothing."""
    monkeypatch.setattr(module, "PAGE", 2)
    await lost_ones(sandbox, pay, 5)
    before = await journal.list()
    due = await reconciler.due()

    assert [1, 2, 3, 4, 5] == [each.id for each in due]
    assert before == due == await journal.list()
    assert [] == sandbox.ledger.calls("refunds.status")


async def test_watch_runs_when_something_is_due(
    sandbox: Sandbox, pay: Session, reconciler: Reconciler, clock: Clock
) -> None:
    """`watch` runs when a write is due, and at least every `LONGEST` seconds."""
    await lost_ones(sandbox, pay)
    started = clock.now
    reports: list[tuple[float, Report]] = []
    async with aclosing(reconciler.watch()) as watched:
        async for report in watched:
            reports.append(((clock.now - started).total_seconds(), report))
            if clock.now - started > timedelta(seconds=QUARANTINE):
                break
    waiting, times = Report(waiting=1), [moment for moment, _ in reports]

    # The pauses double: 2, 4, 8, 16, 32 s; the last is cut off where an absent answer is final.
    assert [*((moment, waiting) for moment in (0, 2, 6, 14, 30)), (60, Report(resolved=1, rejected=1))] == [
        each for each in reports if each[1].asked
    ]
    assert module.LONGEST == max(after - before for before, after in pairwise(times))


async def test_watch_leaves_a_silent_service_in_peace(
    sandbox: Sandbox, pay: Session, journal: Journal, clock: Clock
) -> None:
    """If `SILENT` queries fail, a run ends early. The other writes stay due for the next run, `LONGEST` s later."""
    await lost_ones(sandbox, pay, SILENT + 10)
    failing = sandbox.faults.server_error("refunds.status", times=None)
    started = clock.now
    reconciler = reconciling(pay, journal, clock, concurrency=1)
    async with aclosing(reconciler.watch()) as watched:
        report = await anext(watched)
        stay_due = await reconciler.due()
        failing.disarm()
        again = await anext(watched)

    assert (Report(waiting=SILENT, silent=True), SILENT, 10) == (report, failing.fired, len(stay_due))
    assert timedelta(seconds=module.LONGEST) == clock.now - started
    assert (False, SILENT + 10) == (again.silent, again.asked)


async def test_watch_never_spins(pay: Session, journal: Journal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """`watch` waits at least `SHORTEST` seconds between two runs, even if the journal always has a due write."""

    async def always(_: str) -> datetime:
        return clock.now

    monkeypatch.setattr(journal, "next_due", always)
    started = clock.now
    async with aclosing(reconciling(pay, journal, clock).watch()) as watched:
        await anext(watched)
        await anext(watched)

    assert timedelta(seconds=module.SHORTEST) == clock.now - started


async def test_wrong_argument_is_named(pay: Session, journal: Journal) -> None:
    """If an argument of the reconciler is invalid, its constructor raises `ConfigurationError`, which names it."""
    wrong: dict[str, list[Any]] = {
        "session": ["x"],
        "journal": ["pay.db"],
        "patience": [3],
        "pace": [3],
        "quarantine": [-1.0, float("inf"), True],
        "concurrency": [0, True],
    }
    for name, value in [(name, each) for name, values in wrong.items() for each in values]:
        with pytest.raises(ConfigurationError, match=f"^{name} must be") as caught:
            cast("Any", Reconciler)(**{"session": pay, "journal": journal, name: value})

        assert name == caught.value.field


@pytest.mark.parametrize("wrong", [5, asyncio.sleep])
async def test_listener_is_checked(sandbox: Sandbox, pay: Session, reconciler: Reconciler, wrong: Any) -> None:
    """If `on_result` is not a plain function, a run raises `InvalidArgumentError` and queries nothing."""
    await lost_ones(sandbox, pay)
    with pytest.raises(InvalidArgumentError, match="on_result must be a plain function of a result, or None") as caught:
        await reconciler.run_once(wrong)

    assert "on_result" == caught.value.field
    assert [] == sandbox.ledger.calls("refunds.status")


async def later(reconciler: Reconciler, clock: Clock, seconds: float = QUARANTINE) -> Report:
    """Let time pass, and run."""
    clock.advance(seconds)
    return await reconciler.run_once()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings that were logged."""
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


async def lost_ones(sandbox: Sandbox, pay: Session, count: int = 1) -> None:
    """Send refunds that do not arrive."""
    requests = [await refund(sandbox, f"R{number}") for number in range(count)]
    sandbox.faults.reset_before("refunds.create", times=count)
    for request in requests:
        await lost(pay, request)


async def queued(sandbox: Sandbox, pay: Session, journal: Journal) -> int:
    """Queue a refund, and return its number in the journal."""
    return await journal.add(await refund(sandbox), merchant=pay.merchant_id)
