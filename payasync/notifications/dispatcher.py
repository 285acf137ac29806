"""The dispatcher: the loop that leases due events, and has each one handled."""

import asyncio
import logging
import os
from collections import deque
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import define

from payasync.clocks import Pace, boot_time, running_task, utc_moment
from payasync.errors import SessionClosedError
from payasync.middleware.observe import log
from payasync.notifications.inbox import Claim, Inbox
from payasync.notifications.transitions import Transition
from payasync.notifications.worker import CANCELLATION_SECONDS, Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from payasync.notifications.receiver import Limits

logger: Final = logging.getLogger("payasync.notifications")

POLL_SECONDS: Final = 5.0
"""The inbox is read at least so often, because another process may have stored something."""
MIN_PAUSE: Final = 0.01
FAILURE_PAUSE: Final = 1.0
"""Seconds until an inbox that failed is read again."""
QUICK_SECONDS: Final = 0.2
"""If handlers ended within this time after the last events were leased, events to begin later are leased, too.

After events were leased, and no others were due, the inbox is read again after this time or as soon as one ends.
"""
MAX_AHEAD: Final = 100
"""The most events to begin later that are leased together."""
FORGET_SECONDS: Final = 3600.0
"""Seconds between two deletions of old events."""

_handled_in: ContextVar["asyncio.Task[Any] | None"] = ContextVar("_handled_in", default=None)
"""The task that handles an event, as seen by its handlers."""

Handling: TypeAlias = asyncio.Task[Transition | None]
"""Handles an event. It returns the success of a handler if that is not stored, because the lease was lost."""


@define(eq=False)
class Leased:
    """A leased event.

    Attributes:
        claim: Its lease.
        held_at: When the lease was certainly held the last time, in `boot_time`.
    """

    claim: Claim
    held_at: float


class Dispatcher:
    """Dispatches events in the running loop, as soon as it is made.

    Args:
        inbox: Stores the events.
        worker: Handles a leased event, and ends its lease.
        limits: The concurrency, the lease and the retention.
        pace: Clock and sleep. The clock returns seconds since 1970.
    """

    def __init__(self, inbox: Inbox, worker: Worker, limits: "Limits", pace: Pace) -> None:
        self._inbox: Final = inbox
        self._worker: Final = worker
        self._limits: Final = limits
        self._pace: Final = pace
        self._made_in: Final = os.getpid(), asyncio.get_running_loop()
        self._context: Final = copy_context()
        self._woken = asyncio.Event()
        self._closing = False
        self._claimed = deque[Leased]()
        self._claimed_at = float("-inf")
        self._ended = 0
        self._handling = 0
        self._running: dict[Handling, Leased] = {}
        self._earlier: dict[int, Handling] = {}
        self._settling: list[asyncio.Future[None]] = []
        self._forget_at = 0.0
        self._extender = asyncio.create_task(self._extend_leases())
        self._loop = asyncio.create_task(self._dispatch())

    @property
    def runs_in_this_loop(self) -> bool:
        """Whether it dispatches in this process and in the running loop."""
        return self._made_in == (os.getpid(), asyncio.get_running_loop()) and not self._loop.done()

    def wake(self) -> None:
        """Read the inbox now."""
        self._woken.set()

    async def settle(self) -> None:
        """Wait until no event is due or being handled.

        Raises:
            StorageError: The inbox cannot be read.
            SessionClosedError: The dispatcher was closed meanwhile.
        """
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling.append(settled)
        self.wake()
        await settled

    async def aclose(self, grace: float) -> None:
        """Stop leasing, and wait `grace` seconds for handlers. Then cancel them, and make their events due again."""
        self._closing = True
        self.wake()
        await asyncio.wait([self._loop])
        running = [task for task in self._running if task is not _handled_in.get()]  # a handler may close its receiver
        if running and grace > 0:
            await asyncio.wait(running, timeout=grace)
        await asyncio.sleep(0)  # a task that has not begun could not give its event back
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CANCELLATION_SECONDS)
        self._extender.cancel()

    async def _dispatch(self) -> None:
        try:
            while not self._closing:
                await self._dispatch_due()
        finally:
            claimed, self._claimed = self._claimed, deque()  # first, so that nobody begins what is given back
            given_back = (self._inbox.finish(each.claim, "pending") for each in claimed)
            await asyncio.gather(*given_back, return_exceptions=True)
        self._end_settling(self._settling, SessionClosedError("the receiver is closed. Make a new one"))

    async def _dispatch_due(self) -> None:
        """Start handling due events, and wait until there may be more."""
        self._woken.clear()
        try:
            pause = await self._claim()
        except Exception as error:  # noqa: BLE001 - an inbox of the user's may raise anything
            words, name = "the inbox cannot be read: %(error_type)s", type(error).__name__
            log(logger, logging.WARNING, "inbox.not_read", words, error_type=name)
            self._end_settling(self._settling, error)
            pause = FAILURE_PAUSE
        if pause is None:
            await self._woken.wait()
        elif pause > 0:
            await self._pause(pause)

    async def _claim(self) -> float | None:
        """Start handling due events; return the seconds until the next is due, or `None` if no more may be handled."""
        self._begin_claimed()
        room = self._limits.concurrency - self._handling
        if room < 1:
            return None
        waiting = tuple(self._settling)
        leased_at = boot_time()
        self._earlier = {each.claim.event.id: task for task, each in self._running.items()}
        most = room + self._count_ahead()
        claims = await self._inbox.claim(most, self._limits.lease)
        self._claimed.extend(Leased(claim, leased_at) for claim in claims)
        self._begin_claimed()
        if not (claims or self._running):
            self._end_settling(waiting)
        now = self._pace.clock()
        if now >= self._forget_at and len(claims) < most:
            await self._inbox.forget(utc_moment(now) - self._limits.retention)
            self._forget_at = now + FORGET_SECONDS
        if claims:
            return 0 if len(claims) == most else QUICK_SECONDS  # most handlers end before that
        wait = await self._inbox.next_due()
        return POLL_SECONDS if wait is None else min(max(wait, MIN_PAUSE), POLL_SECONDS)

    def _count_ahead(self) -> int:
        """Return how many events to lease besides those to begin: few if handlers are slow, because others may be free.

        None are leased so at first: an event that ends the process shall interrupt few others.
        """
        now, ended = asyncio.get_running_loop().time(), self._ended
        is_quick = now - self._claimed_at < QUICK_SECONDS
        self._claimed_at, self._ended = now, 0
        return min(2 * ended, MAX_AHEAD) if is_quick else 0

    def _begin_claimed(self) -> None:
        """Begin to handle leased events, as many as may be handled concurrently."""
        while self._claimed and not self._closing and self._handling < self._limits.concurrency:
            leased = self._claimed.popleft()
            handling = self._handle_safely(leased, self._earlier.get(leased.claim.event.id))
            # The event before, whose task may begin this one, may have set variables.
            task = asyncio.create_task(handling, context=self._context.copy())
            self._handling += 1
            self._running[task] = leased
            task.add_done_callback(self._remove)

    async def _handle_safely(self, leased: Leased, earlier: Handling | None) -> Transition | None:
        """Handle an event, and store its end.

        If an earlier lease of this process was lost, its handler may still run. It must end first. If it succeeds, that
        is stored under the new lease. Any other end may be wrong without a lease: the event is handled anew.
        """
        claim = leased.claim
        _handled_in.set(running_task())
        try:
            try:
                transition = await asyncio.shield(earlier) if earlier else None
                if not transition:
                    transition = await self._worker.handle(claim, partial(self._is_held, leased))
            finally:
                was_full = self._handling == self._limits.concurrency
                self._handling -= 1
                self._ended += 1
                if not running_task().cancelling():  # else the loop may end
                    self._begin_claimed()  # the next one need not wait until the end of this one is stored
                if was_full and not self._claimed:
                    self.wake()
            if transition and not await self._worker.store(claim, transition):
                return transition if transition.handler else None
        except Exception as error:  # noqa: BLE001 - the lease expires, and the event is leased again
            words = "the lease or the end of event %(event_id)s cannot be stored: %(error_type)s"
            name = type(error).__name__
            log(logger, logging.WARNING, "inbox.end_not_stored", words, event_id=claim.event.id, error_type=name)
        return None

    async def _is_held(self, leased: Leased) -> bool:
        """Return whether a lease still holds, also after the loop was blocked or the machine suspended."""
        return boot_time() - leased.held_at < self._limits.lease / 3 or await self._extend(leased)

    async def _extend(self, leased: Leased) -> bool:
        """Extend a lease; return `False` if it is lost."""
        began = boot_time()
        is_held = await self._inbox.extend(leased.claim, self._limits.lease)
        leased.held_at = began if is_held else float("-inf")
        return is_held

    def _remove(self, task: Handling) -> None:
        del self._running[task]
        self.wake()

    async def _pause(self, seconds: float) -> None:
        """Wait until woken, or for some seconds."""
        ends = [asyncio.ensure_future(self._woken.wait()), asyncio.ensure_future(self._pace.sleep(seconds))]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    async def _extend_leases(self) -> None:
        """Extend all leases, and forget those to begin later whose lease is lost."""
        while True:
            await self._pace.sleep(self._limits.lease / 3)
            try:
                leased = (*self._running.values(), *self._claimed)
                held = await asyncio.gather(*map(self._extend, leased))
                lost = [each for each, is_held in zip(leased, held, strict=True) if not is_held]
                self._claimed = deque(each for each in self._claimed if each not in lost)
            except Exception as error:  # noqa: BLE001 - see above
                words, name = "leases cannot be extended: %(error_type)s", type(error).__name__
                log(logger, logging.WARNING, "inbox.lease_not_extended", words, error_type=name)

    def _end_settling(self, waiting: "Sequence[asyncio.Future[None]]", error: Exception | None = None) -> None:
        for each in tuple(waiting):
            self._settling.remove(each)
            if not each.done() and error is not None:
                each.set_exception(error)
            elif not each.done():
                each.set_result(None)
