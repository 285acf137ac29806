"""How signals end a command; that they end its process is tested with a process of its own."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from payasync.cli.signals import SIGNALS, stopped_by_signals


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The handlers of this process's signals, as they were before."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


async def test_second_signal_after_the_end_changes_nothing() -> None:
    """After the end a second signal is ignored; a third one ends the process immediately."""
    stop = stopped_by_signals(lambda: False)
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(stop.wait(), 5)

    assert {signal.SIG_DFL} == {signal.getsignal(number) for number in SIGNALS}
