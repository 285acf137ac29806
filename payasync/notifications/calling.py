"""The caller's own code, which may hang: it has so much time, and is then left to itself."""

import asyncio
from collections.abc import Awaitable
from typing import Final, NoReturn, TypeVar

T = TypeVar("T")

LANDING: Final = 1.0
"""Seconds that it has to end after it was cancelled."""

_left: Final[set["asyncio.Task[object]"]] = set()
"""What swallows its cancellation; a loop holds on to no task by itself."""


async def within(seconds: float, called: Awaitable[T]) -> T:
    """Return what the caller's code does, in a task of its own.

    Args:
        seconds: After these it is cancelled, and has failed, whether it ends or not.
        called: What it was called to do.

    Raises:
        TimeoutError: It was not done in time.
    """
    task = asyncio.create_task(_awaited(called))
    try:
        await asyncio.wait([task], timeout=seconds)
    except asyncio.CancelledError:
        if not task.cancelling():  # a loop that ends cancels both
            task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            raise
    if not task.done():
        await _end(task, seconds)
    return task.result()


async def _awaited(called: Awaitable[T]) -> T:
    return await called


async def _end(task: "asyncio.Task[object]", seconds: float) -> NoReturn:
    """Cancel what is late, and say where it was."""
    task.cancel()
    await asyncio.wait([task], timeout=LANDING)
    if not task.done():
        _left.add(task)
        task.add_done_callback(_gone)
        raise TimeoutError(f"not done after {seconds:g} seconds, and cannot be cancelled")
    error = _error(task)
    raise TimeoutError(f"not done after {seconds:g} seconds").with_traceback(error.__traceback__ if error else None)


def _gone(task: "asyncio.Task[object]") -> None:
    _left.discard(task)
    _error(task)


def _error(task: "asyncio.Task[object]") -> BaseException | None:
    """Return what a task ended with; a loop complains of errors that nobody asks for."""
    try:
        task.result()
    except BaseException as error:  # noqa: BLE001 - it is told, and not raised
        return error
    return None
