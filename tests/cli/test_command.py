"""The `payasync` command itself."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from payasync.cli.commands import payasync
from payasync.version import VERSION

WITHOUT = """
import sys
sys.modules[{missing!r}] = None
from payasync.cli import main
main()
"""


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_it_says_how_to_get_it(missing: str) -> None:
    """Installed without `[cli]`, the command ends with one line that names the extra."""
    program = WITHOUT.format(missing=missing)

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)

    assert 1 == ended.returncode
    assert [
        f'payasync: the command needs {missing}: python -m pip install "payasync[cli]"'
    ] == ended.stderr.splitlines()


def test_it_needs_no_other_extra() -> None:
    """With `[cli]` alone the command is there; what needs more says so when it is asked for."""
    program = """
import sys
for missing in ("psycopg", "procrastinate", "cryptography", "pytest"):
    sys.modules[missing] = None
from payasync.cli import main
sys.argv = ["payasync", *sys.argv[1:]]
main()
"""
    command = [sys.executable, "-c", program]
    helped = subprocess.run([*command, "-h"], capture_output=True, text=True, timeout=30, check=False)
    lists = [*command, "journal", "list", "--journal", "postgresql://127.0.0.1/pay"]
    listed = subprocess.run(lists, capture_output=True, text=True, timeout=30, check=False)

    assert (0, "") == (helped.returncode, helped.stderr)
    assert 2 == listed.returncode
    assert 'python -m pip install "payasync[postgres]"' in listed.stderr


def test_a_defect_of_our_own_is_not_called_a_missing_extra() -> None:
    """A module of ours that is missing is an error as it stands."""
    program = WITHOUT.format(missing="payasync.cli.show")

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)

    assert "payasync.cli.show" in ended.stderr
    assert "the command needs" not in ended.stderr


def test_it_tells_its_version() -> None:
    """`payasync --version` is the package's."""
    result = CliRunner().invoke(payasync, ["--version"])

    assert f"payasync, version {VERSION}\n" == result.output


def test_help_lists_the_commands() -> None:
    """`payasync -h` names each command with a line of what it does."""
    result = CliRunner().invoke(payasync, ["-h"])

    assert 0 == result.exit_code
    assert re.search("demo +Run the whole story on a sandbox of its own", result.output)
    assert re.search("doctor +Tell what is configured", result.output)
    assert re.search("sandbox +Serve the whole service on this machine", result.output)
    assert re.search("journal +See what a journal keeps", result.output)
    assert re.search("reconcile +Ask the service what became of unknown writes", result.output)
    assert re.search("refund +Refund many orders from a file", result.output)
    assert re.search("listen +Receive notifications on this machine", result.output)
