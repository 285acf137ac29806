"""What a benchmark returns: figures, some of them with a budget."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from attrs import frozen


@frozen
class Figure:
    """One measured value.

    Attributes:
        what: What was measured, in at most 46 characters.
        value: The value.
        unit: `x` for a ratio.
        most: The budget, if it is an upper limit.
        least: The budget, if it is a lower limit.
        measured: In what: instructions, CPU time, wall time, or a count.
    """

    what: str
    value: float
    unit: str = "x"
    most: float | None = None
    least: float | None = None
    measured: str = "wall time"

    @property
    def passed(self) -> bool | None:
        """Whether the value is within its budget; `None` without one."""
        if self.most is None and self.least is None:
            return None
        return (self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least)


@frozen
class Run:
    """How a run measures.

    Attributes:
        quick: Whether to measure less, and to accept more noise.
        folder: On a disk, for files.
    """

    quick: bool
    folder: Path

    def times(self, count: int) -> int:
        """Return a number of repetitions, or a quarter of it if the run is quick."""
        return max(1, count // 4) if self.quick else count


Row: TypeAlias = Callable[[Run], Iterable[Figure]]
