"""How signals end a command."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def stopped_by_signals(last_word: Callable[[], bool] | None = None) -> asyncio.Event:
    """Return an event that the first SIGINT or SIGTERM sets; the second one ends the process.

    A signal that the process ignores stays ignored, as for commands that a shell starts in the background.

    Args:
        last_word: Called by the event loop before the second signal ends the process, unless it returns `False`. A
            third signal then ends the process immediately, even if the loop is busy.
    """
    stop, loop, begun = asyncio.Event(), asyncio.get_running_loop(), list[int]()
    heeded = [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]

    def end(number: int) -> None:
        if last_word is None or last_word():
            signal.raise_signal(number)

    def handle(number: int, _frame: FrameType | None) -> None:
        begun.append(number)
        if len(begun) == 1:
            # A closed loop has no work left that could be stopped.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(stop.set)
            return
        for each in heeded:
            signal.signal(each, signal.SIG_DFL)
        if last_word is None:
            signal.raise_signal(number)
        else:
            loop.call_soon_threadsafe(end, number)

    # Only the main thread calls `handle`. The kernel may interrupt another thread, or this one immediately before the
    # loop waits. asyncio lets all signals wake the loop when it handles one: nobody sends SIGURG, which has no effect.
    if hasattr(signal, "SIGURG"):  # Windows lacks it, and its loops do so by themselves
        loop.add_signal_handler(signal.SIGURG, bool)
    for each in heeded:
        signal.signal(each, handle)
    return stop


async def run_until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Wait for work, and cancel it if `stop` is set before; return whether it was."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    interrupted = not working.done()
    working.cancel()
    stopping.cancel()
    await asyncio.wait({working, stopping})
    if not working.cancelled():
        working.result()
    return interrupted
