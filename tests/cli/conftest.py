"""Fixtures for the tests of commands."""

import signal
from collections.abc import Iterator

import pytest

from payasync.cli.signals import SIGNALS


@pytest.fixture
def signals() -> Iterator[None]:
    """Restore the signal handlers of this process afterwards."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)
