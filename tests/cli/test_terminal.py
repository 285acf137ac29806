"""Lines on a terminal, and in a file."""

import io
import logging
import subprocess
import sys
from typing import Final

import pytest
from rich.cells import cell_len
from rich.console import Console

from payasync.cli.terminal import Lines, print_error, stray_logs_dropped


def terminal(width: int, *, watched: bool = True) -> tuple[Lines, io.StringIO]:
    """Return lines for a terminal of this width or for a file, and their output."""
    written = io.StringIO()
    return Lines(Console(file=written, width=width, force_terminal=watched, color_system=None)), written


def test_line_breaks_between_words() -> None:
    """If a line is too long for the terminal, it continues indented on the next one, after a whole word.

    A style continues after the line break.
    """
    lines, written = terminal(30)
    coloured = io.StringIO()
    console = Console(file=coloured, width=30, force_terminal=True, color_system="standard", highlight=False)

    lines.write(("now   ", "dim"), "one two three four five, six seven", hang=6)
    Lines(console).write("now   ", ("one two three four five, six", "red"), hang=6)

    assert ["now   one two three four five,", "      six seven"] == written.getvalue().splitlines()
    assert 2 == coloured.getvalue().count("\x1b[31m")


def test_no_line_is_longer_than_the_terminal() -> None:
    """No line is longer than the terminal, even with letters of two columns, and no word is lost."""
    words = "a bb ccc 日本 dddd ff 日本語 g hh iii jjjj"
    for width in (24, 25, 26, 40):
        lines, written = terminal(width)

        lines.write(words, hang=2)

        assert words.split() == written.getvalue().split()
        assert all(cell_len(line) <= width for line in written.getvalue().splitlines())


def test_word_that_is_too_long_stays_whole() -> None:
    """An address is never broken, so that it can be copied; in a file, no line is, so that it can be searched."""
    address = "http://127.0.0.1:8402/?token=abcdefghijklmnopqrstuvwxyz"
    (lines, written), (others, searched) = terminal(40), terminal(30, watched=False)

    lines.row("Dashboard", address)
    lines.write(f"export URL={address} and more of it")
    others.write("word " * 30, hang=2)

    assert [f"  Dashboard  {address}", f"export URL={address} and more of it"] == written.getvalue().splitlines()
    assert (1, sys.maxsize, 40) == (searched.getvalue().count("\n"), others.width, lines.width)


def test_error_line(capsys: pytest.CaptureFixture[str]) -> None:
    """An error is one line on standard error, without control characters."""
    print_error("listen", ValueError("no\n  such \x1b[2J file"))

    assert ("", "payasync listen: no such ?[2J file\n") == capsys.readouterr()


PROGRAM: Final = """
import logging
from payasync.cli.terminal import stray_logs_dropped
with stray_logs_dropped():
    logging.getLogger("payasync").warning("inside")
logging.getLogger("payasync").warning("outside")
"""


def test_stray_logs_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """Inside the block, warnings without a handler are dropped; afterwards they are shown again.

    If a program has set up logging, it gets all records.
    """
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True, text=True)
    with stray_logs_dropped():
        logging.getLogger("payasync").warning("inside")

    assert "outside\n" == ended.stderr
    assert ["inside"] == [each.getMessage() for each in caplog.records]
