"""A model of sessions, their journal and the service: in any order of events, no money moves twice or is lost."""

import asyncio
import faulthandler
import json
import sqlite3
import tempfile
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import pytest
from attrs import evolve, frozen
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from payasync import Credentials, InvalidArgumentError, PayasyncError, RetryPolicy, Session
from payasync.clocks import Pace
from payasync.journal import Patience, Reconciler, SqliteJournal
from payasync.journal.intents import END_STATES, TRANSITIONS, Intent, State
from payasync.profile.schema import Recovery
from payasync.resources.orders import CloseOrder, PlaceOrder
from payasync.resources.refunds import CreateRefund
from payasync.sandbox import PROFILE, Sandbox
from payasync.wire.call import Call, Reply, Send
from payasync.wire.request import Request
from tests.journal.building import LEASE, Clock

T = TypeVar("T")
Fate = Literal[
    "none",
    "nobody listens",
    "wrong key",
    "rate_limited",
    "reset_before",
    "late",
    "reset_after_commit",
    "server_error before",
    "server_error after",
    "truncated_body after",
    "about another",
    "dies before",
    "dies after",
    "cancelled before",
    "cancelled after",
]
"""What befalls a write, or its sender, before or after the service did it. Late: it arrives after a lost connection."""
FATES: Final[st.SearchStrategy[Fate]] = st.sampled_from(Fate.__args__)  # type: ignore[attr-defined] # of a Literal

QUARANTINE: Final = 60.0
SLOW: Final = evolve(PROFILE, recovery=Recovery(quarantine=QUARANTINE))
ONCE: Final = RetryPolicy(attempts=1, quota=0)
PATIENT: Final = RetryPolicy(base_delay=0, max_delay=0)
SHORT: Final = Patience(questions=1, give_up=0.0, sends=2)
ANOTHER: Final = {"outTradeNo": "ANOTHER", "outRefundNo": "ANOTHER", "currency": "USD"}
QUERIES: Final = ("orders.query", "refunds.status")
LAWFUL: Final = frozenset(
    {
        *((before, after) for before, those in TRANSITIONS.items() for after in those),
        *(("", first) for first in ("new", "sending")),
        *((last, "") for last in END_STATES),
    }
)
"""What may become of what, the beginning and the end of an intent included."""
TRIGGERS: Final = """
CREATE TABLE observed (seq INTEGER PRIMARY KEY, before TEXT, after TEXT);
CREATE TRIGGER kept AFTER INSERT ON payasync_intents BEGIN
    INSERT INTO observed (before, after) VALUES ('', NEW.state);
END;
CREATE TRIGGER moved AFTER UPDATE ON payasync_intents WHEN OLD.state <> NEW.state BEGIN
    INSERT INTO observed (before, after) VALUES (OLD.state, NEW.state);
END;
CREATE TRIGGER pruned AFTER DELETE ON payasync_intents BEGIN
    INSERT INTO observed (before, after) VALUES (OLD.state, '');
END;
"""
ABOUT: Final = "SELECT id, state FROM payasync_intents WHERE operation = ? AND reference = ?"
MEANS: Final[dict[str, dict[str, State]]] = {
    "refunds.create": {"succeeded": "succeeded", "failed": "rejected"},
    "orders.place": {"paid": "succeeded", "closed": "rejected", "failed": "rejected"},
    "orders.close": {"closed": "succeeded", "failed": "succeeded", "paid": "rejected"},
}
"""What the state of a thing says of the write."""
DEAD: Final = frozenset({"closed", "failed"})
"""A thing in one of these states moves no money, and never will."""

R1: Final = CreateRefund(out_trade_no="A1", out_refund_no="R1", total_amt=450, refund_amt=200)
OTHER: Final = evolve(R1, refund_amt=201)
R2: Final = CreateRefund(out_trade_no="A2", out_refund_no="R2", total_amt=450, refund_amt=200)
ORDER: Final = PlaceOrder(out_trade_no="T1", total_amt=450, currency="CAD")
DEARER: Final = evolve(ORDER, total_amt=451)
CLOSE: Final = CloseOrder(out_trade_no="T1")
REST: Final = CreateRefund(out_trade_no="A1", out_refund_no="X1", total_amt=450, refund_amt=450)
"""All that was paid for the order of `R1`."""
WRITES: Final = st.sampled_from([R1, R1, R1, R2, OTHER, ORDER, ORDER, DEARER, CLOSE])
INTENTS: Final = st.sampled_from([None, None, None, "a", "b"])
LATER: Final = st.sampled_from([0, 1, 61, 3601])
INDEX: Final = st.integers(0, 7)


class CrashError(BaseException):
    """The process dies: nothing of it runs any more."""


@frozen
class Made:
    """What the service has under a number.

    Attributes:
        amount: How much.
        ours: It was made by a session with the journal.
    """

    amount: int
    ours: bool


@frozen
class Late:
    """A write that is still on its way, until the quarantine is over."""

    request: Request[Any]
    until: float
    ours: bool = True


class JournalMachine(RuleBasedStateMachine):
    """Does whatever can be done to a merchant's process, which may die, to the service, and to the journal's file.

    It knows no decision of the journal. It knows what the service did, and what must be so whatever is decided.
    """

    _sandbox: Sandbox | None = None

    @initialize(
        first=st.lists(st.tuples(WRITES, FATES, st.booleans()), min_size=1, max_size=4),
        refunds=st.sampled_from(["by hand", "by hand", "succeed", "fail"]),
        repeated=st.sampled_from(["same", "refused"]),
    )
    def begin(self, first: Iterable[tuple[Request[Any], Fate, bool]], refunds: Any, repeated: Any) -> None:
        """Begin with some writes, because each run of Hypothesis leaves out some rules."""
        self._runner = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory()
        self._clock, self._elapsed = Clock(), 0.0
        self._made: dict[str, Made] = {}
        self._excused: set[str] = set()
        self._ended_by_person: set[int] = set()
        self._claims: list[Intent] = []
        self._late: list[Late] = []
        self._fate: Fate = "none"
        self._trouble = "none"
        self._attempts: list[tuple[str, str | None]] = []
        self._sandbox = Sandbox(SLOW, clock="frozen", refunds=refunds, repeated_refunds=repeated)
        self._journal = self._open_journal()
        self._done(self._sandbox.start())
        for account in ("A1", "A2"):
            self._done(self._sandbox.given.paid_order(out_trade_no=account, total_amt=450))
        self._done(self._journal.list())
        self._db = sqlite3.connect(Path(self._folder.name) / "pay.db", isolation_level=None)
        self._db.executescript(TRIGGERS)
        for request, fate, queued in first:
            (self.queue if queued else self.send)(request, fate, None, patient=False)

    def teardown(self) -> None:
        """After all faults are over, no write is *new*, *sending* or *unknown*, and no ended one is *accepted*."""
        if self._sandbox is None:
            return
        try:
            for _ in range(12):
                self.wait(4000)
                for each in self._rows():
                    if each.state == "new":
                        self.execute_intent(each.id, "none", patient=False)
                self.reconcile(0, "none", patience=Patience(questions=3), patient=False)
                self.holds()
            open_ones = [each for each in self._rows() if each.state in {"new", "sending", "unknown"}]
            waiting = [each for each in self._rows() if each.state == "accepted"]

            assert [] == open_ones
            assert not any(MEANS[each.operation].get(self._state_of(each)) for each in waiting), waiting
        finally:
            self._db.close()
            self._done(self._journal.aclose())
            self._done(self._sandbox.close())
            self._runner.close()
            self._folder.cleanup()

    @rule(request=WRITES, fate=FATES, intent=INTENTS, patient=st.booleans())
    def send(self, request: Request[Any], fate: Fate, intent: str | None, *, patient: bool) -> None:
        """A caller sends a write, for the first time or again."""
        answered = self._send(lambda pay: pay.send(request, intent=intent), fate, patient=patient)
        about = [each for each in self._rows() if (each.operation, each.reference) == _key(request)]
        if answered and not self._ended_by_person & {each.id for each in about} and request is not CLOSE:
            assert self._made[str(request.reference)].amount == _amount(request), request

    @rule(request=WRITES, fate=st.none() | FATES, intent=INTENTS, patient=st.booleans())
    def queue(self, request: Request[Any], fate: Fate | None, intent: str | None, *, patient: bool) -> None:
        """A caller queues a write, which a worker may execute immediately."""
        with suppress(PayasyncError):
            number = self._done(self._journal.add(request, merchant=self._merchant, intent=intent))
            if fate:
                self.execute_intent(number, fate, patient=patient)

    @precondition(lambda self: self._rows())
    @rule(index=INDEX, fate=FATES, patient=st.booleans())
    def execute(self, index: int, fate: Fate, *, patient: bool) -> None:
        """A worker executes an intent by its number."""
        self.execute_intent(self._row(index).id, fate, patient=patient)

    def execute_intent(self, number: int, fate: Fate, *, patient: bool, fence: int | None = None) -> None:
        """Send what was queued."""
        self._send(lambda pay: pay.execute(number, fence=fence), fate, patient=patient)

    @rule(seconds=LATER, limit=st.integers(1, 3))
    def die_asking(self, seconds: int, limit: int) -> None:
        """A reconciler claims open intents, and its process dies."""
        self.wait(seconds)
        self._claims += self._done(self._journal.ask(limit, LEASE))
        self._restart()

    @precondition(lambda self: self._claims)
    @rule(index=INDEX)
    def come_back(self, index: int) -> None:
        """A holder that was believed dead settles, resends or postpones its intent, perhaps too late."""
        held = self._claims[index % len(self._claims)]
        end, made = MEANS[held.operation].get(self._state_of(held)), self._made.get(str(held.reference))
        quiet = held.sent_at and (self._clock.now - held.sent_at).total_seconds() >= QUARANTINE
        if end and (held.operation == "orders.close" or (made and made.amount == _amount_of(held))):
            self._done(self._journal.settle(held, end if held.state != end else "manual"))
        elif quiet and held.queued and held.state == "unknown" and not held.answered and not self._state_of(held):
            self.execute_intent(held.id, "none", patient=False, fence=held.fence)
        elif held.state != "sending":
            self._done(self._journal.postpone(held, self._clock.now))

    @rule(seconds=st.sampled_from([1, 46, 61, 3601, -1, -30, -3600]))
    def wait(self, seconds: int) -> None:
        """Time passes, and what is late arrives within its quarantine; or somebody sets the clock back."""
        self._elapsed += max(seconds, 0)
        while self._late and self._late[0].until <= self._elapsed:
            self.arrive()
        self._clock.advance(seconds)

    @precondition(lambda self: self._late)
    @rule()
    def arrive(self) -> None:
        """A write that its caller has given up arrives at the service."""
        late = self._late.pop(0)
        self._do_elsewhere(late.request, ours=late.ours)

    @rule(
        seconds=LATER,
        trouble=st.sampled_from(
            ["none", "none", "none", "server_error", "rate_limited", "redirect", "wrong key", "about another"]
        ),
        patience=st.sampled_from([Patience(), SHORT]),
        patient=st.booleans(),
    )
    def reconcile(self, seconds: int, trouble: str, *, patience: Patience, patient: bool) -> None:
        """A reconciler runs, after some time."""
        self.wait(seconds)
        self._fate, self._trouble = "none", trouble
        self._done(self._reconcile(trouble, patience, patient=patient))

    @precondition(lambda self: self._made)
    @rule(index=INDEX, well=st.booleans())
    def end(self, index: int, *, well: bool) -> None:
        """The bank ends a refund, or a customer pays an order, or cannot."""
        number = sorted(self._made)[index % len(self._made)]
        if self._sandbox_state(number) == "processing":
            self._done(self._service.bank.settle_refund(number, "succeeded" if well else "failed"))
        elif self._sandbox_state(number) == "pending":
            for _ in range(1 if well else 3):
                act = self._service.customer.authorize if well else self._service.customer.decline
                self._done(act(number))

    @rule(request=st.sampled_from([R1, OTHER, ORDER, CLOSE, REST]))
    def act_without_journal(self, request: Request[Any]) -> None:
        """Somebody without the journal does a write, perhaps under a number that the journal has, or will have."""
        self._do_elsewhere(request, ours=False)

    @rule(about=st.sampled_from([R1, R2, ORDER, CLOSE]), stray=st.booleans())
    def notify(self, about: Request[Any], *, stray: bool) -> None:
        """The service tells how a thing stands, or, under its number, how another does."""
        operation, number = _key(about)
        state, made = self._sandbox_state(str(number)), self._made.get(str(number))
        if not made:
            return
        amount = "refundAmt" if operation == "refunds.create" else "totalAmt"
        told = self._journal.told(
            operation,
            str(number),
            state,
            ANOTHER if stray else {amount: made.amount, "outTradeNo": about.out_trade_no},  # type: ignore[attr-defined] # each has one
            merchant=self._merchant,
        )
        changed = self._done(told)
        assert not (stray and changed)
        self._ended_by_person -= {each.id for each in changed}

    @precondition(lambda self: self._rows())
    @rule(index=INDEX, state=st.sampled_from(["succeeded", "rejected"]))
    def resolve(self, index: int, state: State) -> None:
        """A person says what became of an intent, whether or not they know."""
        row = self._row(index)
        with suppress(InvalidArgumentError):
            self._done(self._journal.resolve(row.id, as_=state, reason="seen"))
            self._ended_by_person.add(row.id)
            if state == "rejected":
                # Who makes it again does what the person was told.
                self._excused.add(str(row.reference))
                self._late = [
                    evolve(each, ours=each.ours and _key(each.request)[1] != row.reference) for each in self._late
                ]

    @rule()
    def prune(self) -> None:
        """The journal deletes the intents that have ended."""
        before = self._numbers_of_things()
        self._done(self._journal.prune(self._clock.now))
        self._excused |= before - self._numbers_of_things()

    @invariant()
    def holds(self) -> None:
        """Check the states in the journal against the service's ledger."""
        if self._sandbox is None:
            return
        steps = set(self._db.execute("SELECT before, after FROM observed"))
        assert steps <= LAWFUL, steps - LAWFUL
        assert "SBX_NONCE_USED" not in {each.code for each in self._service.ledger.calls()}
        for row in self._rows():
            number, made = str(row.reference), self._made.get(str(row.reference))
            if row.id in self._ended_by_person:
                continue
            state = self._state_of(row)
            if row.state == "succeeded":
                assert MEANS[row.operation].get(state) == "succeeded", (row, state)
            if row.state in {"accepted", "succeeded"} and row.operation != "orders.close":
                assert made, row
                assert made.amount == _amount_of(row), (row, made)
            if row.state in {"new", "rejected"} and row.operation != "orders.close" and number not in self._excused:
                # It could be sent again, so nothing of it may stand.
                assert not (made and made.ours and made.amount == _amount_of(row) and state not in DEAD), (row, state)

    @property
    def _service(self) -> Sandbox:
        assert self._sandbox
        return self._sandbox

    @property
    def _merchant(self) -> str:
        return self._service.credentials.merchant_id

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def _rows(self) -> list[Intent]:
        return self._done(self._journal.list()) if self._sandbox else []

    def _numbers_of_things(self) -> set[str]:
        """Return the numbers of orders and refunds in the journal; a close bears the number of an order."""
        return {str(each.reference) for each in self._rows() if each.operation != "orders.close"}

    def _row(self, index: int) -> Intent:
        rows = self._rows()
        return rows[index % len(rows)]

    def _open_journal(self) -> SqliteJournal:
        return SqliteJournal(Path(self._folder.name) / "pay.db", clock=self._clock)

    def _restart(self) -> None:
        self._done(self._journal.aclose())
        self._journal = self._open_journal()

    def _state_of(self, row: Intent) -> str:
        return self._sandbox_state(str(row.reference))

    def _sandbox_state(self, number: str) -> str:
        """Return the state of what the service has under a number; empty if there is nothing."""
        ledger = self._service.ledger
        with suppress(InvalidArgumentError):
            return ledger.order_state(number) if number.startswith("T") else ledger.refund_state(number)
        return ""

    def _session(self, *, patient: bool = False, wrong_key: bool = False) -> Session:
        wrong = Credentials(self._merchant, secret_key="wrong", signing_key="another signing key")
        return self._service.session(
            journal=self._journal,
            credentials=wrong if wrong_key else self._service.credentials,
            retry=PATIENT if patient else ONCE,
            middleware=[self._watch],
        )

    def _send(self, work: Any, fate: Fate, *, patient: bool) -> bool:
        """Return whether a write that this befalls was answered; a process that dies starts again."""
        self._fate, self._trouble = fate, "none"
        answered = self._done(self._call(work, patient=patient))
        if fate.startswith("dies"):
            self._claims += [each for each in self._rows() if each.state == "sending"]
            self._restart()
        return answered

    async def _call(self, work: Any, *, patient: bool) -> bool:
        forbidden, self._attempts = self._not_to_be_sent(await self._journal.list()), []
        faults, (name, _, phase) = self._service.faults, self._fate.partition(" ")
        if name == "nobody":
            faults.refuse()
        elif hasattr(faults, name):
            getattr(faults, name)("*", times=1, **({"phase": phase} if phase else {}))
        elif name == "late":
            faults.reset_before("*", times=1)
        answered = False
        async with self._session(patient=patient, wrong_key=self._fate == "wrong key") as pay:
            task = asyncio.ensure_future(work(pay))
            with suppress(PayasyncError, CrashError, asyncio.CancelledError):
                await task
                answered = True
            faults.clear()
        assert not forbidden & set(self._attempts), (forbidden, self._attempts)
        return answered

    async def _reconcile(self, trouble: str, patience: Patience, *, patient: bool) -> None:
        forbidden, self._attempts = self._not_to_be_sent(await self._journal.list()), []
        for query in QUERIES if hasattr(self._service.faults, trouble) else ():
            getattr(self._service.faults, trouble)(query, times=None)
        async with self._session(patient=patient, wrong_key=trouble == "wrong key") as pay:
            pace = Pace(clock=self._clock, jitter=lambda bound: bound)
            await Reconciler(pay, self._journal, patience=patience, concurrency=1, pace=pace).run_once()
            self._service.faults.clear()
        assert not forbidden & set(self._attempts), (forbidden, self._attempts)

    def _not_to_be_sent(self, rows: Iterable[Intent]) -> set[tuple[str, str | None]]:
        """Return the writes that the service has done, and that the journal knows of."""
        done = {number for number, made in self._made.items() if made.ours and number not in self._excused}
        alive = {number for number in done if self._sandbox_state(number) not in DEAD}
        return {(row.operation, row.reference) for row in rows if str(row.reference) in alive} - {_key(CLOSE)}

    async def _watch(self, call: Call, send: Send) -> Reply:
        """Check each attempt at a write, and have befall it what must; or change what a query is answered."""
        if call.read:
            reply = await send(call)
            return _about_another(reply) if self._trouble == "about another" else reply
        about = call.operation.name, call.reference
        rows = self._db.execute(ABOUT, about).fetchall()
        assert "sending" in {state for _, state in rows}, about
        self._ended_by_person -= {number for number, state in rows if state == "sending"}
        self._attempts.append(about)
        fate, self._fate = self._fate, "none"
        if fate == "late":
            self._late.append(Late(_request_of(call), self._elapsed + QUARANTINE))
        if fate == "dies before":
            raise CrashError
        if fate == "cancelled before":
            await _cancel_me()
        try:
            reply = await send(call)
        finally:
            self._note_made(str(call.reference), int(call.fields.get("refundAmt", call.fields.get("totalAmt", 0))))
        if fate == "dies after":
            raise CrashError
        if fate == "cancelled after":
            await _cancel_me()
        return _about_another(reply) if fate == "about another" else reply

    def _note_made(self, number: str, amount: int, *, ours: bool = True) -> None:
        if number not in self._made and self._sandbox_state(number):
            self._made[number] = Made(amount, ours)

    def _do_elsewhere(self, request: Request[Any], *, ours: bool) -> None:
        async def send() -> None:
            async with self._service.session(retry=ONCE) as pay:
                with suppress(PayasyncError):
                    await pay.send(request)

        self._done(send())
        self._note_made(str(request.reference), _amount(request), ours=ours)


async def _cancel_me() -> None:
    task = asyncio.current_task()
    assert task
    task.cancel()
    await asyncio.sleep(0)


def _key(request: Request[Any]) -> tuple[str, str | None]:
    return request.operation.name, request.reference


def _amount(request: Request[Any]) -> int:
    return int(getattr(request, "refund_amt", getattr(request, "total_amt", 0)))


def _amount_of(row: Intent) -> int:
    return int(row.request.get("refund_amt", row.request.get("total_amt", 0)))


def _request_of(call: Call) -> Request[Any]:
    return next(
        each
        for each in (R1, OTHER, R2, ORDER, DEARER, CLOSE)
        if _key(each) == (call.operation.name, call.reference)
        and _amount(each) == int(call.fields.get("refundAmt", call.fields.get("totalAmt", 0)))
    )


def _about_another(reply: Reply) -> Reply:
    return evolve(reply, body=json.dumps({**reply.document, **ANOTHER}).encode())


@pytest.fixture(autouse=True)
def undurable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SQLite journal does not wait for the disk. Other tests check durability."""
    monkeypatch.setattr("payasync.storage.sqlite.journaling", lambda _: ("delete", "OFF"))


@pytest.mark.long
def test_whatever_is_done(caplog: pytest.LogCaptureFixture) -> None:
    """Each attempt is stored before it leaves. No write that was done is sent again, reported wrongly or forgotten."""
    # Where something goes wrong, Hypothesis looks for the shortest way there for up to five minutes, and prints that.
    faulthandler.cancel_dump_traceback_later()
    caplog.set_level("CRITICAL", "payasync")
    run_state_machine_as_test(
        JournalMachine,
        settings=settings(
            max_examples=settings().max_examples // 4,
            stateful_step_count=40,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
