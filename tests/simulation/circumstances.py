"""The circumstances of a life: the calls of its shops, and the faults of the service, the network and the disk."""

from typing import Any, Final, Literal, TypeAlias, cast

from attrs import define, evolve

from payasync import Profile
from payasync.profile.sandbox_profile import PROFILE
from payasync.profile.schema import HttpCodes, Idempotency, Recovery
from tests.simulation import disk, exchange, network, service
from tests.simulation.world import World

QUARANTINE: Final = 120.0
"""Seconds after which the service has carried out whatever it received, and its replicas know it."""
SAYS: Final = evolve(
    PROFILE,
    recovery=Recovery(quarantine=QUARANTINE),
    http=HttpCodes(absent=(404,), rate_limit_precedes_execution=True),
)
FOCUSED: Final = frozenset({"repeats", "crowds"})
"""Emphases of few refunds, and no notifications."""
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
        kills: How probable it is that a process is killed.
        stops: How probable it is that a shop stops for a while.
        reconcilers: How many there are at least.
        pauses: Of these is the time between two calls of a shop for one thing.
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
    kills: float
    stops: float
    reconcilers: int
    pauses: tuple[float, ...]
    receives: bool
    shakes: bool


def draw_circumstances(world: World, emphasis: Emphasis) -> Circumstances:
    """Draw what a life is like."""

    def one(*choices: Any) -> Any:
        return world.choose(choices, "circumstances")

    serves, hops, profile, kinds = _draw_service(world, emphasis), exchange.Habits(), SAYS, ["refund"]
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
    receives = emphasis in {"events", "merchants"} or (
        emphasis not in FOCUSED and world.draw("whether it receives") < 0.3
    )
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
        things=_draw_things(world, kinds, {"crowds": 1, "repeats": 3}.get(emphasis, 6)),
        together=30.0 if emphasis == "crowds" else one(5.0, 600.0),
        kills=0.1 if emphasis == "crowds" else 0.5,
        stops=0.7 if emphasis == "crowds" else 0.1,
        reconcilers=2 if emphasis == "crowds" else 0,
        pauses=(60.0, 90.0) if emphasis == "crowds" else (0.0, 1.0, 90.0),
        receives=receives,
        shakes=emphasis == "machine",
    )


def _draw_service(world: World, emphasis: Emphasis) -> service.Habits:
    """Draw how the service behaves. It keeps its promise: after the quarantine, all is carried out and known."""
    if emphasis == "repeats":
        return service.Habits(stale=QUARANTINE / 2, declines=0.5, silent=0.5)
    if emphasis == "crowds":
        return service.Habits(late=30.0, declines=0.5, silent=0.2)

    def one(*choices: float) -> float:
        return world.choose(choices, "habits of the service")

    return service.Habits(
        late=one(0.0, 1.0, QUARANTINE / 2),
        stale=one(0.0, 2.0, QUARANTINE / 3),
        declines=one(0.0, 0.3),
        silent=one(0.0, 0.2, 0.6),
        broken=one(0.0, 0.2),
        busy=one(0.0, 0.0, 0.2),
        processing=one(0.0, 0.0, QUARANTINE / 2),
    )


def _draw_verification(world: World, profile: Profile) -> tuple[Profile, bool]:
    """Draw whose key signs notifications: the merchant's, all merchants', or nobody's."""
    owners: tuple[Literal["merchant", "shared", ""], ...] = ("merchant", "shared", "")
    whose = world.choose(owners, "key of notifications")
    shape = profile.notification if whose else evolve(profile.notification, verification="none")
    signature = evolve(cast("Any", profile.signature), service_key=whose)
    return evolve(profile, notification=shape, signature=signature), whose == "shared"


def _draw_things(world: World, kinds: list[str], most: int) -> list[str]:
    letters = {"refund": "R", "order": "T", "payment": "P"}
    drawn = [world.choose(kinds, "kind of a thing") for _ in range(1 + int(world.draw("things") * most))]
    return [f"{kind} {letters[kind]}{nth}" for nth, kind in enumerate(drawn)]
