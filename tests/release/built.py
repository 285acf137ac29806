"""Check the sdist and the wheel that are given: their version is the changelog's, and git knows each file inside."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MADE: Final = {"PKG-INFO", "pyproject.toml", ".gitignore"}
"""Files of an sdist that hatchling adds."""


def find_flaws(sdist: str, wheel: str) -> list[str]:
    """Return what is wrong with the files that are to be published."""
    version = Path(sdist).name.removeprefix("payasync-").removesuffix(".tar.gz")
    latest = re.findall(r"^## \[(.+?)\]", ROOT.joinpath("CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[0]
    with zipfile.ZipFile(wheel) as packed:
        inside = {name for name in packed.namelist() if not name.startswith(f"payasync-{version}.dist-info/")}
    with tarfile.open(sdist) as packed_source:
        source = {each.name.partition("/")[2] for each in packed_source.getmembers() if each.isfile()} - MADE
    foreign = {name for name in inside if not name.startswith("payasync/")}
    # A key or a note that lies in a folder of the package is no part of the project.
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S607
    foreign |= (inside | source).difference(listed.split("\0"))
    flaws = [f"{name} is foreign" for name in sorted(foreign)]
    if latest not in {"Unreleased", version}:
        flaws.append(f"CHANGELOG.md begins with {latest}, but the version is {version}")
    return flaws


if __name__ == "__main__":
    sys.exit("\n".join(find_flaws(*sys.argv[1:])) or None)
