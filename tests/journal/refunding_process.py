"""Refunds with a journal, in a process of its own that kills itself at a moment which its arguments name.

Run with what to do, the way in which SQLite keeps commits, the journal's path, and the moment or a number; the
service and the keys are those of the environment.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

sys.path.append(str(Path(__file__).parents[2]))

from payasync import Call, PayasyncError, Reply, RetryPolicy, Send, Session
from payasync.journal import Journal, PostgresJournal, SqliteJournal, middleware
from payasync.journal.intents import BeginResult, Draft, Intent, State
from payasync.journal.transactions import Transaction
from payasync.storage import sqlite

T = TypeVar("T")

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


class KillableJournal(Journal):
    """A journal whose process may die around each of its transactions, and within it, before its commit."""

    within: tuple[str, str | None] = ("", None)

    async def begin(self, draft: Draft, lease: float, *, service: str | None = None) -> BeginResult:
        """Keep an intent."""
        reached("asking", draft.reference)
        self.within = "writing", draft.reference
        begun = await super().begin(draft, lease, service=service)
        reached("kept", draft.reference)
        return begun

    async def settle(self, intent: Intent, state: State, **facts: Any) -> bool:
        """Keep a verdict."""
        reached("judged", intent.reference)
        self.within = "settling", intent.reference
        held = await super().settle(intent, state, **facts)
        reached("settled", intent.reference)
        return held

    async def _run(self, work: Callable[[datetime], Transaction[T]]) -> T:
        def mortal(now: datetime) -> Transaction[T]:
            result = yield from work(now)
            reached(*self.within)
            return result

        return await super()._run(mortal)  # type: ignore[safe-super] # one of the journals below


class KillableSqlite(KillableJournal, SqliteJournal):
    """In a file."""


class KillablePostgres(KillableJournal, PostgresJournal):
    """In a database."""


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
    async with (KillablePostgres if mode == "postgres" else KillableSqlite)(path) as journal:
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
