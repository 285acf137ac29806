"""Work that is cancelled at one of its awaits, counted from the first."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final

NEVER: Final = 10**6


class Interrupted:
    """Awaits what it is given, and cancels as that waits for the so-manieth time.

    Args:
        work: What it awaits.
        at: From 0.
        cancel: Cancels; by default the task that awaits this.

    Attributes:
        waits: How often it has waited.
    """

    def __init__(self, work: Coroutine[Any, Any, Any], at: int, cancel: Callable[[], object] | None = None) -> None:
        self._work = work
        self._at = at
        self._cancel = cancel or _cancel_this
        self.waits = 0

    @property
    def reached(self) -> bool:
        """Whether it came as far as that."""
        return self.waits > self._at

    def __await__(self) -> Generator[Any, None, Any]:
        """Hand on whatever the work waits for, and whatever that comes to."""
        step: Callable[[], Any] = partial(self._work.send, None)
        while True:
            try:
                waits_for = step()
            except StopIteration as end:
                return end.value
            if self.waits == self._at:
                self._cancel()
            self.waits += 1
            try:
                yield waits_for
                step = partial(self._work.send, None)
            except BaseException as error:  # noqa: BLE001 - it is the work's
                step = partial(self._work.throw, error)

    async def run(self) -> Any:
        """Await it: tasks are made of coroutines."""
        return await self


def _cancel_this() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
