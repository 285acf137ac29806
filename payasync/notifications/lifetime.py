"""How long a receiver dispatches: from its first use until it is closed."""

from collections.abc import Awaitable, Callable
from typing import Final

from payasync.errors import SessionClosedError
from payasync.middleware.retry import Pace
from payasync.notifications.dispatching import Dispatching
from payasync.notifications.inbox import Claim, Inbox
from payasync.notifications.limits import DispatchLimits


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
