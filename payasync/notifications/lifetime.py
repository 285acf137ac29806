"""How long a receiver dispatches, and what can be asked about the events that it keeps."""

from types import TracebackType
from typing import Self

from payasync.errors import SessionClosedError
from payasync.middleware.retry import Pace
from payasync.notifications.dispatching import Dispatching
from payasync.notifications.handling import Handling
from payasync.notifications.inbox import Inbox, InboxEvent, State
from payasync.notifications.limits import Limits
from payasync.notifications.reception import Reception
from payasync.requests import invalid


class Lifetime:
    """The half of a receiver that dispatches; the other half is its making and what arrives."""

    _inbox: Inbox
    _limits: Limits
    _pace: Pace
    _handling: Handling
    _reception: Reception
    _dispatching: Dispatching | None = None

    async def settle(self) -> None:
        """Return when nothing is due any more, and nothing is being handled; what is to be retried later may wait.

        Raises:
            StorageError: The inbox cannot be read now.
            SessionClosedError: The receiver is closed.
        """
        await self._started().settle()

    async def events(self, state: State | None = None, *, limit: int = 100, after: int = 0) -> list[InboxEvent]:
        """List events, oldest first.

        Args:
            state: `pending`, `leased`, `done`, `dead`, `parked` or `quarantined`; left out: all.
            limit: So many at most.
            after: Only those with a higher number.
        """
        return await self._inbox.events(state, limit=limit, after=after)

    async def replay(self, event_id: int) -> bool:
        """Dispatch a dead, parked or quarantined event again; `False` where it is none of these.

        Handlers that are done with it are not called again.

        Args:
            event_id: Its number, as `events` tells it.
        """
        replayed = await self._inbox.replay(event_id)
        if replayed and self._dispatching is not None and self._dispatching.at_home:
            self._dispatching.wake()
        return replayed

    async def aclose(self, grace: float = 5.0) -> None:
        """Take and dispatch nothing more; what is cut off is due again at once. A second time does nothing.

        Args:
            grace: Seconds to wait for handlers that run, before they are cancelled.

        Raises:
            InvalidArgumentError: The grace is no number of seconds, 0 or more; the receiver is left open.
        """
        if isinstance(grace, bool) or not isinstance(grace, int | float) or not grace >= 0:
            raise invalid("grace", "a number of seconds, 0 or more", grace)
        if self._reception.closed:
            return
        self._reception.closed = True
        try:
            if self._dispatching is not None and self._dispatching.at_home:
                await self._dispatching.aclose(grace)
        finally:
            await self._inbox.aclose()

    def _wake(self) -> None:
        self._started().wake()

    def _started(self) -> Dispatching:
        """Return what dispatches in the running loop."""
        if self._reception.closed:
            raise SessionClosedError("the receiver is closed: make another")
        if self._dispatching is None or not self._dispatching.at_home:
            self._dispatching = Dispatching(self._inbox, self._handling.handle, self._limits, self._pace)
        return self._dispatching

    async def __aenter__(self) -> Self:
        if not self._reception.closed:
            await self._inbox.next_due()  # a file that is none of ours says so now
        self._started().wake()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
