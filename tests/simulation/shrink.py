"""Reduces a life that breaks a rule to the events that are needed for it, as a script to read and to run.

`python -m tests.simulation.shrink SEED EMPHASIS` prints that script.
"""

import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.simulation.circumstances import Emphasis
from tests.simulation.invariants import VIOLATIONS
from tests.simulation.life import Life, live

_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - folders within it are private
MEMORY: Final = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
"""Where the folders of lives are: in memory, if the machine has such a place, because lives commit often."""
MOST: Final = 80
"""Lives that are tried at most."""
SHOWN: Final = 40
"""Lines of what happens that a script shows at most."""
SCRIPT: Final = '''"""{violation}

{notes}
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.simulation.life import live

HAPPENS = [
{happens}
]

with TemporaryDirectory() as folder:
    print(*live({seed}, Path(folder), {emphasis!r}, HAPPENS).violations, sep="\\n")
'''


def relive(seed: int, emphasis: Emphasis, only: Iterable[str] | None = None) -> Life:
    """Return the life of a seed, in a folder of its own."""
    with TemporaryDirectory(dir=MEMORY) as folder:
        try:
            return live(seed, Path(folder), emphasis, only)
        except Exception as error:  # noqa: BLE001 - a life that cannot go on is one that goes wrong
            return Life(seed, [f"STUCK: {type(error).__name__}: {error}"], happened=[*(only or ())])


def shrink(seed: int, emphasis: Emphasis) -> Life:
    """Return the life of a seed without all that may be left out while the worst that happens in it still does."""
    first = relive(seed, emphasis)
    worst = next((each for each in VIOLATIONS if has(first, each)), None)

    def goes_wrong(only: list[str]) -> Life | None:
        life = relive(seed, emphasis, only)
        return life if worst and has(life, worst) else None

    return _reduce(first, goes_wrong) if worst else first


def has(life: Life, violation: str) -> bool:
    """Return whether a violation happens in a life."""
    return any(each.startswith(f"{violation}:") for each in life.violations)


def _reduce(life: Life, goes_wrong: Callable[[list[str]], Life | None]) -> Life:
    """Leave out half of what happens, then a quarter, and so on, down to each single event."""
    tried, length = 0, len(life.happened)
    while length > 0 and tried < MOST:
        first, reduced = 0, False
        while first < len(life.happened) and tried < MOST:
            tried += 1
            happened = life.happened
            found = goes_wrong([*happened[:first], *happened[first + length :]])
            if found is None or len(found.happened) >= len(happened):
                first += length
            else:
                life, reduced = found, True
        if not reduced or length > 1:
            length //= 2
    return life


def _rank(violation: str) -> int:
    return VIOLATIONS.index(violation.partition(":")[0])


def write_script(life: Life, emphasis: Emphasis) -> str:
    """Return a script of at most a page that shows and repeats a life."""
    notes = [f"{at:11.3f}  {text}" for at, text in life.notes]
    if len(notes) > SHOWN:
        notes = [*notes[: SHOWN // 2], "        ...", *notes[-SHOWN // 2 :]]
    values: dict[str, Any] = {
        "violation": min(life.violations, key=_rank, default="Nothing goes wrong in this life."),
        "notes": "\n".join(notes),
        "happens": "\n".join(f"    {each!r}," for each in life.happened),
    }
    return SCRIPT.format(seed=life.seed, emphasis=emphasis, **values)


if __name__ == "__main__":
    logging.disable()
    emphasis: Any = sys.argv[2] if len(sys.argv) > 2 else ""
    sys.stdout.write(write_script(shrink(int(sys.argv[1]), emphasis), emphasis))
