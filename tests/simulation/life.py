"""One life: a shop that refunds, is killed and starts again, and what may never happen in it."""

import asyncio
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from attrs import define, evolve, field

from payasync import Credentials, PayasyncError, RetryPolicy, Session
from payasync.journal import Reconciler, SqliteJournal
from payasync.profile.sandbox_profile import PROFILE
from payasync.profile.schema import HttpCodes, Recovery
from tests.simulation import network, service
from tests.simulation.disk import Executor
from tests.simulation.service import Service
from tests.simulation.world import Killed, Process, World

QUARANTINE: Final = 120.0
"""Seconds after which the service has carried out whatever it received, and its replicas know it."""
SAYS: Final = evolve(PROFILE, recovery=Recovery(quarantine=QUARANTINE), http=HttpCodes(absent=(404,)))
CREDENTIALS: Final = Credentials("M1", secret_key="sk_canary", signing_key="sign_canary_key_1")
OPEN: Final = {"sending", "unknown", "accepted", "queued"}
Emphasis: TypeAlias = Literal["", "repeats"]
"""What a life has more of: refunds that are declined, and called for again, while replicas are behind."""
ATTEMPTS: Final = 3
"""Times that a shop calls for one refund at most."""
ROUNDS: Final = 200
"""Runs of the reconciler, a minute apart, after which nothing may be open."""


@define
class Life:
    """What a life was like.

    Attributes:
        seed: Gives the same life again.
        violations: What happened in it that may never happen.
        told: What callers were told: the moment, the number, and the state or the error.
        effects: How many refunds were made.
        kills: How often a shop was killed.
        faults: How often the network failed.
        steps: How many steps the processes did.
        seconds: How long it lasted.
    """

    seed: int
    violations: list[str] = field(factory=list)
    told: list[tuple[float, str, str]] = field(factory=list)
    effects: int = 0
    kills: int = 0
    faults: int = 0
    steps: int = 0
    seconds: float = 0.0


class Shop:
    """A process of the merchant's, with the journal that all of them share.

    Args:
        life: What callers are told is noted there.
        process: The process.
        folder: Where the journal is.
    """

    def __init__(self, life: Life, process: Process, folder: Path) -> None:
        draw = process.world.random
        self.process: Final = process
        self._life = life
        self._path = folder / "pay.db"
        self._repeats = draw.random() < 0.5
        self._pause = draw.choice([0.0, 1.0, 90.0])

    async def refund(self, numbers: list[str]) -> None:
        """Make refunds at once, and call again under the same number if one is not made."""
        async with self._journal() as journal, self._session(journal) as pay:
            await asyncio.gather(*(self._refund(pay, each) for each in numbers))

    async def _refund(self, pay: Session, number: str) -> None:
        for _ in range(ATTEMPTS):
            told = await self._call(pay, number)
            self._life.told.append((self.process.loop.time(), number, told))
            if told == "succeeded" or (told == "failed" and not self._repeats):
                return
            await asyncio.sleep(self._pause)

    async def _call(self, pay: Session, number: str) -> str:
        about: dict[str, Any] = {"out_trade_no": number.replace("R", "T"), "total_amt": 450, "refund_amt": 200}
        try:
            return str((await pay.refunds.create(out_refund_no=number, **about)).state)
        except PayasyncError as error:
            return type(error).__name__

    async def reconcile(self) -> list[tuple[str, str]]:
        """Reconcile until nothing is open, and return the state of each write."""
        async with self._journal() as journal, self._session(journal) as pay:
            reconciler = Reconciler(pay, journal)
            for _ in range(ROUNDS):
                await reconciler.run_once()
                if OPEN.isdisjoint(each.state for each in await journal.list()):
                    break
                await asyncio.sleep(60)
            return [(str(each.reference), each.state) for each in await journal.list()]

    def _journal(self) -> SqliteJournal:
        return SqliteJournal(self._path, executor=lambda _: Executor(self.process))

    @staticmethod
    def _session(journal: SqliteJournal) -> Session:
        host, port = service.ADDRESS
        return Session(f"http://{host}:{port}", credentials=CREDENTIALS, profile=SAYS, journal=journal, retry=RETRY)


RETRY: Final = RetryPolicy(attempts=3)


def live(seed: int, folder: Path, emphasis: Emphasis = "") -> Life:
    """Return the life of a seed.

    Args:
        seed: Draws everything.
        folder: An empty folder.
        emphasis: What the life has more of.
    """
    world, life = World(seed), Life(seed)
    draw = world.random
    serves = Service(world, _draw_service(world, emphasis))
    world.network.habits = _draw_network(world)
    numbers = [f"R{each}" for each in range(draw.randint(1, 6))]
    for number in range(draw.randint(1, 4)):
        shop = Shop(life, world.process(f"shop {number}"), folder)
        if draw.random() < 0.7:
            world.after(draw.uniform(0, 20), shop.process.kill)
        try:
            world.complete(shop.process, shop.refund(draw.sample(numbers, draw.randint(1, len(numbers)))))
        except Killed:
            life.kills += 1
        _note_errors(life, shop.process)
        shop.process.kill()
    # What is broken is mended at last.
    world.network.habits = network.Habits()
    serves.habits.broken = serves.habits.silent = 0.0
    shop = Shop(life, world.process("reconciler"), folder)
    ends = world.complete(shop.process, shop.reconcile())
    _note_errors(life, shop.process)
    world.close()
    _judge(life, serves, dict(ends))
    life.faults, life.steps, life.seconds = world.network.faults, world.steps, world.now
    return life


def _draw_service(world: World, emphasis: Emphasis) -> service.Habits:
    """Draw how the service behaves. It keeps its promise: after the quarantine, all is carried out and known."""
    draw = world.random
    if emphasis == "repeats":
        return service.Habits(stale=QUARANTINE / 2, declines=0.5, silent=0.5)
    return service.Habits(
        late=draw.choice([0.0, 1.0, QUARANTINE / 2]),
        stale=draw.choice([0.0, 2.0, QUARANTINE / 3]),
        declines=draw.choice([0.0, 0.3]),
        silent=draw.choice([0.0, 0.2, 0.6]),
        broken=draw.choice([0.0, 0.2]),
    )


def _draw_network(world: World) -> network.Habits:
    draw = world.random
    slowest, refused = draw.choice([0.01, 0.5, 3.0]), draw.choice([0.0, 0.2])
    return network.Habits(slowest=slowest, refused=refused, cut=draw.choice([0.0, 0.1, 0.3]))


def _note_errors(life: Life, process: Process) -> None:
    life.violations += [f"ERROR: {process.name}: {each}" for each in process.loop.errors]


def _judge(life: Life, serves: Service, ends: dict[str, str]) -> None:
    """Compare what was told, and what is stored, with what the service has done."""
    effects = serves.ledger.effects
    life.effects = sum(map(len, effects.values()))
    life.violations += [f"TWICE: {number} was made at {at}" for number, at in effects.items() if len(at) > 1]
    life.violations += [
        f"LOST: a caller was told at {at} that {number} was made"
        for at, number, told in life.told
        if told == "succeeded" and number not in effects
    ]
    for number, state in ends.items():
        if state == "succeeded" and number not in effects:
            life.violations.append(f"LOST: the journal says that {number} was made")
        if state == "rejected" and number in effects:
            life.violations.append(f"HIDDEN: the journal says that {number} was not made")
        if state in OPEN:
            life.violations.append(f"OPEN: {number} is {state} for ever")
