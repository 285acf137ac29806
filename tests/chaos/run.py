"""A run of one strategy: a sandbox with faults, processes that are killed and restarted, and the final ledger.

The sandbox lives in this process, which is never killed. The killed processes are its children.
"""

import asyncio
import os
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from attrs import evolve, frozen

from payasync.cli.sandbox import environment_of
from payasync.errors import InvalidArgumentError
from payasync.journal import PostgresJournal, SqliteJournal
from payasync.profile.schema import Recovery
from payasync.sandbox import PROFILE, Sandbox
from tests.chaos.errands import ORDER, PAID
from tests.chaos.forked import Forked
from tests.chaos.killing import lines
from tests.chaos.plan import ENDED, JOURNALS, Life, Strategy, arm, deaths
from tests.chaos.verdict import Result, operation_of

PROGRAM: Final = Path(__file__).with_name("worker.py")
WORKERS: Final = 2
QUARANTINE: Final = 3.5
LATE: Final = (2.0, 3.0)
"""Seconds after which the service does what its client has given up: longer than that waits, within the quarantine."""
LATER: Final = 3600.0
"""Seconds, after which every lease is over."""
KINDS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("reset_before", {}),
    ("reset_after_commit", {}),
    *((kind, {"phase": phase}) for kind in ("server_error", "hang", "truncated_body") for phase in ("before", "after")),
    *(("latency", {"phase": "before", "seconds": late}) for late in LATE),
    ("rate_limited", {"phase": "before"}),
)
"""The faults, each as often as any other."""
SLOW: Final = frozenset({"hang", "latency"})
"""The faults that a client notices by its timeouts only. The naive client meets none: a slow machine adds no retry."""


@frozen(kw_only=True)
class Scale:
    """How much is done.

    Attributes:
        operations: Refunds and orders.
        kills: Processes that are killed.
        faults: The share of calls that meet one.
        seed: Repeats the draws.
        seconds: After so many the run has failed.
    """

    operations: int
    kills: int
    faults: float = 0.2
    seed: int = 1
    seconds: float = 3600.0


async def run(strategy: Strategy, scale: Scale, dsn: str = "") -> Result:
    """Return what a strategy comes to.

    Args:
        strategy: Which.
        scale: How much is done.
        dsn: An empty database, where the journal is PostgreSQL's.

    Raises:
        TimeoutError: It takes too long.
        RuntimeError: A process ended in another way than it was to.
    """
    profile = evolve(PROFILE, recovery=Recovery(quarantine=QUARANTINE))
    with TemporaryDirectory() as folder:
        # Its clock stands: by a real one, orders of a run that takes half an hour would expire before its end.
        service = Sandbox(profile, clock="frozen", repeated_refunds="refused")
        async with service as sandbox, asyncio.timeout(scale.seconds):
            try:
                return await Course(sandbox, Path(folder), strategy, scale, dsn).run()
            finally:
                sandbox.faults.clear()


def was_done(sandbox: Sandbox, number: str) -> bool:
    """Return whether the service has made a refund, or an order."""
    ledger = sandbox.ledger
    try:
        (ledger.order_state if number.startswith("P") else ledger.refund_state)(number)
    except InvalidArgumentError:
        return False
    return True


class Course:
    """One run of one strategy."""

    def __init__(self, sandbox: Sandbox, folder: Path, strategy: Strategy, scale: Scale, dsn: str) -> None:
        self._sandbox = sandbox
        self._scale = scale
        self._traces = folder / "traces"
        self._whole = Life(
            strategy=strategy,
            journal=dsn or str(folder / "pay.db"),
            traces=str(self._traces),
            worker=WORKERS,
            first=0,
            last=scale.operations,
            ahead=LATER,
        )
        chance = Random(f"{scale.seed} {strategy}")  # noqa: S311 - to be repeated
        self._deaths = deaths(scale.kills, scale.operations, WORKERS, chance)
        self._kills = 0
        service = folder / "service.toml"
        service.write_text(sandbox.profile.to_toml(), encoding="utf-8")
        self._environment = {**os.environ, **environment_of(sandbox, service)}

    async def run(self) -> Result:
        """Do it all, and judge it."""
        self._traces.mkdir()
        await self._sandbox.given.paid_order(out_trade_no=ORDER, total_amt=PAID)
        kinds = [each for each in KINDS if self._whole.strategy != "naive" or each[0] not in SLOW]
        armed = arm(self._sandbox, kinds, self._scale.faults, self._scale.seed * 100)
        async with asyncio.TaskGroup() as group:
            for worker in range(WORKERS):
                group.create_task(self._worker(worker))
        faults = sum(each.fired for each in armed)
        self._sandbox.faults.clear()
        # In real time: what the service does late, it has done by then.
        await asyncio.sleep(QUARANTINE)
        await self._live(self._whole)
        return await self._result(faults)

    async def _worker(self, worker: int) -> None:
        """Let one process after the other do a share: each dies where it is to, but the last."""
        first, last = (number * self._scale.operations // WORKERS for number in (worker, worker + 1))
        mine = evolve(self._whole, worker=worker, first=first, last=last, ahead=0.0)
        for number, end in enumerate([*self._deaths[worker::WORKERS], {}]):
            if not await self._live(evolve(mine, life=number, **end)):
                return
            self._kills += 1

    async def _live(self, life: Life) -> bool:
        """Let a process live, and return whether it was killed."""
        with Forked(PROGRAM, life.json(), environment=self._environment) as process:
            _, errors = await asyncio.to_thread(process.communicate, timeout=None)
        if errors or process.returncode not in ({0, -9} if life.fatal else {0}):
            raise RuntimeError(f"{life} ended with {process.returncode}: {errors}")
        return process.returncode != 0

    async def _result(self, faults: int) -> Result:
        steps = [step for trace in self._traces.iterdir() for step in lines(trace)]
        sent = {number for moment, number in steps if moment == "leaving"}
        ledger = self._sandbox.ledger
        codes = Counter(str(each.code) for each in ledger.calls())
        return Result(
            strategy=self._whole.strategy,
            operations=self._scale.operations,
            ended={operation_of(number) for moment, number in steps if moment == ENDED},
            done={operation_of(number) for number in sent if was_done(self._sandbox, number)},
            effects=ledger.refunds() + ledger.orders() - 1,
            states=await self._states(),
            nonces=codes["SBX_NONCE_USED"],
            again=codes["SBX_DUPLICATE"],
            faults=faults,
            kills=self._kills,
        )

    async def _states(self) -> dict[int, str]:
        if self._whole.strategy not in JOURNALS:
            return {}
        kind = PostgresJournal if self._whole.strategy == "postgres" else SqliteJournal
        async with kind(self._whole.journal) as journal:
            found = await journal.list(limit=self._scale.operations)
        return {operation_of(str(each.reference)): each.state for each in found}
