"""How signals end a command; their effect on a process is tested in processes of their own."""

import asyncio
import signal

import pytest

from payasync.cli.signals import SIGNALS, stopped_by_signals

pytestmark = pytest.mark.usefixtures("signals")


def test_signal_after_the_loop_is_closed() -> None:
    """If a signal arrives after the work is over, the exit code of the work stays: nothing is raised."""

    async def work() -> asyncio.Event:
        return stopped_by_signals()

    stop = asyncio.run(work())
    signal.raise_signal(signal.SIGTERM)

    assert not stop.is_set()


async def test_second_signal_after_the_end_changes_nothing() -> None:
    """If a second signal arrives after the end, it is ignored, and the default handlers are restored."""
    stop = stopped_by_signals(lambda: False)
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(stop.wait(), 5)

    assert {signal.SIG_DFL} == {signal.getsignal(number) for number in SIGNALS}


async def test_ignored_signal_stays_ignored() -> None:
    """If the process ignores a signal, as in the background of a script, the signal stops nothing, then or later."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = stopped_by_signals(lambda: False)
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(0)
    assert not stop.is_set()

    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(stop.wait(), 5)

    assert [signal.SIG_IGN, signal.SIG_DFL] == [signal.getsignal(number) for number in SIGNALS]
