"""Injects faults into calls: on their connections, over the real socket."""

import asyncio
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import chain
from typing import Final, TypeAlias
from weakref import WeakSet

from aiohttp import web
from attrs import define, field

from payasync.sandbox.faults.armed_faults import ArmedFaults, Fault
from payasync.sandbox.faults.catalogue import RETRY_AFTER, RetryAfter
from payasync.sandbox.server import Server
from payasync.sandbox.timeline import add_facts

_CHUNK: Final = 1 << 16
_POLL_SECONDS: Final = 0.1
"""How often a hanging call checks that its client still waits."""
_NO_LINGERING: Final = struct.pack("ii", 1, 0)
_NOTHING_DONE: Final = "nothing was done: a fault of the sandbox"

Commit: TypeAlias = Callable[[], Awaitable[web.Response]]
"""Does what is asked, and returns the response."""
Fail: TypeAlias = Callable[[int], Awaitable[web.Response]]
"""Returns a response of this status in which the service says that it failed."""


class NoResponse(web.StreamResponse):
    """Stands for a response on a connection that has ended without one; its status is 0."""

    def __init__(self) -> None:
        super().__init__(status=0)

    async def prepare(self, request: web.BaseRequest) -> None:
        """Refuse to send anything."""
        raise ConnectionResetError(f"a fault has ended the connection of {request.path}")


@define(kw_only=True, eq=False)
class Injection:
    """A fault that happens to a call. It has a method for each kind of fault.

    Attributes:
        request: The call, completely received.
        fault: The fault.
        commit: Does what is asked, and returns the response.
        fail: Returns a response of this status in which the service says that it failed.
        injector: Knows where the sandbox listens, and when it closes.
        response: The response to the call; before the commit, one that says that nothing was done.
    """

    request: web.Request
    fault: Fault
    commit: Commit
    fail: Fail
    injector: "FaultInjector"
    response: web.Response = field(init=False, factory=lambda: web.json_response({"message": _NOTHING_DONE}))

    async def apply(self) -> web.StreamResponse:
        """Commit first, if the fault follows the commit; then apply the fault, and return the response."""
        if self.fault.phase == "after":
            self.response = await self.commit()
        method = getattr(self, f"_{self.fault.kind.removeprefix('notification.')}")
        response: web.StreamResponse = await method(**self.fault.options)
        return response

    async def wait(self, seconds: float) -> bool:
        """Wait for some seconds or until the sandbox closes, and return whether it still runs."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.injector.closing.wait()
        return not self.injector.closing.is_set()

    def reset(self) -> NoResponse:
        """End the connection with a TCP reset."""
        if transport := self.request.transport:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
            transport.abort()
        return NoResponse()

    def hang_up(self) -> NoResponse:
        """End the connection as usual, when what was written is sent."""
        if self.request.transport:
            self.request.transport.close()
        return NoResponse()

    async def stream(
        self, pieces: Iterable[bytes], *, length: int | None = None, pause: float | None = None
    ) -> web.StreamResponse:
        """Send a body in pieces with the status and headers of the response, and return the response that sent it.

        Args:
            pieces: The body.
            length: What Content-Length says; `None` sends chunks.
            pause: Seconds after each piece.
        """
        sent = web.StreamResponse(status=self.response.status, headers=self.response.headers)
        sent.content_length = length
        with suppress(ConnectionError):
            await sent.prepare(self.request)
            for piece in pieces:
                await sent.write(piece)
                if pause and not await self.wait(pause):
                    break
        return sent

    @property
    def body(self) -> bytes:
        """The body of the response."""
        return self.response.body if isinstance(self.response.body, bytes) else b""

    async def _latency(self, seconds: float) -> web.StreamResponse:
        if not await self.wait(seconds):
            return self.reset()
        return await self.commit() if self.fault.phase == "before" else self.response

    async def _hang(self) -> web.StreamResponse:
        while self.request.transport and await self.wait(_POLL_SECONDS):
            pass
        return self.reset()

    async def _server_error(self, status: int) -> web.StreamResponse:
        return await self.fail(status)

    async def _rate_limited(self, retry_after: RetryAfter) -> web.StreamResponse:
        response = await self.fail(429)
        if (text := format_retry_after(retry_after, datetime.now(UTC))) is not None:
            response.headers["Retry-After"] = text
        return response

    async def _refuse(self, seconds: float | None) -> web.StreamResponse:
        self.injector.server.stop_listening(seconds, by=self.fault)
        return self.reset()

    async def _reset_before(self) -> web.StreamResponse:
        return self.reset()

    _reset_after_commit = _reset_before

    async def _truncated_body(self) -> web.StreamResponse:
        await self.stream([self.body[: len(self.body) // 2]], length=len(self.body))
        return self.hang_up()

    async def _malformed_json(self) -> web.StreamResponse:
        self.response.body = self.body.rstrip()[:-1]
        return self.response

    async def _wrong_content_type(self) -> web.StreamResponse:
        self.response.content_type = "text/html"
        return self.response

    async def _huge_body(self, size: int) -> web.StreamResponse:
        length = max(size, len(self.body))
        spaces = (b" " * min(_CHUNK, length - at) for at in range(len(self.body), length, _CHUNK))
        return await self.stream(chain([self.body], spaces), length=length)

    async def _gzip_bomb(self, size: int) -> web.StreamResponse:
        self.response.headers["Content-Encoding"] = "gzip"
        return await self.stream(compress_padded(self.body, size))

    async def _slow_drip(self, seconds: float) -> web.StreamResponse:
        pieces = (self.body[at : at + 1] for at in range(len(self.body)))
        return await self.stream(pieces, length=len(self.body), pause=seconds)

    async def _redirect(self, status: int, location: str | None) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": self.request.path_qs if location is None else location})

    async def _stale_keep_alive(self) -> web.StreamResponse:
        return self.hang_up()

    async def _before_answer(self) -> web.StreamResponse:
        await self.injector.deliver()
        return self.response


def format_retry_after(retry_after: RetryAfter, now: datetime) -> str | None:
    """Return the text of a Retry-After header, or `None` for no header.

    Args:
        retry_after: As `rate_limited` takes it.
        now: The wall clock.
    """
    value = RETRY_AFTER.get(retry_after, retry_after) if isinstance(retry_after, str) else retry_after
    if isinstance(value, timedelta):
        value = now + value
    if isinstance(value, datetime):
        return format_datetime(value.astimezone(UTC), usegmt=True)
    return None if value is None else str(value)


class FaultInjector:
    """Lets calls meet the faults that are armed.

    Args:
        armed_faults: The faults.
        server: Where the sandbox listens.
        deliver: Returns when the notifications that are due have been attempted.

    Attributes:
        server: As given.
        deliver: As given.
        closing: Set when the sandbox closes.
    """

    def __init__(self, armed_faults: ArmedFaults, *, server: Server, deliver: Callable[[], Awaitable[None]]) -> None:
        self._armed_faults = armed_faults
        self.server: Final = server
        self.deliver: Final = deliver
        self.closing: Final = asyncio.Event()
        self._used = WeakSet[asyncio.Transport]()
        self._injections = set[Injection]()

    async def respond(
        self, request: web.Request, operation: str, numbers: AbstractSet[str], *, commit: Commit, fail: Fail
    ) -> web.StreamResponse:
        """Return the response to a call, or what a fault makes of it.

        Args:
            request: The call, completely received.
            operation: Its name.
            numbers: Those that it names.
            commit: Does what is asked, and returns the response.
            fail: Returns a response of this status in which the service says that it failed.
        """
        transport = request.transport
        reused = transport in self._used
        if transport:
            self._used.add(transport)
        fault = self._armed_faults.fire_for_call(operation, numbers, reused=reused)
        if fault is None:
            return await commit()
        add_facts(request, fault=str(fault))
        injection = Injection(request=request, fault=fault, commit=commit, fail=fail, injector=self)
        self._injections.add(injection)
        try:
            return await injection.apply()
        finally:
            self._injections.discard(injection)

    async def end(self, _application: web.Application) -> None:
        """End every fault that still goes on, with a reset."""
        self.closing.set()
        for injection in self._injections:
            injection.reset()


PIECE: Final = 1 << 20
"""Bytes, unpacked, of one piece of spaces in a gzip bomb."""
_GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


def compress_padded(start: bytes, size: int) -> Iterator[bytes]:
    """Yield the pieces of a gzip stream that unpacks to a text, followed by spaces.

    Args:
        start: The text.
        size: The least number of bytes that it unpacks to.
    """
    crc, length = zlib.crc32(start), len(start)
    yield _GZIP_HEADER + _compress_block(start)
    spaces = b" " * PIECE
    block = _compress_block(spaces)
    while length < size:
        crc, length = zlib.crc32(spaces, crc), length + PIECE
        yield block
    yield b"\x03\x00" + struct.pack("<LL", crc, length & 0xFFFFFFFF)  # after the last block, which is empty


def _compress_block(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    # A full flush makes a block that refers to nothing before it, so it can be sent again and again.
    return compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH)
