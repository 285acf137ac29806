"""What a fault is aimed at, and when its turn comes: counted here, without any I/O."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from random import Random
from typing import Any, Final, TypedDict

from attrs import field, frozen

from payasync.endpoints import OPERATIONS
from payasync.errors import PayasyncError
from payasync.sandbox.faults.catalogue import Effect, OfNotification, Phase, must, wrong

ANY: Final = "*"
CALLS: Final = (*(operation.name for operation in OPERATIONS), ANY)
"""What faults of calls can be aimed at."""
EVENTS: Final = ("payment", "refund", "subscription", ANY)
"""What faults of notifications can be aimed at."""


def _counts(value: object) -> bool:
    return type(value) is int and value >= 1


def _is_probability(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1


_ORDER: Final = must("a number, as a text", lambda value: value is None or (isinstance(value, str) and value != ""))
_COUNT: Final = must("an integer of 1 or more", _counts)
_TIMES: Final = must("an integer of 1 or more, or none", lambda value: value is None or _counts(value))
_PROBABILITY: Final = must("a number above 0 and up to 1", lambda value: value is None or _is_probability(value))
_SEED: Final = must("an integer", lambda value: value is None or type(value) is int)


class Aiming(TypedDict, total=False):
    """How any fault is aimed; `Faults` says what each means."""

    order: str | None
    nth: int
    times: int | None
    probability: float | None
    seed: int | None


class Options(Aiming, total=False):
    """How a fault of calls is aimed."""

    phase: Phase


@frozen(kw_only=True)
class Aim:
    """What a fault is aimed at.

    Attributes:
        on: The operation, or the kind of notification; `*`: any.
        order: A number that the call or the notification must name: an order's, refund's or subscription's.
        nth: The first matching call that it may fire at, from 1.
        times: How often it fires at most; `None`: without end.
        probability: Of firing at each of those calls; `None`: it fires at all of them.
        seed: Makes the same draws again.
        phase: Before or after the commit; `None` for notifications.

    Raises:
        InvalidArgumentError: A value that it cannot be.
    """

    on: str
    order: str | None = field(default=None, validator=_ORDER)
    nth: int = field(default=1, validator=_COUNT)
    times: int | None = field(default=1, validator=_TIMES)
    probability: float | None = field(default=None, validator=_PROBABILITY)
    seed: int | None = field(default=None, validator=_SEED)
    phase: Phase | None = None

    def takes(self, on: str, numbers: AbstractSet[str]) -> bool:
        """Return whether a call, or a notification, is what this is aimed at.

        Args:
            on: The operation, or the kind of notification.
            numbers: Those that it names.
        """
        return self.on in {ANY, on} and (self.order is None or self.order in numbers)


def aimed(effect: Effect, on: str, options: Aiming, seed: Callable[[], int]) -> Aim:
    """Return what a fault is aimed at.

    Args:
        effect: What it does.
        on: The operation, or the kind of notification.
        options: As they were given.
        seed: Draws one, where a probability came without.

    Raises:
        InvalidArgumentError: An option that there is not, or not with this kind of fault.
    """
    name, known = ("about", EVENTS) if isinstance(effect, OfNotification) else ("operation", CALLS)
    if on not in known:
        raise wrong(name, f"one of {', '.join(known)}", on)
    given: dict[str, Any] = {"phase": next(iter(effect.phases), None), **options}
    _check_phase(effect, given["phase"])
    if given.get("probability") is not None:
        given = {"times": None, **given}
        given["seed"] = seed() if given.get("seed") is None else given["seed"]
    elif given.get("seed") is not None:
        raise wrong("seed", "given with a probability", given["seed"])
    return Aim(on=on, **given)


def _check_phase(effect: Effect, phase: Phase | None) -> None:
    if phase not in (effect.phases or (None,)):
        rule = " or ".join(effect.phases) or "left out: a notification is sent after the commit"
        raise wrong("phase", f"{rule} for {effect.kind}", phase)


class Fault:
    """A fault that was armed.

    Args:
        effect: What it does.
        aim: At what.
        ended: Told when it is disarmed.

    Attributes:
        effect: As given.
        aim: As given.
    """

    def __init__(self, effect: Effect, aim: Aim, ended: Callable[["Fault"], None]) -> None:
        self.effect: Final = effect
        self.aim: Final = aim
        self._ended = ended
        self._random = Random(aim.seed)  # noqa: S311 - to be repeated, not to be secret
        self._seen = 0
        self._fired = 0
        self._disarmed = False

    @property
    def kind(self) -> str:
        """Its name, such as `reset_after_commit`."""
        return self.effect.kind

    @property
    def seed(self) -> int | None:
        """What makes the same draws again, where it has a probability."""
        return self.aim.seed

    @property
    def seen(self) -> int:
        """The calls, or notifications, that were what it is aimed at."""
        return self._seen

    @property
    def fired(self) -> int:
        """How often it has happened."""
        return self._fired

    @property
    def armed(self) -> bool:
        """Whether it may still happen."""
        return not self._disarmed and (self.aim.times is None or self._fired < self.aim.times)

    @property
    def missed(self) -> bool:
        """Whether it is armed, and has never happened."""
        return not self._disarmed and not self._fired

    def disarm(self) -> None:
        """End it: from now on it does not happen, and nobody misses it; a second time does nothing."""
        if not self._disarmed:
            self._disarmed = True
            self._ended(self)

    def due(self, on: str, numbers: AbstractSet[str]) -> bool:
        """Count a call, or a notification, and return whether it is this fault's turn.

        Args:
            on: The operation, or the kind of notification.
            numbers: Those that it names.
        """
        if not self.armed or not self.aim.takes(on, numbers):
            return False
        self._seen += 1
        if self._seen < self.aim.nth:
            return False
        return self.aim.probability is None or self._random.random() < self.aim.probability

    def fire(self) -> None:
        """Count that it happens."""
        self._fired += 1

    def __str__(self) -> str:
        return f"{self.kind} on {self.aim.on}{_details(self.aim)}"

    def __repr__(self) -> str:
        return f"<Fault {self}, fired {self._fired}, seen {self._seen}>"


def _details(aim: Aim) -> str:
    told = {
        f"order {aim.order}": aim.order is not None,
        f"from number {aim.nth}": aim.nth > 1,
        f"probability {aim.probability}, seed {aim.seed}": aim.probability is not None,
    }
    words = ", ".join(word for word, holds in told.items() if holds)
    return f" ({words})" if words else ""


class FaultNeverFiredError(PayasyncError, AssertionError):
    """A fault was armed and never happened: the test that armed it has not tested what it says.

    An `AssertionError`, too: to pytest, and to people, it is a test that fails, and not a program that broke.
    """
