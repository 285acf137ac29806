"""The loop that claims what is due and has it handled, and what becomes of an event afterwards."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

from attrs import evolve, frozen

from payasync.errors import InvalidArgumentError, SessionClosedError
from payasync.notifications.handlers import LANDING
from payasync.notifications.inbox import REPLAYABLE, Claim, Inbox, InboxEvent, Received, State
from payasync.notifications.ingest import DispatchLimits, received
from payasync.notifications.notification import Notification
from payasync.notifications.reading import parse
from payasync.notifications.trust import held_as_refund
from payasync.profile.profile import Profile
from payasync.profile.schema import KINDS, Kind
from payasync.settings import Pace
from payasync.transport.deadlines import running_task
from payasync.wire.request import invalid

logger: Final = logging.getLogger("payasync.notifications")

LOOK: Final = 5.0
"""Seconds after which the inbox is looked at anyway: another process may have left something in it."""
LEAST_PAUSE: Final = 0.01
AFTER_FAILURE: Final = 1.0
"""Seconds until an inbox that failed is asked again."""
FORGETTING: Final = 3600.0
"""Seconds between two times that what was done long ago is deleted."""

_handled_in: ContextVar["asyncio.Task[Any] | None"] = ContextVar("_handled_in", default=None)
"""What handles the event in whose handler we are, if we are in one."""


class Dispatching:
    """Dispatches in the running loop, from its making on.

    Args:
        inbox: Keeps the events.
        handle: Brings a claimed one to its end.
        limits: How many at once, for how long.
        pace: Time and chance; its clock counts seconds since 1970.
    """

    def __init__(
        self, inbox: Inbox, handle: Callable[[Claim], Awaitable[None]], limits: DispatchLimits, pace: Pace
    ) -> None:
        self._inbox: Final = inbox
        self._handle: Final = handle
        self._limits: Final = limits
        self._pace: Final = pace
        self._home: Final = os.getpid(), asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._closing = False
        self._running: dict[asyncio.Task[None], Claim] = {}
        self._settling: list[asyncio.Future[None]] = []
        self._forget_at = 0.0
        self._keeper = asyncio.create_task(self._keep())
        self._loop = asyncio.create_task(self._dispatch())

    @property
    def at_home(self) -> bool:
        """Whether it dispatches in the running loop of this process."""
        return self._home == (os.getpid(), asyncio.get_running_loop()) and not self._loop.done()

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
        """Claim no more; wait for what is being handled, then cancel it: it is due again at once.

        Args:
            grace: Seconds to wait.
        """
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
            await asyncio.wait(mine, timeout=LANDING)
        self._keeper.cancel()

    async def _dispatch(self) -> None:
        while not self._closing:
            self._woken.clear()
            try:
                pause = await self._round()
            except Exception as error:  # noqa: BLE001 - the inbox may be anybody's, and must not end this
                logger.warning("the inbox cannot be read: %s", type(error).__name__)
                self._settled(self._settling, error)
                pause = AFTER_FAILURE
            if pause is None or pause > 0:
                await self._pause(pause)
        self._settled(self._settling, SessionClosedError("the receiver is closed: make another"))

    async def _round(self) -> float | None:
        """Have handled what is due; return the seconds until something is, `None` where all hands are full."""
        room = self._limits.concurrency - len(self._running)
        if room < 1:
            return None
        waiting = tuple(self._settling)
        claims = await self._inbox.claim(room, self._limits.lease)
        for claim in claims:
            await self._begin(claim)
        if claims:
            return 0
        if not self._running:
            self._settled(waiting)
        await self._forget()
        return await self._until_due()

    async def _begin(self, claim: Claim) -> None:
        if self._closing:
            await self._inbox.finish(claim, "pending")
            return
        task = asyncio.create_task(self._handled(claim))
        self._running[task] = claim
        task.add_done_callback(self._ended)

    async def _handled(self, claim: Claim) -> None:
        _handled_in.set(running_task())
        try:
            await self._handle(claim)
        except Exception as error:  # noqa: BLE001 - the lease ends, and it is claimed again
            logger.warning("event %s was not brought to an end: %s", claim.event.id, type(error).__name__)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._running[task]
        self.wake()

    async def _until_due(self) -> float:
        wait = await self._inbox.next_due()
        return LOOK if wait is None else min(max(wait, LEAST_PAUSE), LOOK)

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

    async def _forget(self) -> None:
        now = self._pace.clock()
        if now >= self._forget_at:
            await self._inbox.forget(datetime.fromtimestamp(now, UTC) - self._limits.retention)
            self._forget_at = now + FORGETTING

    async def _keep(self) -> None:
        """Extend the leases of what is being handled, for as long as it takes."""
        while True:
            await self._pace.sleep(self._limits.lease / 3)
            try:
                await asyncio.gather(
                    *(self._inbox.extend(claim, self._limits.lease) for claim in self._running.values())
                )
            except Exception as error:  # noqa: BLE001 - as above
                logger.warning("leases cannot be extended: %s", type(error).__name__)

    def _settled(self, waiting: "Sequence[asyncio.Future[None]]", error: Exception | None = None) -> None:
        for each in tuple(waiting):
            self._settling.remove(each)
            if not each.done() and error is not None:
                each.set_exception(error)
            elif not each.done():
                each.set_result(None)


class Lifetime:
    """Begins to dispatch where it is first needed, and anew in another loop or process.

    Args:
        inbox: Keeps the events; it is closed at the end.
        handle: Brings a claimed one to its end.
        limits: How many at once, for how long.
        pace: Time and chance.
    """

    def __init__(
        self, inbox: Inbox, handle: Callable[[Claim], Awaitable[None]], limits: DispatchLimits, pace: Pace
    ) -> None:
        self._inbox: Final = inbox
        self._handle: Final = handle
        self._limits: Final = limits
        self._pace: Final = pace
        self._dispatching: Dispatching | None = None
        self._closed = False

    def check_open(self) -> None:
        """Refuse to go on after the end.

        Raises:
            SessionClosedError: It is closed.
        """
        if self._closed:
            raise SessionClosedError("the receiver is closed: make another")

    def dispatching(self) -> Dispatching:
        """Return what dispatches in the running loop; it begins now, if it has not.

        Raises:
            SessionClosedError: It is closed.
        """
        self.check_open()
        if self._dispatching is None or not self._dispatching.at_home:
            self._dispatching = Dispatching(self._inbox, self._handle, self._limits, self._pace)
        return self._dispatching

    def wake(self) -> None:
        """Dispatch what is due now, where something dispatches here: who only looks leaves that to others."""
        if self._dispatching is not None and self._dispatching.at_home:
            self._dispatching.wake()

    async def aclose(self, grace: float) -> None:
        """Dispatch nothing more, and close the inbox; a second time does nothing.

        Args:
            grace: Seconds to wait for handlers that run.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._dispatching is not None and self._dispatching.at_home:
                await self._dispatching.aclose(grace)
        finally:
            await self._inbox.aclose()


AT_ONCE: Final = 100
"""Events that are read together; each may be as long as a body."""


@frozen
class Replaying:
    """Dispatches events of an inbox again.

    Attributes:
        inbox: Keeps them.
        profile: Says what names an event of a kind.
    """

    inbox: Inbox
    profile: Profile

    async def one(self, event_id: int, kind: Kind | None) -> bool:
        """Dispatch an event again; `False` where it cannot be.

        Args:
            event_id: Its number.
            kind: Of an event that has none, and has it from now on; `refund` also of a payment that names a refund.

        Raises:
            InvalidArgumentError: That is no number or no kind, or the event is of another kind.
        """
        if not isinstance(event_id, int):
            rule = "the number of an event, as events() tells it"
            raise InvalidArgumentError(f"event_id must be {rule}, not {event_id!r}", field="event_id", rule=rule)
        if kind is None:
            return await self.inbox.replay(event_id)
        if kind not in KINDS:
            raise invalid("kind", f"one of {', '.join(KINDS)}", kind)
        found = await self.inbox.events(limit=1, after=max(event_id - 1, 0))
        if not found or found[0].id != event_id or not found[0].raw:  # of a forgotten event, only the key is there
            return False
        return await self.inbox.replay(event_id, self._of_kind(found[0], kind))

    def _of_kind(self, event: InboxEvent, kind: Kind) -> Received | None:
        """Return what an event is that somebody says the kind of: it has the key that a redelivery would have."""
        if event.kind == kind:
            return None
        if event.kind is not None and not (kind == "refund" and self._names_refund(event)):
            raise invalid("kind", f"{event.kind}, which the event is of", kind)
        told = self._read(event, kind)
        return received(evolve(told, verified=event.verified, received_at=event.received_at), timed=False)

    def _names_refund(self, event: InboxEvent) -> bool:
        return held_as_refund(self._read(event, event.kind), self.profile) is not None

    def _read(self, event: InboxEvent, kind: str | None) -> Notification:
        return parse(event.raw, event.headers, profile=self.profile, kind=kind, max_bytes=len(event.raw))

    async def all(self, state: State) -> int:
        """Dispatch all events of a state again; return how many these were.

        Args:
            state: One of `REPLAYABLE`.

        Raises:
            InvalidArgumentError: Events of that state are not dispatched again.
        """
        if state not in REPLAYABLE:
            raise invalid("state", f"one of {', '.join(sorted(REPLAYABLE))}", state)
        replayed, last = 0, 0
        while found := await self.inbox.events(state, limit=AT_ONCE, after=last):
            last = found[-1].id
            replayed += sum(await asyncio.gather(*(self.inbox.replay(each.id) for each in found)))
        return replayed
