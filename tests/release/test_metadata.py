"""The metadata of the package, which a package index shows."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCUMENTATION: Final = "https://payasync.readthedocs.io/en/stable/"
SOURCE: Final = (
    "https://github.com/payasync/payasync/blob/main/",
    "https://raw.githubusercontent.com/payasync/payasync/main/",
)


def test_links_of_the_readme_work_on_a_package_index() -> None:
    """In the built metadata, no link of README.md is relative, and each file that it links exists here."""
    command = [sys.executable, "-m", "hatchling", "metadata", "readme"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=60, check=True)
    links = re.findall(r"\]\(([^)#]+)", done.stdout)
    pages = [link.removeprefix(DOCUMENTATION) for link in links if link.startswith(DOCUMENTATION)]
    files = [link.removeprefix(host) for link in links for host in SOURCE if link.startswith(host)]

    assert [] == [link for link in links if not link.startswith("https://")]
    assert [] == [page for page in pages if not (ROOT / "docs" / page).with_suffix(".md").is_file()]
    assert [] == [file for file in files if not (ROOT / file).exists()]
    assert (True, True) == (bool(pages), bool(files))
