"""Log lines beside a screen."""

import logging
import subprocess
import sys
from typing import Final

import pytest

from payasync.cli.terminal import quiet

PROGRAM: Final = """
import logging
from payasync.cli.terminal import quiet
with quiet():
    logging.getLogger("payasync").warning("inside")
logging.getLogger("payasync").warning("outside")
"""


def test_nothing_is_written_between_the_lines() -> None:
    """Python writes warnings that nobody takes to standard error; afterwards it does so again."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True, text=True)

    assert "outside\n" == ended.stderr


def test_who_takes_log_lines_gets_them(caplog: pytest.LogCaptureFixture) -> None:
    """A program that has set up logging hears all of it."""
    with quiet():
        logging.getLogger("payasync").warning("inside")

    assert ["inside"] == [each.getMessage() for each in caplog.records]
