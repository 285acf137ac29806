"""The kills: all strategies, one after the other, and the table of what they came to."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Final

from attrs import evolve
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tests.chaos.plan import JOURNALS, MOMENTS, NAMES, Strategy, moments
from tests.chaos.run import Scale, run
from tests.chaos.verdict import Result, name_of
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
        f"python -m tests.chaos kills --seed {scale.seed} --operations {scale.operations} --kills {scale.kills} "
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


LISTED: Final = 20


COLUMNS: Final = (
    "opera-\ntions", "faults", "kills", "jumps", "dupli-\ncates", "lost", "undone", "nonces\nreused", "sent\nagain",
    "unre-\nsolved",
)  # fmt: skip


def show(console: Console, results: Sequence[Result]) -> None:
    """Print what the strategies came to, and where the kills hit."""
    console.print(outcomes(results))
    console.print(histogram(results))
    for result in results:
        listing(console, result.strategy, {operation: f"is {state}" for operation, state in result.unresolved.items()})
        listing(console, result.strategy, {operation: f"is lost: {why}" for operation, why in result.lost.items()})


def listing(console: Console, strategy: Strategy, words: Mapping[int, str]) -> None:
    """Say something of each operation, as far as there are not too many."""
    for operation, word in islice(words.items(), LISTED):
        console.print(f"{NAMES[strategy]}: {name_of(operation)} {word}", soft_wrap=True)
    if len(words) > LISTED:
        console.print(f"{NAMES[strategy]}: and {len(words) - LISTED} more")


def outcomes(results: Sequence[Result]) -> Table:
    """Return the table of strategies."""
    table = Table("strategy", box=SIMPLE, padding=0, title="By the service's ledger", title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for each in results:
        counts = (
            each.operations,
            each.faults,
            each.kills,
            each.jumps,
            each.duplicates,
            len(each.lost),
            each.undone,
            each.nonces,
            each.again,
        )
        shown = ("" if count is None else f"{count:,}" for count in (*counts, len(each.unresolved)))
        table.add_row(NAMES[each.strategy], *shown)
    return table


def histogram(results: Sequence[Result]) -> Table:
    """Return the table of the steps at which kills hit."""
    table = Table("step", box=SIMPLE, title="Operations that kills interrupted, by their step", title_justify="left")
    for each in results:
        table.add_column(NAMES[each.strategy], justify="right")
    for moment in MOMENTS:
        shown = (str(each.hits.get(moment, 0)) if moment in moments(each.strategy) else "" for each in results)
        table.add_row(moment, *shown)
    return table
