"""Looks up host names in threads of its own, and again after a connection failed."""

import asyncio
import socket
from collections import deque
from functools import partial
from typing import Any, Final, cast

from aiohttp import ThreadedResolver

from payasync.transport.threads import call_in_thread, complete

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
            lookup = self._lookups[key] = call_in_thread("payasync-dns", partial(_look_up, key))
            lookup.add_done_callback(lambda _: self._loop.call_later(KEPT, self.forget))
        found = (await asyncio.shield(self._lookups[key])).result()
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


def _look_up(key: tuple[Any, ...]) -> deque[Any]:
    return deque(complete(ThreadedResolver(cast("Any", _NoLoop())).resolve(*key)))
