"""Helpers that look inside: at the progress of tasks in the running loop, and at its time."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import aiohttp

PATIENT: Final = 1_000_000
"""Turns after which what should have happened will not: a mistake in the test."""
LOOKED: Final = 100
"""Turns of the loop after which everybody has seen what time it is."""
STEP: Final = 0.25
"""Seconds by which the time advances between two turns. A longer step would be a loop that is blocked."""


async def until(there: Callable[[], object]) -> None:
    """Run the loop until a condition is true."""
    for _ in range(PATIENT):
        if there():
            return
        await asyncio.sleep(0)
    raise TimeoutError("it is not there")


async def turns(count: int) -> None:
    """Run the loop for this many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


class Time:
    """The time of the running loop, which a test can advance."""

    def __init__(self) -> None:
        loop: Any = asyncio.get_running_loop()
        real = loop.time
        self._ahead = 0.0
        loop.time = lambda: real() + self._ahead

    async def pass_by(self, seconds: float) -> None:
        """Advance the time by this many seconds, and wake all timers that are due."""
        for _ in range(int(seconds / STEP)):
            self._ahead += STEP
            await turns(2)
        self._ahead += seconds % STEP
        await turns(LOOKED)

    def block(self, seconds: float) -> None:
        """Advance the time as a loop that is blocked, or a process that is stopped: no timer wakes before its end."""
        self._ahead += seconds


# aiohttp says nowhere else whether it has read what a service sent, nor how many calls wait for a connection. Users
# have no need to see the pools of a session or the database of a sandbox, so that no public name shows them.


def connectors(pay: Any) -> list[Any]:
    """Return the connectors of a session's pools, or of an aiohttp session."""
    return [pay.connector] if isinstance(pay, aiohttp.ClientSession) else [http.connector for http in all_http(pay)]


def idle(pay: Any) -> list[Any]:
    """Return the idle connections in a session's pools."""
    return [each for made in connectors(pay) for kept in made._conns.values() for each, _ in kept]


def busy(pay: Any) -> list[Any]:
    """Return the connections that calls of a session use."""
    return [each for made in connectors(pay) for each in made._acquired if hasattr(each, "transport")]


def waiting(pay: Any) -> int:
    """Return how many calls of a session wait for a connection, or how many requests of an aiohttp session."""
    lines = [line for made in connectors(pay) for line in made._waiters.values()]
    if not isinstance(pay, aiohttp.ClientSession):
        pools = pay._transport._pools._pools.values()
        lines += [limit._waiting for pool in pools for _, limit in (pool.write, pool.read)]
    return sum(map(len, lines))


def all_http(pay: Any) -> list[Any]:
    """Return the aiohttp sessions of all pools of a session."""
    return [http for pool in pay._transport._pools._pools.values() for http in pool._own]


def store_of(sandbox: Any) -> Any:
    """Return the store of a running sandbox."""
    return sandbox.ledger._store


def connection_of(store: Any) -> Any:
    """Return the database connection of a store."""
    return store._db


def set_writable(database: Any, *, writable: bool) -> None:
    """Make a database refuse writes, as on a full disk, or accept them again."""
    database._db.execute(f"PRAGMA query_only = {int(not writable)}")
