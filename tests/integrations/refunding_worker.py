"""A worker of procrastinate's in a process of its own; run with the database and by how many seconds it is late.

The service and the keys are those of the environment. With a moment, it kills itself at that moment of refund R2.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import procrastinate

sys.path.append(str(Path(__file__).parents[2]))

from payasync import Call, Reply, RetryPolicy, Send, Session, Timeouts
from payasync.clocks import Pace
from payasync.integrations.procrastinate import PaymentTasks
from payasync.journal import PostgresJournal, Reconciler

dsn, late, fatal = sys.argv[1:]


def reached(moment: str, reference: str | None) -> None:
    """Kill this process if this is the fatal moment."""
    if (moment, reference) == (fatal, "R2"):
        os.kill(os.getpid(), signal.SIGKILL)


async def around(call: Call, send: Send) -> Reply:
    """Let an attempt be fatal before it leaves, and after its answer."""
    if not call.read:
        reached("leaving", call.reference)
    reply = await send(call)
    if not call.read:
        reached("answered", call.reference)
    return reply


def clock() -> float:
    """Return what time it is for a worker that comes late."""
    return time.time() + float(late)


async def main() -> None:
    """Work until it is killed or stopped."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn, min_size=1))
    async with (
        PostgresJournal(dsn, clock=clock if float(late) else None) as journal,
        Session.from_env(middleware=[around], retry=RetryPolicy(attempts=1), timeouts=Timeouts(total=5.0)) as pay,
        app.open_async(),
    ):
        reconciler = Reconciler(pay, journal, quarantine=1.0, pace=Pace(clock=clock))
        tasks = PaymentTasks(pay, journal, reconciler=reconciler, cron="* * * * * *", stalled=2.0)
        app.add_tasks_from(tasks.blueprint, namespace="payasync")
        await app.run_worker_async(
            concurrency=3, fetch_job_polling_interval=0.2, update_heartbeat_interval=0.5, stalled_worker_timeout=2.0
        )


asyncio.run(main())
