"""Connection pools, each bound to the process and the event loop that it was made in.

A pool of another loop is never awaited and never reused. A loop that `asyncio.run` ends closes its pool on
the way out; of a loop that was closed without that, the raw sockets are closed. A forked child drops what it
inherits without closing: a TLS close would reach the parent's peer.
"""

import asyncio
import os
import socket
import ssl
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from http.cookies import SimpleCookie
from typing import Any, Final, TypeAlias

import aiohttp
from attrs import Factory, field, frozen
from yarl import URL

from payasync.errors import ConfigurationError
from payasync.headers import is_own
from payasync.transport.deadlines import Deadlines
from payasync.transport.finish import finish
from payasync.transport.request import ALWAYS, OwnRequest

WRITE_IDLE: Final = 2.0
"""Seconds after which a write takes a new connection: a server that closes an idle one makes a write ambiguous."""
READ_IDLE: Final = 15.0


class _NoCookies(aiohttp.DummyCookieJar):
    """No cookies, and not a new set of none for each request: aiohttp adds to it only what a call gives."""

    _none: Final = SimpleCookie()

    def filter_cookies(self, request_url: URL) -> SimpleCookie:  # noqa: ARG002 - there are none for any
        return self._none


@frozen(kw_only=True)
class PoolSettings:
    """What a pool is made with.

    Raises:
        ConfigurationError: `http` is something else, or brings what is not its to say.
    """

    tls: ssl.SSLContext | None
    max_connections: int
    secure: bool = True
    """Something of the way to the service is https."""
    http: aiohttp.ClientSession | None = None
    """Used in place of our own, and never closed."""
    headers: Mapping[str, str] = field(default=Factory(dict), repr=False)
    """Sent with every request."""

    def __attrs_post_init__(self) -> None:
        if self.http is not None and not isinstance(self.http, aiohttp.ClientSession):
            raise ConfigurationError(f"http must be an aiohttp.ClientSession, not {self.http!r}", field="http")
        if self.http is not None and (self.http.auth or self.http.trust_env or "Authorization" in self.http.headers):
            raise ConfigurationError(
                "http must not authenticate by itself (auth, an Authorization header, or trust_env, which reads "
                "netrc): which call carries which key is the profile's to say",
                field="http",
            )
        if self.http is not None and (found := next(filter(is_own, self.http.headers), None)):
            raise ConfigurationError(
                f"http must not send a {found} header of its own: how a request is sent, and who sends it, is "
                "payasync's to say",
                field="http",
            )


_PLAINLY: Final[dict[str, Any]] = {"auto_decompress": False, "raise_for_status": False}
"""An answer is bytes, whatever its status."""

Exchange: TypeAlias = Callable[..., Awaitable[aiohttp.ClientResponse]]
"""`ClientSession.request`, of a session that is set up as ours are."""


class Pool:
    """Two aiohttp sessions of one loop: writes may reuse only what idled shortly, reads more.

    Attributes:
        write: Sends a write.
        read: Sends a read.
        headers: Those that each request must bring itself, since an injected session does not.
        closed: Whether its loop has closed it.
    """

    def __init__(self, settings: PoolSettings) -> None:
        self.write: Exchange
        self.read: Exchange
        self.deadlines = Deadlines(asyncio.get_running_loop())
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        if settings.http is not None:
            self._own: tuple[aiohttp.ClientSession, ...] = ()
            self.write = self.read = partial(settings.http.request, **_PLAINLY, middlewares=())
        else:
            # Reading the machine's authorities takes 20 ms; nobody needs them for plain http.
            tls = settings.tls or (_default_tls() if settings.secure else True)
            self._own = self._http(settings, WRITE_IDLE, tls=tls), self._http(settings, READ_IDLE, tls=tls)
            self.write, self.read = (http.request for http in self._own)
        self.headers: Mapping[str, str] = {} if self._own else {**ALWAYS, **settings.headers}
        self.closed = False
        self._guard = self._closing()
        finish(anext(self._guard))

    def _http(self, settings: PoolSettings, idle: float, *, tls: ssl.SSLContext | bool) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=tls,
            limit=settings.max_connections,
            keepalive_timeout=idle,
            socket_factory=self._socket,
            resolver=aiohttp.ThreadedResolver(),
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=_NoCookies(),
            headers=settings.headers,
            request_class=OwnRequest,
            **_PLAINLY,
        )

    def _socket(self, address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made

    async def _closing(self) -> AsyncGenerator[None, None]:
        """Close with the loop: `asyncio.run` ends the async generators that were begun in its loop."""
        try:
            yield
        finally:
            self.closed = bool(self._own)
            self.deadlines.close()
            try:
                for http in self._own:
                    await http.close()
            except asyncio.CancelledError:  # a loop that ends cancels who closes, too
                for http in self._own:
                    finish(http.close())
                raise

    async def aclose(self) -> None:
        """Close, from within the pool's own loop."""
        await self._guard.aclose()

    def close_soon(self) -> None:
        """Close, in a task of the pool's own loop."""
        self._closing_task = asyncio.ensure_future(self.aclose())

    def dispose(self) -> None:
        """Close from outside, while the pool's loop does not run: only the raw sockets are left to close."""
        for each in tuple(self._sockets):
            each.close()
        for http in self._own:
            finish(http.close())

    def disown(self, nowhere: int) -> None:
        """Let go of a parent's connections: its sockets become /dev/null here, so that nothing can reach its peer."""
        for each in tuple(self._sockets):
            if each.fileno() >= 0:
                os.dup2(nowhere, each.fileno(), inheritable=False)


def _default_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class Pools:
    """The pools of one transport, by event loop."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._home: asyncio.AbstractEventLoop | None = None
        _live.add(self)

    def current(self) -> Pool:
        """Return the pool of the running loop, made when it is first asked for."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None or pool.closed:
            self._sweep()
            self._check_home(loop)
            pool = self._pools[loop] = Pool(self._settings)
        return pool

    def _check_home(self, loop: asyncio.AbstractEventLoop) -> None:
        """Refuse a second loop, or a forked child's, to an injected session: its sockets are the first one's."""
        if self._settings.http is None:
            return
        if self._home not in {None, loop}:
            raise ConfigurationError("http belongs to one event loop, and this is another", field="http")
        self._home = loop

    def _sweep(self) -> None:
        for loop, pool in tuple(self._pools.items()):
            if loop.is_closed():
                del self._pools[loop]
                pool.dispose()

    async def aclose(self) -> None:
        """Close the running loop's pool; tell other living loops to close theirs."""
        self._sweep()
        here = asyncio.get_running_loop()
        pools, self._pools = self._pools, {}
        for loop, pool in pools.items():
            if loop is not here:
                _close_elsewhere(loop, pool)
        if here in pools:
            await pools[here].aclose()

    def disown(self, nowhere: int) -> None:
        """In a forked child: let go of everything, without closing it."""
        pools, self._pools = self._pools, {}
        _inherited.append(pools)
        for pool in pools.values():
            pool.disown(nowhere)


def _close_elsewhere(loop: asyncio.AbstractEventLoop, pool: Pool) -> None:
    """Close a pool of another loop: in it, while it runs; one that stands still is disposed of."""
    if loop.is_running():
        with suppress(RuntimeError):  # it was closed meanwhile, and its pool with it
            loop.call_soon_threadsafe(pool.close_soon)
    else:
        pool.dispose()


_live: "weakref.WeakSet[Pools]" = weakref.WeakSet()
_inherited: list[object] = []
"""Kept until the child ends: collecting them would close them."""


def _disown_all() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for pools in tuple(_live):
        pools.disown(nowhere)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
