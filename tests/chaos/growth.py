"""The settings and the samples of a soak, and whether the gauges grow: decided without I/O."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import median
from types import MappingProxyType
from typing import Final

from attrs import frozen

BOUNDS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "resident": 4 << 20,
        "blocks": 3_000,
        "objects": 2_000,
        "ours": 20,
        "sockets": 32,
        "files": 1,
        "tasks": 4,
        "threads": 1,
    }
)
"""By how much each gauge may seem to grow over the second half of a run, however long that is.

`resident` is memory in bytes, as the kernel has it; `blocks` are pieces of memory that small objects stand in.
`objects` are what the garbage collector knows, and `ours` those of payasync's classes. `files` are all descriptors but
`sockets`.

A sample finds more connections idle than another, or fewer: up to sixteen for writes and as many for reads, each a
socket, 80 blocks and 30 objects. Where the service tells something just then, that is up to two tasks. Memory as the
kernel has it went up and down by 2 MB in short runs, and by as much in one of 60,000 operations.
"""


@frozen(kw_only=True)
class Soak:
    """What a run does.

    Attributes:
        operations: Errands.
        samples: So often the server measures itself, at regular counts of operations.
        faults: The share of calls, and of notifications, that meet one.
        seed: Repeats the draws.
        seconds: After so many the run has failed.
        leaky: Whether the server holds on to what it should let go of: the control.
    """

    operations: int
    samples: int = 40
    faults: float = 0.2
    seed: int = 1
    seconds: float = 3600.0
    leaky: bool = False


Sample = Mapping[str, int]
"""The gauges of a process after so many `operations`, when nothing is under way."""


def growth(samples: Sequence[Sample], gauge: str) -> float:
    """Return by how much a gauge grows over the second half of a run; the first half warms up.

    The median of the slopes between any two samples, over all operations: one sample that is off moves nothing.
    """
    points = [(each["operations"], each[gauge]) for each in samples[len(samples) // 2 :]]
    slopes = [(after - before) / (end - start) for (start, before), (end, after) in combinations(points, 2)]
    return median(slopes) * (points[-1][0] - points[0][0])


@frozen(kw_only=True)
class Soaked:
    """What a run came to.

    Attributes:
        samples: At regular counts of operations.
        done: How often each errand was run, and what came of them.
        faults: How often each kind of fault happened.
    """

    samples: Sequence[Sample]
    done: Mapping[str, int]
    faults: Mapping[str, int]

    def growths(self) -> dict[str, float]:
        """Return by how much each gauge grows."""
        return {gauge: growth(self.samples, gauge) for gauge in BOUNDS}

    def flaws(self) -> list[str]:
        """Return in what this run is not as it must be, each in a sentence."""
        leaks = [
            f"{gauge} grew by {grown:,.0f} over the second half, by more than {BOUNDS[gauge]:,}"
            for gauge, grown in self.growths().items()
            if grown > BOUNDS[gauge]
        ]
        missed = [name for name, times in {**self.done, **self.faults}.items() if not times]
        return [*leaks, *(f"{name} never happened, so that this proves little" for name in missed)]
