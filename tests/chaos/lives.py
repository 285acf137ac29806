"""Lives of simulated shops, on all cores, for as long as asked."""

import logging
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice
from typing import TYPE_CHECKING, Final, get_args

from rich.console import Console

from tests.simulation.circumstances import Emphasis
from tests.simulation.life import Life
from tests.simulation.shrink import relive, shrink, write_script

if TYPE_CHECKING:
    from collections.abc import Iterator

TOGETHER: Final = 200
"""Lives after which the time is looked at."""
COUNTED: Final = ("effects", "told", "handled", "kills", "faults")


def lived(first: int, lives: int, seconds: float, console: Console) -> list[str]:
    """Live lives until there are as many as asked, or the time is over, and return what may never happen.

    The first life in which it happens is reduced, and printed as a script.

    Args:
        first: The first seed.
        lives: How many, of all emphases together.
        seconds: The most time that may pass.
        console: Shows what the lives were like.
    """
    end, flaws, totals = time.monotonic() + seconds, list[str](), Counter[str]()
    emphases: tuple[Emphasis, ...] = get_args(Emphasis)
    left: Iterator[tuple[int, Emphasis]] = islice(((seed, each) for seed in count(first) for each in emphases), lives)
    logging.disable()
    with ProcessPoolExecutor(initializer=logging.disable) as pool:
        while time.monotonic() < end and (some := list(islice(left, TOGETHER))):
            for (seed, emphasis), life in zip(some, pool.map(_live, some, chunksize=10), strict=True):
                totals.update(
                    {"lives": 1, "hours": life.seconds / 3600, **{each: getattr(life, each) for each in COUNTED}}
                )
                if life.violations and not flaws:
                    console.print(write_script(shrink(seed, emphasis), emphasis), highlight=False, markup=False)
                flaws += [f"seed {seed}, emphasis {emphasis!r}: {each}" for each in life.violations]
    facts = ", ".join(f"{round(number):,} {name}" for name, number in totals.items())
    console.print(facts, highlight=False)
    return flaws


def _live(which: tuple[int, Emphasis]) -> Life:
    return relive(*which)
