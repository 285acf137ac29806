"""The calls in flight of a session and its copies: who is closed, and what is still to end."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from payasync.errors import SessionClosedError
from payasync.transport.deadlines import running_task

T = TypeVar("T")

LANDING: Final = 0.5
"""Seconds that a call which was cut off has for its last word; only a layer of the user's takes so long."""


class Flights:
    """The calls in flight of a session and its copies, and whether further ones may start."""

    def __init__(self) -> None:
        self.closed = False
        self._cut = False
        self._flying: dict[object, asyncio.Task[Any] | None] = {}
        self._landings: dict[object, asyncio.Future[None]] = {}
        self._shielded: set[asyncio.Task[Any]] = set()
        self._pauses: set[asyncio.Future[bool]] = set()

    def begin(self, call: object, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Note that a call begins, in the task that runs: `call` is anything that is its own.

        Args:
            call: Ends under the same.
            loop: The one that runs; who has it at hand saves the system call that asking for it is.
        """
        self._flying[call] = asyncio.current_task(loop)

    def end(self, call: object) -> None:
        """Note that a call has ended, and tell whoever waits for that."""
        del self._flying[call]
        landing = self._landings.pop(call, None)
        if landing is not None and not landing.done():
            landing.set_result(None)

    async def pause(self, seconds: float) -> bool:
        """Sleep between two attempts of a call; `False` where the call is cut off instead."""
        loop = asyncio.get_running_loop()
        pause: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(seconds, _end, pause, True)  # noqa: FBT003 - the result
        self._pauses.add(pause)
        try:
            return not self._cut and await pause
        finally:
            timer.cancel()
            self._pauses.discard(pause)

    async def shielded(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call that goes on to its end even where its caller is cancelled.

        Raises:
            SessionClosedError: The session was closed, and did not wait for the call's end.
        """
        task = asyncio.ensure_future(call)
        self._shielded.add(task)
        task.add_done_callback(self._landed)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled() or running_task().cancelling():
                raise
        raise SessionClosedError("the session was closed, and waited no longer for this call", sent=None)

    def _landed(self, task: "asyncio.Task[Any]") -> None:
        self._shielded.discard(task)
        if not task.cancelled():
            task.exception()  # asked for, so that asyncio does not complain where nobody waits any more

    async def drain(self, grace: float) -> None:
        """Wait for the calls of this loop, but not for those that wait for us in turn."""
        here, me = asyncio.get_running_loop(), asyncio.current_task()
        flying = tuple(self._flying.items())
        others = [call for call, task in flying if task and task is not me and task.get_loop() is here]
        if others and grace > 0:
            landings = [self._landings.setdefault(call, here.create_future()) for call in others]
            await asyncio.wait(landings, timeout=grace)

    def cut(self) -> None:
        """Let no call try again: those that pause go on to their last word."""
        self._cut = True
        for pause in tuple(self._pauses):
            loop = pause.get_loop()
            with suppress(RuntimeError):  # that loop was closed, and its calls with it
                loop.call_soon_threadsafe(_end, pause, False)  # noqa: FBT003 - the result

    async def land(self) -> None:
        """Wait for the shielded calls of this loop, which were cut off; what holds on to them is cancelled."""
        here, me = asyncio.get_running_loop(), asyncio.current_task()
        left = {each for each in self._shielded if each.get_loop() is here and each is not me}
        if not left:
            return
        _, stuck = await asyncio.wait(left, timeout=LANDING)
        for task in stuck:
            task.cancel()
        if stuck:
            await asyncio.wait(stuck, timeout=LANDING)


def _end(pause: "asyncio.Future[bool]", whole: bool) -> None:  # noqa: FBT001 - the result
    if not pause.done():
        pause.set_result(whole)
