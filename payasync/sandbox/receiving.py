"""How the sandbox takes a request off the wire: never more than it can hold (spec: Limits, gaps)."""

import logging
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from payasync.sandbox.strict import encodable
from payasync.sandbox.values import RefusedError

MAX_BODY: Final = 64 * 1024
"""Bytes; the sandbox's own limit."""
MAX_ADDRESS: Final = 8190
"""Characters of a request's path and query; the sandbox's own limit."""
MOST_READ: Final = 1 << 20
"""Bytes of a request's first line that are read at all: what is longer gets no answer in our shape."""


def _is_ours(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


logger: Final = logging.getLogger("payasync.sandbox.http")
"""aiohttp's, without the tracebacks of what is no HTTP: the client alone is at fault there, and is told."""
logger.addFilter(_is_ours)


def check_address(request: web.Request) -> None:
    """Check that a request's address is not too long.

    Raises:
        RefusedError: It is.
    """
    if len(request.raw_path) > MAX_ADDRESS:
        raise RefusedError("invalid", f"the address has more than {MAX_ADDRESS} characters", status=414)


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
