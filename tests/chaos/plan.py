"""What one process of the run is told: what it does, under which strategy, where it dies, and by which clock."""

import json
import time
from collections.abc import Mapping, Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, Self

from attrs import asdict, frozen

from payasync.clocks import Clocks
from payasync.sandbox import Sandbox
from payasync.sandbox.faults.armed_faults import Fault

Strategy = Literal["naive", "stable", "sqlite", "postgres", "keyed", "forgotten"]
"""How operations are repeated.

Naive: a new number on each retry; stable: one number, and no journal; and one number with either journal. Keyed: a
payment that only its idempotency key names, from a SQLite journal; forgotten: the same, and the service forgets keys.
"""
JOURNALS: Final[frozenset[Strategy]] = frozenset({"sqlite", "postgres", "keyed", "forgotten"})
KEYED: Final[frozenset[Strategy]] = frozenset({"keyed", "forgotten"})
CONTROLS: Final[frozenset[Strategy]] = frozenset({"naive", "forgotten"})
"""These must show duplicates. Otherwise the harness proves nothing."""
NAMES: Final[dict[Strategy, str]] = {
    "naive": "new numbers",
    "stable": "no journal",
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "keyed": "a key",
    "forgotten": "a forgotten key",
}
SENDING: Final = ("leaving", "flying", "answered", "inquiring")
MOMENTS: Final = ("asking", "writing", "kept", *SENDING, "judged", "settling", "settled", "claimed")
"""The steps of the protocol, in their order.

Before the journal is asked; within its transaction; once that is on the disk; before the first byte; on the way;
once the answer is there; while a question about it is; before the verdict is kept; within that transaction; after it;
and once a reconciler holds an intent.
"""
ENDED: Final = "ended"
"""The caller has been told that it is done."""
RESTING: Final = "resting"
"""Nothing goes on about it."""
RARE: Final = frozenset({"claimed", "inquiring"})
"""What comes only after a fault."""
AT_ONCE: Final = 16
"""So many operations a process is at; a kill interrupts them all."""


def moments(strategy: Strategy) -> tuple[str, ...]:
    """Return the steps at which a process with this strategy may die."""
    if strategy in KEYED:
        # A queued payment is claimed and not begun, and nobody can ask about it.
        return tuple(each for each in MOMENTS if each not in {"asking", "writing", "inquiring"})
    if strategy in JOURNALS:
        return MOMENTS
    return SENDING[:-1] if strategy == "naive" else SENDING


@frozen(kw_only=True)
class Life:
    """What one process does.

    Attributes:
        strategy: How it goes about retries.
        journal: A file's path, or a connection string.
        traces: The folder of all traces.
        worker: Whose share it has.
        life: Which of that worker's processes it is, from 0.
        first: The first operation of its share.
        last: The last one, and one more.
        fatal: The step at which it kills itself; empty: at none; `any`: wherever it is then.
        nth: As it comes to that step for the nth time.
        latest: It dies at the latest when so many operations have ended; 0: it does not.
        clock: The file of the jumps of the journal's clock; empty: the clock is the machine's, or the server's.
        jump: The way in which that clock jumps in this life; empty: it does not.
        jumping: It jumps when so many operations have ended.
        ahead: Seconds by which the journal's clock is ahead.
        patient: Its calls have the default timeouts.
    """

    strategy: Strategy
    journal: str
    traces: str
    worker: int
    life: int = 0
    first: int
    last: int
    fatal: str = ""
    nth: int = 1
    latest: int = 0
    clock: str = ""
    jump: str = ""
    jumping: int = 0
    ahead: float = 0.0
    patient: bool = False

    @property
    def trace(self) -> str:
        """Where it says what it is about to do."""
        return f"{self.traces}/{self.worker}-{self.life}"

    def json(self) -> str:
        """Return it as one argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return what `json` wrote."""
        return cls(**json.loads(text))


def arm(sandbox: Sandbox, kinds: Sequence[tuple[str, Mapping[str, Any]]], share: float, seed: int) -> list[Fault]:
    """Arm faults, each as often as any other.

    Args:
        sandbox: Where.
        kinds: Their names, each with its options.
        share: Of the calls or notifications that meet one of them.
        seed: Repeats the draws; each fault has the next one.
    """
    armed: list[Fault] = []
    each, left = share / len(kinds), 1.0
    for number, (kind, options) in enumerate(kinds, seed):
        # A fault that comes after others is drawn less often.
        armed.append(sandbox.faults.arm(kind, "*", probability=each / left, seed=number, **options))
        left -= each
    return armed


def deaths(strategy: Strategy, kills: int, pace: int, chance: Random) -> list[dict[str, Any]]:
    """Return where processes die, as facts of their lives: at each step once, then anywhere or at any step by turns.

    Args:
        strategy: Which steps there are.
        kills: How many.
        pace: So many operations end in a life, as a rule at most; one that dies at a rare step, or is the first to die
            at its step, lives until then.
        chance: Draws when.
    """
    # What is rare comes last: waiting for it may use up the operations that the other steps need.
    first = sorted(chance.sample(moments(strategy), len(moments(strategy))), key=RARE.__contains__)
    turns = chain(first, cycle([each for moment in first for each in ("any", moment)]))
    latest = 2 * pace + AT_ONCE
    return [
        {
            "fatal": step,
            "nth": 1 if step in RARE else chance.randint(1, pace),
            # Many may end without that step: those that a journal knows the end of already.
            "latest": 0 if step in RARE or number < len(first) else latest,
        }
        for number, step in enumerate(islice(turns, kills))
    ]


def jumps(lives: int, share: float, pace: int, chance: Random) -> list[dict[str, Any]]:
    """Return where the clock jumps, as facts of so many lives: in a drawn share of them, and in the last.

    Args:
        lives: How many.
        share: Of the lives, in which it jumps.
        pace: So many operations end in a life, as a rule at most.
        chance: Draws in which of them, when, and whether forward or back.
    """
    # The others may end before that, as often in the second half of a life.
    jumping = {*chance.sample(range(lives), round(share * lives)), lives - 1} if share else set[int]()
    half = max(1, pace // 2)
    drawn = [{"jump": chance.choice(WAYS), "jumping": chance.randint(1, half)} for _ in range(lives)]
    return [each if life in jumping else {} for life, each in enumerate(drawn)]


def pace(kills: int, operations: int, workers: int) -> int:
    """Return how many operations may end in a life, so that there are enough of them for all kills."""
    lives = kills // workers + 1
    return max(1, operations // workers // lives - AT_ONCE)


HOUR: Final = 3600.0
FORWARD: Final = "+"
BACK: Final = "-"
WAYS: Final = (FORWARD, BACK)


class Clock:
    """Returns seconds since 1970, and an hour more or less for each jump so far.

    Args:
        jumps: The file of the jumps, a character for each, so that one by any process is one for all.
        ahead: Seconds by which it is ahead of that.
    """

    def __init__(self, jumps: str, ahead: float = 0.0) -> None:
        self._file = Path(jumps)
        self._ahead = ahead

    def __call__(self) -> float:
        """Return what time it is."""
        jumps = self.jumps
        return time.time() + self._ahead + HOUR * (jumps.count(FORWARD) - jumps.count(BACK))

    @property
    def jumps(self) -> str:
        """The jumps so far."""
        return self._file.read_text(encoding="ascii") if self._file.exists() else ""

    def jump(self, way: str) -> None:
        """Make the clock jump, for all processes."""
        with self._file.open("a", encoding="ascii") as file:
            file.write(way)


def clocks_ahead(seconds: float) -> Clocks:
    """Return the clocks of this machine, so many seconds later."""
    real = Clocks()
    return Clocks(
        wall=lambda: real.wall() + seconds,
        boot=lambda: real.boot() + seconds,
        tick=lambda: real.tick() + round(seconds * 1e9),
    )
