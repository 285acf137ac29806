"""One attempt over HTTP: it ends as a reply, as provably not sent, or as sent without an answer."""

import asyncio
from functools import partial
from typing import Final

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from payasync.calls import Call, Reply
from payasync.codec import Outgoing, encode
from payasync.errors import PayasyncError, SessionClosedError
from payasync.secret import Secret
from payasync.transport.body import OneShotBody
from payasync.transport.failures import AnswerTooLargeError, failure
from payasync.transport.pools import Pools, PoolSettings
from payasync.version import VERSION

ALWAYS: Final = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": f"payasync/{VERSION}",
}
"""Identity: 194 kB of gzip can inflate to 200 MB."""

JSON_HEADERS: Final = {"Content-Type": "application/json"}
NO_BODY_HEADERS: Final = {"Accept": ALWAYS["Accept"]}

_FOREIGN: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError, RuntimeError)
"""All that aiohttp lets escape from a request."""


class Transport:
    """Sends one attempt, and reads its answer.

    Args:
        base_url: Every path is appended to it.
        pools: What the pools are made with.
        proxy: Every connection goes through it.
        max_response_bytes: A longer answer is not read to its end.
        http: Used in place of our own pools, and never closed here.
    """

    def __init__(
        self,
        base_url: URL,
        *,
        pools: PoolSettings,
        proxy: Secret | None,
        max_response_bytes: int,
        http: aiohttp.ClientSession | None,
    ) -> None:
        self.base = str(base_url).rstrip("/")
        self._pools = Pools(pools)
        self._proxy = proxy
        self._max_response_bytes = max_response_bytes
        self._http = http
        self.closed = False

    async def send(self, call: Call) -> Reply:
        """Send one attempt.

        Raises:
            NotSentError: Provably nothing left this machine.
            NoAnswerError: Something may have, and no whole answer came.
            SessionClosedError: The transport was closed before anything was sent.
        """
        outgoing = encode(call)
        http = self._session(call)
        body = OneShotBody(outgoing.body, JSON_HEADERS if call.operation.has_body else NO_BODY_HEADERS)
        try:
            async with asyncio.timeout_at(call.deadline) as timer:
                body.on_start = partial(_bound_read, timer, call)
                return await self._exchange(http, call, outgoing, body)
        except asyncio.CancelledError as cancelled:
            if not (self.closed and _nobody_cancelled()):
                raise cancelled.with_traceback(None)  # noqa: B904 - aiohttp's frames hold the headers
            ended: PayasyncError = failure(ConnectionAbortedError(), begun=body.begun)
        except _FOREIGN as error:
            ended = failure(error, begun=body.begun)
        if self.closed and not body.begun:
            ended = SessionClosedError("the session was closed: make another")
        raise ended

    async def _exchange(self, http: aiohttp.ClientSession, call: Call, outgoing: Outgoing, body: OneShotBody) -> Reply:
        response = await http.request(
            call.operation.method,
            self._url(outgoing),
            data=body,
            headers=_headers(call, outgoing),
            proxy=None if self._proxy is None else self._proxy.reveal(),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=call.timeouts.connect, sock_connect=call.timeouts.connect
            ),
            allow_redirects=False,
            auto_decompress=False,
            raise_for_status=False,
            middlewares=(),
        )
        try:
            content = await self._whole(response.content)
        except BaseException:
            response.close()
            raise
        return Reply(status=response.status, headers=response.headers, body=content)

    async def _whole(self, content: aiohttp.StreamReader) -> bytes:
        if content.is_eof():
            return self._within_bounds(content.read_nowait())
        parts = bytearray()
        while part := await content.readany():
            parts += part
            self._within_bounds(parts)
        return bytes(parts)

    def _within_bounds(self, read: bytes | bytearray) -> bytes:
        if len(read) > self._max_response_bytes:
            raise AnswerTooLargeError(self._max_response_bytes)
        return bytes(read)

    def _session(self, call: Call) -> aiohttp.ClientSession:
        if self.closed:
            raise SessionClosedError("the session is closed: make another")
        if self._http is not None:
            return self._http
        pool = self._pools.current()
        return pool.reads if call.read else pool.writes

    def _url(self, outgoing: Outgoing) -> URL:
        url = URL(self.base + outgoing.path, encoded=True)
        return url.with_query(outgoing.query) if outgoing.query else url

    async def aclose(self) -> None:
        """Close our own pools; an injected session is left open."""
        self.closed = True
        await self._pools.aclose()


def _nobody_cancelled() -> bool:
    """Return whether it was aiohttp that cancelled: a pool that closes does that to those who wait for it."""
    task = asyncio.current_task()
    return task is not None and not task.cancelling()


def _bound_read(timer: asyncio.Timeout, call: Call) -> None:
    """From the start of the write to the whole answer: `Timeouts.read`, within the call's deadline."""
    if not timer.expired():
        timer.reschedule(min(call.deadline, asyncio.get_running_loop().time() + call.timeouts.read))


def _headers(call: Call, outgoing: Outgoing) -> CIMultiDict[str]:
    headers = CIMultiDict(ALWAYS)
    headers.update(call.profile.headers)
    headers.update(outgoing.headers)
    for name, value in call.headers.items():
        headers[name] = value.reveal() if isinstance(value, Secret) else value
    return headers
