"""Lines, tables and progress on a terminal; in a file or a pipe they are plain, and no line is broken."""

import logging
import re
import sys
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import click
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from payasync import __version__
from payasync.cli import discard
from payasync.errors import PayasyncError, plain

Part = str | tuple[str, str] | Text
"""A text, or one with its style."""

_ASCII: Final = {"·": "|", "↳": ">", "✓": "+", "✗": "!"}
_FOLDED: Final = frozenset({"Merchant", "Number", "Why", "Refund", "Order", "What is wrong"})
"""Columns that may be broken anywhere, because others choose how long their texts are."""
_RIGHT: Final = frozenset({"Id", "Line", "Amount"})
_LEAST: Final = 10
"""The least width of a folded column, and half the least width in which words are wrapped."""
_MADE_NUMBER: Final = 24
"""The length of the numbers that the commands make: a person copies them."""
_PIPED: Final = 240
"""Columns of a table where no terminal says how many it has."""


class Lines:
    """Writes lines; if nobody reads any more, it writes nothing and the command goes on.

    Args:
        console: Written to in place of the terminal.
        strict: A line that cannot be written raises its error. Without it, the command goes on, because it does more
            than to show something.

    Attributes:
        full: A line could not be written, for example because the disk is full or the stream is closed.
    """

    def __init__(self, console: Console | None = None, *, strict: bool = False) -> None:
        self.console: Console = console or terminal()
        self._strict = strict
        self.full: bool = self.console.quiet

    @property
    def width(self) -> int:
        """The terminal's columns; in a file a line may have any length."""
        return self.console.width if self.console.is_terminal else sys.maxsize

    def write(self, *parts: Part, hang: int | None = None) -> None:
        """Write a line.

        Args:
            parts: Its texts.
            hang: The indent of its continuation lines if the terminal is too narrow. Without it, the line is never
                broken here, so that it can be copied.
        """
        text = Text.assemble(*parts)
        if self.console.options.ascii_only:
            text.plain = "".join(_ASCII.get(each, each if each.isascii() else "?") for each in text.plain)
        try:
            for line in [text] if hang is None else _wrap(text, hang, self.width):
                self.console.print(line, soft_wrap=True)
        except OSError:
            self.full = True
            self.console.on_broken_pipe()
            if self._strict:
                raise

    def paragraph(self, *parts: Part, hang: int | None = None) -> None:
        """Write a line as `write` does, and an empty one."""
        self.write(*parts, hang=hang)
        self.write()

    def title(self, command: str, *what: Part) -> None:
        """Write the first line of a command, and an empty one."""
        self.paragraph((f"payasync {command}", "bold"), f" {__version__}: ", *what)

    def row(self, name: str, value: str, style: str = "bold cyan", *, width: int = 9) -> None:
        """Write a name, and its value."""
        self.write((f"  {name:{width}}  ", "dim"), (value, style), hang=width + 4)

    def print(self, content: RenderableType, *, indent: int = 0) -> None:
        """Write a table or the like, without blanks at the end of a line."""
        for segments in self.console.render_lines(Padding(content, (0, 0, 0, indent)), pad=False):
            line = Text.assemble(*((each.text, each.style or "") for each in segments))
            line.rstrip()
            self.write(line)

    def progress(self, description: str, *, hidden: bool = False) -> Progress:
        """Return a progress bar with one task, shown on a terminal only."""
        columns = TextColumn("  {task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn()
        disable = hidden or not self.console.is_terminal
        bar = Progress(*columns, console=self.console, transient=True, disable=disable)
        bar.add_task(description)
        return bar


class Terminal(Console):
    """A terminal, a file or a pipe; if nobody reads any more, it writes nothing and the command goes on.

    Args:
        stderr: Write to standard error.
        width: The columns, in place of the terminal's.
        record: Record the output, for a picture.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None, record: bool = False) -> None:
        # A stream that was closed before Python started is None, and rich would then write nowhere.
        closed = (sys.stderr if stderr else sys.stdout) is None
        super().__init__(highlight=False, stderr=stderr, width=width, quiet=closed, record=record)

    def on_broken_pipe(self) -> None:
        """Write nothing more."""
        self.quiet = True
        discard(self.file)


def terminal() -> Console:
    """Return the terminal; in a file or a pipe tables are wide, so that their cells are not broken."""
    console = Terminal()
    return console if console.is_terminal else Terminal(width=_PIPED)


def error_lines() -> Lines:
    """Return lines on standard error; if they cannot be written, the exit code of the command stays the same."""
    return Lines(Terminal(stderr=True))


def print_error(command: str, why: object) -> None:
    """Print on standard error, in one line, why a command fails; with `--debug`, first where that was raised."""
    words = plain(" ".join(str(why).split()))
    lines = error_lines()
    context, error = click.get_current_context(silent=True), sys.exception()
    if error and context and context.find_root().params.get("debug"):
        for line in origin_of(error):
            lines.write(plain(line))
    lines.write(f"{f'payasync {command}'.rstrip()}: {words}", hang=2)


def print_unexpected(error: Exception) -> None:
    """Print an error that no command expects, while it is handled; whoever then repeats a write could pay twice."""
    if isinstance(error, OSError):
        what = error.strerror or type(error).__qualname__
        why = what if error.filename is None else f"{what}: {str(error.filename)!r}"
    else:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}, line {place.lineno}"
        why = f"unexpected {type(error).__qualname__} in {where}. This is a defect: please report it"
    advice = "If it was sending a write, look at the journal or the service before you repeat it"
    print_error("", f"{why}. {advice}. payasync --debug shows more")


def origin_of(error: BaseException) -> Iterator[str]:
    """Yield the lines of a traceback, which has no messages of other libraries: these may hold a secret."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    for each in filter(None, (before, *getattr(error, "exceptions", ()))):
        yield from origin_of(each)
    for frame in traceback.format_tb(error.__traceback__):
        yield from frame.splitlines()
    ours = isinstance(error, PayasyncError | OSError | ImportError)
    yield f"{type(error).__qualname__}: {error}" if ours else type(error).__qualname__
    yield from (f"  {note}" for note in getattr(error, "__notes__", ()) if ours)


def fail(command: str, why: object) -> NoReturn:
    """Print why a command cannot start or continue, and end with exit code 2."""
    print_error(command, why)
    sys.exit(2)


def _wrap(text: Text, hang: int, width: int) -> list[Text]:
    """Return a text as lines that fit the terminal, all but the first indented."""
    head, rest = text[:hang], text[hang:]
    lines = rest.divide(_breaks(rest.plain, max(width - hang, 2 * _LEAST)))
    for line in lines:
        line.rstrip()
    first, *others = lines
    return [head + first, *(Text(" " * hang) + line for line in others)]


def _breaks(text: str, width: int) -> Iterator[int]:
    """Yield the offsets of continuation lines; a word wider than a line stays whole, unlike rich's wrapping."""
    begun = 0
    for word in re.finditer(r"\S+\s*", text):
        if word.start() > begun and cell_len(text[begun : word.end()].rstrip()) > width:
            begun = word.start()
            yield begun


def new_table(*, header: bool = True) -> Table:
    """Return a table without lines, to which columns are added."""
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=header)


def bare_table(names: Sequence[str], rows: Sequence[Sequence[Text]]) -> Table:
    """Return a table without lines, whose ids, states and made numbers are never broken.

    Args:
        names: The columns. A column of two lines has a name of two lines.
        rows: The cells of each row.
    """
    table = new_table()
    for place, title in enumerate(names):
        *above, name = title.split("\n")
        lines = [list(map(cell_len, each.split("\n"))) for each in (title, *(row[place].plain for row in rows))]
        widest = max(map(max, lines))
        # Of two lines, only the second is broken.
        least = max([_LEAST, *(first for first, *second in lines if second)])
        folded = name in _FOLDED and not (name == "Number" and widest <= _MADE_NUMBER)
        table.add_column(
            title,
            justify="right" if _RIGHT & {*above, name} else "left",
            no_wrap=not folded,
            overflow="fold",
            min_width=min(widest, least) if folded else widest,
        )
    for row in rows:
        table.add_row(*row)
    return table


@contextmanager
def stray_logs_dropped() -> Generator[set[str]]:
    """Keep log records that no handler takes from standard error, where Python would print them.

    Yields:
        The names of their events, as `docs/reference/events.md` lists them.
    """
    logger, dropped = logging.getLogger("payasync"), _Dropped()
    logger.addHandler(dropped)
    try:
        yield dropped.events
    finally:
        logger.removeHandler(dropped)


class _Dropped(logging.NullHandler):
    def __init__(self) -> None:
        super().__init__()
        self.events = set[str]()

    def handle(self, record: logging.LogRecord) -> bool:
        self.events.add(getattr(record, "event_name", ""))
        return True


class _SingleLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(record.getMessage().split())


def log_in_single_lines() -> None:
    """Print log records that no handler takes without their tracebacks, for example those of asyncio."""
    if logging.lastResort:
        logging.lastResort.setFormatter(_SingleLines())


def existing_folder(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a new file whose folder does not exist."""
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {str(path.parent)!r}: create it first")
    return path
