"""How commands are ended."""

import asyncio
import signal

import pytest

from payasync.cli.signals import interruptible


def test_busy_loop_is_interrupted_at_once() -> None:
    """What gives the loop no time would hear of Ctrl-C at its end only; afterwards the loop's own way is back."""
    heard = []

    async def work() -> None:
        before = signal.getsignal(signal.SIGINT)
        try:
            with interruptible():
                signal.raise_signal(signal.SIGINT)
                heard.append("it goes on")
        finally:
            heard.append("the same" if signal.getsignal(signal.SIGINT) == before else "another")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work())

    assert ["the same"] == heard
