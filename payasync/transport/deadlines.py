"""One timer for all deadlines of a loop: a timer for each attempt would cost more than its signature."""

import asyncio
from types import TracebackType
from typing import Final, Self

GRAIN: Final = 0.05
"""Seconds between two looks at the deadlines: the most by which one is overshot."""


class Deadline:
    """Bounds what is done within it: `with deadlines.until(when) as deadline`, in a task.

    As with `asyncio.timeout`, the task is cancelled when the time is over, and `TimeoutError` is raised in its
    place; a cancellation by anybody else stays one.

    Raises:
        TimeoutError: The time was over.
    """

    __slots__ = ("_before", "_deadlines", "_expired", "_task", "when")

    def __init__(self, deadlines: "Deadlines", when: float) -> None:
        self._deadlines = deadlines
        self._expired = False
        self.when = when

    @property
    def mine(self) -> bool:
        """Whether it bounds the task that runs."""
        return self._task is asyncio.current_task()

    def expire(self) -> None:
        """End what is done within it: the time is over."""
        self._expired = True
        self._task.cancel()

    def __enter__(self) -> Self:
        self._task = running_task()
        self._before = self._task.cancelling()
        self._deadlines.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.discard(self)
        if not self._expired:
            return
        asked_by_others = self._task.uncancel() > self._before
        if kind is asyncio.CancelledError and not asked_by_others:
            raise TimeoutError


def running_task() -> "asyncio.Task[object]":
    """Return the task that runs; what awaits a call is always in one."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - asyncio runs coroutines in tasks only
    return task


class Deadlines:
    """The deadlines of one loop, looked at every `GRAIN` seconds while there are any."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._running: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None

    def until(self, when: float) -> Deadline:
        """Return a deadline at a time of the loop's clock; its `when` may be moved later on."""
        return Deadline(self, when)

    def add(self, deadline: Deadline) -> None:
        """Watch a deadline.

        Raises:
            TimeoutError: It is over already.
        """
        if deadline.when <= self._loop.time():
            raise TimeoutError
        self._running.add(deadline)
        if self._timer is None:
            self._timer = self._loop.call_later(GRAIN, self._look)

    def discard(self, deadline: Deadline) -> None:
        """Watch it no more."""
        self._running.discard(deadline)

    def _look(self) -> None:
        now = self._loop.time()
        for deadline in [each for each in self._running if each.when <= now]:
            self._running.discard(deadline)
            deadline.expire()
        self._timer = self._loop.call_later(GRAIN, self._look) if self._running else None

    def close(self) -> None:
        """Stop the timer, and end what is done within the deadlines, as if their time was over."""
        if self._timer is not None:
            self._timer.cancel()
        for deadline in tuple(self._running):
            if not deadline.mine:
                self._running.discard(deadline)
                deadline.expire()
