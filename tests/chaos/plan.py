"""What one process of the run does, under which strategy, and when it dies."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final, Literal, Self

from attrs import asdict, frozen

from payasync.clocks import Clocks
from payasync.sandbox import Sandbox
from payasync.sandbox.faults.armed_faults import Fault

Strategy = Literal["naive", "stable", "sqlite", "postgres"]
"""How operations are repeated.

Naive: a new number on each retry; stable: one number, and no journal; and one number with either journal.
"""
JOURNALS: Final[frozenset[Strategy]] = frozenset({"sqlite", "postgres"})
ENDED: Final = "ended"
"""The step at which the caller learns that an operation is done."""
AT_ONCE: Final = 16
"""Operations that a process does at the same time; a kill interrupts them all."""


@frozen(kw_only=True)
class Life:
    """What one process does.

    Attributes:
        strategy: How it repeats operations.
        journal: A file's path, or a connection string.
        traces: The folder of all traces.
        worker: Whose share it has.
        life: Which of that worker's processes it is, from 0.
        first: The first operation of its share.
        last: The last one, and one more.
        fatal: The step at which it kills itself, or shortly after which if that is `ended`; empty: it does not.
        nth: It dies when it comes to that step for the nth time.
        ahead: Seconds by which the journal's clock is ahead.
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
    ahead: float = 0.0

    @property
    def trace(self) -> str:
        """The file in which it notes what it is about to do."""
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


async def do_together(work: Callable[[int], Awaitable[object]], operations: Iterable[int]) -> None:
    """Do operations, a few at a time."""
    todo = iter(operations)

    async def some() -> None:
        for operation in todo:
            await work(operation)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())


def deaths(kills: int, operations: int, workers: int, chance: Random) -> list[dict[str, Any]]:
    """Return when processes die, as facts of their lives: soon after a drawn number of operations.

    Args:
        kills: How many.
        operations: How many are done in all; enough must be left for the last kill.
        workers: Processes at the same time.
        chance: Draws when.
    """
    pace = max(1, operations // workers // (kills // workers + 1) - AT_ONCE)
    return [{"fatal": ENDED, "nth": chance.randint(1, pace)} for _ in range(kills)]


def clocks_ahead(seconds: float) -> Clocks:
    """Return the clocks of this machine, so many seconds later."""
    real = Clocks()
    return Clocks(
        wall=lambda: real.wall() + seconds,
        boot=lambda: real.boot() + seconds,
        tick=lambda: real.tick() + round(seconds * 1e9),
    )
