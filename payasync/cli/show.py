"""What a person sees of the demo: one line for each step, in columns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.panel import Panel
from rich.terminal_theme import TerminalTheme
from rich.text import Text

WIDTH: Final = 80

STEP_WIDTH: Final = 80
"""From here on a step has room for the name of its call."""

_ASCII: Final = {"·": "|", "↳": ">", "✓": "+", "✗": "!"}
"""One letter for one: the styles of a text stand at its columns."""

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
        self._line()
        self._line(("payasync demo", "bold"), "  a whole payment, on a sandbox of its own")
        self._line((f"{url} · no keys, no network beyond this machine", "dim"))
        self._line()

    def step(self, title: str, call: str, state: str | None, detail: str) -> None:
        """Show that a step was done, and what came of it; a narrow terminal does without the name of the call."""
        self._steps += 1
        shown = state or "-"
        narrow = self._console.width < STEP_WIDTH
        self._line(
            (f"{self._steps:2}  ", "dim"),
            f"{title:26}",
            ("" if narrow else f"{call:22}", "blue"),
            (f"{shown:11}", _STATE_STYLES.get(shown, "yellow")),
            (detail, "dim"),
        )

    def note(self, words: str, address: str) -> None:
        """Add a line below a step, that ends in an address."""
        self._line((f"    ↳ {words} ", "dim"), (address, "cyan"))

    def closed(self, truth: Mapping[str, str], seconds: float) -> None:
        """Show what the ledger holds at the end."""
        facts = [*(f"{name} {value}" for name, value in truth.items()), f"{seconds * 1000:.0f} ms"]
        self._panel("✓ every answer agrees with the ledger", " · ".join(facts), "green")

    def broken(self, what: str) -> None:
        """Show what the ledger disagrees with."""
        self._panel("✗ an answer disagrees with the ledger", what, "red")

    def failed(self, error: Exception) -> None:
        """Show the error that ended the story."""
        self._line()
        self._line(("✗ ", "bold red"), (type(error).__name__, "bold"), f": {error}")

    def _panel(self, headline: str, text: str, colour: str) -> None:
        words = self._text((headline, f"bold {colour}"), f"\n{text}")
        self._line()
        self._console.print(Panel(words, border_style=colour, expand=False, padding=(0, 2)))

    def _line(self, *parts: str | tuple[str, str]) -> None:
        self._console.print(self._text(*parts), soft_wrap=True)

    def _text(self, *parts: str | tuple[str, str]) -> Text:
        """Return a line in the letters that the terminal has."""
        text = Text.assemble(*parts)
        if self._console.options.ascii_only:
            text.plain = "".join(_ASCII.get(letter, letter if letter.isascii() else "?") for letter in text.plain)
        return text

    def save(self, path: Path, *, title: str) -> None:
        """Save what was shown as an SVG picture."""
        self._console.save_svg(str(path), title=title, theme=THEME, code_format=PICTURE)
