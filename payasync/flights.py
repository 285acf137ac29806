"""The calls in flight of a session and its copies: who is closed, and what is still to end."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Flights:
    """The calls in flight of a session and its copies, and whether further ones may start."""

    def __init__(self) -> None:
        self.closed = False
        self._flying: dict[asyncio.Future[None], asyncio.Task[Any] | None] = {}
        self._shielded: set[asyncio.Task[Any]] = set()

    def begin(self) -> "asyncio.Future[None]":
        """Note that a call begins; what is returned is for `end`."""
        flight: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flying[flight] = asyncio.current_task()
        return flight

    def end(self, flight: "asyncio.Future[None]") -> None:
        """Note that a call has ended."""
        del self._flying[flight]
        if not flight.done():
            flight.set_result(None)

    async def shielded(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call that goes on to its end even where its caller is cancelled."""
        task = asyncio.ensure_future(call)
        self._shielded.add(task)
        task.add_done_callback(self._landed)
        return await asyncio.shield(task)

    def _landed(self, task: "asyncio.Task[Any]") -> None:
        self._shielded.discard(task)
        if not task.cancelled():
            task.exception()  # asked for, so that asyncio does not complain where nobody waits any more

    async def drain(self, grace: float) -> None:
        """Wait for the calls of this loop, but not for those that wait for us in turn."""
        here, me = asyncio.get_running_loop(), asyncio.current_task()
        others = [
            flight for flight, task in tuple(self._flying.items()) if flight.get_loop() is here and task is not me
        ]
        if others and grace > 0:
            await asyncio.wait(others, timeout=grace)
