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
from payasync.notifications import Receiver, SqliteInbox
from tests.notifications.shop import Books, keep_books

folder, host, port, ahead, fatal = sys.argv[1:]
LEASE: Final = 10.0
THIRD: Final = 3
"""Of several events, the one in the middle: others are done, and others are under way."""
_reached = itertools.count(1)


def reached(moment: str) -> None:
    """Kill this process when it reaches the fatal moment for the third time."""
    if moment and moment == fatal and next(_reached) == THIRD:
        os.kill(os.getpid(), signal.SIGKILL)


def dying(name: str, before: str = "", after: str = "") -> Any:
    """Return a method of the inbox that reaches a moment before its transaction, and one after it for each result."""
    method: Any = getattr(SqliteInbox, name)

    async def call(self: "KillableInbox", *args: Any, **given: Any) -> Any:
        reached(before)
        found = await method(self, *args, **given)
        for _ in found if isinstance(found, list) else [found]:
            reached(after)
        return found

    return call


class KillableInbox(SqliteInbox):
    """An inbox whose process may die around each of its transactions."""

    add = dying("add", "arrived", "stored")
    claim = dying("claim", after="claimed")
    handled = dying("handled", "credited")
    finish = dying("finish", "mailed", "done")


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
