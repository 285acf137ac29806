"""The fixture `openssl`, which checks each algorithm against the `openssl` command line."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def openssl(tmp_path: Path) -> Callable[..., bytes]:
    """Return a function that runs `openssl` in a folder of the test's own, and returns its output."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("the openssl command line is not installed")

    def run(*arguments: str, text: str = "") -> bytes:
        (tmp_path / "text").write_bytes(text.encode())
        return subprocess.run([program, *arguments], cwd=tmp_path, capture_output=True, check=True).stdout

    return run
