"""The tables that a run prints."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tests.chaos.lives import MOMENTS, NAMES, Strategy, moments
from tests.chaos.truth import Result, name_of

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
