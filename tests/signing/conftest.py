"""The `openssl` command line, which is the second opinion on each algorithm."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def openssl(tmp_path: Path) -> Callable[..., bytes]:
    """Run the `openssl` command line in a folder of its own, and return what it prints."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("the openssl command line is not installed")

    def run(*arguments: str, text: str = "") -> bytes:
        (tmp_path / "text").write_bytes(text.encode())
        return subprocess.run([program, *arguments], cwd=tmp_path, capture_output=True, check=True).stdout

    return run
