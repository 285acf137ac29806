"""Connection pools, each bound to the process and the event loop that it was made in.

A pool is never used from another loop. A loop that `asyncio.run` ends closes its pool. If a loop was closed without
that, the raw sockets of its pool are closed. A forked child drops what it inherits without closing it, because a TLS
close would reach the parent's peer.
"""

import asyncio
import os
import socket
import ssl
import weakref
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from http.cookies import SimpleCookie
from math import inf
from typing import Any, Final, Self

import aiohttp
from yarl import URL

from payasync.clocks import Deadlines
from payasync.errors import ConfigurationError
from payasync.settings import invalid_setting, make_default_tls
from payasync.transport.aiohttp_request import OwnRequest, SharedConnectorRequest, Writes, run_to_end
from payasync.transport.deadlines import Deadline
from payasync.transport.resolver import Resolver

WRITE_IDLE: Final = 2.0
"""Seconds for which a write may reuse an idle connection: if the server closes it, the outcome is unknown."""
READ_IDLE: Final = 15.0
MAX_HEADER: Final = (64 << 10) + 256
"""Bytes of a header: 64 KiB, and its name."""
MAX_HEADERS: Final = 256


class _NoCookies(aiohttp.DummyCookieJar):
    """A jar that never holds cookies, and reuses one empty set: aiohttp adds only cookies that a call gives."""

    _none: Final = SimpleCookie()

    def filter_cookies(self, request_url: URL) -> SimpleCookie:  # noqa: ARG002 - there are no cookies
        return self._none


class PoolSettings:
    """The settings of a pool.

    Args:
        tls: Verifies the service, in place of the system's certificates.
        max_connections: The most for writes, and as many for reads.
        secure: Whether TLS is needed: the service, or the proxy, has an https address.
        http: Lends its connector and its trace configs. It is never closed here.
        headers: Sent with every request.

    Raises:
        ConfigurationError: `http` is not an `aiohttp.ClientSession`.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None,
        max_connections: int,
        secure: bool = True,
        http: aiohttp.ClientSession | None = None,
        headers: Mapping[str, str],
    ) -> None:
        if http is not None and not isinstance(http, aiohttp.ClientSession):
            raise invalid_setting("http", f"must be an aiohttp.ClientSession, not {http!r}")
        self.tls = tls
        self.max_connections = max_connections
        self.secure = secure
        self.http = http
        self.headers = headers


class ConnectionLimit:
    """The most connections at once. Calls get them in the order in which they ask.

    A call that has too little time left is passed over, and waits until its time is over. aiohttp itself would wake it:
    it fails, and wakes the next one. With a service that hangs, thousands of calls then fail in the same turn of the
    loop, and all others end too late.

    Args:
        most: How many; infinite for a lent connector, which lets calls wait itself.
    """

    def __init__(self, most: float) -> None:
        self._free = most
        self._waiting: OrderedDict[asyncio.Future[None], Deadline] = OrderedDict()

    def take(self) -> Self | None:
        """Take a connection and return the limit, or return `None` if none is free."""
        if self._free <= 0:
            return None
        self._free -= 1
        return self

    async def wait(self, deadline: Deadline) -> Self:
        """Wait for a connection, take it, and return the limit."""
        freed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[freed] = deadline
        try:
            await freed
        except asyncio.CancelledError:
            if not freed.cancelled():  # the connection came in the same turn
                self.release()
            raise
        finally:
            self._waiting.pop(freed, None)
        return self

    def release(self) -> None:
        """Pass a connection on to the first call that has enough time left, or keep it free."""
        while self._waiting:
            freed, deadline = self._waiting.popitem(last=False)
            if not freed.done() and deadline.may_start:
                freed.set_result(None)
                return
        self._free += 1


class Pool:
    """Two aiohttp sessions of one loop, because writes reuse a connection only if it was idle for a short time.

    With `http` there is one session of ours, on the connector that `http` lends.

    Attributes:
        resolver: Looks up names, but not for a lent connector.
        write: Sends a write, and the limit of connections for writes.
        read: The same for reads.
        closed: Whether the pool is closed.

    Raises:
        ConfigurationError: `http` is closed.
    """

    def __init__(self, settings: PoolSettings) -> None:
        self.deadlines: Deadlines = Deadlines(asyncio.get_running_loop())
        self.resolver: Final = Resolver()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        # Reading the machine's authorities takes 20 ms, and plain http does not need them.
        tls = (settings.tls or make_default_tls()) if settings.secure else None
        lent = settings.http
        idles = (WRITE_IDLE, READ_IDLE)
        connectors = [_lent_connector(lent)] if lent else [self._make_connector(settings, idle) for idle in idles]
        writes = Writes(self.deadlines.loop, self.deadlines.running)
        self._own = [
            aiohttp.ClientSession(
                connector=connector,
                connector_owner=lent is None,
                trace_configs=lent.trace_configs if lent else None,
                cookie_jar=_NoCookies(),
                # `Deadline` bounds each phase. aiohttp's `connect` would also count the wait for the pool.
                timeout=aiohttp.ClientTimeout(total=None),
                headers=settings.headers,
                request_class=(SharedConnectorRequest if lent else OwnRequest).verified_by(tls, writes.add),
                auto_decompress=False,
                max_line_size=MAX_HEADER,
                max_field_size=MAX_HEADER,
                max_headers=MAX_HEADERS,
            )
            for connector in connectors
        ]
        most = inf if lent else settings.max_connections
        limited = [(each.request, ConnectionLimit(most)) for each in self._own]
        self.write: Final = limited[0]
        self.read: Final = limited[-1]
        self.closed: bool = False
        self._guard = self._close_with_loop()
        run_to_end(anext(self._guard))

    def _make_connector(self, settings: PoolSettings, idle: float) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=settings.max_connections,
            keepalive_timeout=idle,
            socket_factory=self._make_socket,
            resolver=self.resolver,
            use_dns_cache=False,
        )

    def _make_socket(self, address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made

    def wake_next(self) -> None:
        """Wake the next call that waits for a lent connector. aiohttp does not, if it woke a call that is cancelled."""
        for http in self._own:
            # aiohttp has no public name for it. Without it the next call waits until another one ends.
            getattr(http.connector, "_release_waiter", bool)()

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        """Close with the loop: `asyncio.run` ends the async generators that were begun in its loop."""
        try:
            yield
        finally:
            self.closed = True
            self.deadlines.close()
            try:
                for http in self._own:
                    await http.close()
            except asyncio.CancelledError:  # a loop that ends cancels this task, too
                for http in self._own:
                    run_to_end(http.close())
                raise

    async def aclose(self) -> None:
        """Close the pool, in its own loop."""
        await self._guard.aclose()

    def close_soon(self) -> None:
        """Close the pool in a task of its own loop."""
        self._closing_task = asyncio.ensure_future(self.aclose())

    def dispose(self) -> None:
        """Close the raw sockets of a pool whose loop does not run."""
        for each in tuple(self._sockets):
            each.close()
        for http in self._own:
            run_to_end(http.close())

    def abandon_after_fork(self, nowhere: int) -> None:
        """Replace the parent's sockets in this child by /dev/null, so that nothing can reach the peer."""
        for each in tuple(self._sockets):
            if each.fileno() >= 0:
                os.dup2(nowhere, each.fileno(), inheritable=False)


def _lent_connector(http: aiohttp.ClientSession) -> aiohttp.BaseConnector:
    connector = http.connector
    if http.closed or connector is None:
        raise invalid_setting("http", "is closed: give an aiohttp.ClientSession that is open")
    return connector


SANDBOXES: Final = weakref.WeakValueDictionary[str, asyncio.AbstractEventLoop]()
"""The event loops of this process's sandboxes, by URL."""


def foreign_loop() -> ConfigurationError:
    """Return the error about a sandbox that cannot respond here."""
    what = "a Sandbox works only in the event loop in which it was started, and while that loop runs"
    return ConfigurationError(f"{what}. Use payasync.sandbox.ThreadedSandbox: it works with every event loop")


class Pools:
    """The pools of one transport, by event loop.

    Args:
        settings: Those of each pool.
        base: The address of the service.
    """

    def __init__(self, settings: PoolSettings, base: str) -> None:
        self._settings = settings
        self._base = base
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._home: asyncio.AbstractEventLoop | None = None
        _live.add(self)

    def current(self) -> Pool:
        """Return the pool of the running loop; the first call makes it.

        Raises:
            ConfigurationError: A lent connector belongs to another loop, or a sandbox to one that does not run.
        """
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None or pool.closed:
            self._drop_closed_loops()
            if (home := SANDBOXES.get(self._base)) and not home.is_running():
                raise foreign_loop()
            # A lent connector belongs to the first loop.
            if self._settings.http is not None and self._home not in {None, loop}:
                raise invalid_setting("http", "belongs to one event loop, and this is another")
            self._home = loop
            pool = self._pools[loop] = Pool(self._settings)
        return pool

    def _drop_closed_loops(self) -> None:
        for loop in tuple(self._pools):
            if loop.is_closed() and (pool := self._pools.pop(loop, None)):  # unless another thread is faster
                pool.dispose()

    async def aclose(self) -> None:
        """Close all pools: that of this loop here, those of other running loops there, and the others directly."""
        self._drop_closed_loops()
        here = asyncio.get_running_loop()
        pools, self._pools = self._pools, {}
        own = pools.pop(here, None)
        for loop, pool in pools.items():
            if loop.is_running():
                with suppress(RuntimeError):  # the loop has just closed, and its pool with it
                    loop.call_soon_threadsafe(pool.close_soon)
            else:
                pool.dispose()
        if own is not None:
            await own.aclose()

    def abandon_after_fork(self, nowhere: int) -> None:
        """Drop all pools in a forked child without closing them."""
        pools, self._pools = self._pools, {}
        _inherited.append(pools)
        for pool in pools.values():
            pool.abandon_after_fork(nowhere)


_live: "weakref.WeakSet[Pools]" = weakref.WeakSet()
_inherited: list[object] = []
"""The parent's pools, kept until the child ends, because garbage collection would close them."""


def _abandon_all() -> None:
    SANDBOXES.clear()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for pools in tuple(_live):
        pools.abandon_after_fork(nowhere)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
