"""One timer for all deadlines of a loop: a timer for each attempt would cost more than its signature."""

import asyncio
from types import TracebackType
from typing import Final, Self

from payasync.calls import Call

GRAIN: Final = 0.05
"""Seconds between two looks at the deadlines: the most by which one is overshot."""


class Deadline:
    """Bounds one attempt of a call: `with Deadline(deadlines, call) as deadline`, in a task.

    As with `asyncio.timeout`, the task is cancelled when the time is over, and `TimeoutError` is raised in its
    place; a cancellation by anybody else stays one.

    Args:
        deadlines: Those of the loop.
        call: It says when it must end, and how long its answer may take.

    Attributes:
        when: A time of the loop's clock.

    Raises:
        TimeoutError: The time was over.
    """

    __slots__ = ("_before", "_call", "_deadlines", "_expired", "_task", "when")

    def __init__(self, deadlines: "Deadlines", call: Call) -> None:
        self._deadlines = deadlines
        self._call = call
        self._expired = False
        self.when = call.deadline

    @property
    def mine(self) -> bool:
        """Whether it bounds the task that runs."""
        return self._task is asyncio.current_task()

    def begin(self) -> None:
        """Note that the write begins: from here to the whole answer it is `Timeouts.read`, within the call's time.

        Raises:
            TimeoutError: The time is over, or the call has been given up: a process that was stopped, and wakes when
                others have taken the call for lost, must not write; nor must what a layer of the user's has shielded.
        """
        now = self._deadlines.time()
        if now >= self.when or self._call.progress.over:
            raise TimeoutError
        self._call.progress.begun = True
        self.when = min(self.when, now + self._call.timeouts.read)

    def expire(self) -> None:
        """End what is done within it: the time is over."""
        self._expired = True
        self._task.cancel()

    def __enter__(self) -> Self:
        self._task = task = running_task(self._deadlines.loop)
        self._before = task.cancelling()
        self._deadlines.watch(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.running.discard(self)
        if not self._expired:
            return
        asked_by_others = self._task.uncancel() > self._before
        if kind is asyncio.CancelledError and not asked_by_others:
            raise TimeoutError


def running_task(loop: asyncio.AbstractEventLoop | None = None) -> "asyncio.Task[object]":
    """Return the task that runs; what awaits a call is always in one.

    Args:
        loop: The one that runs; who has it at hand saves the system call that asking for it is.
    """
    task = asyncio.current_task(loop)
    assert task is not None  # noqa: S101 - asyncio runs coroutines in tasks only
    return task


class Deadlines:
    """The deadlines of one loop, looked at every `GRAIN` seconds while there are any.

    Attributes:
        loop: Theirs.
        time: The loop's clock.
        running: Those that are watched.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.time = loop.time
        self.running: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, deadline: Deadline) -> None:
        """Watch a deadline.

        Raises:
            TimeoutError: It is over already.
        """
        if deadline.when <= self.time():
            raise TimeoutError
        self.running.add(deadline)
        if self._timer is None:
            self._timer = self.loop.call_later(GRAIN, self._look)

    def _look(self) -> None:
        now = self.time()
        for deadline in [each for each in self.running if each.when <= now]:
            self.running.discard(deadline)
            deadline.expire()
        self._timer = self.loop.call_later(GRAIN, self._look) if self.running else None

    def close(self) -> None:
        """Stop the timer, and end what is done within the deadlines, as if their time was over."""
        if self._timer is not None:
            self._timer.cancel()
        for deadline in tuple(self.running):
            if not deadline.mine:
                self.running.discard(deadline)
                deadline.expire()
