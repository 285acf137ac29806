"""What `nox -s release` finds in the files to publish."""

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Final

from tests.release.built import find_flaws

TRACKED: Final = {"payasync/__init__.py", "payasync/py.typed", "README.md", "noxfile.py"}
WHEEL: Final = ("payasync/__init__.py", "payasync/py.typed", "payasync-1.2.0.dist-info/METADATA")
SDIST: Final = ("payasync/__init__.py", "payasync/py.typed", "README.md", "PKG-INFO", "pyproject.toml", ".gitignore")


def flaws(folder: Path, *, wheel: tuple[str, ...], sdist: tuple[str, ...], latest: str) -> list[str]:
    """Return the flaws of version 1.2.0 with these files, below a changelog that begins with a heading."""
    packed, source = folder / "payasync-1.2.0-py3-none-any.whl", folder / "payasync-1.2.0.tar.gz"
    with zipfile.ZipFile(packed, "w") as archive:
        for name in wheel:
            archive.writestr(name, "")
    with tarfile.open(source, "w:gz") as archive:
        for name in sdist:
            archive.addfile(tarfile.TarInfo(f"payasync-1.2.0/{name}"), io.BytesIO())
    return find_flaws(source, packed, TRACKED, f"# Changelog\n\n## [{latest}]\n\n## [1.1.0]\n")


def test_flaws_are_found(tmp_path: Path) -> None:
    """A file that git does not know or the archive lacks, and a version that the changelog lacks, are named.

    The files of git, and those that the build adds, may be published, before and after the changelog is closed.
    """
    key, notes, other = "payasync/key.pem", "payasync/notes.txt", "payasync-1.1.0.dist-info/METADATA"
    cases: list[tuple[tuple[str, ...], tuple[str, ...], str, list[str]]] = [
        *((WHEEL, SDIST, latest, []) for latest in ("Unreleased", "1.2.0")),
        ((*WHEEL, key), SDIST, "1.2.0", [f"{key} is foreign"]),
        (WHEEL, (*SDIST, notes), "1.2.0", [f"{notes} is foreign"]),
        ((*WHEEL, "noxfile.py"), SDIST, "1.2.0", ["noxfile.py is foreign"]),
        ((*WHEEL[:2], other), SDIST, "1.2.0", [f"{other} is foreign"]),
        ((WHEEL[0], WHEEL[2]), SDIST, "1.2.0", ["payasync/py.typed is missing"]),
        (WHEEL, SDIST[1:], "1.2.0", ["payasync/__init__.py is missing"]),
        (WHEEL, SDIST, "1.1.0", ["CHANGELOG.md begins with 1.1.0, but the version is 1.2.0"]),
    ]
    for wheel, sdist, latest, expected in cases:
        assert expected == flaws(tmp_path, wheel=wheel, sdist=sdist, latest=latest)
