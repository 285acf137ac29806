"""Looks up host names in threads of its own, and again after a connection failed."""

import asyncio
import socket
import sys
from collections import deque
from contextlib import suppress
from threading import Thread
from typing import Final, TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

KEPT: Final = 10.0
"""Seconds for which addresses are used again, unless a connection fails."""
_FLAGS: Final = 0 if sys.platform == "win32" else socket.AI_ADDRCONFIG & getattr(socket, "AI_MASK", -1)
"""Addresses of the families that this machine has. Windows would not find `localhost` while it is offline."""
_NUMERIC: Final = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV

_Lookup: TypeAlias = "asyncio.Future[tuple[float, deque[ResolveResult] | Exception]]"
"""Ends with the addresses, or the error, and with the time until which they count."""


class Resolver(AbstractResolver):
    """Looks up host names for the connectors of one event loop.

    Each lookup has a daemon thread, because `asyncio.to_thread` of the program can fill the loop's executor, and a
    lookup that hangs must not hold up the end of the program. There is one lookup of a name at a time.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lookups: dict[tuple[str, int, int], _Lookup] = {}

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[ResolveResult]:
        """Return the addresses of a host, each time in another order.

        Raises:
            OSError: The name does not resolve.
            ValueError: It is not a host name.
        """
        key = (host, port, family)
        lookup = self._lookups.get(key)
        if lookup is None or (lookup.done() and lookup.result()[0] <= self._loop.time()):
            lookup = self._lookups[key] = self._loop.create_future()
            Thread(target=_look_up, args=(self._loop, lookup, *key), name="payasync-dns", daemon=True).start()
        _, found = await asyncio.shield(lookup)
        if isinstance(found, Exception):
            raise found
        found.rotate(-1)
        return list(found)

    def forget(self) -> None:
        """Look up names again from now on, because a connection failed. Lookups under way go on."""
        self._lookups = {key: lookup for key, lookup in self._lookups.items() if not lookup.done()}

    async def close(self) -> None:
        """Close nothing: a thread ends with its lookup."""


def _look_up(loop: asyncio.AbstractEventLoop, lookup: _Lookup, host: str, port: int, family: int) -> None:
    found: deque[ResolveResult] | Exception
    try:
        found = deque(_addresses(host, port, family))
        until = loop.time() + KEPT
    except Exception as error:  # noqa: BLE001 - passed on
        found, until = error, 0.0
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(lookup.set_result, (until, found))


def _addresses(host: str, port: int, family: int) -> list[ResolveResult]:
    infos = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=_FLAGS)
    return [
        ResolveResult(
            hostname=host,
            host=socket.getnameinfo(address, _NUMERIC)[0],  # with the zone of a link-local address
            port=port,
            family=kind,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for kind, _, protocol, _, address in infos
    ]
