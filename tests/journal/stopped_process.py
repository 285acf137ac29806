"""One refund with a journal, in a process that stops itself by SIGSTOP just before the refund leaves.

Run with how it stops ("stopped", or "suspended": then its loop's clock stands still, too), and the journal: "sqlite"
with a path, or "postgres" with a connection string. The environment has the service and the keys.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).parents[2]))

from payasync import Call, PayasyncError, Reply, RetryPolicy, Send, Session
from payasync.journal import PostgresJournal, SqliteJournal, middleware

BRIEF: Final = 0.5
"""Seconds that the call has. The process sleeps longer."""


class Loop(asyncio.SelectorEventLoop):
    """A loop whose clock can stand still, as CLOCK_MONOTONIC does while a machine is suspended."""

    suspended = 0.0

    def time(self) -> float:
        """Return what its clock says."""
        return super().time() - self.suspended


async def main(how: str, kind: str, place: str) -> None:
    """Make the refund, and write what became of it."""

    async def stop(call: Call, send: Send) -> Reply:
        before = time.monotonic()
        os.kill(os.getpid(), signal.SIGSTOP)
        if how == "suspended":
            Loop.suspended = time.monotonic() - before
        return await send(call)

    journal = PostgresJournal(place) if kind == "postgres" else SqliteJournal(place)
    async with journal, Session.from_env(journal=journal, middleware=[stop], retry=RetryPolicy(attempts=1)) as pay:
        try:
            await pay.refunds.create(out_trade_no="T1", out_refund_no="R2", total_amt=450, refund_amt=1, timeout=BRIEF)
        except PayasyncError as error:
            sys.stdout.write(type(error).__name__)


if __name__ == "__main__":
    middleware.LEASE_MARGIN = 0.0  # type: ignore[misc] # so that it need not sleep for so long
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main(*sys.argv[1:]))
