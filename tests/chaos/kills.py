"""The kills: all strategies, one after the other, and the table of what they came to."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Final

from attrs import evolve
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tests.chaos.plan import JOURNALS, KEYED, MOMENTS, NAMES, Strategy
from tests.chaos.run import Scale, run
from tests.chaos.verdict import Result, name_of
from tests.postgres import postgres

CONTROL: Final = 20
"""The strategies without a journal, or with keys, do one operation in so many; they show what they lack long before."""
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
        results = run_all(("naive", "stable", "forgotten", "keyed", *CHOICES[journal]), scale, console)
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
        console.print(f"{NAMES[strategy]}: {time.monotonic() - started:.0f} s, {results[-1].counts()}", soft_wrap=True)
    return results


def scaled(strategy: Strategy, scale: Scale) -> Scale:
    """Return how much a strategy does."""
    if strategy in JOURNALS - KEYED:
        return scale
    least = min(scale.operations, LEAST.operations), min(scale.kills, LEAST.kills)
    return evolve(
        scale,
        operations=max(least[0], scale.operations // CONTROL),
        kills=max(least[1], scale.kills // CONTROL),
    )


LISTED: Final = 20


def show(console: Console, results: Sequence[Result]) -> None:
    """Print what the strategies came to, where the kills hit, and the first of what is unresolved or lost."""
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), title="By the service's ledger", title_justify="left")
    table.add_column(no_wrap=True)
    for each in results:
        table.add_column(NAMES[each.strategy], justify="right")
    columns = [each.counts() for each in results]
    for name in columns[0]:
        table.add_row(name, *(f"{counts[name]:,}" for counts in columns))
    table.add_section()
    table.add_row("killed while:")
    for moment in MOMENTS:
        table.add_row(f"  {moment}", *(str(each.hits.get(moment, 0)) for each in results))
    console.print(table)
    for result in results:
        for operation, words in islice({**result.unresolved, **result.lost}.items(), LISTED):
            console.print(f"{NAMES[result.strategy]}: {name_of(operation)}: {words}", soft_wrap=True)
