"""Notifications by aiohttp's server: the raw body in, the receiver's answer out."""

import asyncio

from aiohttp import web

from payasync.notifications.answers import BODY_SECONDS, TOO_SLOW, Take, kind_of
from payasync.tracebacks import frameless_async


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
            body = await _body(request, max_bytes)
    except TimeoutError:
        slow = web.Response(status=TOO_SLOW.status)
        slow.force_close()
        return slow
    answer = await take(body, request.headers, kind or kind_of(request.match_info.get("kind", request.path)))
    return web.Response(status=answer.status, body=answer.body.encode(), headers=answer.headers)


async def _body(request: web.Request, max_bytes: int) -> bytes:
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
