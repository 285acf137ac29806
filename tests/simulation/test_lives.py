"""In no life is anything made twice, lost or hidden, whatever the network, the service, the disk and a kill do."""

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from typing import Final, get_args

import pytest

from tests.simulation.circumstances import Emphasis
from tests.simulation.conditions import CONDITIONS, live_without
from tests.simulation.shrink import MEMORY, relive

ROOT: Final = Path(__file__).parents[2]
EMPHASES: Final = get_args(Emphasis)
DAILY: Final = 12
"""Lives of each emphasis that a daily test lives."""
AT_NIGHT: Final = 230
"""Lives of each emphasis that a long test lives."""
AGAIN: Final = 20
"""How many of these are lived again."""
PAGE: Final = 80
"""Lines of a script at most."""
PROGRAM: Final = """
import logging
import sys
from tests.simulation.shrink import relive

logging.disable()
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    life = relive(seed, *sys.argv[3:])
    print(life, life.digest)
"""
FENCED: Final = "WHERE id = :id AND fence = :fence AND lease IS NOT NULL RETURNING id;"
RUN: Final = "        run, errors = _Run(self._now(), on_result), list[BaseException]()"
STATES: Final = '"processing": Claim.UNDER_WAY, "failed": Claim.{}}}'
MUTATIONS: Final = {
    "a query in time": ("evidence/claims.py", "    if sends > 1:\n        return final\n", "", "repeats", 178, "TWICE"),
    "the quarantine": ("evidence/claims.py", "return inf if used_before else final", "return 0.0", "", 3, "TWICE"),
    "the age of a response": (
        *("evidence/age.py", "return max(float(stated), by_date, 0.0)", "return 0.0"),
        *("caches", 8, "TWICE"),
    ),
    "the fence": ("journal/sql/journal.sql", FENCED, "WHERE id = :id RETURNING id;", "crowds", 170, "TWICE"),
    "the record before the send": (
        "journal/middleware.py",
        "return send(call) if call.read else self._record(call, send, merchant, service, notify)",
        "return send(call) if call.read or call.entry is None else self._record(call, send, merchant, service, notify)",
        *("", 0, "TWICE"),
    ),
    "the idempotency key": (
        *("journal/middleware.py", "call = _under_stored_key(call, intent, lease)", "pass"),
        *("keys", 2, "TWICE"),
    ),
    "the key of an event": (
        "notifications/notification.py",
        'return build_key(f"{kind}:", names), False, digest',
        'return build_key(f"{kind}:", [*names, __import__("secrets").token_hex(8)]), False, digest',
        *("events", 16, "HANDLED"),
    ),
    "numbers and merchants": (
        *("evidence/comparison.py", "if counts and not same and (found", "if False and (found"),
        *("merchants", 45, "TWICE"),
    ),
    "orders of other merchants": (
        *("evidence/comparison.py", "if counts and not same and (found", "if False and (found"),
        *("merchants", 11, "UNTRUE"),
    ),
    "what ends a write": ("evidence/claims.py", STATES.format("ENDED"), STATES.format("DONE"), "", 1, "LOST"),
    "what is under way": (
        *("journal/intents.py", 'Claim.UNDER_WAY: "accepted",', 'Claim.UNDER_WAY: "rejected",'),
        *("", 0, "HIDDEN"),
    ),
    "signatures": (
        *("notifications/verification.py", "any(hmac.compare_digest(right, each) for each in signatures)", "True"),
        *("events", 4, "BELIEVED"),
    ),
    "the time of a call": (
        "session.py",
        "loop.time() + timeouts.total, intent)",
        "loop.time() + 9 * timeouts.total, intent)",
        "",
        3,
        "LATE",
    ),
    "limits of time": ("clocks.py", "deadline.expire()", "pass", "", 0, "STUCK"),
    "pauses between queries": ("journal/reconcile_policy.py", "return max(bound / 2", "return max(9e5", "", 0, "OPEN"),
    "the end of tasks": (
        *("journal/reconciler.py", RUN, f"{RUN}\n        self.left = asyncio.ensure_future(asyncio.sleep(1e7))"),
        *("", 0, "LEAK"),
    ),
    "what may be raised": (
        *(
            "middleware/outcome.py",
            "    thing, state = comparison.thing_of(",
            "    1 / 0\n    thing, state = comparison.thing_of(",
        ),
        *("", 13, "ERROR"),
    ),
}
"""By the rule that is taken out: the module, the lines, what takes their place, the emphasis, a first seed, and how the
violation begins that shows it."""
SOON: Final = 25
"""Lives that are tried together."""


@pytest.fixture
def memory() -> Iterator[Path]:
    """Return an empty folder in memory."""
    with TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


def lived_again(root: Path, *arguments: object) -> str:
    """Return what another process prints about lives, with the package below a root."""
    command = [sys.executable, "-P", "-c", PROGRAM, *map(str, arguments)]
    return run(root, command)


def run(root: Path, command: list[str]) -> str:
    """Return what a command prints that imports what is below a root."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("emphasis", EMPHASES)
def test_lives(emphasis: Emphasis) -> None:
    """In each life of a seed, nothing happens that may never happen."""
    lives = [relive(seed, emphasis) for seed in range(DAILY)]

    assert [] == [each for each in lives if each.violations]


@pytest.mark.long
@pytest.mark.parametrize("emphasis", EMPHASES)
def test_many_lives(emphasis: Emphasis) -> None:
    """The same, in 2,070 lives; 180 of them are lived again in another process, and are the same."""
    lives = lived_again(ROOT, 1000, 1000 + AT_NIGHT, emphasis).splitlines()

    assert AT_NIGHT == len(lives)
    assert [] == [each for each in lives if "violations=[]" not in each]
    assert lives[:AGAIN] == lived_again(ROOT, 1000, 1000 + AGAIN, emphasis).splitlines()


@pytest.mark.parametrize("emphasis", EMPHASES)
def test_seed_gives_the_same_life(emphasis: Emphasis) -> None:
    """A seed gives the same life again, to the last note, in another process."""
    here = relive(11, emphasis)

    assert here.told
    assert f"{here} {here.digest}\n" == lived_again(ROOT, 11, 12, emphasis)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_broken_condition_is_reported(condition: str, memory: Path) -> None:
    """If a documented condition is broken, payasync says so, and nothing is made twice."""
    said, twice = live_without(condition, 0, memory)

    assert [] == twice
    assert CONDITIONS[condition] in said, said


@pytest.mark.long
@pytest.mark.parametrize("rule", MUTATIONS)
def test_lives_need_a_rule(rule: str, memory: Path) -> None:
    """Without a rule, something goes wrong in one of 500 lives as it must, and a script of a page repeats it."""
    module, lines, instead, emphasis, first, violation = MUTATIONS[rule]
    for name in ("payasync", "tests/simulation"):
        copytree(ROOT / name, memory / name, ignore=ignore_patterns("__pycache__"))
    changed = memory / "payasync" / module
    before = changed.read_text(encoding="utf-8")
    changed.write_text(before.replace(lines, instead), encoding="utf-8")
    # That seed is tried first, because a change of anything may make another life show it.
    seeds = chain([range(first, first + 1)], (range(start, start + SOON) for start in range(0, 500, SOON)))
    seed = next(
        (
            seed
            for some in seeds
            for seed, life in zip(some, lived_again(memory, some.start, some.stop, emphasis).splitlines(), strict=True)
            if f"{violation}: " in life
        ),
        None,
    )

    assert lines in before
    assert seed is not None
    script = run(memory, [sys.executable, "-P", "-m", "tests.simulation.shrink", str(seed), emphasis])
    assert script.count("\n") <= PAGE
    assert f"{violation}: " in run(memory, [sys.executable, "-P", "-c", script])
