"""One life: shops that call, reconcile and receive, and are killed and stopped, until all that is broken is mended."""

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, TypeAlias

from attrs import define, field

from payasync import PayasyncError
from tests.simulation import disk, exchange, network
from tests.simulation.circumstances import QUARANTINE, Emphasis, draw_circumstances
from tests.simulation.invariants import find_violations, is_done
from tests.simulation.service import Service
from tests.simulation.shop import Record, Shop
from tests.simulation.world import Event, Process, Stuck, World

ROUNDS: Final = 80
"""Runs of the last reconciler, within a day and a half, after which nothing may be open."""
Work: TypeAlias = Callable[[Shop], Coroutine[Any, Any, None]]


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

    @property
    def digest(self) -> str:
        """A short text that differs for two lives if they differ in what happened, or in any note."""
        return blake2b(repr([self, self.happened, self.notes]).encode(), digest_size=8).hexdigest()


def live(seed: int, folder: Path, emphasis: Emphasis = "", only: Iterable[str] | None = None) -> Life:
    """Return the life of a seed.

    Args:
        seed: Draws everything.
        folder: An empty folder.
        emphasis: What the life has more of.
        only: What happens in it, of all that may be left out. Default: all that the seed draws.
    """
    world = World(f"{seed} {emphasis}", None if only is None else frozenset(only))
    simulation = Simulation(world, folder, emphasis)
    try:
        simulation.run()
    except Stuck as error:
        return Life(seed, [f"STUCK: {error}"], world.happened, world.notes, steps=world.steps, seconds=world.now)
    finally:
        world.close()
    return simulation.judge(seed)


class Simulation:
    """The merchant's machine and the service, for one life.

    Args:
        world: Where they stand.
        folder: Where the merchant's files are.
        emphasis: What the life has more of.
    """

    def __init__(self, world: World, folder: Path, emphasis: Emphasis) -> None:
        self._world, self._folder = world, folder
        self._drawn = draw_circumstances(world, emphasis)
        self._service = Service(world, self._drawn.service, self._drawn.hops)
        self._machine = world.machine("machine")
        self._record = Record()
        self._shops = list[Shop]()
        self._kills = 0
        world.network.habits = self._drawn.network

    def run(self) -> None:
        """Have processes begin, be killed and be stopped. When all have ended, mend what is broken, and finish."""
        world, opened = self._world, 0
        for name, work in self._draw_works():
            if world.happens(f"{name} opens"):
                opened += 1
                world.after(world.between(0, self._drawn.together, f"begin of {name}"), partial(self._open, name, work))
        shakes = self._draw_shakes() if self._drawn.shakes else []
        world.run(lambda: len(self._shops) == opened and all(each.is_over for each in self._shops))
        for shop in self._shops:
            shop.process.kill()
        for shake in shakes:
            shake.cancelled = True
        self._finish()

    def _finish(self) -> None:
        world, serves = self._world, self._service
        world.note("what is broken is mended, and the last shop finishes")
        world.network.habits, serves.hop.habits, self._machine.ahead = network.Habits(), exchange.Habits(), 0.0
        serves.habits.broken = serves.habits.silent = serves.habits.busy = serves.habits.doubles = 0.0
        self._last = Shop(
            self._record, self._machine.process("the last shop"), self._folder, self._drawn.profile, disk.Habits()
        )
        work = self._last.finish(ROUNDS, lambda: not serves.sending, self._look_up, QUARANTINE)
        world.complete(self._last.process, work)

    def _look_up(self, thing: str) -> bool:
        """Return what the service's back office shows: whether a thing was made, or an order is closed."""
        return is_done(self._service.ledger, thing, self._world.now)

    def judge(self, seed: int) -> Life:
        """Return what the life was like."""
        world, ledger = self._world, self._service.ledger
        cut_off = [each.process.name for each in self._shops if not each.ended]
        handled = self._last.read_handled()
        works = [each.work for each in self._shops if each.work is not None and each.work.done()]
        errors = [error for each in works if not each.cancelled() and (error := each.exception())]
        self._record.faults += [f"ERROR: {each!r}" for each in errors if not isinstance(each, PayasyncError)]
        return Life(
            seed,
            violations=[*find_violations(ledger, self._record, dict(self._last.ends), cut_off, handled)],
            happened=world.happened,
            notes=world.notes,
            effects=sum(map(len, ledger.effects.values())),
            told=len(self._record.told),
            handled=len(handled),
            kills=self._kills,
            faults=world.network.faults,
            steps=world.steps,
            seconds=world.now,
        )

    def _open(self, name: str, work: Work) -> None:
        world, drawn = self._world, self._drawn
        shop = Shop(self._record, self._machine.process(name), self._folder, drawn.profile, drawn.disk)
        self._shops.append(shop)
        shop.pause = world.choose(drawn.pauses, f"pause of {name}")
        world.note(f"{name} begins")
        if world.happens(f"{name} is killed", drawn.kills):
            seconds = world.choose([0.1, 2.0, 20.0], f"kill of {name}")
            world.after(world.between(0, seconds, f"kill of {name}"), partial(self._kill, shop.process))
        if world.happens(f"{name} stops for a while", drawn.stops if name.startswith("shop") else 0.1):
            seconds = world.choose([1.0, 50.0, 400.0, 400.0], f"stop of {name}")
            latest = world.choose([0.03, 0.03, 40.0], f"latest stop of {name}")
            world.after(
                world.between(0, latest, f"begin of a stop of {name}"), partial(self._stop, shop.process, seconds)
            )
        shop.work = shop.process.start(work(shop))

    def _kill(self, process: Process) -> None:
        if not process.killed:
            self._kills += 1
            self._world.note(f"{process.name} is killed")
            process.kill()

    def _stop(self, process: Process, seconds: float) -> None:
        if not process.killed:
            self._world.note(f"{process.name} stops for {seconds:.0f} s")
            process.stop(seconds)

    def _draw_works(self) -> list[tuple[str, Work]]:
        """Draw which processes there are, and what each does."""
        world, works = self._world, list[tuple[str, Work]]()
        for nth in range(1 + int(world.draw("shops") * 4)):
            things = [each for each in self._drawn.things if world.happens(f"shop {nth} makes {each}", 0.6)]
            works.append((f"shop {nth}", partial(Shop.trade, things=things)))
        for nth in range(max(int(world.draw("reconcilers") * 3), self._drawn.reconcilers)):
            rounds = 1 + int(world.draw(f"rounds of reconciler {nth}") * 20)
            pause = world.choose([1.0, 30.0], f"pause of reconciler {nth}")
            works.append((f"reconciler {nth}", partial(Shop.reconcile, rounds=rounds, pause=pause)))
        for nth in range(1 + int(world.draw("receivers") * 3) if self._drawn.receives else 0):
            seconds = world.between(10, 1000, f"time of receiver {nth}")
            works.append((f"receiver {nth}", partial(Shop.receive, seconds=seconds)))
        return works

    def _draw_shakes(self) -> list[Event]:
        """Have the machine sleep, and either start again, or have its clock set."""
        world, machine, shakes = self._world, self._machine, list[Event]()
        starts = world.draw("whether the machine starts again") < 0.5
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
