"""One timer for all deadlines of a loop: a timer for each attempt would cost more than its signature."""

import asyncio
from types import TracebackType
from typing import Any, Final, Self

from payasync.wire.call import Call

RESOLUTION: Final = 0.05
"""Seconds between two looks at the deadlines: the most by which one is overshot."""


class NoFreeConnectionError(TimeoutError):
    """The time was over while the call waited for a connection of the pool."""


class LeaseOverError(TimeoutError):
    """The journal's lease on a write may be over, and another process may send it."""


class Deadline:
    """Bounds one attempt of a call: `with Deadline(deadlines, call) as deadline`, in a task.

    As with `asyncio.timeout`, the task is cancelled when the time is over, and `TimeoutError` is raised in its
    place; a cancellation by anybody else stays one.

    Args:
        deadlines: Those of the loop.
        call: It says when it must end, and how long its response may take.

    Attributes:
        when: A time of the loop's clock.

    Raises:
        NoFreeConnectionError: The time was over while the call waited for the pool.
        TimeoutError: The time was over.
    """

    __slots__ = ("_before", "_call", "_deadlines", "_expired", "_task", "_waiting", "when")

    def __init__(self, deadlines: "Deadlines", call: Call) -> None:
        self._deadlines = deadlines
        self._call = call
        self._expired = False
        self._waiting = True
        self.when = call.deadline

    @property
    def mine(self) -> bool:
        """Whether it bounds the task that runs."""
        return self._task is asyncio.current_task()

    def connect(self) -> None:
        """Note that a connection is made: DNS, TCP and TLS take at most `Timeouts.connect`, within the call's time."""
        self._waiting = False
        self.when = min(self.when, self._deadlines.time() + self._call.timeouts.connect)

    def begin(self) -> None:
        """Note that the write begins: the whole response must come within `Timeouts.read` and the call's time.

        Raises:
            TimeoutError: The time is over, as in a process that was stopped and wakes late. Or the call has ended, or
                its task is being cancelled, though a layer of the user's still runs it.
            LeaseOverError: The journal's lease may be over. Its clock counts while the machine is suspended; the loop's
                clock does not.
        """
        lease = self._call.lease
        if lease is not None and lease.over:
            raise LeaseOverError
        now, progress = self._deadlines.time(), self._call.progress
        if now >= self.when or progress.over or self._task.cancelling() > self._before:
            raise TimeoutError
        progress.begun = True
        self._waiting = False
        self.when = min(self._call.deadline, now + self._call.timeouts.read)

    def expire(self) -> None:
        """End what is done within it: the time is over."""
        self._expired = True
        self._task.cancel()

    def __enter__(self) -> Self:
        deadlines = self._deadlines
        if self.when <= deadlines.time():
            raise TimeoutError
        task: Any = asyncio.current_task(deadlines.loop)
        self._task = task
        self._before = task.cancelling()
        deadlines.running.add(self)
        if deadlines.timer is None:
            deadlines.schedule_check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.running.discard(self)
        if not self._expired:
            return
        asked_by_others = self._task.uncancel() > self._before
        if kind is asyncio.CancelledError and not asked_by_others:
            raise NoFreeConnectionError if self._waiting else TimeoutError


def running_task() -> "asyncio.Task[object]":
    """Return the task that runs; what awaits a call is always in one."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - asyncio runs coroutines in tasks only
    return task


class Deadlines:
    """The deadlines of one loop, looked at every `RESOLUTION` seconds while there are any.

    Attributes:
        loop: Theirs.
        time: The loop's clock.
        running: Those that are watched.
        timer: Of the next look; `None` while there is none to come.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.time = loop.time
        self.running: set[Deadline] = set()
        self.timer: asyncio.TimerHandle | None = None

    def schedule_check(self) -> None:
        """Look at the deadlines in a while, and from then on as long as there are any."""
        self.timer = self.loop.call_later(RESOLUTION, self._look)

    def _look(self) -> None:
        now = self.time()
        for deadline in [each for each in self.running if each.when <= now]:
            self.running.discard(deadline)
            deadline.expire()
        self.timer = None
        if self.running:
            self.schedule_check()

    def close(self) -> None:
        """Stop the timer, and end what is done within the deadlines, as if their time was over."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for deadline in tuple(self.running):
            if not deadline.mine:
                self.running.discard(deadline)
                deadline.expire()
