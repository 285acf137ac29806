"""The disk of a machine: real SQLite files, whose transactions run as events of the world, and may fail."""

import os
import resource
import signal
import warnings
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from attrs import define

from payasync.journal import SqliteJournal
from payasync.notifications import SqliteInbox
from tests.simulation.world import Process

SLOWEST: Final = 0.02
"""Seconds that a transaction takes at most on a good disk."""
LARGEST: Final = 300_000
"""Bytes. Files of a life are smaller."""


@define
class Habits:
    """What a disk does to transactions, by probability.

    Attributes:
        slow: A transaction takes seconds.
        full: The disk is full, at a byte that the seed draws.
        unopened: No file can be opened, such as the one that begins a transaction.
        torn: The process is killed at a byte that a transaction writes.
    """

    slow: float = 0.0
    full: float = 0.0
    unopened: float = 0.0
    torn: float = 0.0


class Executor:
    """Runs the transactions of a file one after the other, each after a while, until its process is killed.

    Args:
        process: The process.
        habits: What the disk does.
    """

    def __init__(self, process: Process, habits: Habits) -> None:
        self._process = process
        self._habits = habits
        self._works = deque[Callable[[], object]]()
        self._busy = False

    def submit(self, work: Callable[[], object]) -> None:
        """Run a function after all earlier ones."""
        if not self._process.killed:
            self._works.append(work)
            self._begin()

    def close(self) -> None:
        """Do nothing: nothing runs by itself."""

    def _begin(self) -> None:
        if not self._busy and self._works:
            self._busy = True
            world, name = self._process.world, self._process.name
            slowest = 4.0 if self._happens("slow", self._habits.slow) else SLOWEST
            world.after(world.between(0, slowest, f"transaction of {name}"), self._run)

    def _happens(self, what: str, probability: float) -> bool:
        world = self._process.world
        return probability > 0 and world.happens(f"the disk of {self._process.name} is {what}", probability)

    def _run(self) -> None:
        self._busy = False
        if self._process.stopped:
            self._begin()
        elif not self._process.killed:
            work = self._works.popleft()
            if self._happens("torn", self._habits.torn):
                self._tear(work)
            else:
                self._run_whole(work)
            self._begin()

    def _run_whole(self, work: Callable[[], object]) -> None:
        if self._happens("full", self._habits.full):
            with limited(resource.RLIMIT_FSIZE, self._draw_byte()):
                self._process.run(work)
        elif self._happens("unopened", self._habits.unopened):
            with limited(resource.RLIMIT_NOFILE, 0):
                self._process.run(work)
        else:
            self._process.run(work)

    def _draw_byte(self) -> int:
        world = self._process.world
        return int(LARGEST ** world.draw(f"byte of {self._process.name}"))

    def _tear(self, work: Callable[[], object]) -> None:
        """Kill the process at a byte that a transaction writes: a child of ours writes it, and the kernel ends it."""
        world, process, byte = self._process.world, self._process, self._draw_byte()
        world.note(f"{process.name} is killed as it writes byte {byte} of a file")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other tests may have threads: the child uses none
            child = os.fork()
        if child == 0:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with limited(resource.RLIMIT_FSIZE, byte):
                process.run(work)
            os._exit(0)
        os.waitpid(child, 0)
        process.kill()


def disconnect(owner: SqliteJournal | SqliteInbox) -> None:
    """Close the connection of a journal or inbox whose process was killed, between two transactions."""
    # A killed process calls no method of it, and a connection that nobody closes is a warning of Python's.
    connection = owner._file._db  # pyright: ignore[reportPrivateUsage]
    if connection is not None:
        connection.close()


@contextmanager
def limited(what: int, to: int) -> Generator[None]:
    """Lower a limit of this process."""
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (to, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))
