"""What a person sees of `payasync doctor`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from payasync.audit import Point, Status
from payasync.cli.doctor import Finding, Verdict, needed_by

_MARKS: Final[dict[Verdict, str]] = {
    "fine": "[green]ok[/]",
    "missing": "[yellow]missing[/]",
    "wrong": "[bold red]wrong[/]",
}
_STYLES: Final[dict[Status, str]] = {"open": "yellow", "assumed": "cyan", "answered": "green"}
NARROW: Final = 2
"""The first columns hold a word each, that may not be broken."""
_ORDER: Final[tuple[Status, ...]] = ("open", "assumed", "answered")


class DoctorScreen:
    """The terminal.

    Args:
        console: Written to in place of the terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)

    def profile(self, name: str, source: str, points: Sequence[Point]) -> None:
        """Show every point that the service's document leaves open, the open ones first."""
        counts = Counter(point.status for point in points)
        said = ", ".join(f"[{_STYLES[status]}]{counts[status]} {status}[/]" for status in _ORDER)
        self._console.print(f"\n[bold]Profile[/]  {escape(name or 'unnamed')}  [dim]{escape(source)}[/]\n{said}\n")
        table = _table("", "Point", "Value, or what to put there", "Needed by")
        for point in sorted(points, key=lambda each: _ORDER.index(each.status)):
            shown = point.means if point.status == "open" else _value(point)
            style = _STYLES[point.status]
            table.add_row(
                f"[{style}]{point.status}[/]", f"[bold]{escape(point.name)}[/]", escape(shown), escape(needed_by(point))
            )
        self._console.print(table)

    def findings(self, title: str, findings: Iterable[Finding]) -> None:
        """Show what was looked at, and what was found."""
        self._console.print(f"\n[bold]{title}[/]\n")
        table = _table("", "", "")
        table.show_header = False
        for each in findings:
            table.add_row(_MARKS[each.verdict], escape(each.name), escape(each.words))
        self._console.print(table)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, each in enumerate(columns):
        table.add_column(each, overflow="fold", no_wrap=number < NARROW)
    return table


def _value(point: Point) -> str:
    value = point.value
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return point.means if value is None else str(value)
