"""One process of the run: it makes its share of refunds and orders until they are done, or until it dies.

Run with a `Life` as JSON; the service and the keys are those of the environment.
"""

import asyncio
import logging
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).parents[2]))

from payasync import Call, CreateRefund, Reply, RetryPolicy, Send, Session, Timeouts
from payasync.clocks import Pace, use_clocks, wall_time
from payasync.errors import DuplicateError, OutcomeUnknownError, PayasyncError
from payasync.journal import Journal, PostgresJournal, Reconciler, SqliteJournal
from payasync.journal.intents import State
from tests.chaos.errands import ORDER, PAID, PATIENCE, PAUSE, reconciling
from tests.chaos.killing import Trace, lines
from tests.chaos.plan import ENDED, Life, Strategy, clocks_ahead, do_together
from tests.chaos.verdict import name_of, operation_of

TRIES: Final = 20
ROUNDS: Final = 200
"""Of the last process, for which nothing is left to others."""
OPEN: Final[tuple[State, ...]] = ("new", "sending", "unknown")
TIMES: Final = Timeouts(total=1.5, connect=1.0, read=0.5)
PATIENT: Final = RetryPolicy(attempts=3, base_delay=0.05, max_delay=0.2, quota=10_000)
ONCE: Final = RetryPolicy(attempts=1, quota=0)


class Merchant:
    """Does operations as a strategy says.

    Args:
        pay: The session.
        journal: The session's, if it has one.
        strategy: Which.
    """

    def __init__(self, pay: Session, journal: Journal | None, strategy: Strategy) -> None:
        self._pay = pay
        self._journal = journal
        self._strategy = strategy

    async def do(self, operation: int) -> bool:
        """Repeat an operation until it is done, and return whether it is.

        Without a journal, what may have been done is sent again. With one, nothing is.
        """
        for _ in range(TRIES):
            try:
                await self._send(name_of(operation))
            except OutcomeUnknownError:
                if self._journal is not None:
                    return False
            except DuplicateError:
                if self._strategy == "stable":
                    return True
            except PayasyncError:
                continue
            else:
                return True
        return False

    async def _send(self, number: str) -> None:
        own = f"{number}-{secrets.token_hex(4)}" if self._strategy == "naive" else number
        refund = CreateRefund(out_trade_no=ORDER, out_refund_no=own, total_amt=PAID, refund_amt=1)
        if number.startswith("P"):
            await self._pay.orders.place(total_amt=1, currency="CAD", subject="Chaos", out_trade_no=own)
        elif number.startswith("Q") and self._journal is not None:
            await self._pay.execute(await self._journal.add(refund, merchant=self._pay.merchant_id))
        else:
            await self._pay.send(refund)


def around(trace: Trace) -> Callable[[Call, Send], Awaitable[Reply]]:
    """Return the layer that traces each attempt."""

    async def layer(call: Call, send: Send) -> Reply:
        if call.read:
            return await send(call)
        trace.mark("leaving", call.reference)
        try:
            return await send(call)
        finally:
            trace.mark("answered", call.reference)

    return layer


def journal_of(life: Life) -> Journal | None:
    """Return the journal of a strategy that has one."""
    if life.ahead:
        use_clocks(clocks_ahead(life.ahead))
    if life.strategy == "postgres":
        return PostgresJournal(life.journal, clock=wall_time if life.ahead else None)
    return SqliteJournal(life.journal) if life.strategy == "sqlite" else None


def left(life: Life) -> list[int]:
    """Return the operations of a share whose end no process has learned."""
    traces = sorted(Path(life.traces).iterdir())
    ended = {operation_of(number) for trace in traces for moment, number in lines(trace) if moment == ENDED}
    return [each for each in range(life.first, life.last) if each not in ended]


async def do_all(share: list[int], merchant: Merchant, trace: Trace) -> list[int]:
    """Do a share, a few operations at a time; return what is not done then."""
    still: list[int] = []

    async def do(operation: int) -> None:
        if await merchant.do(operation):
            trace.mark(ENDED, name_of(operation))
        else:
            still.append(operation)

    await do_together(do, share)
    return still


async def main(life: Life) -> None:
    """Run the share of this process. The last process, for which all leases are over, settles what is in doubt."""
    with Trace(life) as trace:
        journal = journal_of(life)
        times, policy = (Timeouts(), ONCE) if life.strategy == "naive" else (TIMES, PATIENT)
        pay = Session.from_env(timeouts=times, retry=policy, middleware=[around(trace)], journal=journal)
        merchant, share = Merchant(pay, journal, life.strategy), left(life)
        async with pay:
            if journal is None:
                await do_all(share, merchant, trace)
                return
            pace = Pace(clock=lambda: time.time() + life.ahead)
            reconciler = Reconciler(pay, journal, patience=PATIENCE, pace=pace)
            async with journal, reconciling(reconciler, lambda _: None):
                for _ in range(ROUNDS if life.ahead else 1):
                    in_doubt = any([await journal.list(state, limit=1) for state in OPEN])
                    share = await do_all(share, merchant, trace)
                    if not in_doubt:
                        return
                    await asyncio.sleep(PAUSE)


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # what could not be stored is what the run is about
    asyncio.run(main(Life.read(sys.argv[1])))
