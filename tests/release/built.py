"""Check the sdist and the wheel that are given: their version is the changelog's, and their files are git's."""

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


def find_flaws(sdist: Path, wheel: Path, tracked: set[str], changelog: str) -> list[str]:
    """Return what is wrong with the files that are to be published.

    Args:
        sdist: The built source distribution.
        wheel: The built wheel.
        tracked: The files that git knows, relative to the root of the project.
        changelog: The text of CHANGELOG.md.
    """
    version = sdist.name.removeprefix("payasync-").removesuffix(".tar.gz")
    latest = re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)[0]
    with zipfile.ZipFile(wheel) as packed:
        inside = {name for name in packed.namelist() if not name.startswith(f"payasync-{version}.dist-info/")}
    with tarfile.open(sdist) as packed_source:
        source = {each.name.partition("/")[2] for each in packed_source.getmembers() if each.isfile()} - MADE
    foreign = {name for name in inside if not name.startswith("payasync/")}
    # A key or a note that lies in a folder of the package is no part of the project.
    foreign |= (inside | source) - tracked
    missing = {name for name in tracked if name.startswith("payasync/")} - (inside & source)
    flaws = [f"{name} is foreign" for name in sorted(foreign)] + [f"{name} is missing" for name in sorted(missing)]
    if latest not in {"Unreleased", version}:
        flaws.append(f"CHANGELOG.md begins with {latest}, but the version is {version}")
    return flaws


if __name__ == "__main__":
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S607
    files, history = set(listed.split("\0")), ROOT.joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    sys.exit("\n".join(find_flaws(Path(sys.argv[1]), Path(sys.argv[2]), files, history)) or None)
