"""How signals end a command; their effect on a process is tested in processes of their own."""

import asyncio
import signal

import pytest

from payasync.cli.signals import SIGNALS, stopped_by_signals

pytestmark = pytest.mark.usefixtures("signals")


async def test_second_signal_after_the_end_changes_nothing() -> None:
    """If a second signal arrives after the end, it is ignored, and the default handlers are restored."""
    stop = stopped_by_signals(lambda: False)
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(stop.wait(), 5)

    assert {signal.SIG_DFL} == {signal.getsignal(number) for number in SIGNALS}
