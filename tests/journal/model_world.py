"""The real thing beside the model: the processes of a merchant with their journal, the service, and somebody else."""

import asyncio
import json
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from attrs import evolve

from payasync import (
    Credentials,
    IntentConflictError,
    InvalidArgumentError,
    OutcomeUnknownError,
    PayasyncError,
    RetryPolicy,
    Session,
)
from payasync.journal import Outcome, Patience, Reconciler, Result, SqliteJournal
from payasync.journal.intents import State
from payasync.profile.schema import Recovery
from payasync.resources.orders import CloseOrder, PlaceOrder
from payasync.resources.payments import CreatePayment
from payasync.resources.refunds import CreateRefund
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.faults.armed_faults import Fault as Armed
from payasync.settings import Pace, Timeouts
from payasync.wire.call import Call, Reply, Send
from payasync.wire.request import Request
from payasync.wire.response import PaymentResponse, Response
from tests.inside import until
from tests.journal.building import Clock
from tests.journal.model import TIME
from tests.journal.model_calls import STRAY, Ended, Fault
from tests.journal.model_observer import Observer, Witness
from tests.journal.model_reconciler import QUARANTINE, RETRY_AFTER, Trouble, Waiting
from tests.journal.model_service import OPERATIONS, PAID, Kind, Thing, Wanted

T = TypeVar("T")
Death = Literal["kept", "answered", "cut before", "cut after"]
"""Where a process dies: with the write kept as *sending*; with its answer; or while it waits for that, before or after
the service did it."""

ONCE: Final = RetryPolicy(attempts=1, quota=0)
"""A call ends with its first attempt."""
PATIENT: Final = RetryPolicy(base_delay=0, max_delay=0)
"""A call retries, and asks after a doubt, without a pause."""
READING: Final = 10.0
"""Seconds that an answer may take."""
SLOW: Final = evolve(PROFILE, recovery=Recovery(quarantine=QUARANTINE))
QUERIES: Final = ("orders.query", "refunds.status", "payments.status")
CURRENCY: Final = "CAD"
ANOTHER: Final = {"outTradeNo": "ANOTHER", "outRefundNo": "ANOTHER", "paymentId": "ANOTHER", "currency": "USD"}
"""What an answer says that is about something else, whatever was asked for."""
SETTINGS: Final[dict[str, Any]] = {"processing": "by hand", "succeeded": "succeed", "failed": "fail"}
"""How the sandbox calls what becomes of a new refund."""


class Crash(BaseException):
    """The process dies: nothing of it runs any more."""


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time can be advanced: what waits for a deadline need not wait.

    Attributes:
        skipped: Seconds by which it is ahead.
    """

    skipped = 0.0

    def time(self) -> float:
        """Return what time it is."""
        return super().time() + self.skipped


class World:
    """A merchant's process, which may die and start again, the service, and whoever else there is.

    Args:
        loop: Runs all of it.
        path: The journal's file.
        ends: The state of a new refund.
        once: A number of a refund is taken once only, the same request included.

    Attributes:
        clock: The journal's and the reconciler's.
        sandbox: The service.
        journal: As the process that runs has opened it.
        observer: Knows what was committed, and what was attempted.
        witness: Knows the nonces.
    """

    def __init__(self, loop: SkippingLoop, path: Path, *, ends: str, once: bool) -> None:
        assert PROFILE.signature
        repeated: Any = "refused" if once else "same"
        self.clock = Clock()
        self.sandbox = Sandbox(SLOW, clock="frozen", refunds=SETTINGS[ends], repeated_refunds=repeated)
        self.journal = SqliteJournal(path, clock=self.clock)
        self.observer = Observer(path)
        self.witness = Witness(PROFILE.signature)
        self._profile = evolve(SLOW, signature=self.witness)
        self._loop = loop
        self._path = path
        self._death: Death | None = None
        self._answer: Outcome | None = None
        self._answers = 0
        self._strays = 0
        self._asked: Trouble = "none"

    async def open(self) -> None:
        """Begin."""
        await self.sandbox.start()
        await self.journal.list()
        self.observer.begin()

    async def close(self) -> None:
        """End."""
        await self.journal.aclose()
        await self.sandbox.close()
        self.observer.close()

    async def sent(
        self, what: Wanted | int, fault: Fault, *, intent: str | None, fence: int | None, patient: bool
    ) -> Ended:
        """Send a write, or the queued one of a number, and return how that ended for its caller."""
        began, answer, error, used = len(self.observer.attempts), None, "", False
        async with self._session(patient=patient, wrong_key=fault.meets == "refusal") as pay:
            armed = self._arm(fault, what.operation if isinstance(what, Wanted) else "*")
            try:
                answer = await self._in_time(_call(pay, what, intent, fence), armed)
            except PayasyncError as caught:
                error, used = type(caught).__name__, isinstance(caught, OutcomeUnknownError) and caught.used_before
            self._clear()
        sends = len(self.observer.attempts) - began
        number = answer.payment_id if sends and isinstance(answer, PaymentResponse) else ""
        return Ended(error, answer.state if answer else None, sends, str(number), used)

    async def died(self, what: Wanted | int, death: Death, *, intent: str | None) -> tuple[bool, Outcome | None]:
        """Send a write, die on the way, and start again; return whether it came so far, and which answer it had."""
        self._death, self._answer, hang = death, None, None
        began = len(self.observer.attempts)
        async with self._session() as pay:
            if death in {"cut before", "cut after"}:
                hang = self._arm(Fault("loss", "hang", "after" if death == "cut after" else "before"), "*")
            task = asyncio.ensure_future(_call(pay, what, intent))
            if hang:
                await self._hanging(hang, task)
                task.cancel()
            with suppress(PayasyncError, Crash, asyncio.CancelledError):
                await task
            self._clear()
        self._death = None
        await self.restart()
        return len(self.observer.attempts) > began, self._answer

    async def restart(self) -> None:
        """Go on with a journal as another process has it."""
        await self.journal.aclose()
        self.journal = SqliteJournal(self._path, clock=self.clock)

    async def queued(self, wanted: Wanted, intent: str | None) -> int | None:
        """Queue a write, and return the journal's number of it; `None` where its key stands for another."""
        try:
            return await self.journal.add(request(wanted), merchant=self._merchant, intent=intent)
        except IntentConflictError:
            return None

    async def told(self, kind: Kind, thing: Thing, *, stray: bool = False) -> list[int]:
        """Tell the journal how a thing stands, and return which intentions of one kind that ended.

        Args:
            kind: Of the intentions.
            thing: The thing.
            stray: What is told is about another number.
        """
        operation, number = OPERATIONS[kind], thing.wanted.number or ""
        data = {**told_of(thing.wanted), **(ANOTHER if stray else {})}
        ended = await self.journal.told(operation, number, thing.state, data, merchant=self._merchant)
        return [self.observer.row(each) for each in ended]

    async def resolved(self, row: int, state: State) -> bool:
        """Have a person say what became of an intention; return whether that is a person's to say."""
        try:
            await self.journal.resolve(self.observer.number(row), as_=state, reason="seen")
        except InvalidArgumentError:
            return False
        return True

    async def reconciled(self, fault: Fault, trouble: Trouble, waiting: Waiting, *, patient: bool) -> list[Result]:
        """Run a reconciler once, and return what it says became of each."""
        results = list[Result]()
        patience = Patience(
            first=waiting.first,
            longest=waiting.longest,
            questions=waiting.questions,
            give_up=waiting.give_up,
            sends=waiting.sends,
        )
        async with self._session(patient=patient, wrong_key=trouble == "refusal") as pay:
            self._trouble(trouble)
            for operation in OPERATIONS.values():
                self._arm(fault, operation, times=None)
            pace = Pace(clock=self.clock, jitter=lambda bound: bound)
            await Reconciler(pay, self.journal, patience=patience, concurrency=1, pace=pace).run_once(results.append)
            self._clear()
        return results

    async def elsewhere(self, wanted: Wanted) -> str:
        """Do a write without the journal, as somebody else, or as a late one comes; return its error's name, if any."""
        async with self.sandbox.session(retry=ONCE) as pay:
            try:
                await pay.send(request(wanted))
            except PayasyncError as error:
                return type(error).__name__
        return ""

    async def ended(self, number: str, kind: Kind, *, well: bool) -> None:
        """End what is under way: a refund as the bank does it, anything else as its customer does."""
        if kind == "refund":
            await self.sandbox.bank.settle_refund(number, "succeeded" if well else "failed")
        elif well:
            await self.sandbox.customer.authorize(number)
        else:
            for _ in range(3):
                await self.sandbox.customer.decline(number)

    @property
    def _merchant(self) -> str:
        return self.sandbox.credentials.merchant_id

    def _session(self, *, patient: bool = False, wrong_key: bool = False) -> Session:
        """Return the session of a process, with connections of its own."""
        wrong = Credentials(self._merchant, secret_key="wrong", signing_key="another signing key")
        return self.sandbox.session(
            journal=self.journal,
            credentials=wrong if wrong_key else self.sandbox.credentials,
            profile=self._profile,
            retry=PATIENT if patient else ONCE,
            timeouts=Timeouts(total=TIME, read=READING),
            middleware=[self._seen],
        )

    async def _seen(self, call: Call, send: Send) -> Reply:
        """See each attempt at a write, and die with it; change what is answered, where that is what befalls it."""
        if call.read:
            return _changed(self._asked, await send(call))
        self.observer.show(call)
        if self._death == "kept":
            raise Crash
        reply = await send(call)
        if self._death == "answered":
            self._answer = self.journal.outcome(call, reply)
            raise Crash
        if self._strays:
            self._strays -= 1
            return _changed("stray", reply)
        return reply

    def _arm(self, fault: Fault, operation: str, times: int | None = 1) -> Armed | None:
        self._answers = len(self.sandbox.ledger.calls())
        if fault.meets == "nobody":
            return self.sandbox.faults.refuse()
        if fault is STRAY:
            self._strays = times or sys.maxsize
        if not fault.name or fault is STRAY:
            return None
        armed: Armed = getattr(self.sandbox.faults, fault.name)(operation, times=times, phase=fault.phase)
        return armed

    def _trouble(self, trouble: Trouble) -> None:
        faults, self._asked = self.sandbox.faults, trouble
        if trouble == "nobody":
            faults.refuse()
        for query in QUERIES:
            if trouble == "failing":
                faults.server_error(query, times=None)
            elif trouble == "busy":
                faults.rate_limited(query, times=None, retry_after=RETRY_AFTER)
            elif trouble == "unclear":
                faults.redirect(query, times=None)

    def _clear(self) -> None:
        """Have nothing befall anything from now on."""
        self.sandbox.faults.clear()
        self._strays, self._asked = 0, "none"

    async def _in_time(self, call: Coroutine[Any, Any, T], armed: Armed | None) -> T:
        """Await a call; where nobody answers, the time for that is over at once."""
        task = asyncio.ensure_future(call)
        if armed and armed.kind == "hang":
            await self._hanging(armed, task)
            self._loop.skipped += READING + 1 if armed.fired else 0
        return await task

    async def _hanging(self, hang: Armed, task: asyncio.Task[Any]) -> None:
        """Wait until a call hangs, or has ended without that; what the service does before it hangs is done then."""
        answers = self._answers + (hang.trigger.phase == "after")

        def hangs() -> bool:
            return task.done() or (hang.fired > 0 and len(self.sandbox.ledger.calls()) >= answers)

        await until(hangs)


def request(wanted: Wanted) -> Request[Any]:
    """Return a write as the SDK has it."""
    number = wanted.number or ""
    if wanted.kind == "refund":
        return CreateRefund(out_trade_no=wanted.account, out_refund_no=number, total_amt=PAID, refund_amt=wanted.amount)
    if wanted.kind == "order":
        return PlaceOrder(out_trade_no=number, total_amt=wanted.amount, currency=CURRENCY)
    if wanted.kind == "close":
        return CloseOrder(out_trade_no=number)
    return CreatePayment(amount=wanted.amount, currency=CURRENCY)


def told_of(wanted: Wanted) -> dict[str, str | int]:
    """Return what a notification tells of a thing, beside its state."""
    if wanted.kind == "refund":
        amounts = {"totalAmt": PAID, "refundAmt": wanted.amount}
        return {"outTradeNo": wanted.account, "outRefundNo": wanted.number or "", **amounts}
    return {"outTradeNo": wanted.number or "", "totalAmt": wanted.amount, "currency": CURRENCY}


def _changed(trouble: Trouble, reply: Reply) -> Reply:
    """Return what comes in place of an answer."""
    if trouble == "denied":
        return evolve(reply, status=404, body=b'{"code":"SBX_NOT_FOUND"}')
    if trouble == "stray":
        return evolve(reply, body=json.dumps({**reply.document, **ANOTHER}).encode())
    return reply


async def _call(pay: Session, what: Wanted | int, intent: str | None, fence: int | None = None) -> Response:
    if isinstance(what, int):
        return await pay.execute(what, fence=fence)
    return await pay.send(request(what), intent=intent)
