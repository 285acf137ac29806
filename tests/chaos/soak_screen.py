"""What a person sees of a soak."""

import asyncio
from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType
from typing import Final

from attrs import asdict, evolve
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tests.chaos.errands import ERRANDS
from tests.chaos.growth import BOUNDS, Sample, Soak, Soaked
from tests.chaos.soak import SHORT, overlooked, run


def _plain(number: float) -> str:
    return f"{number:,.0f}"


def _megabytes(number: float) -> str:
    return f"{number / 1e6:.1f}"


COLUMNS: Final[Mapping[str, tuple[str, Callable[[float], str]]]] = MappingProxyType(
    {
        "resident": ("memory\nMB", _megabytes),
        "blocks": ("blocks", _plain),
        "objects": ("objects", _plain),
        "ours": ("of ours", _plain),
        "sockets": ("sockets", _plain),
        "files": ("files", _plain),
        "tasks": ("tasks", _plain),
        "threads": ("threads", _plain),
    }
)
"""By gauge, its title and how it is written."""


NONE: Final[Mapping[str, float]] = MappingProxyType({})


def soaked(soak: Soak, console: Console) -> list[str]:
    """Run the control, and a soak; return what is wrong with them."""
    console.print(
        f"python -m tests.chaos soak --seed {soak.seed} --operations {soak.operations} --faults {soak.faults}"
    )
    with console.status("a server that leaks ...") as status:

        def heard(sample: Sample) -> None:
            status.update(f"{sample.operations:,} of {soak.operations:,} errands, {sample.resident / 1e6:.0f} MB ...")

        try:
            leaking = asyncio.run(run(evolve(SHORT, seed=soak.seed, leaky=True)))
            end = asyncio.run(run(soak, heard))
        except (TimeoutError, RuntimeError) as error:
            return [str(error) or f"it took more than {soak.seconds:.0f} s"]
    show(console, end)
    return overlooked(leaking) + end.flaws()


def show(console: Console, end: Soaked) -> None:
    """Print what a run came to."""
    console.print(table(end))
    console.print(summary(end))
    if end.flaws():
        console.print("What there is more of than after the first half:")
        for line in end.more:
            console.print(f"  {line}", markup=False, highlight=False)


def table(end: Soaked) -> Table:
    """Return the samples at the quarters, and the growth."""
    shown = Table("after", box=SIMPLE, padding=0, title="What the process holds", title_justify="left")
    for title, _ in COLUMNS.values():
        shown.add_column(title, justify="right")
    for sample in quarters(end):
        shown.add_row(_plain(sample.operations), *_cells(asdict(sample)))
    shown.add_section()
    shown.add_row("growth", *_cells(end.growths(), BOUNDS))
    shown.add_row("allowed", *_cells(BOUNDS))
    return shown


def quarters(end: Soaked) -> list[Sample]:
    """Return the first sample, and those at the quarters."""
    count = len(end.samples)
    return [end.samples[number] for number in sorted({max(0, count * each // 4 - 1) for each in range(5)})]


def summary(end: Soaked) -> str:
    """Return in words what was done."""
    done = end.done
    return (
        f"{sum(done[each] for each in ERRANDS):,} errands met {sum(end.faults.values()):,} faults of {len(end.faults)} "
        f"kinds. {done['OutcomeUnknownError']:,} ended unknown; {done['resolved']:,} unknown ones were resolved by "
        f"questions. {done['handled']:,} notifications were handled, {done['cancelled'] + done['shielded']:,} refunds "
        f"given up, and {done['session']:,} further sessions opened and closed."
    )


def _cells(values: Mapping[str, float], bounds: Mapping[str, float] = NONE) -> list[str]:
    """Return the cells of a row; what is beyond its bound is red."""
    cells = {gauge: write(values[gauge]) for gauge, (_, write) in COLUMNS.items()}
    return [f"[red]{text}[/red]" if values[gauge] > bounds.get(gauge, inf) else text for gauge, text in cells.items()]
