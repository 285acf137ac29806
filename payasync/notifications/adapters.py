"""Notifications by aiohttp's server and by ASGI: the raw body in, the receiver's response out."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from aiohttp import web
from attrs import evolve, frozen

from payasync.errors import frameless_async
from payasync.notifications.ingest import BODY_SECONDS, TOO_SLOW, Answer, Take, kind_of


@frameless_async
async def answered(take: Take, request: web.Request, *, kind: str | None, max_bytes: int) -> web.Response:
    """Return the answer to a request.

    Args:
        take: The receiver's: returns the answer to a body with its headers.
        request: aiohttp's.
        kind: In place of what its route or its path says.
        max_bytes: No more of its body is read than shows that it is longer.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _aiohttp_body(request, max_bytes)
    except TimeoutError:
        slow = web.Response(status=TOO_SLOW.status)
        slow.force_close()
        return slow
    answer = await take(body, request.headers, kind or kind_of(request.match_info.get("kind", request.path)))
    return web.Response(status=answer.status, body=answer.body.encode(), headers=answer.headers)


async def _aiohttp_body(request: web.Request, max_bytes: int) -> bytes:
    """Return a body, or as much of it as shows that it is too long; nothing, where it broke off or is not decoded."""
    body = bytearray()
    try:
        if request.content.at_eof():  # a middleware has read it before: aiohttp has kept what it gave
            return await request.read()
        async for part in request.content.iter_any():
            body += part
            if len(body) > max_bytes:
                break
    except (web.RequestPayloadError, ConnectionError):
        return b""
    return bytes(body)


Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

WRONG_METHOD: Final = Answer(405, headers={"Allow": "POST"})


@frozen
class Application:
    """An ASGI application, mounted in another one or served by itself.

    Attributes:
        take: The receiver's: returns the answer to a body with its headers.
        max_bytes: No more of a body is read than shows that it is longer.
        start: Called where it is served by itself, before the first request.
        stop: Called after the last.
    """

    take: Take
    max_bytes: int
    start: Callable[[], Awaitable[object]]
    stop: Callable[[], Awaitable[None]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send, kind: str | None = None) -> None:
        """Serve one request, or the application's life."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            answer = await self._answer(scope, receive, kind)
            if answer is not None:
                await _send(answer, send)
        else:
            await send({"type": "websocket.close"})

    @frameless_async
    async def _answer(self, scope: Scope, receive: Receive, kind: str | None) -> Answer | None:
        """Return the answer to a request; nothing where nobody waits for one any more."""
        if scope["method"] != "POST":
            return WRONG_METHOD
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _asgi_body(receive, self.max_bytes)
        except TimeoutError:
            closing = {"Connection": "close"} if scope["http_version"].startswith("1") else {}
            return evolve(TOO_SLOW, headers=closing)  # from HTTP/2 on, no such header may be sent
        return None if body is None else await self.take(body, scope["headers"], kind or kind_of(scope["path"]))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:  # noqa: BLE001 - the server says it, and ends
            await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})


async def _asgi_body(receive: Receive, max_bytes: int) -> bytes | None:
    """Return a body, or the beginning of one that is too long; `None` where its sender has gone."""
    body = bytearray()
    more = True
    while more and len(body) <= max_bytes:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)


async def _send(answer: Answer, send: Send) -> None:
    body = answer.body.encode()
    framed = {**answer.headers, "Content-Length": str(len(body))}
    headers = [(name.lower().encode(), value.encode()) for name, value in framed.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
