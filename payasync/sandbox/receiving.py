"""How the sandbox takes a request off the wire: never more than it can hold (spec: Limits, gaps)."""

from typing import Final

from aiohttp import web

from payasync.sandbox.strict import encodable
from payasync.sandbox.values import RefusedError

MAX_BODY: Final = 64 * 1024
"""Bytes; the sandbox's own limit."""


async def body(request: web.Request, content_type: str) -> bytes:
    """Return a request's body.

    Args:
        request: Whose body has not been read yet.
        content_type: What it must be.

    Raises:
        RefusedError: It is too large, or of another type.
    """
    received = await _bounded(request)
    if "Content-Encoding" in request.headers:
        raise RefusedError("invalid", "the body must not be compressed", status=415)
    if request.content_type != content_type or _charset(request) not in {"", "utf-8"}:
        raise RefusedError("invalid", f"Content-Type must be {content_type}", status=415)
    return received


def _charset(request: web.Request) -> str:
    return (request.charset or "").lower()


async def _bounded(request: web.Request) -> bytes:
    received = bytearray()
    if (request.content_length or 0) <= MAX_BODY:
        async for chunk in request.content.iter_any():
            received += chunk
            if len(received) > MAX_BODY:
                break
        else:
            return bytes(received)
    raise RefusedError("invalid", f"the body has more than {MAX_BODY} bytes", status=413)


def query(request: web.Request) -> dict[str, str]:
    """Return the fields in a request's query.

    Raises:
        RefusedError: A name stands there twice, or a text is no Unicode.
    """
    fields = dict(request.query)
    if len(fields) != len(request.query):
        raise RefusedError("invalid", "a name stands twice in the query", status=400)
    if not all(encodable(name + value) for name, value in fields.items()):
        raise RefusedError("invalid", "the query is not UTF-8", status=400)
    return fields
