"""What a build packs."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BUILT: Final = ("pyproject.toml", "README.md", "LICENSE", ".gitignore", "payasync/__init__.py", "noxfile.py")
OURS: Final = (
    ".github/workflows/ci.yml",
    ".readthedocs.yaml",
    "docs/index.md",
    "examples/refund_from_csv/refunds.csv",
    "locks/run.txt",
    "payasync/profile/sandbox.toml",
    "payasync/py.typed",
    "tests/profile/whole_profile.toml",
)
STRAY: Final = (
    ".env",
    ".venv/lib/payasync/x.py",
    "dist/payasync/x.py",
    "docs/_build/index.html",
    "notes/payasync/x.py",
    "payasync/__pycache__/x.pyc",
    "payasync/merchant.pem",
    "secrets.toml",
    "tests/.idea/workspace.xml",
    "tests/signing.key",
    "v/lib/foo/tests/x.py",
)


def test_nothing_stray_is_packed(tmp_path: Path) -> None:
    """A build packs the project's own folders, without keys, environments and results that lie in or beside them."""
    for name in (*BUILT, *OURS, *STRAY):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in BUILT:
        shutil.copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "-m", "hatchling", "build", "--directory", "made"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=True)
    (sdist,), (wheel,) = tmp_path.glob("made/*.tar.gz"), tmp_path.glob("made/*.whl")
    with tarfile.open(sdist) as source:
        packed = {each.name.partition("/")[2] for each in source.getmembers() if each.isfile()}
    with zipfile.ZipFile(wheel) as files:
        inside = {name for name in files.namelist() if ".dist-info/" not in name}

    assert {*BUILT, *OURS, "PKG-INFO"} == packed
    assert {name for name in (*BUILT, *OURS) if name.startswith("payasync/")} == inside
