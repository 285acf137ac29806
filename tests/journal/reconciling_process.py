"""A reconciler in a process of its own that kills itself at a moment which its arguments name.

Run with the journal's path, by how many seconds its clock is ahead, and the moment; the service and the keys are those
of the environment.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))

from payasync import Call, Reply, Send, Session
from payasync.journal import Intent, Reconciler, SqliteJournal, State
from payasync.journal.intents import Begun, Intents

fatal = ""


def reached(moment: str, reference: str | None) -> None:
    """Die, where this moment is the fatal one."""
    if f"{moment} {reference}" == fatal:
        os.kill(os.getpid(), signal.SIGKILL)


class MortalJournal(SqliteJournal):
    """A journal whose process may die around each of its transactions."""

    async def ask(self, limit: int, lease: float, **facts: Any) -> Intents:
        """Claim what is to be asked about."""
        found = await super().ask(limit, lease, **facts)
        for each in found:
            reached("claimed", each.reference)
        return found

    async def claim(self, intent_id: int, lease: float, **facts: Any) -> Begun:
        """Claim what is to be sent again."""
        begun = await super().claim(intent_id, lease, **facts)
        reached("sending", begun.intent.reference)
        return begun

    async def settle(self, intent: Intent, state: State, **facts: Any) -> bool:
        """Keep a verdict."""
        reached("judged", intent.reference)
        held = await super().settle(intent, state, **facts)
        reached("settled", intent.reference)
        return held


async def around(call: Call, send: Send) -> Reply:
    """Let an attempt be fatal before it leaves, and after its answer."""
    reached("asking" if call.read else "leaving", call.reference)
    reply = await send(call)
    reached("told" if call.read else "answered", call.reference)
    return reply


async def main(path: str, ahead: float) -> None:
    """Reconcile, one after the other."""
    async with (
        MortalJournal(path, clock=lambda: time.time() + ahead) as journal,
        Session.from_env(journal=journal, middleware=[around]) as pay,
    ):
        await Reconciler(pay, journal, concurrency=1).run_once()


if __name__ == "__main__":
    path, ahead, fatal = sys.argv[1:]
    asyncio.run(main(path, float(ahead)))
