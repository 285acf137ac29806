"""Processes that begin behind the imports: what they say and how they end is what a started one would."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.forked import Forked

pytestmark = pytest.mark.long

Write = Callable[[str], Path]


@pytest.fixture
def program(tmp_path: Path) -> Write:
    """Write a program."""

    def write(text: str) -> Path:
        path = tmp_path / "program.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_last_complaint_of_one_that_is_killed(program: Write) -> None:
    """What it complains of just before it is killed is heard, however much that is."""
    words = "import os, signal, sys; print('x' * 200_000, file=sys.stderr); os.kill(os.getpid(), signal.SIGKILL)"
    with Forked(program(words)) as process:
        told, errors = process.communicate()

    assert ("", 200_001, -signal.SIGKILL) == (told, len(errors), process.returncode)


def test_warnings_are_errors(program: Write) -> None:
    """A warning ends it, as with `-W error`."""
    with Forked(program("import warnings; warnings.warn('careful')")) as process:
        _, errors = process.communicate()

    assert 1 == process.returncode
    assert "UserWarning: careful" in errors
