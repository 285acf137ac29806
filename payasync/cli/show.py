"""What a person sees of the demo: one line for each step, in columns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text

WIDTH: Final = 96

_STATE_STYLES: Final = {
    "paid": "bold green",
    "succeeded": "bold green",
    "refused": "bold magenta",
    "closed": "cyan",
    "cancelled": "cyan",
}

THEME: Final = TerminalTheme(
    (18, 22, 30),
    (214, 220, 230),
    [
        (34, 40, 52),
        (240, 113, 120),
        (126, 211, 133),
        (240, 200, 110),
        (108, 172, 255),
        (199, 146, 234),
        (98, 205, 214),
        (190, 198, 210),
    ],
)

PICTURE: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="payasync demo">
<style>
.{unique_id}-matrix {{
    font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
    font-size: {char_height}px;
    line-height: {line_height}px;
    font-variant-east-asian: full-width;
}}
.{unique_id}-title {{ font-family: system-ui, sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""The frame of a saved picture; it asks no other host for a font."""


class Screen:
    """The terminal, and on demand a picture of it.

    Args:
        record: Keep what is shown, for `save`.
        console: Written to in place of the terminal.
    """

    def __init__(self, *, record: bool = False, console: Console | None = None) -> None:
        self._console = console or Console(record=record, highlight=False, width=WIDTH if record else None)
        self._steps = 0

    def opened(self, url: str) -> None:
        """Say what is about to happen, and where."""
        self._console.print()
        self._console.print(Text.assemble(("payasync demo", "bold"), "  a whole payment, on a sandbox of its own"))
        self._console.print(Text(f"{url} · no keys, no network beyond this machine", "dim"))
        self._console.print()

    def step(self, title: str, call: str, state: str | None, detail: str) -> None:
        """Show that a step was done, and what came of it."""
        self._steps += 1
        row = Table.grid(padding=(0, 2), expand=False)
        for width in (2, 24, 20, 9):
            row.add_column(width=width, no_wrap=True)
        row.add_column(no_wrap=True)
        shown = state or "-"
        row.add_row(
            Text(str(self._steps), "dim", justify="right"),
            Text(title),
            Text(call, "blue"),
            Text(shown, _STATE_STYLES.get(shown, "yellow")),
            Text(detail, "dim"),
        )
        self._console.print(row)

    def note(self, words: str, address: str) -> None:
        """Add a line below a step, that ends in an address."""
        self._console.print(Text.assemble(" " * 4, (f"↳ {words} ", "dim"), (address, "cyan")), soft_wrap=True)

    def closed(self, truth: Mapping[str, str], seconds: float) -> None:
        """Show what the ledger holds at the end."""
        facts = [*(f"{name} {value}" for name, value in truth.items()), f"{seconds * 1000:.0f} ms"]
        words = Text.assemble(("✓ every answer agrees with the ledger", "bold green"), f"\n{' · '.join(facts)}")
        self._console.print()
        self._console.print(Panel(words, border_style="green", expand=False, padding=(0, 2)))

    def broken(self, what: str) -> None:
        """Show what the ledger disagrees with."""
        words = Text.assemble(("✗ an answer disagrees with the ledger", "bold red"), f"\n{what}")
        self._console.print()
        self._console.print(Panel(words, border_style="red", expand=False, padding=(0, 2)))

    def failed(self, error: Exception) -> None:
        """Show the error that ended the story."""
        self._console.print()
        self._console.print(Text.assemble(("✗ ", "bold red"), (type(error).__name__, "bold"), f": {error}"))

    def save(self, path: Path, *, title: str) -> None:
        """Save what was shown as an SVG picture."""
        self._console.save_svg(str(path), title=title, theme=THEME, code_format=PICTURE)
