"""How a command is ended, and what it ends with."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

CANNOT: Final = 2
"""It cannot begin, and nothing was done."""
NEEDS_A_PERSON: Final = 3
"""Something may have been done, and a person must look."""
INTERRUPTED: Final = 130
"""By Ctrl-C or SIGTERM, before it was through."""


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


SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def import_ended_by_signals(last_word: Callable[[], object]) -> Generator[asyncio.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; the second one ends the process, and a third at once.

    Args:
        last_word: Called before the second one ends it, between two steps of the loop; not after the end of `with`.
    """
    stop, loop, signals, over = asyncio.Event(), asyncio.get_running_loop(), list[int](), asyncio.Event()

    def end(number: int) -> None:
        # After its end there is nothing to cut off: all is told by then.
        if not over.is_set():
            last_word()
            signal.raise_signal(number)

    def ask(number: int, _frame: FrameType | None) -> None:
        signals.append(number)
        if len(signals) == 1:
            loop.call_soon_threadsafe(stop.set)
            return
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        loop.call_soon_threadsafe(end, number)

    for each in SIGNALS:
        signal.signal(each, ask)
    try:
        yield stop
    finally:
        over.set()
