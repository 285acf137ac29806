"""In no life is a refund made twice, lost or hidden, whatever the network, the service and a kill do."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Final, get_args

import pytest

from tests.simulation.life import Emphasis, Life, live

ROOT: Final = Path(__file__).parents[2]
EMPHASES: Final = get_args(Emphasis)
DAILY: Final = 12
"""Lives that a daily test lives."""
AT_NIGHT: Final = 350
"""Lives that a long test lives."""
AGAIN: Final = """
import sys
from pathlib import Path
from tests.simulation.life import live

first, last, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
for seed in range(first, last):
    (folder / str(seed)).mkdir()
    print(live(seed, folder / str(seed), *sys.argv[4:]))
"""
FENCED: Final = "WHERE id = :id AND fence = :fence AND lease IS NOT NULL RETURNING id;"
MUTATIONS: Final = {
    "a query in time": ("evidence/claims.py", "    if sends > 1:\n        return final\n", "", "repeats"),
    "the quarantine": ("evidence/claims.py", "return inf if used_before else final", "return 0.0", ""),
    "the fence": ("journal/sql/journal.sql", FENCED, "WHERE id = :id RETURNING id;", "crowds"),
}
"""By the rule that is taken out: the module, the lines, what takes their place, and the emphasis of the lives."""


def lived_again(root: Path, folder: Path, first: int, last: int, emphasis: str = "") -> str:
    """Return what another process prints about lives, with the package below a root."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-P", "-c", AGAIN, str(first), str(last), str(folder), emphasis]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("emphasis", EMPHASES)
@pytest.mark.parametrize("first", range(0, 3 * DAILY, DAILY))
def test_lives(first: int, emphasis: Emphasis, tmp_path: Path) -> None:
    """In each life of a seed, nothing happens that may never happen."""
    lives = list[Life]()
    for seed in range(first, first + DAILY):
        (tmp_path / str(seed)).mkdir()
        lives.append(live(seed, tmp_path / str(seed), emphasis))

    assert [] == [each for each in lives if each.violations]


@pytest.mark.long
@pytest.mark.parametrize("emphasis", EMPHASES)
@pytest.mark.parametrize("first", [1000, 1000 + AT_NIGHT])
def test_many_lives(first: int, emphasis: Emphasis, tmp_path: Path) -> None:
    """The same, in 2,100 lives."""
    lives = lived_again(ROOT, tmp_path, first, first + AT_NIGHT, emphasis).splitlines()

    assert AT_NIGHT == len(lives)
    assert [] == [each for each in lives if "violations=[]" not in each]


def test_seed_gives_the_same_life(tmp_path: Path) -> None:
    """A seed gives the same life again, also in another process."""
    for name in ("here", "again", "there"):
        (tmp_path / name).mkdir()
    here, again = live(7, tmp_path / "here"), live(7, tmp_path / "again")

    assert here.told
    assert here == again
    assert f"{here}\n" == lived_again(ROOT, tmp_path / "there", 7, 8)


@pytest.mark.long
@pytest.mark.parametrize("rule", MUTATIONS)
def test_lives_need_a_rule(rule: str, tmp_path: Path) -> None:
    """Without a rule that guards money, 500 lives show what it guards."""
    module, lines, instead, emphasis = MUTATIONS[rule]
    for name in ("payasync", "tests"):
        copytree(ROOT / name, tmp_path / "root" / name, ignore=ignore_patterns("__pycache__"))
    changed = tmp_path / "root" / "payasync" / module
    before = changed.read_text(encoding="utf-8")
    changed.write_text(before.replace(lines, instead), encoding="utf-8")
    (tmp_path / "lives").mkdir()

    assert lines in before
    assert "TWICE" in lived_again(tmp_path / "root", tmp_path / "lives", 0, 500, emphasis)
