"""The files in `locks/`, from which nox installs."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: Final = PYPROJECT["project"]
GROUPS: Final[dict[str, list[Any]]] = PYPROJECT["dependency-groups"]
ASKED: Final = {
    "run": [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)],
    **{name: [one for one in group if isinstance(one, str)] for name, group in GROUPS.items()},
}
"""What each lock must satisfy, beside the groups that its group includes."""


def entries(lock: str) -> list[str]:
    """Return the entries of a lock, each with its hashes."""
    text = (ROOT / "locks" / f"{lock}.txt").read_text(encoding="utf-8")
    return re.findall(r"^[a-z].*(?:\n .*)*", text, re.MULTILINE)


def test_each_group_is_locked() -> None:
    """Each dependency group has a lock, and so has the package with its extras."""
    assert {f"{name}.txt" for name in ASKED} == {file.name for file in (ROOT / "locks").iterdir()}


@pytest.mark.parametrize("lock", ASKED)
def test_lock_satisfies_what_is_asked(lock: str) -> None:
    """What pyproject.toml asks for is locked, in each version that the lock has: refresh it after a change."""
    pins = [Requirement(entry.partition(" \\")[0]) for entry in entries(lock)]
    for asked in map(Requirement, ASKED[lock]):
        versions = [str(pin.specifier).removeprefix("==") for pin in pins if pin.name == canonicalize_name(asked.name)]

        assert versions
        assert [] == [version for version in versions if not asked.specifier.contains(version)]


@pytest.mark.parametrize("lock", ASKED)
def test_lock_has_hashes_and_no_host(lock: str) -> None:
    """Each entry of a lock is one version with its hashes, and no lock names an index, so that mirrors work."""
    form = r"[a-z0-9._-]+==\S+( ; [^\\]+?)?( \\\n    --hash=sha256:[0-9a-f]{64})+"

    assert [] == [entry for entry in entries(lock) if not re.fullmatch(form, entry)]
    assert "://" not in (ROOT / "locks" / f"{lock}.txt").read_text(encoding="utf-8")
