"""The trace of a process, which outlives a SIGKILL: a line for each step."""

import os
import signal
import threading
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

from tests.chaos.plan import ENDED, Life

SOON: Final = 0.02
"""Seconds, within which a process dies that dies wherever it is."""


class Trace:
    """Writes what a process is about to do, and kills it where it is to die.

    Args:
        life: The process's.
    """

    def __init__(self, life: Life) -> None:
        self._file: Final = os.open(life.trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._life = life
        self._count = 0
        self._lock = threading.Lock()

    def mark(self, moment: str, number: str | None) -> None:
        """Note that an operation comes to a step; this may be the end."""
        with self._lock:
            os.write(self._file, f"{moment} {number}\n".encode())
            self._count += moment == self._life.fatal
            fatal = moment == self._life.fatal and self._count == self._life.nth
        if fatal and moment == ENDED:
            timer = threading.Timer(Random(self._life.trace).random() * SOON, die)  # noqa: S311 - no secret
            timer.daemon = True
            timer.start()
        elif fatal:
            die()

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
