"""The future result of a write, for which a caller waits as long as it has time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, Final, Self

from payasync.clocks import Deadlines


class PendingResult(asyncio.Future[Any]):
    """A future whose waiter may leave: the work continues, and its result can be had later.

    A waiter that stays goes on in the turn of the loop that brings the result. One commit ends many waits, and asyncio
    would make a handle for each.

    Args:
        loop: The loop in which somebody waits for the result.
        work: What gives the result: a function for the thread that runs it, or a task.

    Attributes:
        work: As it was given.
        when: When the wait must end, on the loop's clock.
    """

    __slots__ = ("_context", "_deadlines", "_later", "_resume", "when", "work")

    when: float

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Any = None) -> None:
        super().__init__(loop=loop)
        self.work: Final = work
        self._deadlines: Deadlines | None = None
        self._later: asyncio.Future[Any] | None = None
        self._resume: Callable[..., object] | None = None
        self._context: Context | None = None

    @classmethod
    def of(cls, awaitable: Awaitable[Any]) -> Self:
        """Return the pending result of a coroutine, which runs in a task, or of a future. A pending result stays."""
        if isinstance(awaitable, cls):
            return awaitable
        task = asyncio.ensure_future(awaitable)
        pending = cls(task.get_loop(), task)  # which holds the task; asyncio itself does not
        task.add_done_callback(pending._deliver_of)
        return pending

    def within(self, deadlines: Deadlines, when: float) -> Self:
        """Return itself. From now on, the work continues if the waiter is cancelled or has no time any more.

        If the time is over, awaiting it gives `None`.

        Args:
            deadlines: The deadlines of its loop.
            when: A moment on the loop's clock.
        """
        if not self.done():
            self._deadlines, self.when = deadlines, when
            deadlines.add(self)
        return self

    def final(self) -> "asyncio.Future[Any]":
        """Return the future that ends with the work itself, also if the wait for it has ended early."""
        return self._later or self

    @property
    def mine(self) -> bool:
        """Whether it bounds the running task: never, because the work continues without it."""
        return False

    @property
    def abandoned(self) -> bool:
        """Whether nobody will have the result: the waiter was cancelled, and had not called `within`."""
        return self._later is None and self.cancelled()

    def add_done_callback(self, fn: Callable[[Self], object], /, *, context: Context | None = None) -> None:
        """Call a function at the end. The first task that waits `within` a time is resumed by `deliver` itself."""
        # Only a task gives its context.
        if context is None or self._deadlines is None or self._context is not None or self.done():
            super().add_done_callback(fn, context=context)
        else:
            self._resume, self._context = fn, context

    def deliver(self, result: Any) -> None:
        """End with a result, or with an error, and let the waiter go on. If nobody waits any more, do nothing.

        If a task waits, call it in a callback of the loop: a task cannot be resumed inside another one.
        """
        try:
            waiting = self._later or self
            if not waiting.done():
                if self._deadlines is not None:
                    self._deadlines.running.pop(self, None)
                if isinstance(result, BaseException):
                    waiting.set_exception(result)
                else:
                    waiting.set_result(result)
            resume, context = self._resume, self._context
            if resume is not None and context is not None:
                self._resume = self._context = None
                context.run(resume, self)
        except BaseException:  # of a signal, or of the waiter: it must not wait for ever
            self.get_loop().call_soon(self.deliver, result)
            raise

    def _deliver_of(self, task: "asyncio.Future[Any]") -> None:
        if task.cancelled():
            self._detach()
            asyncio.Future.cancel(self.final())
            return
        error = task.exception()
        self.deliver(task.result() if error is None else error)

    def postpone(self, seconds: float) -> None:
        """Do nothing: the work continued while the loop was blocked."""

    def cancel(self, msg: Any = None) -> bool:
        """End the wait, because its task is cancelled."""
        self._leave()
        return super().cancel(msg)

    def expire(self) -> None:
        """End the wait, because the time is over."""
        self._leave()
        if not self.done():
            self.set_result(None)

    def _leave(self) -> None:
        if self._deadlines is not None and not self.done():
            self._detach()
            self._later = self.get_loop().create_future()

    def _detach(self) -> None:
        """End the deadline. The loop resumes the waiter in its next turn, because a task may be running now."""
        if self._deadlines is not None:
            self._deadlines.running.pop(self, None)
        if self._resume is not None:
            super().add_done_callback(self._resume, context=self._context)
            self._resume = self._context = None
