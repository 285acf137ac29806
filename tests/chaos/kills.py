"""The kills: all strategies, one after the other, and what they came to."""

import asyncio
import time
from contextlib import ExitStack
from itertools import islice
from typing import Final

from attrs import evolve
from rich.console import Console

from tests.chaos.plan import JOURNALS, Strategy
from tests.chaos.run import Scale, run
from tests.chaos.verdict import name_of
from tests.postgres import postgres

CONTROLS: Final[tuple[Strategy, ...]] = ("naive", "stable")
LESS: Final = 20
"""The strategies without a journal do one operation in so many; they show what they lack long before."""
LEAST: Final = Scale(operations=200, kills=8)
CHOICES: Final[dict[str, tuple[Strategy, ...]]] = {
    "sqlite": ("sqlite",),
    "postgres": ("postgres",),
    "both": ("sqlite", "postgres"),
}
LISTED: Final = 20


def killed(scale: Scale, journal: str, console: Console) -> list[str]:
    """Run the controls, and the strategies of a choice; return what is wrong with them.

    Args:
        scale: How much is done.
        journal: Which choice.
        console: Shows what they came to, and the first of what is unresolved or lost.
    """
    console.print(
        f"python -m tests.chaos kills --seed {scale.seed} --operations {scale.operations} --kills {scale.kills} "
        f"--faults {scale.faults} --journal {journal}",
        soft_wrap=True,
    )
    flaws: list[str] = []
    for strategy in (*CONTROLS, *CHOICES[journal]):
        started = time.monotonic()
        with ExitStack() as stack, console.status(f"{strategy} ..."):
            dsn = stack.enter_context(postgres()).dsn if strategy == "postgres" else ""
            try:
                result = asyncio.run(run(strategy, scaled(strategy, scale), dsn))
            except TimeoutError:
                return [*flaws, f"{strategy} took more than {scale.seconds:.0f} s"]
        console.print(f"{strategy}: {time.monotonic() - started:.0f} s, {result.counts()}", soft_wrap=True)
        for operation, words in islice({**result.unresolved, **result.lost}.items(), LISTED):
            console.print(f"{strategy}: {name_of(operation)}: {words}", soft_wrap=True)
        flaws += [f"{strategy}: {flaw}" for flaw in result.flaws()]
    return flaws


def scaled(strategy: Strategy, scale: Scale) -> Scale:
    """Return how much a strategy does."""
    if strategy in JOURNALS:
        return scale
    operations, kills = (
        max(min(all_, least), all_ // LESS)
        for all_, least in ((scale.operations, LEAST.operations), (scale.kills, LEAST.kills))
    )
    return evolve(scale, operations=operations, kills=kills)
