"""How signals end a command; their effect on a process is tested in processes of their own."""

import asyncio
import signal
import subprocess
import sys
from typing import Final

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


WHILE_IT_WAITS: Final = """
import asyncio, signal, sys, threading
from payasync.cli.signals import stopped_by_signals

waits = threading.Event()

def interrupt():
    waits.wait()
    signal.pthread_kill(threading.get_ident(), {number})

async def main():
    stop = stopped_by_signals()
    asyncio.get_running_loop().call_soon(waits.set)
    await stop.wait()
    print("stopped")

threading.Thread(target=interrupt, daemon=True).start()
sys.setswitchinterval(60)  # the thread goes on only when the loop waits: then Python has looked for signals
asyncio.run(main())
"""
"""A loop that waits for a signal alone, and a signal that interrupts another thread meanwhile."""


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_wakes_a_loop_that_waits(number: signal.Signals) -> None:
    """A signal wakes the event loop, also if the kernel gives it to another thread after Python's last look for one."""
    program = WHILE_IT_WAITS.format(number=int(number))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)

    assert ("stopped\n", "") == (ended.stdout, ended.stderr)
