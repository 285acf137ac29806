"""Lines and tables on a terminal, or whatever stands in its place: plain ones then, each written immediately."""

import logging
import os
import re
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

Part = str | tuple[str, str]
"""A text, or one with its style."""

_WORD: Final = re.compile(r"\S+\s*")
_LEAST: Final = 20
"""Columns in which words are set; where there are fewer, the terminal breaks lines as it likes."""


class Lines:
    """Writes lines.

    Args:
        console: Written to in place of the terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _Terminal(highlight=False)

    @property
    def width(self) -> int:
        """The terminal's columns; without one a line may have any length."""
        return self._console.width if self._console.is_terminal else sys.maxsize

    def write(self, *parts: Part, hang: int | None = None) -> None:
        """Write a line.

        Args:
            parts: What stands in it.
            hang: The column where it goes on below, after a whole word, if the terminal is too narrow for it; left
                out: it is never broken here, so that it can be copied.
        """
        text = Text.assemble(*parts)
        if self._console.options.ascii_only:
            text.plain = "".join(letter if letter.isascii() else "?" for letter in text.plain)
        try:
            for line in [text] if hang is None else _hanging(text, hang, self.width):
                self._console.print(line, soft_wrap=True)
        except OSError:
            self._console.on_broken_pipe()

    def row(self, name: str, value: str, style: str = "bold cyan", *, width: int = 9) -> None:
        """Write a line of a table: a name, and what is there."""
        self.write((f"  {name:{width}}  ", "dim"), (value, style), hang=width + 4)


class _Terminal(Console):
    """Where nobody reads any more, or the disk is full, it writes nothing, and the command goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # Python would complain at its end that it cannot write what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(command: str, why: object) -> None:
    """Say on standard error, in one line, why a command does not do what it was asked to."""
    words = plain(" ".join(str(why).split()))
    Lines(Console(stderr=True, highlight=False)).write(f"payasync {command}: {words}", hang=2)


def plain(text: str) -> str:
    """Return a text as it may be shown: what is received may hold what a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _hanging(text: Text, hang: int, width: int) -> list[Text]:
    """Return a text as lines that a terminal has room for, all but the first of them indented."""
    head, rest = text[:hang], text[hang:]
    lines = rest.divide(_breaks(rest.plain, max(width - hang, _LEAST)))
    for line in lines:
        line.rstrip()
    first, *others = lines
    return [head + first, *(Text(" " * hang) + line for line in others)]


def _breaks(text: str, width: int) -> Iterator[int]:
    """Yield where a text goes on in a new line: between words; one that is wider than a line stays whole."""
    begun = 0
    for word in _WORD.finditer(text):
        if word.start() > begun and cell_len(text[begun : word.end()].rstrip()) > width:
            begun = word.start()
            yield begun


FOLDED: Final = frozenset({"Merchant", "Number", "Why", "Refund", "Order", "What is wrong"})
"""Columns that may be broken anywhere: others choose how long these are."""
RIGHT: Final = frozenset({"Id", "Line", "Amount"})
LEAST: Final = 10
"""Columns that a broken text has, at least."""


def bare_table(names: Sequence[str], rows: Sequence[Sequence[Text]]) -> Table:
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


def print_table(console: Console, found: RenderableType, *, indent: int = 0) -> None:
    """Write a table, or the like, with nothing behind the last word of a line."""
    lines = Lines(console)
    for segments in console.render_lines(Padding(found, (0, 0, 0, indent)), pad=False):
        lines.write(*_trimmed(segments))


def _trimmed(segments: Iterable[Segment]) -> Sequence[Part]:
    parts = [(each.text, str(each.style or "")) for each in segments]
    while parts and not parts[-1][0].strip():
        parts.pop()
    return [*parts[:-1], *((text.rstrip(), style) for text, style in parts[-1:])]


@contextmanager
def quiet() -> Generator[None]:
    """Let what is logged meanwhile go where somebody has sent it, and not, for want of that, to standard error."""
    logger, nowhere = logging.getLogger("payasync"), logging.NullHandler()
    logger.addHandler(nowhere)
    try:
        yield
    finally:
        logger.removeHandler(nowhere)


def in_a_folder(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a file that is to be made where there is no folder."""
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {str(path.parent)!r}: make it first")
    return path
