"""An HTTP service whose responses a test chooses, with a session and a reconciler."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from threading import Event
from typing import Any, Final

from attrs import evolve

from payasync import CloseOrder, PayasyncError, PlaceOrder, Profile, RetryPolicy, Session
from payasync.clocks import Pace
from payasync.journal import Journal, Reconciler
from payasync.journal.intents import Intent
from payasync.profile.sandbox_profile import PROFILE
from payasync.profile.schema import HttpCodes, Recovery
from payasync.wire.request import Request
from tests.foreign.recorder import RESET, Answer, Recorder, answer
from tests.inside import until
from tests.journal.building import Clock, refund
from tests.matrix.cells import session

WRITE: Final = "/payment/refund"
QUERY: Final = "/payment/refund/status"
PLACED: Final = "/payment/unifiedorder"
CLOSED: Final = "/payment/closeorder"
ORDER_QUERY: Final = "/payment/orderquery"
QUARANTINE: Final = 60.0
DAY: Final = 86_400.0
SAYS: Final = evolve(PROFILE, recovery=Recovery(quarantine=QUARANTINE), http=HttpCodes(absent=(404,)))
"""Its quarantine is longer than a call: only the reconciler sends again."""
QUICK: Final = RetryPolicy(base_delay=0, max_delay=0)
REFUND: Final = refund()
PLACE: Final = PlaceOrder(out_trade_no="T1", total_amt=450, currency="CAD")
CLOSE: Final = CloseOrder(out_trade_no="T1")
MINE: Final = {"merchantId": "M1", "outTradeNo": "T1", "outRefundNo": "R1", "totalAmt": 450, "refundAmt": 200}
"""What a response says that is about the refund."""
USED: Final = answer(409, b'{"code":"SBX_DUPLICATE","message":"R1 was used before"}')
ABSENT: Final = answer(404, b'{"code":"SBX_NOT_FOUND"}')
LOST: Final = RESET
BROKEN: Final = answer(503, b"{}")


def said(state: str, *, status: int = 200, code: str = "SBX_OK", **others: object) -> Answer:
    """Return a response about the refund, or about another one."""
    return answer(status, json.dumps({"code": code, "status": f"SBX_{state}", **MINE, **others}).encode())


def order(state: str, after: Event | None = None, **others: object) -> Answer:
    """Return a response about the order, which waits for an event if one is given."""
    facts = {"code": "SBX_OK", "status": f"SBX_{state}", "outTradeNo": "T1", "totalAmt": 450, "merchantId": "M1"}
    return answer(200, json.dumps(facts | others).encode(), after=after)


def by_path(write: Answer | None, query: Answer | None, close: Answer | None) -> dict[str, Answer]:
    """Return the responses to refunds and places, to queries, and to closes, by path."""
    given = ((write, (WRITE, PLACED)), (query, (QUERY, ORDER_QUERY)), (close, (CLOSED,)))
    return {path: says for says, paths in given if says for path in paths}


class Service:
    """A merchant's journal, and the service that his writes go to.

    Args:
        recorder: Responds.
        says: By path, what it responds from now on.
        pay: The session.
        journal: The session's.
        clock: The journal's.
        request: What is sent by default.
    """

    def __init__(
        self,
        recorder: Recorder,
        says: dict[str, Answer],
        pay: Session,
        *,
        journal: Journal,
        clock: Clock,
        request: Request[Any],
    ) -> None:
        self.pay = pay
        self.journal = journal
        self.clock = clock
        self.recorder = recorder
        self.request = request
        self._says = says

    def say(self, write: Answer | None = None, query: Answer | None = None, *, close: Answer | None = None) -> None:
        """Respond to refunds and places, to queries, and to closes in this way from now on."""
        self._says |= by_path(write, query, close)

    def received(self, *paths: str) -> int:
        """Return how many requests came to some paths."""
        return sum(each.path in paths for each in self.recorder.requests)

    @property
    def sends(self) -> int:
        """How often a write was received."""
        return self.received(WRITE, PLACED, CLOSED)

    @property
    def questions(self) -> int:
        """How often a write was queried."""
        return self.received(QUERY, ORDER_QUERY)

    async def called(self, request: Request[Any] | None = None, *, queued: bool = False) -> Any:
        """Send a write, by a worker if it is queued, and return its response or its error."""
        given = request or self.request
        try:
            if not queued:
                return await self.pay.send(given)
            return await self.pay.execute(await self.journal.add(given, merchant=self.pay.merchant_id))
        except PayasyncError as error:
            return error

    async def begun(self, request: Request[Any] | None = None, *, queued: bool = False) -> "asyncio.Task[Any]":
        """Return the task of a call, whose request the service has received."""
        before = self.sends
        task = asyncio.create_task(self.called(request, queued=queued))
        await until(lambda: self.sends > before)
        return task

    async def reconciled(self, after: float = 0.0) -> Intent:
        """Let time pass, run the reconciler, and return the first intent in the journal."""
        self.clock.advance(after)
        pace = Pace(clock=self.clock, jitter=lambda bound: bound)
        await Reconciler(self.pay, self.journal, pace=pace).run_once()
        return await self.kept()

    async def kept(self, operation: str = "") -> Intent:
        """Return the first intent in the journal, or the first of an operation."""
        return next(each for each in await self.journal.list() if operation in {"", each.operation})


@asynccontextmanager
async def serving(
    journal: Journal,
    clock: Clock,
    write: Answer,
    query: Answer = ABSENT,
    *,
    says: Profile = SAYS,
    request: Request[Any] = REFUND,
    close: Answer | None = None,
) -> AsyncGenerator[Service]:
    """Open a service that responds in this way, with a session of one merchant."""
    answers = by_path(write, query, close or write)
    with Recorder(by_path=answers) as recorder:
        async with session(recorder, says, journal=journal, retry=QUICK) as pay:
            yield Service(recorder, answers, pay, journal=journal, clock=clock, request=request)
