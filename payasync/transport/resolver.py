"""Looks up host names in threads of its own, and again after a connection failed."""

import asyncio
import socket
from collections import deque
from contextlib import suppress
from threading import Thread
from typing import Any, Final, cast

from aiohttp import ThreadedResolver

KEPT: Final = 10.0
"""Seconds for which addresses are used again, unless a connection fails."""


class Resolver(ThreadedResolver):
    """Looks up host names for the connectors of one event loop.

    Each lookup has a daemon thread, because `asyncio.to_thread` of the program can fill the loop's executor, and a
    lookup that hangs must not hold up the end of the program. There is one lookup of a name at a time.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lookups: dict[tuple[Any, ...], asyncio.Future[Any]] = {}

    async def resolve(self, *host: Any, **family: Any) -> Any:
        """Return the addresses of a host, each time in another order; raise what aiohttp's resolver raises."""
        key = (*host, *family.values())
        if key not in self._lookups:
            lookup = self._lookups[key] = self._loop.create_future()
            lookup.add_done_callback(lambda _: self._loop.call_later(KEPT, self.forget))
            Thread(target=_look_up, args=(self._loop, lookup, key), name="payasync-dns", daemon=True).start()
        found = await asyncio.shield(self._lookups[key])
        if isinstance(found, Exception):
            raise found
        found.rotate(-1)
        return list(found)

    def forget(self) -> None:
        """Look up names again from now on. Lookups under way go on."""
        self._lookups = {key: lookup for key, lookup in self._lookups.items() if not lookup.done()}


class _NoLoop:
    """What aiohttp's resolver uses of a loop; it blocks, and never suspends."""

    async def getaddrinfo(self, *given: Any, **named: Any) -> Any:
        return socket.getaddrinfo(*given, **named)

    async def getnameinfo(self, *given: Any) -> Any:
        return socket.getnameinfo(*given)


def _look_up(loop: asyncio.AbstractEventLoop, lookup: "asyncio.Future[Any]", key: tuple[Any, ...]) -> None:
    """Hand the addresses to the loop, or the error."""
    ended: object = None
    try:
        ThreadedResolver(cast("Any", _NoLoop())).resolve(*key).send(None)
    except StopIteration as found:
        ended = deque(found.value)
    except Exception as error:  # noqa: BLE001 - passed on
        ended = error
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(lookup.set_result, ended)
