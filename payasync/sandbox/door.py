"""Where the sandbox listens; the door can be shut, so that the kernel itself refuses connections."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from aiohttp import web

_TURNS: Final = 3
"""Of the loop, after which a connection that it accepted is known to the server."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Door:
    """Takes connections for a server.

    Args:
        listening: A socket that listens; the door owns it.
    """

    def __init__(self, listening: socket.socket) -> None:
        self._server: web.Server | None = None
        self._socket = listening
        self._address = listening.getsockname()
        self._shut = False
        self._busy = set[object]()
        self._held = dict[object, asyncio.TimerHandle | None]()
        self._next: asyncio.Task[None] | None = None

    async def open(self, server: web.Server) -> None:
        """Take connections.

        Args:
            server: Serves them.
        """
        self._server = server
        self._loop = asyncio.get_running_loop()
        # It is never closed: a connection that it accepts in the very turn in which it closes would be left open.
        await self._loop.create_server(server, sock=self._socket)

    def shut(self, seconds: float | None = None, *, by: object = None) -> None:
        """Refuse new connections, close the idle ones, and let each other one end with its answer.

        Args:
            seconds: Until it opens again, in real time; `None`: until `reopen`.
            by: Who shuts it: it is open again when all who did have let go of it.
        """
        self._release(by)
        loop = asyncio.get_running_loop()
        self._held[by] = None if seconds is None else loop.call_later(seconds, self.reopen, by)
        if self._shut:
            return
        self._shut = True
        self._stop()
        # Bound, so that nobody else gets the port; and not listening, so that the kernel answers with a reset.
        self._socket = _bound(self._socket.family, self._address)
        known = frozenset(self._connections())
        self._hang_up(known)
        self._next = loop.create_task(self._turn_away(known), name="payasync sandbox door")

    @web.middleware
    async def note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Have a request answered, and know meanwhile that its connection is not idle."""
        self._busy.add(request.protocol)
        try:
            return await handler(request)
        finally:
            self._busy.discard(request.protocol)

    def reopen(self, by: object = None) -> None:
        """Take connections again, unless somebody else holds it shut; an open door stays so.

        It may be called in any thread.

        Args:
            by: Who lets go of it.
        """
        if self._server is None:
            return
        if not _runs(self._loop):
            self._loop.call_soon_threadsafe(self.reopen, by)
            return
        self._release(by)
        if self._shut and not self._held:
            self._cancel()
            self._socket.listen()
            self._next = self._loop.create_task(self.open(self._server), name="payasync sandbox door")
            self._shut = False

    def rest(self) -> None:
        """Accept no further connection, and leave all else as it is: the way to close it without a race."""
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())

    def close(self) -> None:
        """Shut it for good."""
        for each in tuple(self._held):
            self._release(each)
        self._server = None
        self._stop()

    def _stop(self) -> None:
        self._cancel()
        self.rest()
        self._socket.close()

    async def _turn_away(self, known: AbstractSet[web.RequestHandler]) -> None:
        """Hang up on those that the loop had accepted already, and the server had not seen."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            self._hang_up(each for each in self._connections() if each not in known)

    def _connections(self) -> list[web.RequestHandler]:
        return self._server.connections if self._server else []

    def _hang_up(self, connections: Iterable[web.RequestHandler]) -> None:
        for connection in connections:
            if connection in self._busy:
                connection.close()
            else:
                connection.force_close()

    def _release(self, by: object) -> None:
        if timer := self._held.pop(by, None):
            timer.cancel()

    def _cancel(self) -> None:
        if self._next:
            self._next.cancel()
            self._next = None


def _runs(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether it is this thread's loop that runs."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _bound(family: int, address: object) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(address)  # type: ignore[arg-type] # as another socket of this family gave it
    return made
