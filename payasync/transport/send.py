"""One attempt over HTTP: it ends as a reply, as provably not sent, or as sent without an answer."""

import asyncio
from collections.abc import Awaitable, Mapping
from functools import lru_cache
from typing import Final

import aiohttp
from attrs import evolve
from multidict import CIMultiDict
from yarl import URL

from payasync.credentials import Secret
from payasync.endpoints import OPERATIONS
from payasync.errors import PayasyncError, SessionClosedError
from payasync.settings import canonical_url
from payasync.transport.body import OneShotBody
from payasync.transport.deadlines import Deadline, running_task
from payasync.transport.failures import AnswerTooLargeError, failure
from payasync.transport.pools import Pool, Pools, PoolSettings
from payasync.wire.call import Call, Reply
from payasync.wire.encode import Outgoing, encode

PATHS: Final = frozenset(operation.path for operation in OPERATIONS)
"""Of these there are ten, so that their URLs can be kept; an identifier in a path makes any number of others."""


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
        self.base = canonical_url(base_url)
        self._pools = Pools(evolve(pools, headers=headers))
        self._proxy = proxy
        self._urls: dict[str, URL] = {}
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
        if self.closed:
            raise SessionClosedError("the session is closed: make another")
        pool = self._pools.current()
        body = OneShotBody(outgoing.body)
        response = None
        try:
            with Deadline(pool.deadlines, call) as deadline:
                body.on_connect, body.on_start = deadline.connect, deadline.begin
                response = await self._exchange(pool, call, outgoing, body)
                if not body.begun:
                    raise _unasked(response)  # noqa: TRY301 - a function around it would cost more than the check
                content = response.content
                whole = content.read_nowait() if content.is_eof() else await self._rest(response)
                if len(whole) > self._max_response_bytes:
                    raise AnswerTooLargeError  # noqa: TRY301 - as above
            elapsed = pool.deadlines.time() - call.deadline + call.timeouts.total
            return Reply(response.status, response.headers, whole, elapsed, call.attempt)
        except asyncio.CancelledError as cancelled:
            _give_up(pool, body, response)
            if not self.closed or running_task().cancelling():
                raise cancelled.with_traceback(None)  # noqa: B904 - aiohttp's frames hold the headers
            # A pool that closes cancels those who wait for it; nobody cancelled this task.
            ended: PayasyncError = failure(ConnectionAbortedError(), self.base, begun=body.begun)
        except Exception as error:  # noqa: BLE001 - of whatever class: its frames may hold the headers
            _give_up(pool, body, response)
            # A session that closes ends its calls by their deadlines, which have not come.
            ended = failure(aiohttp.ServerDisconnectedError() if self.closed else error, self.base, begun=body.begun)
        if self.closed and not body.begun:
            ended = SessionClosedError("the session was closed: make another")
        raise ended

    def _exchange(
        self, pool: Pool, call: Call, outgoing: Outgoing, body: OneShotBody
    ) -> Awaitable[aiohttp.ClientResponse]:
        return (pool.read if call.operation.read else pool.write)(
            call.operation.method,
            self._url(outgoing),
            data=body,
            headers=_headers(call, outgoing) if call.headers or outgoing.headers else None,
            timeout=_connecting(call.timeouts.connect),
            allow_redirects=False,
            proxy=None if self._proxy is None else self._proxy.reveal(),
        )

    async def _rest(self, response: aiohttp.ClientResponse) -> bytes:
        """Return a body that has not come as a whole yet; a longer one than may be is not read to its end."""
        parts = bytearray()
        while part := await response.content.readany():
            parts += part
            if len(parts) > self._max_response_bytes:
                raise AnswerTooLargeError
        return bytes(parts)

    def _url(self, outgoing: Outgoing) -> URL:
        url = self._urls.get(outgoing.path)
        if url is None:
            url = URL(self.base + outgoing.path, encoded=True)
            if outgoing.path in PATHS:
                self._urls[outgoing.path] = url
        return url.with_query(outgoing.query) if outgoing.query else url

    async def aclose(self) -> None:
        """Close the pools; an injected session is left open."""
        self.closed = True
        await self._pools.aclose()


def _unasked(response: aiohttp.ClientResponse) -> aiohttp.ServerDisconnectedError:
    """Refuse an answer that stood there before its request had begun: it is none to it."""
    response.close()
    return aiohttp.ServerDisconnectedError("an answer that nobody asked for")


def _give_up(pool: Pool, body: OneShotBody, response: aiohttp.ClientResponse | None) -> None:
    """Cut the connection, unless its answer has ended already: then it may be another call's by now."""
    if response is None:
        body.abort()
        pool.wake_next()
    elif response.connection is not None:
        body.abort()
        response.close()


def _headers(call: Call, outgoing: Outgoing) -> CIMultiDict[str]:
    """Return the headers that the pool does not send with every request anyway."""
    headers = CIMultiDict(outgoing.headers)
    for name, value in call.headers.items():
        headers[name] = value.reveal() if isinstance(value, Secret) else value
    return headers


@lru_cache(maxsize=64)
def _connecting(seconds: float) -> aiohttp.ClientTimeout:
    """Bound each address. aiohttp's `connect` would include the wait for the pool; the deadline bounds the rest."""
    return aiohttp.ClientTimeout(total=None, sock_connect=seconds)
