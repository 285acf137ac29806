"""Injects faults into calls: on their connections, over the real socket."""

import asyncio
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import chain
from typing import Final
from weakref import WeakSet

from aiohttp import web
from attrs import frozen

from payasync.sandbox.faults.armed_faults import ArmedFaults, Fault
from payasync.sandbox.faults.catalogue import RETRY_AFTER, RetryAfter
from payasync.sandbox.server import Server
from payasync.sandbox.timeline import add_facts

_CHUNK: Final = 1 << 16
_POLL_SECONDS: Final = 0.1
"""How often a hanging call checks that its client still waits."""
_NO_LINGERING: Final = struct.pack("ii", 1, 0)


class NoResponse(web.StreamResponse):
    """Stands for a response on a connection that has ended without one; its status is 0."""

    def __init__(self) -> None:
        super().__init__(status=0)

    async def prepare(self, request: web.BaseRequest) -> None:
        """Refuse to send anything."""
        raise ConnectionResetError(f"a fault has ended the connection of {request.path}")


@frozen(kw_only=True, eq=False)
class Injection:
    """A fault that happens to a call.

    Attributes:
        request: The call, completely received.
        fault: The fault.
        commit: Does what is asked, and returns the response.
        fail: Returns a response of this status in which the service says that it failed.
        injector: Knows where the sandbox listens, and when it closes.
    """

    request: web.Request
    fault: Fault
    commit: Callable[[], Awaitable[web.Response]]
    fail: Callable[[int], Awaitable[web.Response]]
    injector: "FaultInjector"

    async def commit_first(self) -> web.Response | None:
        """If the fault comes after the commit, do what is asked, and return the response."""
        return await self.commit() if self.fault.trigger.phase == "after" else None

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
        self,
        response: web.Response,
        pieces: Iterable[bytes],
        *,
        length: int | None = None,
        pause: float | None = None,
    ) -> web.StreamResponse:
        """Send a body in pieces, and return the response that sent it.

        Args:
            response: Its status and headers are sent.
            pieces: The body.
            length: What Content-Length says; `None` sends chunks.
            pause: Seconds after each piece.
        """
        sent = web.StreamResponse(status=response.status, headers=response.headers)
        sent.content_length = length
        with suppress(ConnectionError):
            await sent.prepare(self.request)
            for piece in pieces:
                await sent.write(piece)
                if pause and not await self.wait(pause):
                    break
        return sent


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
        self,
        request: web.Request,
        operation: str,
        numbers: AbstractSet[str],
        *,
        commit: Callable[[], Awaitable[web.Response]],
        fail: Callable[[int], Awaitable[web.Response]],
    ) -> web.StreamResponse:
        """Return the response to a call, or what a fault makes of it.

        Args:
            request: The call, completely received.
            operation: Its name.
            numbers: Those that it names.
            commit: Does what is asked, and returns the response.
            fail: Returns a response of this status in which the service says that it failed.
        """
        fault = self._armed_faults.fire_for_call(operation, numbers, reused=self._reused(request))
        if fault is None:
            return await commit()
        add_facts(request, fault=str(fault))
        injection = Injection(request=request, fault=fault, commit=commit, fail=fail, injector=self)
        self._injections.add(injection)
        try:
            return await _INJECT[fault.kind](injection, **fault.options)
        finally:
            self._injections.discard(injection)

    async def end(self, _application: web.Application) -> None:
        """End every fault that still goes on, with a reset."""
        self.closing.set()
        for injection in self._injections:
            injection.reset()

    def _reused(self, request: web.Request) -> bool:
        transport = request.transport
        if transport is None or transport in self._used:
            return transport is not None
        self._used.add(transport)
        return False


async def _latency(call: Injection, seconds: float) -> web.StreamResponse:
    response = await call.commit_first()
    if not await call.wait(seconds):
        return call.reset()
    return await call.commit() if response is None else response


async def _hang(call: Injection) -> web.StreamResponse:
    await call.commit_first()
    while call.request.transport and await call.wait(_POLL_SECONDS):
        pass
    return call.reset()


async def _server_error(call: Injection, status: int) -> web.StreamResponse:
    await call.commit_first()
    return await call.fail(status)


async def _rate_limited(call: Injection, retry_after: RetryAfter) -> web.StreamResponse:
    await call.commit_first()
    response = await call.fail(429)
    if (text := format_retry_after(retry_after, datetime.now(UTC))) is not None:
        response.headers["Retry-After"] = text
    return response


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


async def _refuse(call: Injection, seconds: float | None) -> web.StreamResponse:
    await call.commit_first()
    call.injector.server.shut(seconds, by=call.fault)
    return call.reset()


async def _reset(call: Injection) -> web.StreamResponse:
    await call.commit_first()
    return call.reset()


async def _truncated_body(call: Injection) -> web.StreamResponse:
    response = await call.commit_first() or _nothing_done()
    body = _body_bytes(response)
    await call.stream(response, [body[: len(body) // 2]], length=len(body))
    return call.hang_up()


async def _malformed_json(call: Injection) -> web.StreamResponse:
    response = await call.commit_first() or _nothing_done()
    response.body = _body_bytes(response).rstrip()[:-1]
    return response


async def _wrong_content_type(call: Injection) -> web.StreamResponse:
    response = await call.commit()
    response.content_type = "text/html"
    return response


async def _huge_body(call: Injection, size: int) -> web.StreamResponse:
    response = await call.commit()
    body = _body_bytes(response)
    length = max(size, len(body))
    spaces = (b" " * min(_CHUNK, length - at) for at in range(len(body), length, _CHUNK))
    return await call.stream(response, chain([body], spaces), length=length)


async def _gzip_bomb(call: Injection, size: int) -> web.StreamResponse:
    response = await call.commit()
    response.headers["Content-Encoding"] = "gzip"
    return await call.stream(response, compress_padded(_body_bytes(response), size))


async def _slow_drip(call: Injection, seconds: float) -> web.StreamResponse:
    response = await call.commit()
    body = _body_bytes(response)
    pieces = (body[at : at + 1] for at in range(len(body)))
    return await call.stream(response, pieces, length=len(body), pause=seconds)


async def _redirect(call: Injection, status: int, location: str | None) -> web.StreamResponse:
    await call.commit_first()
    return web.Response(status=status, headers={"Location": call.request.path_qs if location is None else location})


async def _stale_keep_alive(call: Injection) -> web.StreamResponse:
    return call.hang_up()


async def _before_answer(call: Injection) -> web.StreamResponse:
    response = await call.commit()
    await call.injector.deliver()
    return response


def _body_bytes(response: web.Response) -> bytes:
    return response.body if isinstance(response.body, bytes) else b""


def _nothing_done() -> web.Response:
    return web.json_response({"message": "nothing was done: a fault of the sandbox"})


_INJECT: Final[Mapping[str, Callable[..., Awaitable[web.StreamResponse]]]] = {
    "latency": _latency,
    "hang": _hang,
    "server_error": _server_error,
    "rate_limited": _rate_limited,
    "refuse": _refuse,
    "reset_before": _reset,
    "reset_after_commit": _reset,
    "truncated_body": _truncated_body,
    "malformed_json": _malformed_json,
    "wrong_content_type": _wrong_content_type,
    "huge_body": _huge_body,
    "gzip_bomb": _gzip_bomb,
    "slow_drip": _slow_drip,
    "redirect": _redirect,
    "stale_keep_alive": _stale_keep_alive,
    "notification.before_answer": _before_answer,
}

PIECE: Final = 1 << 20
"""Bytes, unpacked, of one piece of spaces in a gzip bomb."""
_GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LAST_BLOCK: Final = b"\x03\x00"


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
    yield _LAST_BLOCK + struct.pack("<LL", crc, length & 0xFFFFFFFF)


def _compress_block(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    # A full flush makes a block that refers to nothing before it, so it can be sent again and again.
    return compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH)
