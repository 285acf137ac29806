"""Tables that lose no column: what is long goes on below, and what must be whole stays so."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from payasync.cli.terminal import Lines, Part

FOLDED: Final = frozenset({"Merchant", "Number", "Why", "Refund", "Order", "What is wrong"})
"""Columns that may be broken anywhere: others choose how long these are."""
RIGHT: Final = frozenset({"Id", "Line", "Amount"})
LEAST: Final = 10
"""Columns that a broken text has, at least."""


def table(names: Sequence[str], rows: Sequence[Sequence[Text]]) -> Table:
    """Return a table of such columns."""
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, name in enumerate(names):
        widest = max(len(name), *(row[place].cell_len for row in rows))
        folded = name in FOLDED
        found.add_column(
            name,
            justify="right" if name in RIGHT else "left",
            no_wrap=not folded,
            overflow="fold",
            min_width=min(widest, LEAST) if folded else widest,
        )
    for row in rows:
        found.add_row(*row)
    return found


def show(console: Console, found: RenderableType, *, indent: int = 0) -> None:
    """Write a table, or the like, with nothing behind the last word of a line."""
    lines = Lines(console)
    for segments in console.render_lines(Padding(found, (0, 0, 0, indent)), pad=False):
        lines.write(*_trimmed(segments))


def _trimmed(segments: Iterable[Segment]) -> Sequence[Part]:
    parts = [(each.text, str(each.style or "")) for each in segments]
    while parts and not parts[-1][0].strip():
        parts.pop()
    return [*parts[:-1], *((text.rstrip(), style) for text, style in parts[-1:])]
