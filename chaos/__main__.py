"""Run the strategies one after the other, print the table, and fail where a promise was broken."""

import asyncio
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

import click
from attrs import evolve
from rich.console import Console

from chaos.lives import JOURNALS, NAMES, Strategy
from chaos.run import Scale, run
from chaos.table import show
from chaos.truth import Result
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


def run_all(strategies: Iterable[Strategy], scale: Scale, console: Console) -> list[Result]:
    """Return what the strategies come to."""
    results: list[Result] = []
    for strategy in strategies:
        with ExitStack() as stack, console.status(f"{NAMES[strategy]} ..."):
            dsn = stack.enter_context(postgres()).dsn if strategy == "postgres" else ""
            started = time.monotonic()
            results.append(asyncio.run(run(strategy, scaled(strategy, scale), dsn)))
        console.print(f"{NAMES[strategy]}: {time.monotonic() - started:.0f} s")
    return results


@click.command()
@click.option("--operations", type=click.IntRange(min=30), default=100_000, show_default=True, help="Per journal.")
@click.option("--kills", type=click.IntRange(min=1), default=200, show_default=True, help="Per journal.")
@click.option(
    "--faults", type=click.FloatRange(0, 0.9, min_open=True), default=0.2, show_default=True, help="Of calls."
)
@click.option("--seed", type=int, default=None, help="Repeats the draws; by default by the clock.")
@click.option("--journal", type=click.Choice([*CHOICES]), default="both", show_default=True)
@click.option("--seconds", type=float, default=3600.0, show_default=True, help="Per strategy; then it has failed.")
def main(*, operations: int, kills: int, faults: float, seed: int | None, journal: str, seconds: float) -> None:
    """Kill processes that make refunds and orders under faults, and compare with the service's ledger."""
    console = Console()
    drawn = time.time_ns() % 1_000_000 if seed is None else seed
    console.print(f"--seed {drawn} --operations {operations} --kills {kills} --faults {faults}")
    scale = Scale(operations=operations, kills=kills, faults=faults, seed=drawn, seconds=seconds)
    try:
        results = run_all(("naive", "stable", *CHOICES[journal]), scale, console)
    except TimeoutError:
        console.print(f"[red]FAILED[/red] a strategy took more than {seconds:.0f} s")
        sys.exit(1)
    show(console, results)
    flaws = [f"{NAMES[each.strategy]}: {flaw}" for each in results for flaw in each.flaws()]
    for flaw in flaws:
        console.print(f"[red]FAILED[/red] {flaw}")
    sys.exit(1 if flaws else 0)


if __name__ == "__main__":
    main()
