"""The door: shut, the kernel refuses; open again, on the same port."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import aiohttp
import pytest
from aiohttp import web

from payasync.sandbox.server import Server
from tests.inside import turns, until


def refused(door: "Opened") -> bool:
    """Return whether the kernel refuses a connection."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", door.port)) == errno.ECONNREFUSED


class Opened(Server):
    """A door whose port is known, and whose server answers as soon as it is let."""

    def __init__(self, listening: socket.socket) -> None:
        super().__init__(listening)
        self.port = int(listening.getsockname()[1])
        self.arrived = asyncio.Event()
        self.let = asyncio.Event()
        self.let_go = list[object]()

    def reopen(self, by: object = None) -> None:
        """Reopen it, and note for whom."""
        super().reopen(by)
        self.let_go.append(by)

    async def serve(self, _request: web.Request) -> web.Response:
        """Answer."""
        self.arrived.set()
        await self.let.wait()
        return web.Response(text="here")


@pytest.fixture
async def door() -> AsyncIterator[Opened]:
    """A door that is open."""
    made = Opened(socket.create_server(("127.0.0.1", 0)))
    application = web.Application(middlewares=[made.note])
    application.router.add_get("/", made.serve)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    assert runner.server
    await made.open(runner.server)
    yield made
    made.close()
    await runner.cleanup()


async def ask(door: Opened, http: aiohttp.ClientSession) -> str:
    """Ask, and return the answer."""
    async with http.get(f"http://127.0.0.1:{door.port}/") as answer:
        return await answer.text()


async def test_request_under_way_is_answered(door: Opened, http: aiohttp.ClientSession) -> None:
    """Who has asked before the door is shut gets the answer, and then the connection ends."""
    asking = asyncio.create_task(ask(door, http))
    await door.arrived.wait()
    door.shut()
    door.let.set()
    answer = await asking
    door.reopen()

    assert "here" == answer
    assert "here" == await ask(door, http)


async def test_opening_by_hand_ends_the_wait(door: Opened) -> None:
    """A time that was said for one shutting does not open the next one."""
    door.shut(0.01)
    door.reopen()
    door.shut()
    # Timers run in their order: by then the first one would have opened it.
    door.shut(0.01, by="later")
    await until(lambda: "later" in door.let_go)

    assert refused(door)
    assert [None, "later"] == door.let_go


async def test_time_of_one_does_not_open_it_for_another(door: Opened) -> None:
    """Where the time of one has passed, the other still holds it."""
    door.shut(0.01, by="one")
    door.shut(by="two")
    await until(lambda: door.let_go)
    during = refused(door)
    door.reopen("two")

    assert (True, False) == (during, refused(door))


@pytest.mark.parametrize("count", range(5))
async def test_connection_that_is_just_accepted_is_closed(door: Opened, count: int) -> None:
    """Whichever turn the loop is at with a connection as the door is shut, it ends, and nobody waits for ever."""
    with socket.create_connection(("127.0.0.1", door.port)) as one:
        one.settimeout(0)
        await turns(count)
        door.shut()
        with suppress(ConnectionResetError):
            async with asyncio.timeout(10):
                assert b"" == await asyncio.get_running_loop().sock_recv(one, 1)
