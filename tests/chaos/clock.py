"""The clock of the run's journals, which jumps: one for all processes, as a machine's or a database server's is."""

import time
from pathlib import Path
from typing import Final

HOUR: Final = 3600.0
FORWARD: Final = "+"
BACK: Final = "-"
WAYS: Final = (FORWARD, BACK)


class Clock:
    """Returns seconds since 1970, and an hour more or less for each jump so far.

    Args:
        jumps: The file of the jumps, a character for each, so that one by any process is one for all.
        ahead: Seconds by which it is ahead of that.
    """

    def __init__(self, jumps: str, ahead: float = 0.0) -> None:
        self._file = Path(jumps)
        self._ahead = ahead

    def __call__(self) -> float:
        """Return what time it is."""
        jumps = self.jumps
        return time.time() + self._ahead + HOUR * (jumps.count(FORWARD) - jumps.count(BACK))

    @property
    def jumps(self) -> str:
        """The jumps so far."""
        return self._file.read_text(encoding="ascii") if self._file.exists() else ""

    def jump(self, way: str) -> None:
        """Jump, for all processes."""
        with self._file.open("a", encoding="ascii") as file:
            file.write(way)
