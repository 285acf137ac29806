"""How a command that serves is ended: by Ctrl-C or SIGTERM."""

import asyncio
import signal
from types import FrameType


def stopped_by_signals() -> asyncio.Event:
    """Return an event that the first SIGINT or SIGTERM sets; a second one ends the process at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def ask(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        loop.call_soon_threadsafe(stop.set)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, ask)
    return stop
