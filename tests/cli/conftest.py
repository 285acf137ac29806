"""Fixtures for the tests of commands."""

import asyncio
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from payasync.cli.sandbox import environment_of
from payasync.cli.signals import SIGNALS
from payasync.journal import SqliteJournal
from payasync.profile.profile import Profile
from payasync.sandbox import ThreadedSandbox
from tests.chaos.forked import Forked

T = TypeVar("T")


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Give each test Python's own signal handlers, and restore those that were there."""
    before = [signal.getsignal(number) for number in SIGNALS]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def sandbox() -> Iterator[ThreadedSandbox]:
    """A sandbox with a paid order, in a thread of its own, because a command has its own event loop."""
    with ThreadedSandbox(repeated_refunds="refused") as sandbox:
        sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        yield sandbox
        sandbox.faults.clear()


def variables(sandbox: Any) -> dict[str, str]:
    """Return the variables that give a command the address and the keys of a sandbox, also of one in a thread."""
    return environment_of(sandbox)


def profile_option(file: Path, profile: Profile) -> tuple[str, str]:
    """Write a profile into a file, and return the option that names it."""
    file.write_text(profile.to_toml(), encoding="utf-8")
    return "--profile", str(file)


def in_journal(path: Path, work: Callable[[SqliteJournal], Awaitable[T]], **settings: Any) -> T:
    """Run a function with a journal."""

    async def done() -> T:
        async with SqliteJournal(path, **settings) as journal:
            return await work(journal)

    return asyncio.run(done())


def interrupt(process: subprocess.Popen[Any] | Forked, number: signal.Signals) -> None:
    """End a process at a question by a signal. Python loses one that comes immediately before it waits for input."""
    while process.poll() is None:
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
