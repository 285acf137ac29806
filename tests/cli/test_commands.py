"""The `payasync` command itself."""

import asyncio
import errno
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner, Result

from payasync import __version__
from payasync.cli import end, raise_on_signals
from payasync.cli.commands import COMMANDS, payasync
from payasync.cli.signals import SIGNALS
from tests.cli.conftest import in_journal

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


def test_missing_modules() -> None:
    """Without the extra `[cli]`, the command ends with one line that names it. A defect of our own is not called so."""
    for missing in ("click", "rich"):
        ended = ran(WITHOUT.format(missing=missing), "demo")
        advice = f'payasync: the command needs {missing}: python -m pip install "payasync[cli]"\n'

        assert (1, advice) == (ended.returncode, ended.stderr)
    ended = ran(WITHOUT.format(missing="payasync.cli.demo"), "demo")
    assert 70 == ended.returncode
    assert "payasync: unexpected ModuleNotFoundError in" in ended.stderr
    assert "the command needs" not in ended.stderr


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


@pytest.mark.parametrize(("place", "module"), [(0, "aiohttp"), (1, "click"), (1, "rich")])
def test_signal_while_it_is_imported(tmp_path: Path, place: int, module: str) -> None:
    """Ctrl-C or SIGTERM during the imports shows no traceback, and the exit code is 130."""
    (tmp_path / f"{module}.py").write_text(f"import signal\nsignal.raise_signal({SIGNALS[place]})\n")
    with started(PROGRAMS[place], "doctor", folder=tmp_path) as process:
        said = process.communicate(timeout=30)

    assert (130, ("", "")) == (process.returncode, said)


IGNORING: Final = "import signal; signal.signal({}, signal.SIG_IGN); " + PROGRAMS[1][1]
"""A process that ignores a signal, as a shell's background job ignores Ctrl-C."""


@pytest.mark.parametrize(
    ("program", "signals"),
    [
        *((PROGRAMS[0], [number]) for number in SIGNALS),
        (("-c", IGNORING.format(signal.SIGINT)), [signal.SIGINT, signal.SIGTERM]),
    ],
)
def test_signal_while_a_command_begins(tmp_path: Path, program: tuple[str, ...], signals: list[signal.Signals]) -> None:
    """Ctrl-C or SIGTERM while a command reads its profile shows no traceback, and the exit code is 130.

    A background job ignores Ctrl-C. SIGTERM still ends it.
    """
    profile = tmp_path / "profile.toml"
    os.mkfifo(profile, 0o600)
    # The profile is open for writing as soon as the command opens it for reading.
    with started(program, "doctor", "--profile", str(profile)) as process, profile.open("w"):
        for number in signals:
            process.send_signal(number)
        said = process.communicate(timeout=30)

    assert (130, ("", "")) == (process.returncode, said)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_that_is_ignored_stays_ignored(tmp_path: Path, number: signal.Signals) -> None:
    """If a process ignores a signal, as a shell's background job ignores Ctrl-C, the command ignores it, too."""
    (tmp_path / "rich.py").write_text(f"import signal\nsignal.raise_signal({number})\nraise ImportError('went on')\n")
    with started(("-c", IGNORING.format(number)), "doctor", folder=tmp_path) as process:
        _, said = process.communicate(timeout=30)

    assert "payasync: cannot be loaded: went on." in said


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_cuts_no_step_of_the_work(number: signal.Signals) -> None:
    """SIGTERM cancels a command's work at its next await, as Ctrl-C does, and never between two lines."""
    steps = list[str]()

    async def work() -> None:
        signal.raise_signal(number)
        steps.append("the step ended")
        await asyncio.Event().wait()

    for each in SIGNALS:
        signal.signal(each, end)
    raise_on_signals()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work())

    assert ["the step ended"] == steps


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


def unexpected(monkeypatch: pytest.MonkeyPatch, error: Exception, *options: str) -> Result:
    """Run the demo, which raises an error that nobody expects."""

    async def fail(_screen: object) -> bool:
        raise error

    monkeypatch.setattr("payasync.cli.demo.run", fail)
    return CliRunner().invoke(payasync, [*options, "demo"])


def test_unexpected_error_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error is one line with its place and what to report, without a secret; the exit code is 70.

    If the system refuses something that no command expects, the line names the file.
    """
    ended = unexpected(monkeypatch, KeyError("canary"))
    refused = unexpected(monkeypatch, PermissionError(errno.EACCES, "Permission denied", "/x"))
    advice = "If it was sending a write, look at the journal or the service before"

    assert (70, 1, "") == (ended.exit_code, ended.stderr.count("\n"), ended.stdout)
    assert re.match(r"payasync: unexpected KeyError in test_commands\.py, line \d+\. This is a defect: ", ended.stderr)
    assert f"{advice} you repeat it." in ended.stderr
    assert "canary" not in ended.stderr
    assert 70 == refused.exit_code
    assert refused.stderr.startswith(f"payasync: Permission denied: '/x'. {advice}")


def test_debug_shows_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--debug`, or its variable, shows all places of an error and its causes; foreign messages may hold a secret.

    An error that a command reports in one line shows its places with `--debug` only.
    """
    error = OSError("the disk is full")
    error.__cause__ = ValueError("canary")
    error.add_note("seen here")
    (tmp_path / "pay.db").write_text("not a journal")
    arguments = ["journal", "list", "--journal", str(tmp_path / "pay.db")]
    plain, debugged = (CliRunner().invoke(payasync, [*options, *arguments]).stderr for options in ((), ("--debug",)))
    by_option = unexpected(monkeypatch, error, "--debug")
    monkeypatch.setenv("PAYASYNC_DEBUG", "1")
    for ended in (by_option, unexpected(monkeypatch, error)):
        lines = ended.stderr.splitlines()

        assert (70, "ValueError") == (ended.exit_code, lines[0])
        assert ["    raise error", "OSError: the disk is full", "  seen here"] == lines[-4:-1]
        assert "canary" not in ended.stderr
    assert (1, True, True) == (plain.count("\n"), debugged.endswith(plain), "await journal.list(" in debugged)


FULL: Final = ["--help", "doctor", "journal --journal pay.db --json", "demo --bad"]
RARE: Final = [
    *("demo", "doctor --json", "journal --journal pay.db", "journal list --journal pay.db", "profile check sandbox"),
    "journal prune --journal pay.db --older-than 90d",
]


@pytest.mark.parametrize("arguments", [*FULL, *(pytest.param(each, marks=pytest.mark.long) for each in RARE)])
def test_full_disk(tmp_path: Path, arguments: str) -> None:
    """If standard output cannot be written, standard error has one line about it, and no traceback."""
    in_journal(tmp_path / "pay.db", lambda journal: journal.list())
    command, code = [sys.executable, "-m", "payasync", *arguments.split()], 2 if arguments == "demo --bad" else 70
    # Unless the user says otherwise, Python writes at exit what a command has not written.
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False, cwd=tmp_path, env=usual
        )

    assert (code, 1) == (ended.returncode, ended.stderr.count("\n"))
    assert (code == 70) == ("No space left on device" in ended.stderr)


@pytest.mark.parametrize(
    "arguments", ["doctor", *(pytest.param(each, marks=pytest.mark.long) for each in ("demo", "profile check sandbox"))]
)
def test_reader_that_leaves(arguments: str) -> None:
    """If nobody reads standard output any more, the exit code is that of the command, and no line complains."""
    shell = f"set -o pipefail; {shlex.join([sys.executable, '-m', 'payasync', *arguments.split()])} | head -0"
    ended = subprocess.run(["/bin/bash", "-c", shell], capture_output=True, text=True, timeout=60, check=False)

    assert (0, "") == (ended.returncode, ended.stderr)


def test_stray_log_records_have_no_traceback() -> None:
    """A record that no handler takes, for example of asyncio, is one line; with `--debug` it has its traceback."""
    program = """
import logging
import payasync.cli.demo
async def run(screen):
    try:
        raise KeyError("secret")
    except KeyError:
        logging.getLogger("asyncio").exception("two\\nlines")
    return True
payasync.cli.demo.run = run
from payasync.cli import main
main()
"""
    assert "two lines\n" == ran(program, "demo").stderr
    assert "Traceback" in ran(program, "--debug", "demo").stderr


def test_mistyped_command() -> None:
    """If a command is mistyped, the error names the command that is closest to it, if any."""
    cases = {"reconcil": "No such command 'reconcil'. Did you mean reconcile?", "quark": "No such command 'quark'."}
    for given, words in cases.items():
        result = CliRunner().invoke(payasync, [given], prog_name="payasync")

        assert (2, f"payasync: {words} See payasync --help\n") == (result.exit_code, result.stderr)


def test_help_begins_with_the_line_of_the_list() -> None:
    """`payasync -h` lists each command with the first line of its help, without loading it; `--version` is ours."""
    listing, version = (CliRunner().invoke(payasync, [option]) for option in ("-h", "--version"))
    listed = " ".join(listing.output.split())

    assert (0, f"payasync, version {__version__}\n") == (listing.exit_code, version.output)
    for name, line in COMMANDS.items():
        command = payasync.get_command(click.Context(payasync), name)

        assert command
        assert command.help
        assert line == command.help.splitlines()[0]
        assert f" {name} {line}" in listed


def test_help_and_completion_load_no_command() -> None:
    """Help, version and completion load click and two modules of payasync: no command, no rich, no aiohttp."""
    program = """
import os, sys
before = set(sys.modules)
sys.argv[0] = "payasync"
from payasync.cli import main
try:
    main()
finally:
    loaded = {each for each in set(sys.modules) - before if not each.startswith("click.")}
    print(*sorted(each for each in loaded if each.partition(".")[0] not in sys.stdlib_module_names))
"""
    completing = {"_PAYASYNC_COMPLETE": "bash_complete", "COMP_WORDS": "payasync re", "COMP_CWORD": "1"}
    modules = ["click", "payasync", "payasync.cli", "payasync.cli.commands"]
    cases: tuple[tuple[list[str], dict[str, str]], ...] = ((["--help"], {}), (["--version"], {}), ([], completing))
    said = list[str]()
    for arguments, variables in cases:
        command = [sys.executable, "-c", program, *arguments]
        said = subprocess.check_output(command, env={**os.environ, **variables}, text=True).splitlines()

        assert modules == said[-1].split()
    assert ["plain,reconcile", "plain,refund"] == said[:-1]
