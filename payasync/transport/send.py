"""One attempt over HTTP, which ends as a reply, as provably not sent, or as sent without a response."""

import asyncio
import os
import socket
import ssl
import zlib
from collections import deque
from contextlib import suppress
from gzip import GzipFile
from http import HTTPStatus
from io import BytesIO
from typing import Final

import aiohttp
from aiohttp.hdrs import CONTENT_ENCODING
from attrs import evolve
from multidict import CIMultiDict, MultiMapping
from yarl import URL

from payasync.clocks import boot_time, running_task
from payasync.credentials import Secret
from payasync.errors import (
    ConfigurationError,
    NoAnswerError,
    NoAnswerTimeoutError,
    NotSentError,
    NotSentTimeoutError,
    PayasyncError,
    SessionClosedError,
)
from payasync.evidence.age import POSTS, Posted, age_of
from payasync.settings import canonical_url
from payasync.transport.aiohttp_request import OneShotBody
from payasync.transport.deadlines import Deadline, LeaseOverError, NoFreeConnectionError, TooLateError
from payasync.transport.pools import MAX_HEADERS, Pool, Pools, PoolSettings
from payasync.wire.call import Call, Encoded, Reply
from payasync.wire.encode import encode


class ResponseTooLargeError(aiohttp.ClientError):
    """The response is longer than `max_response_bytes`."""


class Transport:
    """Sends one attempt, and reads its response.

    Args:
        base_url: The address of the service, before each path.
        pools: The settings of the connection pools.
        proxy: The proxy of all connections.
        max_response_bytes: The limit of a response; a longer one is not read to its end.
    """

    def __init__(self, base_url: URL, *, pools: PoolSettings, proxy: Secret | None, max_response_bytes: int) -> None:
        self.base: str = canonical_url(base_url)
        self._pools = Pools(pools, self.base)
        self._proxy = proxy
        self._urls: dict[str, URL] = {}
        self._max_response_bytes = max_response_bytes
        self._posted: Posted = deque(maxlen=POSTS)
        self.closed: bool = False

    async def send(self, call: Call) -> Reply:
        """Send one attempt.

        Raises:
            NotSentError: Provably nothing left this machine.
            NoAnswerError: The request may have left, and no complete response came.
            SessionClosedError: The transport was closed before anything was sent.
        """
        encoded = call.encoded or encode(call)
        if self.closed:
            raise SessionClosedError("the session is closed: make another")
        pool = self._pools.current()
        url = self._urls.get(encoded.path) or self._make_url(call, encoded.path)
        body = OneShotBody(encoded.body)
        began, attempt = call.deadline - call.timeouts.total, call.attempt
        response = None
        operation = call.operation
        request, limit = pool.read if operation.read else pool.write
        try:
            with Deadline(pool.deadlines, call) as body.deadline:
                body.deadline.holds = limit.take() or await limit.wait(body.deadline)
                exchange = request(
                    operation.method,
                    url.with_query(encoded.query) if encoded.query else url,
                    data=body,
                    headers=_own_headers(call, encoded) if operation.read or call.headers or encoded.headers else None,
                    allow_redirects=False,
                    proxy=None if self._proxy is None else self._proxy.reveal(),
                )
                del call, encoded  # a call in flight would hold its fields twice
                response = await exchange
                if not body.begun:  # the response was there before its request
                    response.close()
                    raise aiohttp.ServerDisconnectedError  # noqa: TRY301 - a function would cost more than the check
                content = response.content
                whole = content.read_nowait() if content.is_eof() else await self._read_rest(response)
                headers: MultiMapping[str] = response.headers
                if CONTENT_ENCODING in headers or len(whole) > self._max_response_bytes:
                    headers, whole = unpack(headers, whole, self._max_response_bytes)
            reply = Reply(response.status, headers, whole, pool.deadlines.time() - began, attempt)
            if operation.read:
                reply = evolve(reply, age=age_of(boot_time(), headers, self._posted))
            if operation.method == "POST":
                self._posted.append((boot_time(), headers, reply.elapsed))
            return reply  # noqa: TRY300 - an error above is a failed attempt
        except asyncio.CancelledError as cancelled:
            _abort(pool, body, response)
            if running_task().cancelling():
                raise cancelled.with_traceback(None)  # noqa: B904 - aiohttp's frames hold the headers
            # A lent connector that its owner closes cancels the calls that wait for it; nobody cancelled this task.
            ended: PayasyncError = attempt_error(ConnectionAbortedError(), self.base, begun=body.begun)
        except Exception as error:  # noqa: BLE001 - of whatever class: its frames may hold the headers
            _abort(pool, body, response)
            # A session that closes ends its calls early as if by their deadlines.
            ended = attempt_error(
                aiohttp.ServerDisconnectedError() if self.closed else error,
                self.base,
                begun=body.begun,
                deadline=body.deadline,
            )
        if self.closed and not body.begun:
            ended = SessionClosedError("the session was closed: make another")
        raise ended

    def _make_url(self, call: Call, path: str) -> URL:
        """Return the address of a path, and cache it unless it may hold a number: there may be any number of those."""
        url = URL(self.base + path, encoded=True)
        if call.layout.names and path == call.operation.path:
            self._urls[path] = url
        return url

    async def _read_rest(self, response: aiohttp.ClientResponse) -> bytes:
        """Return a body that did not come in one part. A body that is too long is not read to its end."""
        parts = bytearray()
        while part := await response.content.readany():
            parts += part
            if len(parts) > self._max_response_bytes:
                raise ResponseTooLargeError
        return bytes(parts)

    async def aclose(self) -> None:
        """Close the pools; an injected session is left open."""
        self.closed = True
        await self._pools.aclose()


def _abort(pool: Pool, body: OneShotBody, response: aiohttp.ClientResponse | None) -> None:
    """Cut the connection, unless its response has ended: then another call may use it by now."""
    if response is None:
        pool.resolver.forget()  # the host may have another address by now
        body.abort()
        pool.wake_next()
    elif response.connection is not None:
        body.abort()
        response.close()


def unpack(headers: MultiMapping[str], body: bytes, most: int) -> tuple[MultiMapping[str], bytes]:
    """Return headers and body without gzip, which some hops add although nobody asked for it.

    Another coding stays, and so does a body that is no gzip: then the header says that nobody can read it.

    Args:
        headers: Of the response.
        body: As it was received.
        most: The limit of a body in bytes, without gzip.

    Raises:
        ResponseTooLargeError: The body is longer.
    """
    if headers.get(CONTENT_ENCODING, "").strip().lower() in {"gzip", "x-gzip"}:
        plain = gunzip(body, most)
        if plain is not None:
            headers, body = CIMultiDict(headers), plain
            del headers[CONTENT_ENCODING]
    if len(body) > most:
        raise ResponseTooLargeError
    return headers, body


def gunzip(body: bytes, most: int) -> bytes | None:
    """Return a body without gzip, or its beginning if it is longer than the limit; `None` if it is no gzip."""
    with suppress(OSError, EOFError, zlib.error):
        return GzipFile(fileobj=BytesIO(body)).read(most + 1)
    return None


_UNCACHED: Final = {"Cache-Control": "no-cache, no-store", "Pragma": "no-cache"}
"""Asks caches for a fresh response. Some ignore it: see `payasync/evidence/age.py`."""


def _own_headers(call: Call, encoded: Encoded) -> CIMultiDict[str]:
    """Return the headers of this call, besides those of every request."""
    headers = CIMultiDict(_UNCACHED if call.operation.read else ())
    headers.update(encoded.headers)
    for name, value in call.headers.items():
        headers[name] = value.reveal() if isinstance(value, Secret) else value
    return headers


_PHRASES: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (aiohttp.ClientConnectorDNSError, "the host name does not resolve"),
    (socket.gaierror, "the host name does not resolve"),
    (aiohttp.ClientConnectorSSLError, "the TLS handshake failed"),
    (aiohttp.ClientProxyConnectionError, "the proxy does not respond"),
    (aiohttp.ConnectionTimeoutError, "no connection in time"),
    (LeaseOverError, "the journal's lease on this write, or the life of its idempotency key, is over"),
    (NoFreeConnectionError, "no connection was free in time: raise max_connections (with http, its connector's limit)"),
    (TooLateError, "too little time was left to send it"),
    (TimeoutError, "no response in time"),
    (ResponseTooLargeError, "the response is longer than max_response_bytes"),
    (aiohttp.ClientPayloadError, "the response was cut short"),
    (aiohttp.ServerDisconnectedError, "the connection was closed before the response"),
    (aiohttp.ClientResponseError, "the response is not HTTP"),
)

_HEADER_LIMITS: Final = ("Got more than", "Too many headers")
"""What such errors of aiohttp's parser begin with."""

_UNTRUSTED: Final = (aiohttp.ClientConnectorCertificateError, ssl.SSLCertVerificationError)
_PERMANENT: Final = (*_UNTRUSTED, ConfigurationError)


def attempt_error(
    error: BaseException, address: str, *, begun: bool, deadline: Deadline | None = None
) -> NotSentError | NoAnswerError:
    """Return the error of a failed attempt.

    Args:
        error: The error that aiohttp raised.
        address: The base URL.
        begun: Whether the write had begun. Nothing else proves that nothing was sent.
        deadline: The deadline of the attempt.
    """
    if isinstance(error, aiohttp.ConnectionTimeoutError) and isinstance(error.__cause__, TooLateError):
        error = error.__cause__
    timed_out = isinstance(error, TimeoutError)
    # The operating system's own time-outs have a number.
    ours = type(error) in {TimeoutError, TooLateError} and not getattr(error, "errno", None)
    limit = f": {deadline.limit(begun=begun)}" if deadline and ours else ""
    if begun:
        kind = NoAnswerTimeoutError if timed_out else NoAnswerError
        reason = f"{describe_failure(error)}{limit}"
        return kind(f"no usable response from {address}: {reason}", reason=reason, sent=None)
    # These have phrases of their own.
    late = timed_out and not isinstance(error, LeaseOverError | NoFreeConnectionError | TooLateError)
    reason = f"{'no connection in time' if late else describe_failure(error)}{limit}"
    unsent = NotSentTimeoutError if timed_out else NotSentError
    permanent = isinstance(error, _PERMANENT)
    repeating = "does not help" if permanent else "is harmless"
    return unsent(
        f"nothing was sent to {address}: {reason}; repeating {repeating}",
        reason=reason,
        sent=False,
        permanent=permanent,
    )


def describe_failure(error: BaseException) -> str:
    """Return what happened in a few words, without any value of the request."""
    if isinstance(error, ConfigurationError):
        return str(error)
    if isinstance(error, _UNTRUSTED):
        flaw = str(getattr(getattr(error, "certificate_error", error), "verify_message", "not valid")).rstrip(".")
        trust = "if a CA of your own has signed it, trust this CA by tls= or SSL_CERT_FILE"
        return f"the certificate of the service cannot be trusted ({flaw}): {trust}"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        give = ": put your user and password into proxy=, such as http://user:password@proxy.example:3128"
        needed = error.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED
        return f"the proxy refused the connection with status {error.status}{give if needed else ''}"
    if isinstance(error, aiohttp.ClientResponseError) and error.message.startswith(_HEADER_LIMITS):
        return f"a header is too long, or there are too many: the limits are 64 KiB and {MAX_HEADERS} headers"
    words = next((words for kind, words in _PHRASES if isinstance(error, kind)), "")
    if isinstance(error, OSError) and error.errno and not words:
        return os.strerror(error.errno).lower()
    return words or "the connection failed"
