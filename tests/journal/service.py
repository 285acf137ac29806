"""An HTTP service whose responses a test chooses, with a session and a reconciler."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from attrs import evolve

from payasync import CreateRefund, PayasyncError, Profile, RetryPolicy, Session
from payasync.clocks import Pace
from payasync.journal import Journal, Reconciler
from payasync.journal.intents import Intent
from payasync.profile.sandbox_profile import PROFILE
from payasync.profile.schema import HttpCodes, Recovery
from tests.foreign.recorder import RESET, Answer, Recorder, answer
from tests.journal.building import Clock, refund
from tests.matrix.cells import session

WRITE: Final = "/payment/refund"
QUERY: Final = "/payment/refund/status"
QUARANTINE: Final = 60.0
DAY: Final = 86_400.0
SAYS: Final = evolve(PROFILE, recovery=Recovery(quarantine=QUARANTINE), http=HttpCodes(absent=(404,)))
"""Its quarantine is longer than a call: only the reconciler sends again."""
QUICK: Final = RetryPolicy(base_delay=0, max_delay=0)
REFUND: Final = refund()
MINE: Final = {"merchantId": "M1", "outTradeNo": "T1", "outRefundNo": "R1", "totalAmt": 450, "refundAmt": 200}
"""What a response says that is about the refund."""
USED: Final = answer(409, b'{"code":"SBX_DUPLICATE","message":"R1 was used before"}')
ABSENT: Final = answer(404, b'{"code":"SBX_NOT_FOUND"}')
LOST: Final = RESET
BROKEN: Final = answer(503, b"{}")


def said(state: str, *, status: int = 200, code: str = "SBX_OK", **others: object) -> Answer:
    """Return a response about the refund, or about another one."""
    return answer(status, json.dumps({"code": code, "status": f"SBX_{state}", **MINE, **others}).encode())


class Service:
    """A merchant's journal, and the service that his refunds go to.

    Args:
        recorder: Answers.
        says: By path, what it answers from now on.
        pay: The session.
        journal: The session's.
        clock: The journal's.

    Attributes:
        refund: What is sent.
    """

    refund = REFUND

    def __init__(
        self, recorder: Recorder, says: dict[str, Answer], pay: Session, journal: Journal, clock: Clock
    ) -> None:
        self.pay = pay
        self.journal = journal
        self.clock = clock
        self.recorder = recorder
        self._says = says

    def say(self, write: Answer | None = None, query: Answer | None = None) -> None:
        """Respond to writes and queries in this way from now on."""
        self._says |= {path: says for path, says in ((WRITE, write), (QUERY, query)) if says}

    @property
    def sends(self) -> int:
        """How often the refund was received."""
        return sum(request.path == WRITE for request in self.recorder.requests)

    @property
    def questions(self) -> int:
        """How often the refund was queried."""
        return sum(request.path == QUERY for request in self.recorder.requests)

    async def called(self, *, queued: bool = False) -> object:
        """Send the refund, by a worker where it is queued, and return what its caller gets."""
        try:
            if not queued:
                return await self.pay.send(self.refund)
            return await self.pay.execute(await self.journal.add(self.refund, merchant=self.pay.merchant_id))
        except PayasyncError as error:
            return error

    async def reconciled(self, after: float = 0.0) -> Intent:
        """Let time pass, run the reconciler, and return the intent in the journal."""
        self.clock.advance(after)
        pace = Pace(clock=self.clock, jitter=lambda bound: bound)
        await Reconciler(self.pay, self.journal, pace=pace).run_once()
        return await self.kept()

    async def kept(self) -> Intent:
        """Return the refund's intent in the journal."""
        (intent,) = await self.journal.list()
        return intent


@asynccontextmanager
async def serving(
    journal: Journal,
    clock: Clock,
    write: Answer,
    query: Answer = ABSENT,
    *,
    says: Profile = SAYS,
    refund: CreateRefund = REFUND,
) -> AsyncGenerator[Service]:
    """Open a service that answers so, with a session of one merchant."""
    answers = {WRITE: write, QUERY: query}
    with Recorder(by_path=answers) as recorder:
        async with session(recorder, says, journal=journal, retry=QUICK) as pay:
            service = Service(recorder, answers, pay, journal, clock)
            service.refund = refund
            yield service
