"""The long checks, all of them or one: `python -m tests.chaos --help`."""

import sys
import time
from typing import Final

import click
from rich.console import Console

from tests.chaos.growth import Soak
from tests.chaos.kills import CHOICES, killed
from tests.chaos.lives import lived
from tests.chaos.properties import LONG, MODELS, PROPERTIES, tried
from tests.chaos.run import Scale
from tests.chaos.soak import SHORT, soaked

CONSOLE: Final = Console()
SEED: Final = click.option("--seed", type=int, default=None, help="Repeats the draws; by default by the clock.")
FAULTS: Final = click.option(
    "--faults", type=click.FloatRange(0, 0.9, min_open=True), default=0.2, show_default=True, help="Of calls."
)


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> list[str]:
    """Check at length: one part, or without a name one after the other.

    Each part prints how to repeat it.
    """
    flaws: list[str] = []
    if context.invoked_subcommand is None:
        for part in (properties, models, lives, soak, kills):
            CONSOLE.rule(str(part.name))
            started = time.monotonic()
            flaws += [f"{part.name}: {flaw}" for flaw in context.invoke(part)]
            CONSOLE.print(f"{part.name}: {(time.monotonic() - started) / 60:.0f} minutes")
    return flaws


@main.result_callback()
def end(flaws: list[str]) -> None:
    """Print what is wrong, and exit."""
    for flaw in flaws:
        CONSOLE.print(f"[red]FAILED[/red] {flaw}")
    sys.exit(1 if flaws else 0)


@main.command()
@SEED
@click.argument("paths", nargs=-1)
def properties(seed: int | None, paths: tuple[str, ...]) -> list[str]:
    """Try signatures and what reads foreign text, 100,000 examples each.

    PATHS: only these files of tests.
    """
    return tried(LONG, paths or PROPERTIES, _drawn(seed), CONSOLE)


@main.command()
@SEED
@click.argument("paths", nargs=-1)
def models(seed: int | None, paths: tuple[str, ...]) -> list[str]:
    """Do to the inbox and to a model of it whatever can be done; PATHS: these tests."""
    return tried("models", paths or MODELS, _drawn(seed), CONSOLE)


@main.command(name="lives")
@click.option("--lives", "number", type=click.IntRange(min=1), default=20_000, show_default=True)
@click.option("--hours", type=click.FloatRange(0, min_open=True), default=8.0, show_default=True, help="The most time.")
@SEED
def lives(number: int, hours: float, seed: int | None) -> list[str]:
    """Let simulated shops live, be killed and stop, each by a seed; the lives of a seed have all emphases in turn."""
    return lived(_drawn(seed), number, hours * 3600, CONSOLE)


@main.command()
@click.option("--operations", type=click.IntRange(min=SHORT.operations), default=60_000, show_default=True)
@FAULTS
@SEED
@click.option("--seconds", type=float, default=3600.0, show_default=True, help="Then it has failed.")
def soak(*, operations: int, faults: float, seed: int | None, seconds: float) -> list[str]:
    """Let a merchant's server run for long, under all kinds of faults: it must not grow."""
    run = Soak(operations=operations, faults=faults, seed=_drawn(seed), seconds=seconds)
    return soaked(run, CONSOLE)


@main.command()
@click.option("--operations", type=click.IntRange(min=30), default=100_000, show_default=True, help="Per journal.")
@click.option("--kills", type=click.IntRange(min=1), default=200, show_default=True, help="Per journal.")
@FAULTS
@SEED
@click.option("--journal", type=click.Choice([*CHOICES]), default="both", show_default=True)
@click.option("--seconds", type=float, default=3600.0, show_default=True, help="Per strategy; then it has failed.")
def kills(*, operations: int, kills: int, faults: float, seed: int | None, journal: str, seconds: float) -> list[str]:
    """Kill processes that make refunds and orders under faults, and compare with the service's ledger."""
    scale = Scale(operations=operations, kills=kills, faults=faults, seed=_drawn(seed), seconds=seconds)
    return killed(scale, journal, CONSOLE)


def _drawn(seed: int | None) -> int:
    return time.time_ns() % 1_000_000 if seed is None else seed


if __name__ == "__main__":
    main()
