"""A merchant's server as a process of its own, which goes about its errands, is told of them, and measures itself.

Run with a `Soak` as JSON, and a folder; the service and the keys are those of the environment. It prints lines of JSON:
samples, and at last what it has done.
"""

import asyncio
import json
import logging
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Final

from aiohttp import web

sys.path.append(str(Path(__file__).parents[2]))

from payasync import Session
from payasync.journal import Reconciler, SqliteJournal
from payasync.notifications import Notification, Receiver, SqliteInbox
from tests.chaos.errands import PATIENCE, PATIENT, TIMES, Errands, reconciling
from tests.chaos.gauges import Leaks, measured
from tests.chaos.growth import Soak
from tests.chaos.plan import do_together

CLUMSY: Final = 20
"""One in so many attempts to handle a notification fails."""


@asynccontextmanager
async def receiving(pay: Session, journal: SqliteJournal, folder: Path, told: Counter[str]) -> AsyncGenerator[Receiver]:
    """Handle what the service tells."""
    receiver, attempts = Receiver(inbox=SqliteInbox(folder / "inbox.db"), session=pay), count(1)

    @receiver.on("*")
    async def handle(it: Notification) -> None:
        if next(attempts) % CLUMSY == 0:
            raise RuntimeError("clumsy")
        if it.kind == "refund" and it.out_refund_no:
            await journal.told("refunds.create", it.out_refund_no, it.state, it.data, merchant=pay.merchant_id)
        told["handled"] += 1

    async with receiver:
        yield receiver


@asynccontextmanager
async def serving(receiver: Receiver) -> AsyncGenerator[str]:
    """Listen on a free port, and give the address that is to be told; anything may stand behind it."""
    application = web.Application()
    application.router.add_post("/notify/{any}", receiver.aiohttp_handler)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        yield f"http://{host}:{port}/notify/"
    finally:
        await runner.cleanup()


def say(**words: object) -> None:
    """Tell whoever started this."""
    print(json.dumps(words), flush=True)  # noqa: T201 - it reads that


async def main(soak: Soak, folder: Path) -> None:
    """Run all errands, and measure in between."""
    told, layers = Counter[str](), [Leaks().layer] if soak.leaky else []
    async with (
        SqliteJournal(folder / "pay.db") as journal,
        Session.from_env(timeouts=TIMES, retry=PATIENT, middleware=layers, journal=journal) as pay,
        receiving(pay, journal, folder, told) as receiver,
        serving(receiver) as notify,
        reconciling(Reconciler(pay, journal, patience=PATIENCE), lambda it: told.update([it.end])) as standstill,
    ):
        errands = Errands(pay, journal, folder, notify, soak.seed)
        ends = [soak.operations * number // soak.samples for number in range(soak.samples + 1)]
        for first, end in pairwise(ends):
            await do_together(errands.run, range(first, end))
            async with standstill:
                await receiver.settle()
                say(sample=measured(end))
        say(done=errands.done + told)


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # what fails is what the run is about
    told, where = sys.argv[1:]
    soak = Soak(**json.loads(told))
    asyncio.run(main(soak, Path(where)))
