"""Processes that begin behind the imports: what they say and how they end is what a started one would."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from chaos.forked import Forked

pytestmark = pytest.mark.long

Write = Callable[[str], Path]
MANY: Final = 20
THREADS: Final = 4


@pytest.fixture
def program(tmp_path: Path) -> Write:
    """Write a program."""

    def write(text: str) -> Path:
        path = tmp_path / "program.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_what_it_is_given_and_says(program: Write, tmp_path: Path) -> None:
    """It has its arguments, variables, folder and input; output, complaint and exit code come back."""
    words = "import os, sys; print(sys.argv[1:], dict(os.environ), os.getcwd(), input()); sys.exit('no')"
    with Forked(program(words), "a", environment={"B": "b"}, folder=tmp_path) as process:
        told, errors = process.communicate("c\n")

    assert (f"['a'] {{'B': 'b'}} {tmp_path} c\n", "no\n", 1) == (told, errors, process.returncode)


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


def test_one_that_takes_too_long(program: Write) -> None:
    """It is killed when its time is over, and that is said."""
    with Forked(program("import signal; signal.pause()")) as process, pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.2)

    assert -signal.SIGKILL == process.returncode


@pytest.mark.usefixtures("eager_threads")
def test_exit_code_that_many_ask_for(program: Write) -> None:
    """All threads that ask for an exit code as the process ends, and others begin, are told the one that it had."""
    path = program("import sys; input(); sys.exit(3)")

    def code(process: Forked) -> int:
        while (code := process.returncode) is None:
            pass
        return code

    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(MANY):
            with Forked(path) as process:
                told = [pool.submit(code, process) for _ in range(THREADS)]
                process.stdin.write("\n")
                process.stdin.flush()
                while not told[0].done():
                    with Forked(path):
                        pass

                assert [3] * THREADS == [each.result() for each in told]
