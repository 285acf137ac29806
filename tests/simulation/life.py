"""One life: shops that refund and reconcile, are killed and stopped, and what may never happen in it."""

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from attrs import define, evolve, field

from payasync import CreateRefund, Credentials, PayasyncError, RetryPolicy, Session, Timeouts
from payasync.journal import Reconciler, SqliteJournal
from payasync.profile.sandbox_profile import PROFILE
from payasync.profile.schema import HttpCodes, Recovery
from tests.simulation import network, service
from tests.simulation.disk import Executor
from tests.simulation.service import Service
from tests.simulation.world import Process, World

QUARANTINE: Final = 120.0
"""Seconds after which the service has carried out whatever it received, and its replicas know it."""
SAYS: Final = evolve(PROFILE, recovery=Recovery(quarantine=QUARANTINE), http=HttpCodes(absent=(404,)))
CREDENTIALS: Final = Credentials("M1", secret_key="sk_canary", signing_key="sign_canary_key_1")
RETRY: Final = RetryPolicy(attempts=3)
OPEN: Final[frozenset[str]] = frozenset({"new", "sending", "unknown", "accepted"})
NOT_DONE: Final = {"failed", "NotSentError", "NotSentTimeoutError", "ServiceError"}
"""What a caller is told of a call that made no refund."""
GRACE: Final = 10.0
"""Seconds by which a call may end after its time limit, to store what it knows."""
ATTEMPTS: Final = 3
"""Times that a shop calls for one refund at most."""
ROUNDS: Final = 200
"""Runs of the last reconciler, a minute apart, after which nothing may be open."""
Emphasis: TypeAlias = Literal["", "repeats", "crowds"]
"""What a life has more of.

- `repeats`: refunds that are declined, and called for again, while replicas are behind.
- `crowds`: processes at once, which stop and go on.
"""


@define
class Life:
    """What a life was like.

    Attributes:
        seed: Gives the same life again.
        violations: What happened in it that may never happen.
        told: What callers were told: the moment, the number, and the state or the error.
        effects: How many refunds were made.
        kills: How often a process was killed.
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

    Attributes:
        process: The process.
        called: The numbers that it called for.
        ended: Whether it has ended by itself, and its callers were told everything.
        work: What it does.
        was_stopped: Whether it was stopped, so that its calls may end late.
    """

    def __init__(self, life: Life, process: Process, folder: Path) -> None:
        self.process: Final = process
        self.called: Final = set[str]()
        self.ended = False
        self.work: asyncio.Task[Any] | None = None
        self.was_stopped = False
        self._life = life
        self._path = folder / "pay.db"
        self._draw = process.world.random
        self._repeats = self._draw.random() < 0.5
        self._pause = self._draw.choice([0.0, 1.0, 90.0])

    def stop(self, seconds: float) -> None:
        """Stop for some seconds."""
        self.was_stopped = True
        self.process.stop(seconds)

    async def refund(self, numbers: list[str]) -> None:
        """Make refunds at once, and call again under the same number if one is not made."""
        async with self._journal() as journal, self._session(journal) as pay:
            await asyncio.gather(*(self._refund(pay, journal, each) for each in numbers))
        self._end()

    async def _refund(self, pay: Session, journal: SqliteJournal, number: str) -> None:
        self.called.add(number)
        for _ in range(ATTEMPTS):
            began = self.process.loop.time()
            told = await self._call(pay, journal, number)
            now = self.process.loop.time()
            self._life.told.append((now, number, told))
            if now - began > Timeouts().total + GRACE and not self.was_stopped:
                self._life.violations.append(f"LATE: a call for {number} took {now - began} s")
            if told == "succeeded" or (told == "failed" and not self._repeats):
                return
            await asyncio.sleep(self._pause)

    async def _call(self, pay: Session, journal: SqliteJournal, number: str) -> str:
        request = CreateRefund(
            out_trade_no=number.replace("R", "T"), out_refund_no=number, total_amt=450, refund_amt=200
        )
        try:
            if self._draw.random() < 0.3:
                return str((await pay.execute(await journal.add(request, merchant="M1"))).state)
            return str((await pay.send(request)).state)
        except PayasyncError as error:
            return type(error).__name__

    async def reconcile(self, rounds: int, pause: float) -> list[tuple[str, str]]:
        """Send what is queued, and reconcile, until nothing is open; return the state of each write."""
        async with self._journal() as journal, self._session(journal) as pay:
            reconciler = Reconciler(pay, journal)
            for _ in range(rounds):
                for each in await journal.list("new"):
                    with suppress(PayasyncError):
                        await pay.execute(each.id)
                await reconciler.run_once()
                found = await journal.list()
                if found and OPEN.isdisjoint(each.state for each in found):
                    break
                await asyncio.sleep(pause)
            ends = [(str(each.reference), str(each.state)) for each in await journal.list()]
        self._end()
        return ends

    def _end(self) -> None:
        self.ended = True
        left = [str(each) for each in self.process.loop.tasks if each is not asyncio.current_task()]
        self._life.violations += [f"LEAK: {each} in {self.process.name}" for each in left]
        self._life.violations += [f"ERROR: {each} in {self.process.name}" for each in self.process.loop.errors]

    def _journal(self) -> SqliteJournal:
        return SqliteJournal(self._path, executor=lambda _: Executor(self.process))

    @staticmethod
    def _session(journal: SqliteJournal) -> Session:
        host, port = service.ADDRESS
        return Session(f"http://{host}:{port}", credentials=CREDENTIALS, profile=SAYS, journal=journal, retry=RETRY)


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
    shops = list[Shop]()
    together = 60.0 if emphasis == "crowds" else draw.choice([5.0, 600.0])

    def open_shop(name: str) -> None:
        shop = Shop(life, world.process(name), folder)
        shops.append(shop)
        if draw.random() < 0.5:
            world.after(draw.uniform(0, 20), partial(_kill, life, shop.process))
        if draw.random() < (0.7 if emphasis == "crowds" else 0.1):
            world.after(draw.uniform(0, 10), partial(shop.stop, draw.choice([1.0, 50.0, 400.0])))
        if name.startswith("shop"):
            work: Any = shop.refund(draw.sample(numbers, draw.randint(1, len(numbers))))
        else:
            work = shop.reconcile(draw.randint(1, 20), draw.choice([1.0, 30.0]))
        shop.work = shop.process.start(work)

    opened = [f"shop {each}" for each in range(draw.randint(1, 4))]
    opened += [f"reconciler {each}" for each in range(draw.randint(0, 2))]
    for name in opened:
        world.after(draw.uniform(0, together), partial(open_shop, name))
    world.run(lambda: len(shops) == len(opened) and all(each.process.killed or each.ended for each in shops))
    for shop in shops:
        shop.process.kill()
    # What is broken is mended at last.
    world.network.habits = network.Habits()
    serves.habits.broken = serves.habits.silent = 0.0
    last = Shop(life, world.process("last reconciler"), folder)
    ends = world.complete(last.process, last.reconcile(ROUNDS, 60.0))
    world.close()
    _judge(life, serves, dict(ends), shops)
    life.faults, life.steps, life.seconds = world.network.faults, world.steps, world.now
    return life


def _kill(life: Life, process: Process) -> None:
    life.kills += not process.killed
    process.kill()


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


def _judge(life: Life, serves: Service, ends: dict[str, str], shops: list[Shop]) -> None:
    """Compare what was told, and what is stored, with what the service has done."""
    effects = serves.ledger.effects
    life.effects = sum(map(len, effects.values()))
    life.violations += [f"TWICE: {number} was made at {at}" for number, at in effects.items() if len(at) > 1]
    life.violations += [
        f"LOST: a caller was told at {at} that {number} was made"
        for at, number, told in life.told
        if told == "succeeded" and number not in effects
    ]
    for number in effects:
        callers = [each for each in shops if number in each.called]
        told = {each for _, about, each in life.told if about == number}
        if told <= NOT_DONE and all(each.ended for each in callers):
            life.violations.append(f"UNTRUE: {number} was made, and its callers were told {sorted(told)}")
    for number, state in ends.items():
        if state == "succeeded" and number not in effects:
            life.violations.append(f"LOST: the journal says that {number} was made")
        if state == "rejected" and number in effects:
            life.violations.append(f"HIDDEN: the journal says that {number} was not made")
        # A person decides about a refund that never arrived in five sends. The service knows one that was made.
        if state in OPEN or (state == "manual" and number in effects):
            life.violations.append(f"OPEN: {number} is {state} for ever")
