"""The trace of a process: a line for each step, written before it is taken, which outlives a SIGKILL."""

import os
import signal
import threading
from collections import Counter
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

from tests.chaos.clock import Clock
from tests.chaos.lives import ENDED, Life

SOON: Final = 0.02
"""Seconds, within which a process dies that dies wherever it is."""


class Trace:
    """Writes what a process is about to do, has the clock jump where it is to, and kills it where it is to die.

    Args:
        life: The process's.
    """

    def __init__(self, life: Life) -> None:
        self._file: Final = os.open(life.trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._life = life
        self._count = Counter[str]()
        self._lock = threading.Lock()
        self._random = Random(life.trace)  # noqa: S311 - when to die is no secret

    def mark(self, moment: str, number: str | None) -> None:
        """Say that an operation comes to a step; this may be the end."""
        with self._lock:
            os.write(self._file, f"{moment} {number}\n".encode())
            self._count[moment] += 1
            self._count["any"] += moment == ENDED
            counts = self._count[moment], self._count["any"]
        if moment == ENDED and counts[1] == self._life.jumping:
            Clock(self._life.clock).jump(self._life.jump)
        if moment == self._life.fatal and counts[0] == self._life.nth:
            if moment != "flying":
                die()
            self._die_soon()
        elif moment == ENDED and counts[1] == (self._life.nth if self._life.fatal == "any" else self._life.latest):
            self._die_soon()

    def _die_soon(self) -> None:
        timer = threading.Timer(self._random.random() * SOON, die)
        timer.daemon = True
        timer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)


def die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def lines(trace: Path) -> list[tuple[str, str]]:
    """Return the steps of a process, and the numbers they were about; a line that was cut off counts not."""
    text = trace.read_text(encoding="ascii") if trace.exists() else ""
    whole = text[: text.rfind("\n") + 1].splitlines()
    return [(moment, number) for moment, _, number in (line.partition(" ") for line in whole)]
