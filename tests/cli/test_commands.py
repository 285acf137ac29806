"""The `payasync` command itself."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from payasync import __version__
from payasync.cli.commands import payasync

WITHOUT = """
import sys
sys.modules[{missing!r}] = None
from payasync.cli import main
main()
"""


def ran(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a program in a process of its own."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_it_says_how_to_get_it(missing: str) -> None:
    """Without the extra `[cli]`, the command ends with one line that names the extra."""
    ended = ran(WITHOUT.format(missing=missing), "demo")
    advice = f'payasync: the command needs {missing}: python -m pip install "payasync[cli]"\n'

    assert (1, advice) == (ended.returncode, ended.stderr)


PROGRAMS: Final = (
    ("-m", "payasync"),
    ("-c", "import sys; from payasync.cli import main; sys.argv[0] = 'payasync'; main()"),
)
"""How Python runs it, and what the script of the package does."""


def started(program: tuple[str, ...], *arguments: str, folder: Path | None = None) -> subprocess.Popen[str]:
    """Run the command in a process of its own, whose modules come from a folder first."""
    path = os.pathsep.join(filter(None, [str(folder or ""), *sys.path]))
    environ = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, *program, *arguments]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("program", "module"), [(PROGRAMS[0], "aiohttp"), (PROGRAMS[1], "click"), (PROGRAMS[1], "rich")]
)
def test_ctrl_c_while_it_is_imported(tmp_path: Path, program: tuple[str, ...], module: str) -> None:
    """Ctrl-C during the imports shows no traceback, and the exit code is 130."""
    (tmp_path / f"{module}.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    with started(program, "doctor", folder=tmp_path) as process:
        said = process.communicate(timeout=30)

    assert (130, ("", "")) == (process.returncode, said)


def test_ctrl_c_while_a_command_begins(tmp_path: Path) -> None:
    """Ctrl-C while a command reads its profile shows no traceback, and the exit code is 130."""
    profile = tmp_path / "profile.toml"
    os.mkfifo(profile, 0o600)
    # The profile is open for writing as soon as the command opens it for reading.
    with started(PROGRAMS[0], "doctor", "--profile", str(profile)) as process, profile.open("w"):
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)

    assert (130, ("", "")) == (process.returncode, said)


def test_ctrl_c_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """If a process ignores Ctrl-C, as a shell's background job does, the command ignores it, too."""
    (tmp_path / "rich.py").write_text(
        "import signal\nsignal.raise_signal(signal.SIGINT)\nraise ImportError('went on')\n"
    )
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {PROGRAMS[1][1]}"
    with started(("-c", ignoring), "doctor", folder=tmp_path) as process:
        _, said = process.communicate(timeout=30)

    assert "ImportError: went on" in said


def test_it_needs_no_other_extra() -> None:
    """With `[cli]` alone the help works, and an option that needs another extra says so."""
    program = """
import sys
for missing in ("psycopg", "procrastinate", "cryptography", "pytest"):
    sys.modules[missing] = None
from payasync.cli import main
sys.argv = ["payasync", *sys.argv[1:]]
main()
"""
    helped, listed = ran(program, "-h"), ran(program, "journal", "list", "--journal", "postgresql://me:canary@db/pay")

    assert (0, "", 2) == (helped.returncode, helped.stderr, listed.returncode)
    assert 'python -m pip install "payasync[postgres]"' in listed.stderr
    assert "canary" not in listed.stderr


def test_a_defect_of_our_own_is_not_called_a_missing_extra() -> None:
    """If a module of payasync is missing, the error is shown as it is."""
    said = ran(WITHOUT.format(missing="payasync.cli.demo"), "demo").stderr

    assert (True, False) == ("payasync.cli.demo" in said, "the command needs" in said)


def test_version() -> None:
    """`payasync --version` shows the version of the package."""
    result = CliRunner().invoke(payasync, ["--version"])

    assert f"payasync, version {__version__}\n" == result.output


@pytest.mark.parametrize(
    ("given", "words"),
    [("reconcil", "No such command 'reconcil'. Did you mean reconcile?"), ("quark", "No such command 'quark'.")],
)
def test_mistyped_command(given: str, words: str) -> None:
    """If a command is mistyped, the error names the command that is closest to it, if any."""
    result = CliRunner().invoke(payasync, [given])

    assert (2, f"Error: {words}") == (result.exit_code, result.stderr.splitlines()[-1])


def test_help_lists_the_commands() -> None:
    """`payasync -h` lists each command with one line of text."""
    result = CliRunner().invoke(payasync, ["-h"])

    lines = [" ".join(line.split()) for line in result.output.splitlines()]

    assert 0 == result.exit_code
    for line in (
        "demo Run a whole payment on a sandbox of its own",
        "doctor Check configuration, open points and the connection",
        "sandbox Run a stand-in for the service on this machine",
        "journal List and show writes",
        "reconcile Query the service about writes with unknown outcome",
        "refund Refund many orders from a file",
        "listen Receive and show notifications on this machine",
    ):
        assert any(each.startswith(line) for each in lines), line


def test_help_and_version_load_no_command() -> None:
    """`--help` and `--version` load no command, and so no aiohttp."""
    program = """
import sys
before = set(sys.modules)
from payasync.cli.commands import payasync
for argument in ("--help", "--version"):
    payasync([argument], standalone_mode=False)
loaded = set(sys.modules) - before
print(*({"aiohttp", "sqlite3", "psycopg", "rich", "payasync.cli.demo"} & loaded), sep=",")
"""
    assert "" == ran(program).stdout.splitlines()[-1]
