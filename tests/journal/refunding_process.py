"""Refunds with a journal, in a process of its own that kills itself at a moment which its arguments name.

Run with what to do, the way in which SQLite keeps commits, the journal's path, and the moment or a number; the
service and the keys are those of the environment.
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
from payasync.journal import middleware
from payasync.storage import sqlite
from tests.chaos.killing import KillableJournal, KillablePostgres, KillableSqlite

DYING: Final = "R2"
"""It dies with the second of three: one is done by then, and one has not begun."""
NUMBERS: Final = ("R1", "R2", "R3")

BRIEF: Final = 0.5
"""Seconds that a call has, during which its process is stopped."""

what = ""
fatal = ""
blow = signal.SIGKILL


def tell(*words: object) -> None:
    """Write a line, at once and undivided."""
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


class Loop(asyncio.SelectorEventLoop):
    """A loop whose clock can stand still while its process is stopped, as it does while a machine is suspended."""

    suspended = 0.0

    def time(self) -> float:
        """Return what its clock says."""
        return super().time() - self.suspended


def reached(moment: str, reference: str | None) -> None:
    """Die, or stop, where this moment is the fatal one."""
    if (moment, reference) != (fatal, DYING):
        return
    before = time.monotonic()
    os.kill(os.getpid(), blow)
    if what == "suspended":
        Loop.suspended += time.monotonic() - before


async def around(call: Call, send: Send) -> Reply:
    """Let an attempt be fatal before it leaves, and after its answer."""
    reached("leaving", call.reference)
    reply = await send(call)
    reached("answered", call.reference)
    return reply


async def refund(pay: Session, number: str, timeout: float | None = None) -> None:
    """Make a refund, and tell what became of it."""
    try:
        answer = await pay.refunds.create(
            out_trade_no="T1", out_refund_no=number, total_amt=45_000, refund_amt=100, timeout=timeout
        )
    except PayasyncError as error:
        tell(number, type(error).__name__)
    else:
        tell(number, "done", answer.attempts)


async def one_by_one(pay: Session, _: str) -> None:
    """Make three refunds, one after the other."""
    for number in NUMBERS:
        await refund(pay, number)


async def many(pay: Session, count: str) -> None:
    """Make many refunds, one after the other."""
    for number in range(int(count)):
        await refund(pay, f"R{number}")


async def at_once(pay: Session, count: str) -> None:
    """Make many refunds at once, as soon as there is something to read."""
    tell("ready")
    sys.stdin.readline()
    await asyncio.gather(*(refund(pay, f"R{number}") for number in range(int(count))))


async def stopped(pay: Session, _: str) -> None:
    """Make a refund that has little time, and be stopped on its way."""
    await refund(pay, DYING, BRIEF)


DOING: Final = {"one_by_one": one_by_one, "many": many, "at_once": at_once, "stopped": stopped, "suspended": stopped}


async def main(path: str, argument: str) -> None:
    """Do it."""
    journal: KillableJournal = KillablePostgres(path) if mode == "postgres" else KillableSqlite(path)
    journal.mark = reached
    async with journal:
        pay = Session.from_env(journal=journal, middleware=[around], retry=RetryPolicy(attempts=1))
        async with pay:
            await DOING[what](pay, argument)


if __name__ == "__main__":
    what, mode, path, argument = sys.argv[1:]
    fatal = argument
    blow = signal.SIGSTOP if what in {"stopped", "suspended"} else blow
    if what == "suspended":
        middleware.LEASE_MARGIN = 0.0  # type: ignore[misc] # so that it need not be stopped for so long
    if mode == "wal":
        sqlite.WAL_SINCE = (3, 0, 0)  # type: ignore[misc] # as if SQLite were new enough
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main(path, argument))
