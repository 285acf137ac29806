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
from payasync.cli.commands import COMMANDS, payasync
from payasync.cli.signals import SIGNALS
from payasync.journal import SqliteJournal
from tests.chaos.forked import Forked
from tests.cli.conftest import interrupt

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
@pytest.mark.parametrize("number", SIGNALS)
def test_signal_while_it_is_imported(
    tmp_path: Path, program: tuple[str, ...], module: str, number: signal.Signals
) -> None:
    """Ctrl-C or SIGTERM during the imports shows no traceback, and the exit code is 130."""
    (tmp_path / f"{module}.py").write_text(f"import signal\nsignal.raise_signal({number})\n")
    with started(program, "doctor", folder=tmp_path) as process:
        said = process.communicate(timeout=30)

    assert (130, ("", "")) == (process.returncode, said)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_while_a_command_begins(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C or SIGTERM while a command reads its profile shows no traceback, and the exit code is 130."""
    profile = tmp_path / "profile.toml"
    os.mkfifo(profile, 0o600)
    # The profile is open for writing as soon as the command opens it for reading.
    with started(PROGRAMS[0], "doctor", "--profile", str(profile)) as process, profile.open("w"):
        process.send_signal(number)
        said = process.communicate(timeout=30)

    assert (130, ("", "")) == (process.returncode, said)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_that_is_ignored_stays_ignored(tmp_path: Path, number: signal.Signals) -> None:
    """If a process ignores a signal, as a shell's background job ignores Ctrl-C, the command ignores it, too."""
    (tmp_path / "rich.py").write_text(f"import signal\nsignal.raise_signal({number})\nraise ImportError('went on')\n")
    ignoring = f"import signal; signal.signal({number}, signal.SIG_IGN); {PROGRAMS[1][1]}"
    with started(("-c", ignoring), "doctor", folder=tmp_path) as process:
        _, said = process.communicate(timeout=30)

    assert "payasync: cannot be loaded: went on." in said


IN_A_STEP: Final = """
import asyncio, signal
from payasync.cli import end, raise_on_signals

async def work():
    signal.raise_signal({number})
    print("the step ended", flush=True)
    await asyncio.sleep(60)

for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, end)
raise_on_signals()
try:
    asyncio.run(work())
except KeyboardInterrupt:
    print("interrupted")
"""
"""A command whose work gets a signal between two awaits."""


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_cuts_no_step_of_the_work(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM cancels a command's work at its next await, as Ctrl-C does, and never between two lines."""
    with started(("-c", IN_A_STEP.format(number=int(number))), folder=tmp_path) as process:
        said = process.communicate(timeout=30)

    assert ("the step ended\ninterrupted\n", "") == said


def test_sigterm_ends_a_background_job(tmp_path: Path) -> None:
    """A background job ignores Ctrl-C. SIGTERM still ends it with exit code 130."""
    profile = tmp_path / "profile.toml"
    os.mkfifo(profile, 0o600)
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {PROGRAMS[1][1]}"
    with started(("-c", ignoring), "doctor", "--profile", str(profile)) as process, profile.open("w"):
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=30)

    assert (130, ("", "")) == (process.returncode, said)


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
    """If a module of payasync is missing, this is reported as a defect."""
    ended = ran(WITHOUT.format(missing="payasync.cli.demo"), "demo")

    assert 70 == ended.returncode
    assert "payasync: unexpected ModuleNotFoundError in" in ended.stderr
    assert "the command needs" not in ended.stderr


def unexpected(monkeypatch: pytest.MonkeyPatch, error: Exception, *options: str) -> Result:
    """Run the demo, which raises an error that nobody expects."""

    async def fail(_screen: object) -> bool:
        raise error

    monkeypatch.setattr("payasync.cli.demo.run", fail)
    return CliRunner().invoke(payasync, [*options, "demo"])


def test_unexpected_error_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error is one line with its place and what to report, without a secret; the exit code is 70."""
    ended = unexpected(monkeypatch, KeyError("canary"))

    assert (70, 1, "") == (ended.exit_code, ended.stderr.count("\n"), ended.stdout)
    assert re.match(r"payasync: unexpected KeyError in test_commands\.py, line \d+\. This is a defect: ", ended.stderr)
    assert "If it was sending a write, look at the journal or the service before you repeat it." in ended.stderr
    assert "canary" not in ended.stderr


def test_unexpected_error_of_the_system_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system refuses something that no command expects, the line names the file."""
    ended = unexpected(monkeypatch, PermissionError(errno.EACCES, "Permission denied", "/x"))

    said = "payasync: Permission denied: '/x'. If it was sending a write, look at the journal or the service before"
    assert (70, True) == (ended.exit_code, ended.stderr.startswith(said))


@pytest.mark.parametrize("options", [("--debug",), ()], ids=["option", "variable"])
def test_debug_shows_where(monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    """`--debug`, or its variable, shows all places of an error and its causes; foreign messages may hold a secret."""
    if not options:
        monkeypatch.setenv("PAYASYNC_DEBUG", "1")
    error = OSError("the disk is full")
    error.__cause__ = ValueError("canary")
    error.add_note("seen here")
    ended = unexpected(monkeypatch, error, *options)

    lines = ended.stderr.splitlines()
    assert (70, "ValueError") == (ended.exit_code, lines[0])
    assert ["    raise error", "OSError: the disk is full", "  seen here"] == lines[-4:-1]
    assert "canary" not in ended.stderr


def test_debug_shows_where_an_expected_error_comes_from(tmp_path: Path) -> None:
    """An error that a command reports in one line shows its places with `--debug` only."""
    (tmp_path / "pay.db").write_text("not a journal")
    arguments = ["journal", "list", "--journal", str(tmp_path / "pay.db")]
    plain, debugged = (CliRunner().invoke(payasync, [*options, *arguments]).stderr for options in ((), ("--debug",)))

    assert 1 == plain.count("\n")
    assert debugged.endswith(plain)
    assert "await journal.list(" in debugged


def bind_to(path: Path, service: str) -> None:
    """Bind a journal to a service; another one raises an error."""

    async def work() -> None:
        async with SqliteJournal(path) as journal:
            await journal.bind("M1", service)

    asyncio.run(work())


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--help", 70),
        ("doctor", 70),
        ("journal --journal pay.db --json", 70),
        ("demo --bad", 2),
        *(
            pytest.param(each, 70, marks=pytest.mark.long)
            for each in (
                "demo",
                "doctor --json",
                "journal --journal pay.db",
                "journal list --journal pay.db",
                "journal prune --journal pay.db --older-than 90d",
                "profile check sandbox",
            )
        ),
    ],
)
def test_full_disk(tmp_path: Path, arguments: str, code: int) -> None:
    """If standard output cannot be written, standard error has one line about it, and no traceback."""
    bind_to(tmp_path / "pay.db", "https://a.example")
    command = [sys.executable, "-m", "payasync", *arguments.split()]
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


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_at_a_question(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C or SIGTERM at a question ends the command with exit code 130, and a line says that nothing changed."""
    journal = tmp_path / "pay.db"
    bind_to(journal, "https://a.example")
    command = ("payasync", "journal", "move", "https://a.example", "https://b.example", "--journal", str(journal))
    with Forked(*command) as process:
        asked = process.stdout.read(len("Are you sure"))
        interrupt(process, number)
        said = process.stderr.read()

    assert ("Are you sure", 130) == (asked, process.returncode)
    assert "payasync journal move: interrupted; nothing changed" in said.splitlines()
    bind_to(journal, "https://a.example")


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
    result = CliRunner().invoke(payasync, [given], prog_name="payasync")

    assert (2, f"payasync: {words} See payasync --help\n") == (result.exit_code, result.stderr)


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
        "reconcile Query the service about writes with an unknown outcome",
        "order Place, query and close orders",
        "payment Create payments",
        "refund Refund orders, one or many from a file",
        "subscription Create, update and cancel recurring payments",
        "listen Receive and show notifications on this machine",
    ):
        assert any(each.startswith(line) for each in lines), line


@pytest.mark.parametrize("name", COMMANDS)
def test_help_begins_with_the_line_of_the_list(name: str) -> None:
    """The help of a command begins with its line in the list of commands, which is shown without loading it."""
    command = payasync.get_command(click.Context(payasync), name)

    assert command
    assert command.help
    assert COMMANDS[name] == command.help.splitlines()[0]


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_no_command(option: str) -> None:
    """`--help` and `--version` load click and two modules of payasync: no command, no rich, no aiohttp."""
    program = """
import sys
before = set(sys.modules)
from payasync.cli import main
try:
    main()
finally:
    loaded = {each for each in set(sys.modules) - before if not each.startswith("click.")}
    print(*sorted(each for each in loaded if each.partition(".")[0] not in sys.stdlib_module_names))
"""
    expected = ["click", "payasync", "payasync.cli", "payasync.cli.commands"]

    assert expected == ran(program, option).stdout.splitlines()[-1].split()


def test_completion_loads_no_command() -> None:
    """Completing the name of a command loads none, so that it is quick."""
    program = """
import os, sys
os.environ.update(_PAYASYNC_COMPLETE="bash_complete", COMP_WORDS="payasync re", COMP_CWORD="1")
sys.argv[0] = "payasync"
from payasync.cli import main
try:
    main()
finally:
    print("rich" in sys.modules, file=sys.stderr)
"""
    ended = ran(program)

    assert (["plain,reconcile", "plain,refund"], "False\n") == (ended.stdout.split(), ended.stderr)
