"""Where a fault happens: a call that was received, and the connection that waits for its answer."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

from aiohttp import web
from attrs import frozen

from payasync.sandbox.door import Door
from payasync.sandbox.faults.aim import Fault
from payasync.sandbox.faults.effects import Phase

_NO_LINGERING: Final = struct.pack("ii", 1, 0)


class NoAnswer(web.StreamResponse):
    """What stands for an answer where the connection has ended without one; its status is 0."""

    def __init__(self) -> None:
        super().__init__(status=0)

    async def prepare(self, request: web.BaseRequest) -> None:
        """Say that nothing can be sent."""
        raise ConnectionResetError(f"a fault has ended the connection of {request.path}")


@frozen(kw_only=True, eq=False)
class Scene:
    """Where a fault happens.

    Attributes:
        request: The call, wholly received.
        fault: What happens.
        phase: Before or after the commit.
        commit: Does what is asked, and gives the answer.
        fail: Gives an answer of a status that says that the service failed, in the words of the profile.
        ending: Set when the sandbox closes.
        door: Where it listens.
        told: Returns when the notifications that are due have been attempted.
    """

    request: web.Request
    fault: Fault
    phase: Phase
    commit: Callable[[], Awaitable[web.Response]]
    fail: Callable[[int], Awaitable[web.Response]]
    ending: asyncio.Event
    door: Door
    told: Callable[[], Awaitable[None]]

    async def in_phase(self) -> web.Response | None:
        """Do what is asked, and return the answer, where the fault comes after the commit."""
        return await self.commit() if self.phase == "after" else None

    async def wait(self, seconds: float) -> bool:
        """Wait for some seconds, or until the sandbox closes, and return whether it still runs."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ending.wait()
        return not self.ending.is_set()

    def reset(self) -> NoAnswer:
        """End the connection with a TCP reset."""
        if transport := self.request.transport:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
            transport.abort()
        return NoAnswer()

    def hang_up(self) -> NoAnswer:
        """End the connection in the ordinary way, once what was written is sent."""
        if self.request.transport:
            self.request.transport.close()
        return NoAnswer()

    async def stream(
        self,
        answer: web.Response,
        pieces: Iterable[bytes],
        *,
        length: int | None = None,
        pause: float | None = None,
    ) -> web.StreamResponse:
        """Send a body in pieces, and return what sent it.

        Args:
            answer: Whose status and headers it has.
            pieces: The body.
            length: What Content-Length says; `None`: the body is chunked.
            pause: Seconds behind each piece.
        """
        sent = web.StreamResponse(status=answer.status, headers=answer.headers)
        sent.content_length = length
        with suppress(ConnectionError):
            await sent.prepare(self.request)
            for piece in pieces:
                await sent.write(piece)
                if pause and not await self.wait(pause):
                    break
        return sent
