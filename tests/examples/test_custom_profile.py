"""examples/custom_profile: the commands of its README.md, and whether its suite finds mistakes."""

import re
import shlex
import shutil
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Final

import pytest

from tests.installed import require_installed
from tests.test_readme import UNUSED

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "custom_profile"
README: Final = (EXAMPLE / "README.md").read_text(encoding="utf-8")
COMMANDS: Final = re.findall(r"^(?:payasync|python -m pytest).*$", README, re.MULTILINE)
CHECK, SUITE = (shlex.split(line)[1:] for line in COMMANDS)


async def run(folder: Path, *words: str) -> tuple[int | None, str]:
    """Run a Python program in the example's folder, and return the exit code and what it printed."""
    program = (sys.executable, "-W", "error", *words)
    process = await create_subprocess_exec(*program, cwd=folder, stdout=PIPE, stderr=STDOUT)
    printed, _ = await process.communicate()
    return process.returncode, printed.decode()


async def run_suite(folder: Path) -> tuple[int | None, str]:
    """Run the example's suite, without plugins that it does not use."""
    require_installed()
    return await run(folder, *SUITE, "-rf", *(option for name in UNUSED for option in ("-p", f"no:{name}")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example, in a folder of its own."""
    return shutil.copytree(EXAMPLE, tmp_path / "example", ignore=shutil.ignore_patterns("__pycache__"))


async def test_profile_is_ready() -> None:
    """The profile describes all that the shop uses."""
    code, printed = await run(EXAMPLE, "-m", "payasync", *CHECK)

    assert (0, "Ready: orders, refunds, recovery, notifications") == (code, printed.splitlines()[-1])


async def test_suite_passes(folder: Path) -> None:
    """The suite passes, for both versions of the service."""
    code, printed = await run_suite(folder)

    assert 0 == code, printed


@pytest.mark.long
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('encoding = "HEX"', 'encoding = "hex"'),
        ('refund_amt = "refund_cents"', 'refund_amt = "cents"'),
        ('processing = ["QUEUED"]', 'processing = ["WAITING"]'),
        ('path = "/refund"', 'path = "/refunds"'),
    ],
)
async def test_suite_finds_mistakes(folder: Path, right: str, wrong: str) -> None:
    """A mistake in the profile fails the test of the document, and only this test."""
    profile = folder / "fir.toml"
    profile.write_text(profile.read_text(encoding="utf-8").replace(right, wrong), encoding="utf-8")
    code, printed = await run_suite(folder)

    assert 1 == code, printed
    assert {"test_fir.py"} == set(re.findall(r"^FAILED (.*?)::", printed, re.MULTILINE))
