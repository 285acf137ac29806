"""The kills: all strategies, one after the other, and the table of what they came to."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from attrs import evolve
from rich.console import Console

from tests.chaos.lives import JOURNALS, NAMES, Strategy
from tests.chaos.run import Scale, run
from tests.chaos.table import show
from tests.chaos.truth import Result
from tests.postgres import postgres

CONTROL: Final = 20
"""The strategies without a journal do one operation in so many; they show what they lack long before."""
LEAST: Final = Scale(operations=200, kills=8)
CHOICES: Final[dict[str, tuple[Strategy, ...]]] = {
    "sqlite": ("sqlite",),
    "postgres": ("postgres",),
    "both": ("sqlite", "postgres"),
    "none": (),
}


def killed(scale: Scale, journal: str, console: Console) -> list[str]:
    """Run the controls, and the strategies of a choice; return what is wrong with them.

    Args:
        scale: How much is done.
        journal: Which choice.
        console: Shows the table.
    """
    console.print(
        f"python -m chaos kills --seed {scale.seed} --operations {scale.operations} --kills {scale.kills} "
        f"--faults {scale.faults} --journal {journal}",
        soft_wrap=True,
    )
    try:
        results = run_all(("naive", "stable", *CHOICES[journal]), scale, console)
    except TimeoutError:
        return [f"a strategy took more than {scale.seconds:.0f} s"]
    show(console, results)
    return [f"{NAMES[each.strategy]}: {flaw}" for each in results for flaw in each.flaws()]


def run_all(strategies: Iterable[Strategy], scale: Scale, console: Console) -> list[Result]:
    """Return what the strategies come to."""
    results: list[Result] = []
    for strategy in strategies:
        with ExitStack() as stack, console.status(f"{NAMES[strategy]} ..."):
            dsn = stack.enter_context(postgres()).dsn if strategy == "postgres" else ""
            started = time.monotonic()
            results.append(asyncio.run(run(strategy, scaled(strategy, scale), dsn)))
        # Said at once: who ends the run before its table has at least that.
        found = results[-1]
        console.print(
            f"{NAMES[strategy]}: {time.monotonic() - started:.0f} s, {found.kills} kills, "
            f"{found.duplicates} duplicates, {len(found.lost)} lost, {found.again} sent again, "
            f"{len(found.unresolved)} unresolved"
        )
    return results


def scaled(strategy: Strategy, scale: Scale) -> Scale:
    """Return how much a strategy does."""
    if strategy in JOURNALS:
        return scale
    least = min(scale.operations, LEAST.operations), min(scale.kills, LEAST.kills)
    return evolve(
        scale,
        operations=max(least[0], scale.operations // CONTROL),
        kills=max(least[1], scale.kills // CONTROL),
    )
