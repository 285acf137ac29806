"""The adapters that receive notifications from aiohttp and from ASGI servers."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiohttp import web
from attrs import frozen

from payasync.errors import frameless_async
from payasync.notifications.ingest import Answer
from payasync.notifications.notification import Headers, Raw
from payasync.profile.schema import KINDS

if TYPE_CHECKING:
    from payasync.notifications.receiver import Receiver

BODY_SECONDS: Final = 10.0
"""The time in which a whole body must arrive."""
REQUEST_TIMEOUT: Final = 408
METHOD_NOT_ALLOWED: Final = 405

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


def kind_of_path(path: str) -> str | None:
    """Return the last part of a path, if it names a kind."""
    last = path.rstrip("/").rpartition("/")[2]
    return last if last in KINDS else None


@frameless_async
async def answer_aiohttp(
    receive: Callable[[Raw, Headers, str | None], Awaitable[Answer]],
    request: web.Request,
    *,
    kind: str | None,
    max_bytes: int,
) -> web.Response:
    """Return the response to an aiohttp request.

    Args:
        receive: Returns the response to a body, its headers and its kind.
        request: The request.
        kind: Default: what the route or the path says.
        max_bytes: The greatest length of a body. Of a longer one, only the beginning is read.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _read_aiohttp(request, max_bytes)
    except TimeoutError:
        response = web.Response(status=REQUEST_TIMEOUT)
        response.force_close()
        return response
    answer = await receive(body, request.headers, kind or kind_of_path(request.match_info.get("kind", request.path)))
    return web.Response(status=answer.status, body=answer.body.encode(), headers=answer.headers)


async def _read_aiohttp(request: web.Request, max_bytes: int) -> bytes:
    """Return a body, or the beginning of one that is too long; no bytes if it breaks off or cannot be decoded."""
    body = bytearray()
    try:
        if request.content.at_eof():  # a middleware has read it, and aiohttp has kept the bytes
            return await request.read()
        async for part in request.content.iter_any():
            body += part
            if len(body) > max_bytes:
                break
    except (web.RequestPayloadError, ConnectionError):
        return b""
    return bytes(body)


@frozen
class AsgiApplication:
    """An ASGI application, mounted in another one or served by itself.

    Attributes:
        receiver: Opened and closed with the server, if the application is served by itself.
        max_bytes: The greatest length of a body. Of a longer one, only the beginning is read.
    """

    receiver: "Receiver"
    max_bytes: int

    async def __call__(self, scope: Message, receive: Receive, send: Send, kind: str | None = None) -> None:
        """Serve one request, or the application's lifespan."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            answer = await self._answer(scope, receive, kind)
            if answer is not None:
                await _send(answer, send)
        else:
            await send({"type": "websocket.close"})

    @frameless_async
    async def _answer(self, scope: Message, receive: Receive, kind: str | None) -> Answer | None:
        """Return the response to a request; `None` if its sender has disconnected."""
        if scope["method"] != "POST":
            return Answer(METHOD_NOT_ALLOWED, headers={"Allow": "POST"})
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _read_asgi(receive, self.max_bytes)
        except TimeoutError:
            is_http1 = scope["http_version"].startswith("1")  # HTTP/2 forbids this header
            return Answer(REQUEST_TIMEOUT, headers={"Connection": "close"} if is_http1 else {})
        if body is None:
            return None
        return await self.receiver.receive(body, scope["headers"], kind or kind_of_path(scope["path"]))

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.receiver.__aenter__()
        except Exception as error:  # noqa: BLE001 - the server shows it, and ends
            await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.receiver.aclose()
        await send({"type": "lifespan.shutdown.complete"})


async def _read_asgi(receive: Receive, max_bytes: int) -> bytes | None:
    """Return a body, or the beginning of one that is too long; `None` if its sender has disconnected."""
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
