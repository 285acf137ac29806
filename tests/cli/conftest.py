"""Fixtures for the tests of commands."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from payasync.cli.signals import SIGNALS


@pytest.fixture
def signals() -> Iterator[None]:
    """Restore the signal handlers of this process afterwards."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


def interrupt(process: subprocess.Popen[Any], number: signal.Signals) -> None:
    """End a process at a question by a signal. Python loses one that comes immediately before it waits for input."""
    while process.poll() is None:
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
