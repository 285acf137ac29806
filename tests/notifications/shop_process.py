"""A shop as a process of its own, which kills itself at a moment that its arguments name.

Run with a folder, a host and a port to listen on, how many seconds its clock is ahead, and the moment; the service
and the keys are those of the environment. `GET /settled` answers when nothing is due any more.
"""

import asyncio
import itertools
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

from aiohttp import web

sys.path.append(str(Path(__file__).parents[2]))

from payasync import Credentials, Profile, Session
from payasync.clocks import Pace
from payasync.notifications import Added, Claim, Received, Receiver, SqliteInbox
from tests.notifications.shop import Books, keep_books

folder, host, port, ahead, fatal = sys.argv[1:]

LEASE: Final = 10.0
THIRD: Final = 3
"""Of several events, the one in the middle: others are done, and others are under way."""

_reached = itertools.count(1)


def reached(moment: str) -> None:
    """Kill this process when it reaches the fatal moment for the third time."""
    if moment == fatal and next(_reached) == THIRD:
        os.kill(os.getpid(), signal.SIGKILL)


class KillableInbox(SqliteInbox):
    """An inbox whose process may die around each of its transactions."""

    async def add(self, received: Received) -> Added:
        """Keep a notification."""
        reached("arrived")
        added = await super().add(received)
        reached("kept")
        return added

    async def claim(self, limit: int, lease: float) -> list[Claim]:
        """Lease events."""
        claims = await super().claim(limit, lease)
        for _ in claims:
            reached("claimed")
        return claims

    async def handled(self, claim: Claim, handler: str, **given: Any) -> bool | None:
        """Remember a handler."""
        reached("credited")
        return await super().handled(claim, handler, **given)

    async def finish(self, claim: Claim, *args: Any, **given: Any) -> bool:
        """Remember the last handler, and end a lease."""
        reached("mailed")
        ended = await super().finish(claim, *args, **given)
        reached("done")
        return ended


def clock() -> float:
    """Return what time it is in this life."""
    return time.time() + float(ahead)


async def main() -> None:
    """Serve until it is killed."""
    inbox, books = KillableInbox(f"{folder}/inbox.db", clock=clock), Books(Path(folder, "books.db"))
    profile = Profile.from_file(os.environ["PAYASYNC_PROFILE"])
    receiver = Receiver(
        profile=profile,
        credentials=Credentials.from_env(),
        inbox=inbox,
        session=Session.from_env(),
        lease=LEASE,
        pace=Pace(clock=clock, jitter=lambda _: 0.0),
    )
    keep_books(receiver, books, reached)

    async def settled(_request: web.Request) -> web.Response:
        await receiver.settle()
        return web.Response()

    application = web.Application()
    application.router.add_post("/notify/{kind}", receiver.aiohttp_handler)
    application.router.add_get("/settled", settled)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, int(port)).start()
    async with receiver:
        print("serves", flush=True)  # noqa: T201 - whoever started it waits for that
        await asyncio.Event().wait()


asyncio.run(main())
