"""How an import is ended: the first signal lets those under way end, the second one leaves a last line, and ends it."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopped_by_signals(last_word: Callable[[], object]) -> Generator[asyncio.Event]:
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
