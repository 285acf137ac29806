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
from payasync.profile.schema import Idempotency, Recovery
from payasync.sandbox import PROFILE, Sandbox
from tests.chaos.errands import ORDER, PAID
from tests.chaos.forked import Forked
from tests.chaos.killing import lines, number_of
from tests.chaos.plan import AT_ONCE, ENDED, JOURNALS, KEYED, Clock, Life, Strategy, arm, deaths, jumps, pace
from tests.chaos.verdict import Result, hit, operation_of

PROGRAM: Final = Path(__file__).with_name("worker.py")
WORKERS: Final = 2
QUARANTINE: Final = 3.5
KEY: Final = Idempotency(header="Idempotency-Key", lifetime=1e9)
FORGETTING: Final = Idempotency(header="Idempotency-Key", lifetime=0.0)
LATE: Final = (2.0, 3.0)
"""Seconds after which the service does what its client has given up: longer than that waits, within the quarantine."""
LATER: Final = 10_000_000.0
"""Seconds, after which every lease is over, however often the clock has jumped back."""
LAST: Final = WORKERS
"""The process behind all others, which nobody kills."""
KINDS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("reset_before", {}),
    ("reset_after_commit", {}),
    ("server_error", {"phase": "before"}),
    ("server_error", {"phase": "after"}),
    ("hang", {"phase": "before"}),
    ("hang", {"phase": "after"}),
    ("truncated_body", {"phase": "before"}),
    ("truncated_body", {"phase": "after"}),
    *(("latency", {"phase": "before", "seconds": late}) for late in LATE),
    ("rate_limited", {"phase": "before"}),
)
"""The faults, each as often as any other."""
SLOW: Final = frozenset({"hang", "latency"})
"""The faults that a client notices by its timeouts only."""


LOST_IN_A_ROW: Final = 3 * WORKERS * AT_ONCE
"""So many responses are lost before a kill at *claimed*: in some operation all attempts, so that there is a claim."""


@frozen(kw_only=True)
class Scale:
    """How much is done.

    Attributes:
        operations: Refunds and orders.
        kills: Processes that are killed.
        faults: The share of calls that meet one.
        jumps: The share of lives in which the journal's clock is to jump; some of them end before that.
        seed: Repeats the draws.
        patient: No call ends by a timeout of its own, and no fault is slow, so that a slow machine adds no retry.
        seconds: After so many the run has failed.
    """

    operations: int
    kills: int
    faults: float = 0.2
    jumps: float = 0.5
    seed: int = 1
    patient: bool = False
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
    if strategy in KEYED:
        unasked = evolve(PROFILE.answer, payment_id="")  # a payment ends with its response
        profile = evolve(profile, answer=unasked, idempotency=KEY if strategy == "keyed" else FORGETTING)
    with TemporaryDirectory() as folder:
        # Its clock stands: by a real one, orders of a run that takes half an hour would expire before its end.
        service = Sandbox(profile, clock="frozen", repeated_refunds="refused")
        async with service as sandbox, asyncio.timeout(scale.seconds):
            course = Course(sandbox, Path(folder), strategy, scale, dsn)
            try:
                return await course.run()
            finally:
                sandbox.faults.clear()


class Course:
    """One run of one strategy."""

    def __init__(self, sandbox: Sandbox, folder: Path, strategy: Strategy, scale: Scale, dsn: str) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._strategy: Strategy = strategy
        self._scale = scale
        self._traces = folder / "traces"
        self._whole = Life(
            strategy=strategy,
            journal=dsn or str(folder / "pay.db"),
            traces=str(self._traces),
            worker=LAST,
            first=0,
            last=scale.operations,
            clock=str(folder / "clock") if scale.jumps and strategy in JOURNALS else "",
            ahead=LATER,
            patient=scale.patient,
        )
        chance = Random(f"{scale.seed} {strategy}")  # noqa: S311 - to be repeated
        often = pace(scale.kills, scale.operations, WORKERS)
        self._deaths = deaths(strategy, scale.kills, often, chance)
        self._jumps = jumps(scale.kills + WORKERS, scale.jumps if self._whole.clock else 0, often, chance)
        self._hits = Counter[str]()
        self._kills = 0
        self._environment = {**os.environ, **self._service()}

    async def run(self) -> Result:
        """Do it all, and judge it."""
        self._traces.mkdir()
        await self._sandbox.given.paid_order(out_trade_no=ORDER, total_amt=PAID)
        kinds = [each for each in KINDS if not (self._scale.patient and each[0] in SLOW)]
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

    def _service(self) -> dict[str, str]:
        file = self._folder / "service.toml"
        said = self._sandbox.profile
        if self._strategy in KEYED:
            said = evolve(said, idempotency=KEY)
        file.write_text(said.to_toml(), encoding="utf-8")
        return environment_of(self._sandbox, file)

    async def _worker(self, worker: int) -> None:
        """Let one process after the other do a share: each dies where it is to, but the last."""
        mine = evolve(self._whole, worker=worker, first=self._start(worker), last=self._start(worker + 1), ahead=0.0)
        ends: list[dict[str, Any]] = [*self._deaths[worker::WORKERS], {}]
        for number, (end, jump) in enumerate(zip(ends, self._jumps[worker::WORKERS], strict=True)):
            life = evolve(mine, life=number, **end, **jump)
            if life.fatal == "claimed":
                self._sandbox.faults.arm("reset_after_commit", "*", times=LOST_IN_A_ROW)
            if not await self._live(life):
                return
            self._kills += 1
            self._hits += hit(lines(Path(life.trace)))

    def _start(self, worker: int) -> int:
        return worker * self._scale.operations // WORKERS

    async def _live(self, life: Life) -> bool:
        """Let a process live, and return whether it was killed."""
        with Forked(PROGRAM, life.json(), environment=self._environment) as process:
            _, errors = await asyncio.to_thread(process.communicate, timeout=None)
        if errors or process.returncode not in ({0, -9} if life.fatal else {0}):
            raise RuntimeError(f"{life} ended with {process.returncode}: {errors}")
        return process.returncode != 0

    async def _result(self, faults: int) -> Result:
        steps = [step for trace in self._traces.iterdir() for step in lines(trace)]
        numbers = {number for moment, number in steps if moment == "leaving"}
        codes = Counter(str(each.code) for each in self._sandbox.ledger.calls())
        return Result(
            strategy=self._strategy,
            operations=self._scale.operations,
            ended={operation_of(number) for moment, number in steps if moment == ENDED},
            effects=Counter(operation_of(number) for number in numbers if self._was_done(number)),
            all_effects=self._sandbox.ledger.refunds()
            + self._sandbox.ledger.orders()
            - 1
            + self._sandbox.ledger.payments(),
            states=await self._states(),
            nonces=codes["SBX_NONCE_USED"],
            again=codes["SBX_DUPLICATE"],
            faults=faults,
            hits=self._hits,
            kills=self._kills,
            jumps=len(Clock(self._whole.clock).jumps) if self._whole.clock else None,
        )

    def _was_done(self, number: str) -> bool:
        ledger = self._sandbox.ledger
        if self._strategy in KEYED:
            return ledger.payments(number) > 0
        try:
            (ledger.order_state if number.startswith("P") else ledger.refund_state)(number)
        except InvalidArgumentError:
            return False
        return True

    async def _states(self) -> dict[int, str]:
        if self._strategy not in JOURNALS:
            return {}
        states: dict[int, str] = {}
        async with _journal(self._whole) as journal:
            after = 0
            while page := await journal.list(limit=500, after=after):
                states |= {operation_of(number_of(each) or ""): each.state for each in page}
                after = page[-1].id
        return states


def _journal(life: Life) -> PostgresJournal | SqliteJournal:
    return PostgresJournal(life.journal) if life.strategy == "postgres" else SqliteJournal(life.journal)
