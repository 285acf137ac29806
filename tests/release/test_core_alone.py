"""The core works without any extra."""

import os
import subprocess
import sys
from pathlib import Path

from tests.installed import require_installed


def test_core_imports_its_dependencies_only() -> None:
    """Importing every module of the core loads nothing beyond its dependencies and what they require."""
    require_installed()
    program = Path(__file__).with_name("core_alone.py")
    # A measurement of coverage would load its own modules there.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False, env=env)

    assert (0, "") == (done.returncode, done.stderr)
