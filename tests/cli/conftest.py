"""Fixtures for the tests of commands."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from payasync.cli.signals import SIGNALS
from tests.chaos.forked import Forked


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Give each test Python's own signal handlers, and restore those that were there."""
    before = [signal.getsignal(number) for number in SIGNALS]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


def interrupt(process: subprocess.Popen[Any] | Forked, number: signal.Signals) -> None:
    """End a process at a question by a signal. Python loses one that comes immediately before it waits for input."""
    while process.poll() is None:
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
