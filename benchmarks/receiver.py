"""A merchant's application that receives notifications: with payasync, and the same without."""

import asyncio
import os
import sys
from typing import Final

from aiohttp import web

from payasync import Credentials
from payasync.notifications import Notification, Receiver, SqliteInbox
from payasync.profile.sandbox_profile import PROFILE

CREDENTIALS: Final = Credentials(merchant_id="M1", notification_keys=["whsec_QSBrZXkgZm9yIG91ciBiZW5jaG1hcmtz"])
ALONE: Final = "/alone"
WITH_US: Final = "/notify/payment"
SETTLED: Final = "/settled"
"""Answers when all that was received has been dispatched."""


async def alone(request: web.Request) -> web.Response:
    """Acknowledge whatever comes, and keep nothing."""
    await request.read()
    return web.Response(body=PROFILE.notification.ack_body.encode(), content_type="application/json")


async def paid(_: Notification) -> None:
    """Do nothing: what the merchant does is not measured."""


def application(path: str) -> web.Application:
    """Return the application, with its inbox in a file."""
    receiver = Receiver(profile=PROFILE, credentials=CREDENTIALS, inbox=SqliteInbox(path))
    receiver.on("payment")(paid)

    async def settled(_: web.Request) -> web.Response:
        await receiver.settle()
        return web.Response()

    app = web.Application()
    app.router.add_post(SETTLED, settled)
    app.router.add_post(ALONE, alone)
    app.router.add_post(WITH_US, receiver.aiohttp_handler)
    return app


async def serve(path: str) -> None:
    """Print the port, and serve until the standard input ends."""
    runner = web.AppRunner(application(path), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(range(os.cpu_count() or 1))})
    asyncio.run(serve(sys.argv[1]))
