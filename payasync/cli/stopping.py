"""How a command that serves is ended: by Ctrl-C or SIGTERM."""

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager
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


@contextmanager
def interruptible() -> Generator[None]:
    """Let Ctrl-C end at once what keeps the event loop busy; the loop itself would hear of it afterwards."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
