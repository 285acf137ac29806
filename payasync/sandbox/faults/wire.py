"""Inflicts faults on calls: on their connections, over the real socket."""

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
from typing import Any, Final
from weakref import WeakSet

from aiohttp import web
from attrs import frozen

from payasync.sandbox.faults.armed_faults import Armoury
from payasync.sandbox.faults.catalogue import (
    RETRY_AFTER,
    BeforeAnswer,
    Effect,
    GzipBomb,
    Hang,
    HugeBody,
    Latency,
    MalformedJson,
    Phase,
    RateLimited,
    Redirect,
    Refuse,
    ResetAfterCommit,
    ResetBefore,
    RetryAfter,
    ServerError,
    SlowDrip,
    StaleKeepAlive,
    TruncatedBody,
    WrongContentType,
)
from payasync.sandbox.faults.trigger import Fault
from payasync.sandbox.server import Server
from payasync.sandbox.timeline import note

PIECE: Final = 1 << 20
"""Bytes, unpacked, of one piece of blanks."""

_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_END: Final = b"\x03\x00"
"""DEFLATE's empty last block."""


def packed(start: bytes, size: int) -> Iterator[bytes]:
    """Yield a gzip stream in pieces; unpacked it is `start`, and blanks up to a size at least.

    Args:
        start: What stands before the blanks.
        size: Bytes, unpacked.
    """
    crc, length = zlib.crc32(start), len(start)
    yield _HEAD + _block(start)
    blanks = b" " * PIECE
    again = _block(blanks)
    while length < size:
        crc, length = zlib.crc32(blanks, crc), length + PIECE
        yield again
    yield _END + struct.pack("<LL", crc, length & 0xFFFFFFFF)


def _block(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    # A full flush makes a block that looks back at nothing: it can be sent again and again.
    return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)


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
    door: Server
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


_CHUNK: Final = 1 << 16
_LOOK: Final = 0.1
"""Seconds after which a hanging call looks whether its client still waits."""


class Wire:
    """Lets calls meet the faults that are armed.

    Args:
        armoury: Holds them.
        door: Where the sandbox listens.
        told: Returns when the notifications that are due have been attempted.
    """

    def __init__(self, armoury: Armoury, *, door: Server, told: Callable[[], Awaitable[None]]) -> None:
        self._armoury = armoury
        self._door = door
        self._told = told
        self._ending = asyncio.Event()
        self._used = WeakSet[asyncio.Transport]()
        self._scenes = set[Scene]()

    async def answer(
        self,
        request: web.Request,
        operation: str,
        numbers: AbstractSet[str],
        *,
        commit: Callable[[], Awaitable[web.Response]],
        fail: Callable[[int], Awaitable[web.Response]],
    ) -> web.StreamResponse:
        """Return the answer to a call, or what a fault makes of it.

        Args:
            request: The call, wholly received.
            operation: Which.
            numbers: Those that it names.
            commit: Does what is asked, and gives the answer.
            fail: Gives an answer of a status that says that the service failed.
        """
        fault = self._armoury.for_call(operation, numbers, reused=self._reused(request))
        if fault is None or fault.aim.phase is None:
            return await commit()
        note(request, fault=str(fault))
        scene = Scene(
            request=request,
            fault=fault,
            phase=fault.aim.phase,
            commit=commit,
            fail=fail,
            ending=self._ending,
            door=self._door,
            told=self._told,
        )
        self._scenes.add(scene)
        try:
            return await _ACTIONS[type(fault.effect)](fault.effect, scene)
        finally:
            self._scenes.discard(scene)

    async def end(self, _application: web.Application) -> None:
        """End every fault that still goes on, with a reset."""
        self._ending.set()
        for scene in self._scenes:
            scene.reset()

    def _reused(self, request: web.Request) -> bool:
        transport = request.transport
        if transport is None or transport in self._used:
            return transport is not None
        self._used.add(transport)
        return False


async def _latency(effect: Latency, scene: Scene) -> web.StreamResponse:
    answer = await scene.in_phase()
    if not await scene.wait(effect.seconds):
        return scene.reset()
    return await scene.commit() if answer is None else answer


async def _hang(_: Hang, scene: Scene) -> web.StreamResponse:
    await scene.in_phase()
    while scene.request.transport and await scene.wait(_LOOK):
        pass
    return scene.reset()


async def _server_error(effect: ServerError, scene: Scene) -> web.StreamResponse:
    await scene.in_phase()
    return await scene.fail(effect.status)


async def _rate_limited(effect: RateLimited, scene: Scene) -> web.StreamResponse:
    await scene.in_phase()
    answer = await scene.fail(429)
    if (wait := header(effect.retry_after, datetime.now(UTC))) is not None:
        answer.headers["Retry-After"] = wait
    return answer


def header(retry_after: RetryAfter, now: datetime) -> str | None:
    """Return a Retry-After header, or `None` for none.

    Args:
        retry_after: What it says.
        now: The wall clock.
    """
    meant = RETRY_AFTER.get(retry_after, retry_after) if isinstance(retry_after, str) else retry_after
    if isinstance(meant, timedelta):
        meant = now + meant
    if isinstance(meant, datetime):
        return format_datetime(meant.astimezone(UTC), usegmt=True)
    return None if meant is None else str(meant)


async def _refuse(effect: Refuse, scene: Scene) -> web.StreamResponse:
    await scene.in_phase()
    scene.door.shut(effect.seconds, by=scene.fault)
    return scene.reset()


async def _reset(_: ResetBefore | ResetAfterCommit, scene: Scene) -> web.StreamResponse:
    await scene.in_phase()
    return scene.reset()


async def _stale(_: StaleKeepAlive, scene: Scene) -> web.StreamResponse:
    return scene.hang_up()


async def _truncated(_: TruncatedBody, scene: Scene) -> web.StreamResponse:
    answer = await scene.in_phase() or _nothing_done()
    body = _body(answer)
    await scene.stream(answer, [body[: len(body) // 2]], length=len(body))
    return scene.hang_up()


async def _malformed(_: MalformedJson, scene: Scene) -> web.StreamResponse:
    answer = await scene.in_phase() or _nothing_done()
    answer.body = _body(answer).rstrip()[:-1]
    return answer


async def _wrong_type(_: WrongContentType, scene: Scene) -> web.StreamResponse:
    answer = await scene.commit()
    answer.content_type = "text/html"
    return answer


async def _huge(effect: HugeBody, scene: Scene) -> web.StreamResponse:
    answer = await scene.commit()
    body = _body(answer)
    length = max(effect.size, len(body))
    blanks = (b" " * min(_CHUNK, length - at) for at in range(len(body), length, _CHUNK))
    return await scene.stream(answer, chain([body], blanks), length=length)


async def _bomb(effect: GzipBomb, scene: Scene) -> web.StreamResponse:
    answer = await scene.commit()
    answer.headers["Content-Encoding"] = "gzip"
    return await scene.stream(answer, packed(_body(answer), effect.size))


async def _drip(effect: SlowDrip, scene: Scene) -> web.StreamResponse:
    answer = await scene.commit()
    body = _body(answer)
    pieces = (body[at : at + 1] for at in range(len(body)))
    return await scene.stream(answer, pieces, length=len(body), pause=effect.seconds)


async def _redirect(effect: Redirect, scene: Scene) -> web.StreamResponse:
    await scene.in_phase()
    location = scene.request.path_qs if effect.location is None else effect.location
    return web.Response(status=effect.status, headers={"Location": location})


async def _before_answer(_: BeforeAnswer, scene: Scene) -> web.StreamResponse:
    answer = await scene.commit()
    await scene.told()
    return answer


def _body(answer: web.Response) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else b""


def _nothing_done() -> web.Response:
    return web.json_response({"message": "nothing was done: a fault of the sandbox"})


Action = Callable[[Any, Scene], Awaitable[web.StreamResponse]]

_ACTIONS: Final[Mapping[type[Effect], Action]] = {
    Latency: _latency,
    Hang: _hang,
    ServerError: _server_error,
    RateLimited: _rate_limited,
    Refuse: _refuse,
    ResetBefore: _reset,
    ResetAfterCommit: _reset,
    TruncatedBody: _truncated,
    MalformedJson: _malformed,
    WrongContentType: _wrong_type,
    HugeBody: _huge,
    GzipBomb: _bomb,
    SlowDrip: _drip,
    Redirect: _redirect,
    StaleKeepAlive: _stale,
    BeforeAnswer: _before_answer,
}
