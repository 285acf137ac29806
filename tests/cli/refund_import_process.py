"""`payasync refund import` in a process of its own, whose clock is ahead, and which may kill itself at a given moment.

Arguments: the refunds' file, the journal's file, the result's file, the seconds by which the clock is ahead, and the
fatal moment. Service and keys come from the environment. The process waits by advancing its clock.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))


from payasync.cli.options import Address, session_with
from payasync.cli.refund_import import RefundImportScreen, read_file, run
from payasync.clocks import Clocks, Pace, use_clocks
from payasync.journal import SqliteJournal
from payasync.journal.intents import BeginResult, Draft, Intent, State

fatal = ""


def reached(moment: str, reference: str | None) -> None:
    """Kill this process if this is the fatal moment."""
    if f"{moment} {reference}" == fatal:
        os.kill(os.getpid(), signal.SIGKILL)


class Ahead:
    """A clock that is ahead of the machine's clock, and that each wait advances."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self) -> float:
        """Return seconds since 1970."""
        return time.time() + self._seconds

    def clocks(self) -> Clocks:
        """Return the clocks of a machine that is ahead; that of `boot` is compared with the service's, and is not."""
        tick = Clocks().tick
        return Clocks(wall=self, tick=lambda: tick() + round(self._seconds * 1e9))

    async def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self._seconds += seconds
        await asyncio.sleep(0)


class KillableJournal(SqliteJournal):
    """A journal whose process may be killed before or after each of its transactions."""

    async def begin(self, draft: Draft, lease: float, *, service: str | None = None) -> BeginResult:
        """Store an intent."""
        begun = await super().begin(draft, lease, service=service)
        reached("kept", draft.reference)
        return begun

    async def settle(self, intent: Intent, state: State, **facts: Any) -> bool:
        """Store a result."""
        reached("judged", intent.reference)
        held = await super().settle(intent, state, **facts)
        reached("settled", intent.reference)
        return held


def main(file: str, kept: str, result: str, ahead: float) -> int:
    """Import the refunds."""
    clock = Ahead(ahead)
    use_clocks(clock.clocks())
    journal = KillableJournal(kept)
    session = session_with(journal, profile=None, base_url=None)
    screen = RefundImportScreen(Path(file), Address(kept), service="", result=Path(result))
    pace = Pace(clock=clock, sleep=clock.sleep)
    rows = read_file(Path(file), session)
    return asyncio.run(run(session, journal, rows, screen, result=Path(result), limit=5, pace=pace))


if __name__ == "__main__":
    file, kept, result, ahead, fatal = sys.argv[1:]
    sys.exit(main(file, kept, result, float(ahead)))
