"""One process of the run: it makes its share of refunds and orders until they are done, or until it dies.

Run with a `Life` as JSON; the service and the keys are those of the environment.
"""

import asyncio
import logging
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.append(str(Path(__file__).parents[2]))

from payasync import (
    Call,
    CreatePayment,
    CreateRefund,
    DuplicateError,
    OutcomeUnknownError,
    PayasyncError,
    Reply,
    RetryPolicy,
    Send,
    Session,
    Timeouts,
)
from payasync.clocks import Pace, use_clocks
from payasync.journal import Reconciler
from tests.chaos.errands import ORDER, PAID, PATIENCE, PAUSE, reconciling
from tests.chaos.killing import KillableJournal, KillablePostgres, KillableSqlite, Trace, lines, number_of
from tests.chaos.plan import AT_ONCE, ENDED, JOURNALS, KEYED, RESTING, Clock, Life, clocks_ahead
from tests.chaos.verdict import name_of, operation_of

if TYPE_CHECKING:
    from payasync.journal.intents import State

TRIES: Final = 20
ROUNDS: Final = 10
MANY: Final = 100_000
MOST_ROUNDS: Final = 200
"""Of the last process, for which nothing is left to others."""

TIMES: Final = Timeouts(total=1.5, connect=1.0, read=0.5)
PATIENT: Final = RetryPolicy(attempts=3, base_delay=0.05, max_delay=0.2, quota=10_000)
ONCE: Final = RetryPolicy(attempts=1, quota=0)

Do = Callable[[int], Awaitable[bool]]


class Merchant:
    """Does operations in one way or another; `True` says that one is done.

    Args:
        pay: The session.
        trace: Where to say what is about to be done.
        journal: The session's, if it has one.
        keyed: It makes payments that only an idempotency key names.
    """

    def __init__(self, pay: Session, trace: Trace, journal: KillableJournal | None, *, keyed: bool = False) -> None:
        self._pay = pay
        self._trace = trace
        self._journal = journal
        self._keyed = keyed

    async def naive(self, operation: int) -> bool:
        """Repeat the operation under a new number each time, until it is done."""
        for _ in range(TRIES):
            with suppress(PayasyncError):
                await self._send(operation, f"{name_of(operation)}-{secrets.token_hex(4)}")
                return True
        return False

    async def stable(self, operation: int) -> bool:
        """Repeat the operation under one number, until it is done; "duplicate" means done."""
        for _ in range(TRIES):
            with suppress(PayasyncError):
                with suppress(DuplicateError):
                    await self._send(operation, name_of(operation))
                return True
        return False

    async def journaled(self, operation: int) -> bool:
        """Repeat the operation under one number, but never send again what may have been done."""
        for _ in range(TRIES):
            try:
                await self._kept(operation, name_of(operation))
            except OutcomeUnknownError:
                return False
            except PayasyncError:
                continue
            return True
        return False

    async def _kept(self, operation: int, number: str) -> None:
        if self._journal is None or not (self._keyed or number.startswith("Q")):
            await self._send(operation, number)
            return
        payment = CreatePayment(amount=1, currency="CAD", description=number)
        request, intent = (payment, number) if self._keyed else (_refund(number), None)
        await self._pay.execute(await self._journal.add(request, merchant=self._pay.merchant_id, intent=intent))

    async def _send(self, operation: int, number: str) -> None:
        if name_of(operation).startswith("P"):
            await self._pay.orders.place(total_amt=1, currency="CAD", subject="Chaos", out_trade_no=number)
        else:
            await self._pay.send(_refund(number))


def _refund(number: str) -> CreateRefund:
    return CreateRefund(out_trade_no=ORDER, out_refund_no=number, total_amt=PAID, refund_amt=1)


def around(trace: Trace) -> Callable[[Call, Send], Awaitable[Reply]]:
    """Return the layer that traces each attempt."""

    async def layer(call: Call, send: Send) -> Reply:
        if call.read:
            trace.mark("inquiring", call.reference)
            return await send(call)
        number = call.reference or call.fields["description"]
        trace.mark("leaving", number)
        trace.mark("flying", number)
        try:
            return await send(call)
        finally:
            trace.mark("answered", number)

    return layer


def journal_of(life: Life, trace: Trace) -> KillableJournal | None:
    """Return the journal of a strategy that has one."""
    if life.strategy not in JOURNALS:
        return None
    clock = clock_of(life)
    if life.ahead:
        use_clocks(clocks_ahead(life.ahead))
    journal: KillableJournal
    if life.strategy == "postgres":
        journal = KillablePostgres(life.journal, clock=clock)
    else:
        journal = KillableSqlite(life.journal, clock=clock)
    journal.mark = trace.mark
    return journal


def clock_of(life: Life) -> Callable[[], float] | None:
    """Return the journal's clock, where that is not the journal's own."""
    if life.clock:
        return Clock(life.clock, life.ahead)
    return (lambda: time.time() + life.ahead) if life.ahead else None


def left(life: Life) -> list[int]:
    """Return the operations of a share whose end no process of this worker has learned."""
    traces = [Path(life.traces) / f"{life.worker}-{number}" for number in range(life.life)]
    if life.ahead:
        traces = sorted(Path(life.traces).iterdir())
    ended = {operation_of(number) for trace in traces for moment, number in lines(trace) if moment == ENDED}
    return [each for each in range(life.first, life.last) if each not in ended]


async def done(share: list[int], do: Do, trace: Trace) -> list[int]:
    """Do a share, a few at a time; return what is not done then."""
    todo: Iterator[int] = iter(share)
    still: list[int] = []

    async def some() -> None:
        for operation in todo:
            ended = await do(operation)
            trace.mark(ENDED if ended else RESTING, name_of(operation))
            if not ended:
                still.append(operation)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())
    return still


async def persist(merchant: Merchant, journal: KillableJournal, life: Life, trace: Trace) -> None:
    """Do all that can be done; what was interrupted waits for the end of its lease, and for the last process."""
    still = await done(left(life), merchant.journaled, trace)
    for _ in range(MOST_ROUNDS if life.ahead else ROUNDS):
        asked = [each for each in still if await _asked(journal, life, name_of(each))]
        if not asked and not await _in_doubt(journal, life):
            return
        await asyncio.sleep(PAUSE)
        still = await done(still, merchant.journaled, trace)


async def _in_doubt(journal: KillableJournal, life: Life) -> bool:
    """Return whether the last process finds intents in doubt: another send of what a caller was told may be one."""
    states: tuple[State, ...] = ("unknown", "sending")
    return life.ahead > 0 and any([await journal.list(state, limit=1) for state in states])


async def _asked(journal: KillableJournal, life: Life, number: str) -> bool:
    """Return whether the journal will query an operation soon."""
    operation = "orders.place" if number.startswith("P") else "refunds.create"
    open_ones: set[State] = {"unknown", "rejected", "new"}
    if life.ahead:
        open_ones.add("sending")
    if life.strategy in KEYED:
        found = [each for state in open_ones for each in await journal.list(state, limit=MANY)]
        return any(each.intent == number for each in found)
    return any(each.state in open_ones for each in await journal.find(operation, number))


async def main(life: Life) -> None:
    """Run this process's share."""
    with Trace(life) as trace:
        journal = journal_of(life, trace)
        policy = ONCE if life.strategy == "naive" else PATIENT
        times = Timeouts() if life.patient else TIMES
        pay = Session.from_env(timeouts=times, retry=policy, middleware=[around(trace)], journal=journal)
        merchant = Merchant(pay, trace, journal, keyed=life.strategy in KEYED)
        async with pay:
            if journal is None:
                await done(left(life), merchant.naive if life.strategy == "naive" else merchant.stable, trace)
                return
            pace = Pace(clock=clock_of(life) or time.time)
            reconciler = Reconciler(pay, journal, patience=PATIENCE, pace=pace)
            async with journal, reconciling(reconciler, lambda result: trace.mark(RESTING, number_of(result.intent))):
                await persist(merchant, journal, life, trace)


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # what could not be kept is what the run is about
    asyncio.run(main(Life.read(sys.argv[1])))
