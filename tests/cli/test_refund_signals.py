"""How an import is ended; that a second signal ends its process is tested with one of its own."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from payasync.cli.signals import SIGNALS, import_ended_by_signals


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The handlers of this process's signals, as they were before."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


async def test_second_signal_after_the_end_changes_nothing() -> None:
    """What has ended is not called cut off; a third signal ends the process where it stands."""
    said: list[str] = []
    with import_ended_by_signals(lambda: said.append("cut off")):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    await asyncio.sleep(0)

    assert not said
    assert {signal.SIG_DFL} == {signal.getsignal(number) for number in SIGNALS}
