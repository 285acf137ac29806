"""The property tests and state machines, run with many more examples than in `nox -s tests`."""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from rich.console import Console

PROPERTIES: Final = (
    "tests/signing/test_schemes.py",
    "tests/middleware/test_outcome.py",
    "tests/test_strict_json.py",
    "tests/profile/test_toml.py",
    "tests/notifications/test_notification.py",
    "tests/notifications/test_verification.py",
)
"""What is signed, and what reads what others wrote."""
MODELS: Final = ("tests/notifications/test_inbox_model.py",)
"""The inbox beside a model of it."""
LONG: Final = "chaos"
"""The profile of properties; that of state machines is `models`."""
LONGEST: Final = 3600
"""Seconds after which a test hangs: pytest's own limit is made for short ones."""


def tried(profile: str, paths: Sequence[str], seed: int, console: Console) -> list[str]:
    """Run tests with a profile of Hypothesis, as tests/conftest.py registers it; return what is wrong.

    Args:
        profile: Which.
        paths: The tests' files.
        seed: Repeats the draws.
        console: Shows how to repeat it.
    """
    command = ["-m", "pytest", "-q", "--numprocesses=auto", "--maxprocesses=4", "--dist=worksteal", "--durations=10"]
    command += [f"--hypothesis-profile={profile}", f"--hypothesis-seed={seed}", f"--randomly-seed={seed}"]
    command += ["-o", f"faulthandler_timeout={LONGEST}", *(["-m", "hypothesis"] if profile == LONG else []), *paths]
    console.print(shlex.join(["python", *command]), soft_wrap=True, highlight=False)
    code = subprocess.run([sys.executable, *command], check=False).returncode
    return [f"pytest ended with {code}"] if code else []
