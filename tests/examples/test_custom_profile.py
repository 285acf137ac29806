"""examples/custom_profile: the commands of its README.md."""

import re
import shlex
import shutil
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Final

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


async def test_profile_is_ready() -> None:
    """The profile describes all that the shop uses."""
    code, printed = await run(EXAMPLE, "-m", "payasync", *CHECK)

    assert (0, "Ready: orders, refunds, recovery, notifications") == (code, printed.splitlines()[-1])


async def test_suite_passes(tmp_path: Path) -> None:
    """The suite passes, for both versions of the service, without plugins that it does not use."""
    require_installed()
    unused = (option for name in UNUSED for option in ("-p", f"no:{name}"))
    folder = shutil.copytree(EXAMPLE, tmp_path / "example", ignore=shutil.ignore_patterns("__pycache__"))
    code, printed = await run(folder, *SUITE, *unused)

    assert 0 == code, printed
