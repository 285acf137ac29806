"""The loop that claims what is due and has it handled, and what becomes of an event afterwards."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from payasync.errors import SessionClosedError
from payasync.notifications.inbox import Claim, Inbox
from payasync.notifications.worker import CANCELLATION_SECONDS
from payasync.settings import Pace
from payasync.transport.deadlines import running_task

if TYPE_CHECKING:
    from payasync.notifications.receiver import Limits

logger: Final = logging.getLogger("payasync.notifications")

LOOK_SECONDS: Final = 5.0
"""After these the inbox is looked at anyway: another process may have left something in it."""
LEAST_PAUSE: Final = 0.01
FAILURE_PAUSE: Final = 1.0
"""Seconds until an inbox that failed is asked again."""
FORGET_SECONDS: Final = 3600.0
"""Between two times that what was done long ago is deleted."""

_handled_in: ContextVar["asyncio.Task[Any] | None"] = ContextVar("_handled_in", default=None)
"""The task that handles the event in whose handler we are, if we are in one."""


class Dispatcher:
    """Dispatches in the running loop, from its making on.

    Args:
        inbox: Keeps the events.
        handle: Brings a claimed one to its end.
        limits: How many at once, for how long.
        pace: Time and chance; its clock counts seconds since 1970.
    """

    def __init__(self, inbox: Inbox, handle: Callable[[Claim], Awaitable[None]], limits: "Limits", pace: Pace) -> None:
        self._inbox: Final = inbox
        self._handle: Final = handle
        self._limits: Final = limits
        self._pace: Final = pace
        self._made_in: Final = os.getpid(), asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._closing = False
        self._running: dict[asyncio.Task[None], Claim] = {}
        self._settling: list[asyncio.Future[None]] = []
        self._forget_at = 0.0
        self._extender = asyncio.create_task(self._extend_leases())
        self._loop = asyncio.create_task(self._dispatch())

    @property
    def runs_in_this_loop(self) -> bool:
        """Whether it dispatches in the running loop of this process."""
        return self._made_in == (os.getpid(), asyncio.get_running_loop()) and not self._loop.done()

    def wake(self) -> None:
        """Look at the inbox now."""
        self._woken.set()

    async def settle(self) -> None:
        """Return when nothing is due any more, and nothing is being handled.

        Raises:
            StorageError: The inbox cannot be read now.
            SessionClosedError: It was closed before.
        """
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling.append(settled)
        self.wake()
        await settled

    async def aclose(self, grace: float) -> None:
        """Claim no more; wait `grace` seconds for handlers, then cancel them: their events are due immediately."""
        self._closing = True
        self.wake()
        await asyncio.wait([self._loop])
        mine = [task for task in self._running if task is not _handled_in.get()]  # a handler may close its receiver
        if mine and grace > 0:
            await asyncio.wait(mine, timeout=grace)
        await asyncio.sleep(0)  # a task that has not begun could give nothing back
        for task in mine:
            task.cancel()
        if mine:
            await asyncio.wait(mine, timeout=CANCELLATION_SECONDS)
        self._extender.cancel()

    async def _dispatch(self) -> None:
        while not self._closing:
            self._woken.clear()
            try:
                pause = await self._claim()
            except Exception as error:  # noqa: BLE001 - the inbox may be anybody's, and must not end this
                logger.warning("the inbox cannot be read: %s", type(error).__name__)
                self._end_settling(self._settling, error)
                pause = FAILURE_PAUSE
            if pause is None or pause > 0:
                await self._pause(pause)
        self._end_settling(self._settling, SessionClosedError("the receiver is closed. Make a new one"))

    async def _claim(self) -> float | None:
        """Begin what is due; return the seconds until something is, `None` if as much is handled as may be at once."""
        room = self._limits.concurrency - len(self._running)
        if room < 1:
            return None
        waiting = tuple(self._settling)
        claims = await self._inbox.claim(room, self._limits.lease)
        for claim in claims:
            if self._closing:
                await self._inbox.finish(claim, "pending")
                continue
            task = asyncio.create_task(self._handle_safely(claim))
            self._running[task] = claim
            task.add_done_callback(self._remove)
        if claims:
            return 0
        if not self._running:
            self._end_settling(waiting)
        now = self._pace.clock()
        if now >= self._forget_at:
            await self._inbox.forget(datetime.fromtimestamp(now, UTC) - self._limits.retention)
            self._forget_at = now + FORGET_SECONDS
        wait = await self._inbox.next_due()
        return LOOK_SECONDS if wait is None else min(max(wait, LEAST_PAUSE), LOOK_SECONDS)

    async def _handle_safely(self, claim: Claim) -> None:
        _handled_in.set(running_task())
        try:
            await self._handle(claim)
        except Exception as error:  # noqa: BLE001 - the lease ends, and it is claimed again
            logger.warning("event %s was not brought to an end: %s", claim.event.id, type(error).__name__)

    def _remove(self, task: "asyncio.Task[None]") -> None:
        del self._running[task]
        self.wake()

    async def _pause(self, seconds: float | None) -> None:
        """Wait to be woken, or for so many seconds."""
        ends: list[asyncio.Future[Any]] = [asyncio.create_task(self._woken.wait())]
        if seconds is not None:
            ends.append(asyncio.ensure_future(self._pace.sleep(seconds)))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    async def _extend_leases(self) -> None:
        """Extend the leases of what is being handled, for as long as it takes."""
        lease = self._limits.lease
        while True:
            await self._pace.sleep(lease / 3)
            try:
                await asyncio.gather(*(self._inbox.extend(claim, lease) for claim in self._running.values()))
            except Exception as error:  # noqa: BLE001 - as above
                logger.warning("leases cannot be extended: %s", type(error).__name__)

    def _end_settling(self, waiting: "Sequence[asyncio.Future[None]]", error: Exception | None = None) -> None:
        for each in tuple(waiting):
            self._settling.remove(each)
            if not each.done() and error is not None:
                each.set_exception(error)
            elif not each.done():
                each.set_result(None)
