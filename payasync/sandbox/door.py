"""Where the sandbox listens; the door can be shut, so that the kernel itself refuses connections."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web

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
        self._accepting: asyncio.Server | None = None
        self._opening: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, server: web.Server) -> None:
        """Take connections.

        Args:
            server: Serves them.
        """
        self._server = server
        loop = asyncio.get_running_loop()
        # In two steps, and nothing is awaited between them: who shuts the door finds what takes connections.
        self._accepting = await loop.create_server(server, sock=self._socket, start_serving=False)
        await self._accepting.start_serving()

    def shut(self, seconds: float | None = None) -> None:
        """Refuse new connections, close the idle ones, and let each other one end with its answer.

        Args:
            seconds: Until it opens again, in real time; `None`: until `reopen`.
        """
        self._stop()
        if not self._shut:
            self._shut = True
            # Bound, so that nobody else gets the port; and not listening, so that the kernel answers with a reset.
            self._socket = _bound(self._socket.family, self._address)
            self._hang_up()
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.reopen)

    @web.middleware
    async def note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Have a request answered, and know meanwhile that its connection is not idle."""
        self._busy.add(request.protocol)
        try:
            return await handler(request)
        finally:
            self._busy.discard(request.protocol)

    def reopen(self) -> None:
        """Take connections again; an open door stays so."""
        if not self._shut or self._server is None:
            return
        self._shut = False
        self._cancel()
        self._socket.listen()
        opening = self.open(self._server)
        self._opening = asyncio.get_running_loop().create_task(opening, name="payasync sandbox door")

    def rest(self) -> None:
        """Accept no further connection, and leave all else as it is: the way to close it without a race."""
        if self._accepting:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())

    def close(self) -> None:
        """Shut it for good."""
        self._stop()
        self._socket.close()

    def _stop(self) -> None:
        self._cancel()
        if self._accepting:
            self._accepting.close()
            self._accepting = None
        elif not self._shut:
            self._socket.close()

    def _hang_up(self) -> None:
        for connection in self._server.connections if self._server else ():
            if connection in self._busy:
                connection.close()
            else:
                connection.force_close()

    def _cancel(self) -> None:
        for waiting in (self._timer, self._opening):
            if waiting:
                waiting.cancel()
        self._timer = self._opening = None


def _bound(family: int, address: object) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(address)  # type: ignore[arg-type] # as another socket of this family gave it
    return made
