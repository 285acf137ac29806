"""The deadline of an attempt: until it connects, and until its response is read."""

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from payasync.clocks import Deadlines
from payasync.wire.call import Call

if TYPE_CHECKING:
    from payasync.transport.pools import ConnectionLimit


class NoFreeConnectionError(TimeoutError):
    """The time was over while the call waited for a connection of the pool."""


class TooLateError(TimeoutError):
    """Too little time was left to send a request."""


class LeaseOverError(TimeoutError):
    """The time in which a write may be sent may be over: the journal's lease, or the life of its idempotency key."""


class Deadline:
    """Bounds one attempt of a call: `with Deadline(deadlines, call) as deadline`, in a task.

    As with `asyncio.timeout`, the task is cancelled when the time is over, and `TimeoutError` replaces this
    cancellation. Any other cancellation stays a cancellation.

    Args:
        deadlines: The deadlines of the loop.
        call: The call, with its deadline and timeouts.

    Attributes:
        when: When the attempt must end, on the loop's clock.
        holds: The limit that the attempt took a connection from, to give it back at the end.

    Raises:
        NoFreeConnectionError: The time was over while the call waited for the pool.
        TimeoutError: The time was over.
    """

    __slots__ = (
        "_before",
        "_deadlines",
        "_expired",
        "_last",
        "_latest_start",
        "_lease",
        "_progress",
        "_task",
        "_timeouts",
        "_waiting",
        "holds",
        "when",
    )

    def __init__(self, deadlines: Deadlines, call: Call) -> None:
        self._deadlines = deadlines
        # Not the call, whose fields would stay for as long as it is in flight.
        self._timeouts = call.timeouts
        self._lease = call.lease
        self._progress = call.progress
        self._expired = False
        self._waiting = True
        self.when: float = call.deadline
        self.holds: ConnectionLimit | None = None
        self._last = call.deadline
        self._latest_start = call.deadline - call.timeouts.least

    @property
    def mine(self) -> bool:
        """Whether it bounds the running task."""
        return self._task is asyncio.current_task()

    @property
    def may_start(self) -> bool:
        """Whether the call may still be sent: it has at least `Timeouts.least` left."""
        return self._deadlines.time() < self._latest_start

    def connect(self) -> None:
        """Start the time for DNS, TCP and TLS: at most `Timeouts.connect`, and not beyond the call's deadline.

        Raises:
            TooLateError: Too little time is left, as for `begin`: the connection would be of no use to this call.
        """
        if not self.may_start:
            raise TooLateError
        self._waiting = False
        self.when = min(self.when, self._deadlines.time() + self._timeouts.connect)

    def begin(self) -> None:
        """Mark the start of the write, and the time for the response: at most `Timeouts.read`, and the call's deadline.

        Raises:
            TooLateError: Less than `Timeouts.least` is left, for example after a slow middleware: a write would often
                end as unknown. Or the call has ended, or its task is being cancelled, and a user's layer still
                runs it.
            LeaseOverError: The journal's lease may be over. The lease also counts the time in which the machine is
                suspended; the loop's clock does not.
        """
        if self._lease is not None and self._lease.over:
            raise LeaseOverError
        now, progress = self._deadlines.time(), self._progress
        if now >= self._latest_start or progress.over or self._task.cancelling() > self._before:
            raise TooLateError
        progress.begun = True
        self._waiting = False
        self.when = min(self._last, now + self._timeouts.read)

    def postpone(self, seconds: float) -> None:
        """Give the time in which the loop was blocked again to the connect or the response, but not to the call."""
        self.when = min(self._last, self.when + seconds)

    def limit(self, *, begun: bool) -> str:
        """Return which timeout was over, with its seconds, for the error.

        Args:
            begun: Whether the write had begun.
        """
        if self.when >= self._last or not self._expired:
            return f"the limit of the call, timeout= or Timeouts.total, is {self._timeouts.total:g} s"
        name = "read" if begun else "connect"
        return f"Timeouts.{name} is {getattr(self._timeouts, name):g} s"

    def expire(self) -> None:
        """Cancel the task, because the time is over."""
        self._expired = True
        self._task.cancel()

    def __enter__(self) -> Self:
        deadlines = self._deadlines
        task: Any = asyncio.current_task(deadlines.loop)
        self._task = task
        self._before = task.cancelling()
        deadlines.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.running.pop(self, None)
        if self.holds is not None:
            self.holds.release()
        if not self._expired:
            return
        asked_by_others = self._task.uncancel() > self._before
        if kind is asyncio.CancelledError and not asked_by_others:
            raise NoFreeConnectionError if self._waiting else TimeoutError
