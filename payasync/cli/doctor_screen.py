"""What a person sees of `payasync doctor`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from payasync.audit import Point, Status
from payasync.cli.doctor import Finding, Left, Verdict, needed_by
from payasync.shapes import Parameter

_MARKS: Final[dict[Verdict, str]] = {
    "fine": "[green]ok[/]",
    "warning": "[yellow]warning[/]",
    "missing": "[yellow]missing[/]",
    "wrong": "[bold red]wrong[/]",
}
_STYLES: Final[dict[Status, str]] = {"open": "yellow", "assumed": "cyan", "answered": "green"}
_ORDER: Final[tuple[Status, ...]] = ("open", "assumed", "answered")

_POINT: Final = "Point"
_VALUE: Final = "Value, or what to put there"
_NEEDED: Final = "Needed by"
_WIDE: Final = 100
_LAYOUTS: Final[tuple[tuple[int, tuple[tuple[str, ...], ...]], ...]] = (
    (_WIDE, ((_POINT,), (_VALUE,), (_NEEDED,))),
    (80, ((_POINT, _NEEDED), (_VALUE,))),
    (0, ((_POINT, _VALUE, _NEEDED),)),
)
"""From how many columns on what stands side by side, and what below: no name is ever broken."""
_LEAST_NEEDED: Final = 21
"""Columns of the longest name of a method, with its comma."""


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
        self._console.print(_points(points, self._console.width))

    def findings(self, title: str, findings: Iterable[Finding]) -> None:
        """Show what was looked at, and what was found."""
        self._console.print(f"\n[bold]{title}[/]\n")
        table = _table()
        for _ in range(2):
            table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        table.show_header = False
        for each in findings:
            table.add_row(_MARKS[each.verdict], escape(each.name), escape(each.words))
        self._console.print(table)

    def left(self, steps: Iterable[Left]) -> None:
        """Show what is left to do: last, where whoever waits for the end looks."""
        self._console.print("\n[bold]In short[/]\n")
        table = _table()
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(overflow="fold")
        table.show_header = False
        for each in steps:
            mark = f"[{_STYLES['open']}]open[/]" if each.verdict == "open" else _MARKS[each.verdict]
            table.add_row(mark, str(each.many), escape(each.words))
        self._console.print(table)


def _points(points: Sequence[Point], width: int) -> Table:
    layout = next(columns for least, columns in _LAYOUTS if width >= least)
    longest = max(len(point.name) for point in points)
    widths: dict[tuple[str, ...], int] = {
        (_POINT,): longest,
        (_POINT, _NEEDED): longest,
        (_NEEDED,): _LEAST_NEEDED + (width - _WIDE) // 3,
    }
    table = _table()
    table.add_column(no_wrap=True)
    for column in layout:
        table.add_column("\n".join(column), overflow="fold", width=widths.get(column))
    for point in sorted(points, key=lambda each: _ORDER.index(each.status)):
        cells = _cells(point)
        shown = ("\n".join(cells[name] for name in column) for column in layout)
        table.add_row(f"[{_STYLES[point.status]}]{point.status}[/]", *shown)
    return table


def _cells(point: Point) -> dict[str, str]:
    return {
        _POINT: f"[bold]{escape(point.name)}[/]",
        _VALUE: escape(point.means if point.status == "open" or point.value in (None, "") else _said(point.value)),
        _NEEDED: f"[dim]{escape(needed_by(point))}[/]",
    }


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")


def _said(value: object) -> str:
    """Return a value of a profile in words."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_said(each)}" for name, each in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return f"{value.name}, in the {value.place}" if isinstance(value, Parameter) else str(value)
