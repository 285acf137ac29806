"""A reconciler in a process of its own that kills itself at a step of the protocol, or that runs to its end.

Run with a `Life` of the chaos run as JSON; the service and the keys are those of the environment.
"""

import asyncio
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from payasync import Session
from payasync.journal import Reconciler
from payasync.settings import Pace
from tests.chaos.killing import Trace
from tests.chaos.plan import Life
from tests.chaos.worker import around, journal_of


async def main(life: Life) -> None:
    """Reconcile, one after the other."""
    with Trace(life) as trace:
        journal = journal_of(life, trace)
        assert journal is not None
        async with journal, Session.from_env(journal=journal, middleware=[around(trace)]) as pay:
            pace = Pace(clock=lambda: time.time() + life.ahead)
            await Reconciler(pay, journal, concurrency=1, pace=pace).run_once()


if __name__ == "__main__":
    asyncio.run(main(Life.read(sys.argv[1])))
