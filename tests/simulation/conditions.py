"""Lives in which one documented condition is broken: payasync must say so."""

from pathlib import Path
from typing import Final

from attrs import evolve

from payasync.profile.schema import Recovery
from tests.simulation import disk, exchange, network, service
from tests.simulation.circumstances import QUARANTINE, SAYS
from tests.simulation.life import ROUNDS
from tests.simulation.service import Service
from tests.simulation.shop import Record, Shop
from tests.simulation.world import World

CONDITIONS: Final = {
    "the journal's file stays where it is": "StorageError",
    "the journal's file is not emptied": "StorageError",
    "the disk can be written": "StorageError",
    "the keys are right": "AuthenticationError",
    "the profile says how late the service commits": "manual",
    "the service responds at last": "manual",
}
"""By condition, what callers are told, or how the journal lists a write for a person, if the condition is broken."""


def live_without(condition: str, seed: int, folder: Path) -> tuple[set[str], list[tuple[str, float]]]:
    """Return what was said in a life without a condition, and what was made twice in it.

    Args:
        condition: One of `CONDITIONS`.
        seed: Draws everything else.
        folder: An empty folder.
    """
    world, record, journal = World(f"{seed} {condition}"), Record(), folder / "pay.db"
    machine = world.machine("machine")
    # No first call ends, so that each is made again after something has broken.
    open_point = condition == "the profile says how late the service commits"
    refuses = condition == "the keys are right"
    habits = service.Habits(late=QUARANTINE / 2, silent=1.0, refuses=refuses, deaf=open_point)
    serves = Service(world, habits, exchange.Habits())
    world.network.habits = network.Habits(slowest=0.5)
    profile = evolve(SAYS, recovery=Recovery()) if open_point else SAYS
    broken_disk = disk.Habits(unopened=1.0) if condition == "the disk can be written" else disk.Habits()
    shop = Shop(record, machine.process("shop"), folder, profile, broken_disk)
    shop.pause = 90.0

    def break_it() -> None:
        if condition == "the journal's file stays where it is":
            journal.unlink()
        if condition == "the journal's file is not emptied":
            journal.write_bytes(b"")
        if condition == "the service responds at last":
            serves.habits.broken = 1.0

    world.after(80.0, break_it)
    shop.work = shop.process.start(shop.trade(["refund R1", "refund R2", "order T3"]))
    world.run(lambda: shop.ended)
    if CONDITIONS[condition] == "manual":
        last = Shop(record, machine.process("the last shop"), folder, profile, disk.Habits())
        finishing = last.finish(ROUNDS, lambda: True, lambda _: True, QUARANTINE)
        world.complete(last.process, finishing)
    world.close()
    return {*record.manual, *(each.what for each in record.told)}, serves.ledger.doubles
