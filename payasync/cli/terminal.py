"""Lines on a terminal, or whatever stands in its place: plain ones then, each written at once."""

import os
import sys

from rich.console import Console
from rich.text import Text

Part = str | tuple[str, str]
"""A text, or one with its style."""


class Lines:
    """Writes lines.

    Args:
        console: Written to in place of the terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _Terminal(highlight=False)

    def write(self, *parts: Part) -> None:
        """Write a line."""
        text = Text.assemble(*parts)
        if self._console.options.ascii_only:
            text.plain = "".join(letter if letter.isascii() else "?" for letter in text.plain)
        try:
            self._console.print(text, soft_wrap=True)
        except OSError:
            self._console.on_broken_pipe()

    def row(self, name: str, value: str, style: str = "bold cyan", *, width: int = 9) -> None:
        """Write a line of a table: a name, and what is there."""
        self.write((f"  {name:{width}}  ", "dim"), (value, style))


class _Terminal(Console):
    """Where nobody reads any more, or the disk is full, it writes nothing, and the command goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # Python would complain at its end that it cannot write what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def plain(text: str) -> str:
    """Return a text as it may be shown: what is received may hold what a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in text)
