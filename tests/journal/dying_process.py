"""Refunds with a journal, or a reconciler, in a process of its own that kills itself at a step of the protocol.

Run with what to do, a `Life` of the chaos run as JSON, and the numbers of refunds. The environment has the service and
the keys.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from payasync import PayasyncError, RetryPolicy, Session
from payasync.clocks import Pace
from payasync.journal import Reconciler
from tests.chaos.killing import Trace
from tests.chaos.plan import Life
from tests.chaos.worker import around, journal_of


def tell(*words: object) -> None:
    """Write a line, immediately and undivided."""
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


async def refund(pay: Session, number: str) -> None:
    """Make a refund, and write what became of it."""
    try:
        response = await pay.refunds.create(out_trade_no="T1", out_refund_no=number, total_amt=450, refund_amt=1)
    except PayasyncError as error:
        tell(number, type(error).__name__)
    else:
        tell(number, "done", response.attempts)


async def main(what: str, life: Life, *numbers: str) -> None:
    """Do it."""
    with Trace(life) as trace:
        journal = journal_of(life)
        assert journal is not None
        pay = Session.from_env(journal=journal, middleware=[around(trace)], retry=RetryPolicy(attempts=1))
        async with journal, pay:
            if what == "reconcile":
                pace = Pace(clock=lambda: time.time() + life.ahead)
                await Reconciler(pay, journal, concurrency=1, pace=pace).run_once()
            else:
                for each in numbers:
                    await refund(pay, each)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Life.read(sys.argv[2]), *sys.argv[3:]))
