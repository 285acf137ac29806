"""One life: shops that call, reconcile and receive, and are killed and stopped; and what may never happen in it."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from attrs import define, evolve, field

from payasync import Profile
from payasync.profile.sandbox_profile import PROFILE
from payasync.profile.schema import HttpCodes, Idempotency, Recovery
from tests.simulation import disk, exchange, network, service
from tests.simulation.service import LIVE, Service
from tests.simulation.shop import OPEN, Record, Shop
from tests.simulation.world import Event, Machine, Process, World

QUARANTINE: Final = 120.0
"""Seconds after which the service has carried out whatever it received, and its replicas know it."""
SAYS: Final = evolve(
    PROFILE,
    recovery=Recovery(quarantine=QUARANTINE),
    http=HttpCodes(absent=(404,), rate_limit_precedes_execution=True),
)
NOT_MADE: Final = {"failed", "NotSentError", "NotSentTimeoutError", "ServiceError", "RateLimitedError"}
"""What a caller is told of a call that made nothing."""
FOCUSED: Final = frozenset({"repeats", "crowds"})
"""Emphases of few refunds, which many processes call for."""
DONE: Final = frozenset({"succeeded", "paid"})
"""States of which a handler is told exactly once."""
ROUNDS: Final = 200
"""Runs of the last reconciler, within six days, after which nothing may be open."""
LATEST: Final = 60.0
"""Seconds by which a handler may still be told what was true before."""
Emphasis: TypeAlias = Literal["", "repeats", "crowds", "orders", "keys", "caches", "merchants", "events", "machine"]
"""What a life has more of.

- `repeats`: refunds that are declined, and called for again, while replicas are behind.
- `crowds`: processes at once, which stop and go on.
- `orders`: orders that are closed and placed again.
- `keys`: payments without a number, at a service that takes idempotency keys.
- `caches`: responses that a cache sends again, and pages of gateways.
- `merchants`: responses and notifications about another merchant's things, or other numbers.
- `events`: notifications that come late, twice, out of order, or from strangers.
- `machine`: disks that fail, clocks that are set, machines that sleep and start again.
"""


@define
class Life:
    """What a life was like.

    Attributes:
        seed: Gives the same life again.
        violations: What happened in it that may never happen.
        happened: What might have been left out of it.
        notes: What a person wants to read of it: moments and texts.
        effects: How many things were made.
        told: How often a caller was told something.
        handled: How many events were handled.
        kills: How often a process was killed.
        faults: How often something failed.
        steps: How many steps the processes did.
        seconds: How long it lasted.
    """

    seed: int
    violations: list[str] = field(factory=list)
    happened: list[str] = field(factory=list, repr=False)
    notes: list[tuple[float, str]] = field(factory=list, repr=False)
    effects: int = 0
    told: int = 0
    handled: int = 0
    kills: int = 0
    faults: int = 0
    steps: int = 0
    seconds: float = 0.0


@define
class Circumstances:
    """What a seed draws before its life begins.

    Attributes:
        profile: Describes the service to payasync.
        service: How it behaves.
        hops: How the hops before it behave.
        network: How the network behaves.
        disk: How the disk of the merchant's machine behaves.
        things: What shops call for.
        together: Seconds within which all processes begin.
        stops: How probable it is that a process stops for a while.
        receives: Whether the merchant receives notifications.
        shakes: Whether something happens to the merchant's machine.
    """

    profile: Profile
    service: service.Habits
    hops: exchange.Habits
    network: network.Habits
    disk: disk.Habits
    things: list[str]
    together: float
    stops: float
    receives: bool
    shakes: bool


def draw_circumstances(world: World, emphasis: Emphasis) -> Circumstances:
    """Draw what a life is like. The service keeps its promise: after the quarantine, all is carried out and known."""

    def one(*choices: Any) -> Any:
        return world.choose(choices, "circumstances")

    serves = service.Habits(
        late=one(0.0, 1.0, QUARANTINE / 2),
        stale=one(0.0, 2.0, QUARANTINE / 3),
        declines=one(0.0, 0.3),
        silent=one(0.0, 0.2, 0.6),
        broken=one(0.0, 0.2),
        busy=one(0.0, 0.0, 0.2),
        processing=one(0.0, 0.0, QUARANTINE / 2),
    )
    hops, profile, kinds = exchange.Habits(), SAYS, ["refund"]
    if emphasis == "repeats":
        serves = service.Habits(stale=QUARANTINE / 2, declines=0.5, silent=0.5)
    if emphasis == "orders":
        kinds = ["order"]
    if emphasis == "keys":
        kinds, serves.keys = ["payment", "refund"], True
        profile = evolve(profile, idempotency=Idempotency(header="Idempotency-Key", lifetime=one(3600.0, None)))
    if emphasis in {"caches", "merchants"}:
        kinds = ["refund", "refund", "order"]
        hops.doubles = one(0.0, 0.2)
    if emphasis == "caches":
        serves.late, serves.silent, serves.broken = QUARANTINE / 2, 0.6, 0.0
        hops.cache, hops.pages = one(30.0, 600.0), one(0.0, 0.2)
    if emphasis == "merchants":
        hops.mixes = 0.2
    receives = emphasis in {"events", "merchants"} or (emphasis not in FOCUSED and one(False, False, True))
    if receives:
        kinds = [*kinds, "order"]
        serves.notifies, serves.doubles, serves.forges = True, one(0.0, 0.3), one(0, 4)
        profile, serves.shared = _draw_verification(world, profile)
    if emphasis == "":
        kinds = ["refund", "refund", "order"]
    sick = disk.Habits(slow=0.05, full=0.03, unopened=0.03, torn=0.02) if emphasis == "machine" else disk.Habits()
    slowest = one(0.01, 0.5, 3.0)
    return Circumstances(
        profile=profile,
        service=serves,
        hops=hops,
        network=network.Habits(slowest=slowest, refused=one(0.0, 0.2), cut=one(0.0, 0.1, 0.3)),
        disk=sick,
        things=_draw_things(world, kinds, 3 if emphasis in FOCUSED else 6),
        together=60.0 if emphasis == "crowds" else one(5.0, 600.0),
        stops=0.7 if emphasis == "crowds" else 0.1,
        receives=receives,
        shakes=emphasis == "machine",
    )


def _draw_verification(world: World, profile: Profile) -> tuple[Profile, bool]:
    """Draw whose key signs notifications: the merchant's, all merchants', or nobody's."""
    whose = world.choose(["merchant", "shared", ""], "key of notifications")
    shape = profile.notification if whose else evolve(profile.notification, verification="none")
    signature = evolve(profile.signature, service_key=whose)
    return evolve(profile, notification=shape, signature=signature), whose == "shared"


def _draw_things(world: World, kinds: list[str], most: int) -> list[str]:
    letters = {"refund": "R", "order": "T", "payment": "P"}
    drawn = [world.choose(kinds, "kind of a thing") for _ in range(1 + int(world.draw("things") * most))]
    return [f"{kind} {letters[kind]}{nth}" for nth, kind in enumerate(drawn)]


def live(seed: int, folder: Path, emphasis: Emphasis = "", only: Iterable[str] | None = None) -> Life:
    """Return the life of a seed.

    Args:
        seed: Draws everything.
        folder: An empty folder.
        emphasis: What the life has more of.
        only: What happens in it, of all that may be left out. Default: all that the seed draws.
    """
    world, record = World(f"{seed} {emphasis}", None if only is None else frozenset(only)), Record()
    life = Life(seed, happened=world.happened, notes=world.notes)
    drawn = draw_circumstances(world, emphasis)
    serves = Service(world, drawn.service, drawn.hops)
    world.network.habits = drawn.network
    machine = world.machine("machine")
    shops = _live(world, life, record, machine, folder, drawn)
    # What is broken is mended at last.
    world.network.habits = network.Habits()
    serves.habits.broken = serves.habits.silent = serves.habits.busy = serves.habits.doubles = 0.0
    serves.hop.habits = exchange.Habits()
    machine.ahead = 0.0
    last = Shop(record, machine.process("the last shop"), folder, drawn.profile, disk.Habits())
    world.note("what is broken is mended, and the last shop finishes")
    finishing = last.finish(ROUNDS, lambda: not serves.sending, partial(_look_up, world, serves), QUARANTINE)
    world.complete(last.process, finishing)
    world.close()
    life.violations += record.faults
    _judge(life, serves, record, dict(last.ends), shops)
    _judge_handled(life, serves, record, folder / "shop.db")
    life.told, life.faults, life.steps, life.seconds = len(record.told), world.network.faults, world.steps, world.now
    return life


def _live(
    world: World, life: Life, record: Record, machine: Machine, folder: Path, drawn: Circumstances
) -> list[Shop]:
    """Have processes begin, be killed and be stopped, and return them when all have ended."""
    shops = list[Shop]()

    def open_shop(name: str, work: Callable[[Shop], Any]) -> None:
        shop = Shop(record, machine.process(name), folder, drawn.profile, drawn.disk)
        shops.append(shop)
        world.note(f"{name} begins")
        if world.happens(f"{name} is killed", 0.5):
            seconds = world.choose([0.1, 2.0, 20.0], f"kill of {name}")
            world.after(world.between(0, seconds, f"kill of {name}"), partial(_kill, life, shop.process))
        if world.happens(f"{name} stops for a while", drawn.stops):
            seconds = world.choose([1.0, 50.0, 400.0], f"stop of {name}")
            world.after(world.between(0, 10, f"stop of {name}"), partial(_stop, shop.process, seconds))
        shop.work = shop.process.start(work(shop))

    opened = 0
    for name, work in _draw_works(world, drawn):
        if world.happens(f"{name} opens"):
            opened += 1
            world.after(world.between(0, drawn.together, f"begin of {name}"), partial(open_shop, name, work))
    shakes = _draw_shakes(world, machine) if drawn.shakes else []
    world.run(lambda: len(shops) == opened and all(each.process.killed or each.ended for each in shops))
    for shop in shops:
        shop.process.kill()
    for shake in shakes:
        shake.cancelled = True
    return shops


def _draw_works(world: World, drawn: Circumstances) -> list[tuple[str, Callable[[Shop], Any]]]:
    works = list[tuple[str, Callable[[Shop], Any]]]()
    for nth in range(1 + int(world.draw("shops") * 4)):
        things = [each for each in drawn.things if world.happens(f"shop {nth} makes {each}", 0.6)]
        works.append((f"shop {nth}", lambda shop, things=things: shop.trade(things)))
    for nth in range(int(world.draw("reconcilers") * 3)):
        rounds, pause = 1 + int(world.draw(f"rounds {nth}") * 20), world.choose([1.0, 30.0], f"pause of reconciler {nth}")
        works.append((f"reconciler {nth}", lambda shop, rounds=rounds, pause=pause: shop.reconcile(rounds, pause)))
    for nth in range(1 + int(world.draw("receivers") * 3) if drawn.receives else 0):
        seconds = world.between(10, 1000, f"time of receiver {nth}")
        works.append((f"receiver {nth}", lambda shop, seconds=seconds: shop.receive(seconds)))
    return works


def _draw_shakes(world: World, machine: Machine) -> list[Event]:
    """Have the machine sleep, and either start again, or have its clock set."""
    shakes, starts = list[Event](), world.draw("whether the machine starts again") < 0.5
    for nth in range(3):
        at = world.between(0, 300, f"shake {nth}")
        if world.happens(f"the machine sleeps, {nth}", 0.3):
            seconds = world.choose([5.0, 90.0, 1000.0], f"sleep {nth}")
            shakes.append(world.after(at, partial(machine.suspend, seconds)))
        # After a start, the wall clock decides, as the documentation says: nobody sets it in such a life.
        if starts and world.happens(f"the machine starts again, {nth}", 0.4):
            shakes.append(world.after(at, machine.reboot))
        if not starts and world.happens(f"the clock is set, {nth}", 0.4):
            seconds = world.choose([-3600.0, -30.0, 30.0, 7200.0], f"clock {nth}")
            shakes.append(world.after(at, partial(machine.set_clock, seconds)))
    return shakes


def _kill(life: Life, process: Process) -> None:
    if not process.killed:
        life.kills += 1
        process.world.note(f"{process.name} is killed")
        process.kill()


def _stop(process: Process, seconds: float) -> None:
    if not process.killed:
        process.world.note(f"{process.name} stops for {seconds:.0f} s")
        process.stop(seconds)


def _look_up(world: World, serves: Service, thing: str) -> bool:
    """Return what the back office of the service shows: whether a thing was made, or an order is closed."""
    kind, _, number = thing.partition(" ")
    if kind == "close":
        return serves.ledger.state(f"order {number}", world.now) not in LIVE
    return thing in serves.ledger.effects and serves.ledger.state(thing, world.now) != "FAILED"


def _judge(life: Life, serves: Service, record: Record, ends: dict[str, str], shops: list[Shop]) -> None:
    """Compare what callers were told, and what the journal says, with what the service has done."""
    ledger, flaws = serves.ledger, life.violations
    life.effects = sum(map(len, ledger.effects.values()))
    flaws += [f"TWICE: {thing} was made again at {at}" for thing, at in ledger.doubles]
    for told in record.told:
        if told.thing.startswith("close "):
            _judge_close(life, serves, told.thing, told)
        elif told.what in {"succeeded", "pending", "paid", "processing"} and told.thing not in ledger.effects:
            flaws.append(f"LOST: a caller was told at {told.ended} that {told.thing} was made")
    for thing in ledger.effects:
        callers = [each for each in shops if thing in record.called[each.process.name]]
        heard = {each.what for each in record.told if each.thing == thing}
        if heard <= NOT_MADE and callers and all(each.ended for each in callers):
            flaws.append(f"UNTRUE: {thing} was made, and its callers were told {sorted(heard)}")
    for thing, state in ends.items():
        made = thing in ledger.effects
        if thing.startswith("close "):
            number = thing.partition(" ")[2]
            made = ledger.state(f"order {number}", life.seconds or 1e12) not in LIVE
        if state == "succeeded" and not made:
            flaws.append(f"LOST: the journal says that {thing} was made")
        if state == "rejected" and made and _is_there(serves, thing):
            flaws.append(f"HIDDEN: the journal says that {thing} was not made")
        if state in OPEN or state == "manual":
            flaws.append(f"OPEN: {thing} is {state} for ever")


def _is_there(serves: Service, thing: str) -> bool:
    """Return whether a thing was made and not undone: a closed order may as well never have been placed."""
    return not thing.startswith("close ") and (
        not thing.startswith("order ") or serves.ledger.state(thing, 1e12) in LIVE
    )


def _judge_close(life: Life, serves: Service, thing: str, told: Any) -> None:
    number = thing.partition(" ")[2]
    states = serves.ledger.states.get(f"order {number}", [])
    ended = [state for at, state in states if at <= told.ended and state not in LIVE]
    if told.what == "closed" and not ended:
        life.violations.append(f"UNTRUE: a caller was told at {told.ended} that {number} is closed")


def _judge_handled(life: Life, serves: Service, record: Record, database: Path) -> None:
    """Compare what handlers got with the events of the service."""
    calls = Counter(each.thing.partition(" ")[2] for each in record.told)
    handled = list[tuple[str, str, float]]()
    if database.exists():
        with closing(sqlite3.connect(database)) as connection:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'handled'").fetchone():
                handled = connection.execute("SELECT * FROM handled ORDER BY at").fetchall()
    life.handled = len(handled)
    ledger = serves.ledger
    events = [(each.number, each.state.removeprefix("REFUND_").lower()) for each in ledger.events]
    for number, state in dict.fromkeys((number, state) for number, state, _ in handled):
        times = [at for about, what, at in handled if (about, what) == (number, state)]
        if (number, state) not in events:
            life.violations.append(f"BELIEVED: a handler was told at {times} that {number} is {state}")
        # Each send may end without effect, and a redelivery may be about any of them.
        most = 1 if state in DONE else max(events.count((number, state)), calls[number])
        if len(times) > most:
            life.violations.append(f"HANDLED: a handler was told {len(times)} times that {number} is {state}")
        effects = ledger.effects.get(f"refund {number}", ())
        if state == "failed" and any(made + LATEST < max(times) for made in effects):
            life.violations.append(f"BELIEVED: a handler was told at {times} that {number} failed, made at {effects}")
    for number, state in dict.fromkeys(events):
        if state in DONE and (number, state) not in [each[:2] for each in handled]:
            life.violations.append(f"HANDLED: no handler was told that {number} is {state}")
