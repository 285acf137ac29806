"""How signals end a command."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def wake_on_signals() -> asyncio.AbstractEventLoop:
    """Let each signal wake the running event loop, and return the loop.

    Only the main thread runs Python's handlers. The kernel may interrupt another thread, or the main thread immediately
    before the loop waits. Without a wakeup, the handler would then run when something else wakes the loop.
    """
    loop = asyncio.get_running_loop()
    if sys.platform != "win32":  # whose loops do it themselves
        # asyncio sets up the wakeup by any signal when it handles one. Nobody sends this one, which is ignored.
        loop.add_signal_handler(signal.SIGURG, bool)
    return loop


def stopped_by_signals(last_word: Callable[[], bool] | None = None) -> asyncio.Event:
    """Return an event that the first SIGINT or SIGTERM sets; the second one ends the process.

    A signal that the process ignores stays ignored, as for commands that a shell starts in the background.

    Args:
        last_word: Called by the event loop before the second signal ends the process, unless it returns `False`. A
            third signal then ends the process immediately, even if the loop is busy.
    """
    stop, loop, begun = asyncio.Event(), wake_on_signals(), list[int]()
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
