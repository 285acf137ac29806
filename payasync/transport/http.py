"""One attempt over HTTP: it ends as a reply, as provably not sent, or as sent without an answer."""

import asyncio
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Final

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from payasync.calls import Call, Reply
from payasync.errors import PayasyncError, SessionClosedError
from payasync.outgoing import Outgoing, encode
from payasync.secret import Secret
from payasync.transport.body import OneShotBody
from payasync.transport.deadlines import Deadline, running_task
from payasync.transport.failures import AnswerTooLargeError, failure
from payasync.transport.pools import Pool, Pools, PoolSettings
from payasync.version import VERSION

ALWAYS: Final = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": f"payasync/{VERSION}",
}
"""Identity: 194 kB of gzip can inflate to 200 MB."""


class Transport:
    """Sends one attempt, and reads its answer.

    Args:
        base_url: Every path is appended to it.
        pools: What the pools are made with.
        headers: Sent with every call.
        proxy: Every connection goes through it.
        max_response_bytes: A longer answer is not read to its end.
    """

    def __init__(
        self,
        base_url: URL,
        *,
        pools: PoolSettings,
        headers: Mapping[str, str],
        proxy: Secret | None,
        max_response_bytes: int,
    ) -> None:
        self.base = str(base_url).rstrip("/")
        self._headers = CIMultiDict({**ALWAYS, **headers})
        self._pools = Pools(pools)
        self._proxy = proxy
        self._max_response_bytes = max_response_bytes
        self.closed = False

    async def send(self, call: Call) -> Reply:
        """Send one attempt.

        Raises:
            NotSentError: Provably nothing left this machine.
            NoAnswerError: Something may have, and no whole answer came.
            SessionClosedError: The transport was closed before anything was sent.
        """
        outgoing = encode(call)
        pool = self._pool()
        body = OneShotBody(outgoing.body, has_content=call.operation.has_body)
        try:
            with pool.deadlines.until(call.deadline) as deadline:
                body.on_start = partial(_begin, deadline, call)
                return await self._exchange(pool.reads if call.read else pool.writes, call, outgoing, body)
        except asyncio.CancelledError as cancelled:
            if not self.closed or running_task().cancelling():
                raise cancelled.with_traceback(None)  # noqa: B904 - aiohttp's frames hold the headers
            # A pool that closes cancels those who wait for it; nobody cancelled this task.
            ended: PayasyncError = failure(ConnectionAbortedError(), self.base, begun=body.begun)
        except Exception as error:  # noqa: BLE001 - of whatever class: its frames may hold the headers
            ended = failure(error, self.base, begun=body.begun)
        if self.closed and not body.begun:
            ended = SessionClosedError("the session was closed: make another")
        raise ended

    async def _exchange(self, http: aiohttp.ClientSession, call: Call, outgoing: Outgoing, body: OneShotBody) -> Reply:
        response = await http.request(
            call.operation.method,
            self._url(outgoing),
            data=body,
            headers=self._all_headers(call, outgoing),
            proxy=None if self._proxy is None else self._proxy.reveal(),
            timeout=_connecting(call.timeouts.connect),
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
        return Reply(
            status=response.status,
            headers=response.headers,
            body=content,
            attempts=call.attempt,
            elapsed=asyncio.get_running_loop().time() - (call.deadline - call.timeouts.total),
        )

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

    def _pool(self) -> Pool:
        if self.closed:
            raise SessionClosedError("the session is closed: make another")
        return self._pools.current()

    def _url(self, outgoing: Outgoing) -> URL:
        url = _encoded(self.base + outgoing.path)
        return url.with_query(outgoing.query) if outgoing.query else url

    def _all_headers(self, call: Call, outgoing: Outgoing) -> CIMultiDict[str]:
        if not call.headers and not outgoing.headers:
            return self._headers
        headers = self._headers.copy()
        headers.update(outgoing.headers)
        for name, value in call.headers.items():
            headers[name] = value.reveal() if isinstance(value, Secret) else value
        return headers

    async def aclose(self) -> None:
        """Close the pools; an injected session is left open."""
        self.closed = True
        await self._pools.aclose()


def _begin(deadline: Deadline, call: Call) -> None:
    """From the start of the write to the whole answer: `Timeouts.read`, within the call's deadline."""
    call.progress.begun = True
    deadline.when = min(call.deadline, asyncio.get_running_loop().time() + call.timeouts.read)


@lru_cache(maxsize=64)
def _connecting(seconds: float) -> aiohttp.ClientTimeout:
    """Bound the way to a connection only: the rest is the deadline's."""
    return aiohttp.ClientTimeout(total=None, connect=seconds, sock_connect=seconds)


@lru_cache(maxsize=256)
def _encoded(address: str) -> URL:
    return URL(address, encoded=True)
