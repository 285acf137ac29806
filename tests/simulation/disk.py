"""The disk of a process: real SQLite files, whose transactions run as events of the world."""

from collections import deque
from collections.abc import Callable
from typing import Final

from tests.simulation.world import Process

SLOWEST: Final = 0.02
"""Seconds."""


class Executor:
    """Runs the transactions of a file one after the other, each after a while, until its process is killed."""

    def __init__(self, process: Process) -> None:
        self._process = process
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
            world = self._process.world
            world.after(world.random.uniform(0, SLOWEST), self._run)

    def _run(self) -> None:
        self._busy = False
        if self._process.stopped:
            self._begin()
        elif not self._process.killed:
            self._process.run(self._works.popleft())
            self._begin()
