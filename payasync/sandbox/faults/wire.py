"""Inflicts faults on calls: on their connections, over the real socket.

aiohttp serves the connection; what no server does by itself is done to its transport.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import chain
from typing import Any, Final
from weakref import WeakSet

from aiohttp import web

from payasync.sandbox.door import Door
from payasync.sandbox.faults import checking, effects
from payasync.sandbox.faults.armoury import Armoury
from payasync.sandbox.faults.bomb import packed
from payasync.sandbox.faults.scene import Scene
from payasync.sandbox.recorder import FAULT

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

    def __init__(self, armoury: Armoury, *, door: Door, told: Callable[[], Awaitable[None]]) -> None:
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
        request[FAULT] = str(fault)
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


async def _latency(effect: effects.Latency, scene: Scene) -> web.StreamResponse:
    answer = await scene.in_phase()
    if not await scene.wait(effect.seconds):
        return scene.reset()
    return await scene.commit() if answer is None else answer


async def _hang(_: effects.Hang, scene: Scene) -> web.StreamResponse:
    await scene.in_phase()
    while scene.request.transport and await scene.wait(_LOOK):
        pass
    return scene.reset()


async def _server_error(effect: effects.ServerError, scene: Scene) -> web.StreamResponse:
    await scene.in_phase()
    return await scene.fail(effect.status)


async def _rate_limited(effect: effects.RateLimited, scene: Scene) -> web.StreamResponse:
    await scene.in_phase()
    answer = await scene.fail(429)
    if (wait := header(effect.retry_after, datetime.now(UTC))) is not None:
        answer.headers["Retry-After"] = wait
    return answer


def header(retry_after: checking.RetryAfter, now: datetime) -> str | None:
    """Return a Retry-After header, or `None` for none.

    Args:
        retry_after: What it says.
        now: The wall clock.
    """
    meant = checking.RETRY_AFTER.get(retry_after, retry_after) if isinstance(retry_after, str) else retry_after
    if isinstance(meant, timedelta):
        meant = now + meant
    if isinstance(meant, datetime):
        return format_datetime(meant.astimezone(UTC), usegmt=True)
    return None if meant is None else str(meant)


async def _refuse(effect: effects.Refuse, scene: Scene) -> web.StreamResponse:
    await scene.in_phase()
    scene.door.shut(effect.seconds, by=scene.fault)
    return scene.reset()


async def _reset(_: effects.ResetBefore | effects.ResetAfterCommit, scene: Scene) -> web.StreamResponse:
    await scene.in_phase()
    return scene.reset()


async def _stale(_: effects.StaleKeepAlive, scene: Scene) -> web.StreamResponse:
    return scene.hang_up()


async def _truncated(_: effects.TruncatedBody, scene: Scene) -> web.StreamResponse:
    answer = await scene.in_phase() or _nothing_done()
    body = _body(answer)
    await scene.stream(answer, [body[: len(body) // 2]], length=len(body))
    return scene.hang_up()


async def _malformed(_: effects.MalformedJson, scene: Scene) -> web.StreamResponse:
    answer = await scene.in_phase() or _nothing_done()
    answer.body = _body(answer).rstrip()[:-1]
    return answer


async def _wrong_type(_: effects.WrongContentType, scene: Scene) -> web.StreamResponse:
    answer = await scene.commit()
    answer.content_type = "text/html"
    return answer


async def _huge(effect: effects.HugeBody, scene: Scene) -> web.StreamResponse:
    answer = await scene.commit()
    body = _body(answer)
    length = max(effect.size, len(body))
    blanks = (b" " * min(_CHUNK, length - at) for at in range(len(body), length, _CHUNK))
    return await scene.stream(answer, chain([body], blanks), length=length)


async def _bomb(effect: effects.GzipBomb, scene: Scene) -> web.StreamResponse:
    answer = await scene.commit()
    answer.headers["Content-Encoding"] = "gzip"
    return await scene.stream(answer, packed(_body(answer), effect.size))


async def _drip(effect: effects.SlowDrip, scene: Scene) -> web.StreamResponse:
    answer = await scene.commit()
    body = _body(answer)
    pieces = (body[at : at + 1] for at in range(len(body)))
    return await scene.stream(answer, pieces, length=len(body), pause=effect.seconds)


async def _redirect(effect: effects.Redirect, scene: Scene) -> web.StreamResponse:
    await scene.in_phase()
    location = scene.request.path_qs if effect.location is None else effect.location
    return web.Response(status=effect.status, headers={"Location": location})


async def _before_answer(_: effects.BeforeAnswer, scene: Scene) -> web.StreamResponse:
    answer = await scene.commit()
    await scene.told()
    return answer


def _body(answer: web.Response) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else b""


def _nothing_done() -> web.Response:
    return web.json_response({"message": "nothing was done: a fault of the sandbox"})


Action = Callable[[Any, Scene], Awaitable[web.StreamResponse]]

_ACTIONS: Final[Mapping[type[effects.Effect], Action]] = {
    effects.Latency: _latency,
    effects.Hang: _hang,
    effects.ServerError: _server_error,
    effects.RateLimited: _rate_limited,
    effects.Refuse: _refuse,
    effects.ResetBefore: _reset,
    effects.ResetAfterCommit: _reset,
    effects.TruncatedBody: _truncated,
    effects.MalformedJson: _malformed,
    effects.WrongContentType: _wrong_type,
    effects.HugeBody: _huge,
    effects.GzipBomb: _bomb,
    effects.SlowDrip: _drip,
    effects.Redirect: _redirect,
    effects.StaleKeepAlive: _stale,
    effects.BeforeAnswer: _before_answer,
}
