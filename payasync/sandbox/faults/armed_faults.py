"""The faults that are armed: which call or delivery triggers them, how often they fired, and which never did."""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from random import Random
from typing import Any, Final

from attrs import Factory, define, field, frozen

from payasync.endpoints import OPERATIONS
from payasync.errors import PayasyncError
from payasync.profile.wire_names import NONCE
from payasync.sandbox.faults.catalogue import FaultKind, Phase
from payasync.wire.validators import invalid_argument

ANY: Final = "*"
CALLS: Final = (*(operation.name for operation in OPERATIONS), ANY)
"""What can trigger a fault of a call."""
EVENTS: Final = ("payment", "refund", "subscription", ANY)
"""What can trigger a fault of a notification."""


class FaultNeverFiredError(PayasyncError, AssertionError):
    """A fault was armed and never fired, so the test that armed it has not tested what it says.

    It is an `AssertionError` too: pytest reports a failed test, and not a broken program.
    """


@define(kw_only=True, eq=False, repr=False)
class Fault:
    """A fault that was armed.

    Attributes:
        kind: Its name, such as `reset_after_commit`.
        options: Those of its kind.
        on: The operation, or the kind of notification; `*` is any.
        phase: Before or after the commit; `None` for notifications.
        order: A number that the call or notification must name: of an order, refund or subscription.
        nth: The first matching call that may trigger it, from 1.
        times: How often it fires at most; `None` is no limit.
        probability: That a matching call triggers it; `None` is always.
        seed: Repeats the draws.
        on_disarm: Called when it is disarmed.
        seen: How many calls or notifications have matched it.
        fired: How often it has fired.
    """

    kind: str
    options: Mapping[str, Any]
    on: str
    phase: Phase | None
    order: str | None = None
    nth: int = 1
    times: int | None = 1
    probability: float | None = None
    seed: int | None = None
    on_disarm: Callable[["Fault"], None]
    seen: int = field(default=0, init=False)
    fired: int = field(default=0, init=False)
    _disarmed: bool = field(default=False, init=False)
    _random: Random = field(
        init=False,
        default=Factory(lambda self: Random(self.seed), takes_self=True),  # noqa: S311 - to be repeated, not secret
    )

    @property
    def armed(self) -> bool:
        """Whether it may still fire."""
        return not self._disarmed and (self.times is None or self.fired < self.times)

    @property
    def missed(self) -> bool:
        """Whether it has neither fired nor been disarmed."""
        return not self._disarmed and not self.fired

    def disarm(self) -> None:
        """End it: it does not fire any more, and no test fails because of it. Disarming again does nothing."""
        if not self._disarmed:
            self._disarmed = True
            self.on_disarm(self)

    def count(self, on: str, numbers: AbstractSet[str]) -> bool:
        """Count a call or notification if it matches, and return whether it triggers the fault.

        Args:
            on: The operation, or the kind of notification.
            numbers: Those that it names.
        """
        if not self.armed or self.on not in {ANY, on} or self.order not in {None, *numbers}:
            return False
        self.seen += 1
        if self.seen < self.nth:
            return False
        return self.probability is None or self._random.random() < self.probability

    def __str__(self) -> str:
        details = (
            self.order is not None and f"order {self.order}",
            self.nth > 1 and f"from number {self.nth}",
            self.probability is not None and f"probability {self.probability}, seed {self.seed}",
        )
        words = ", ".join(word for word in details if word)
        return f"{self.kind} on {self.on} ({words})" if words else f"{self.kind} on {self.on}"

    def __repr__(self) -> str:
        return f"<Fault {self}, fired {self.fired}, seen {self.seen}>"


@frozen(kw_only=True)
class DeliveryPlan:
    """What a fault makes of one attempt to deliver a notification.

    Attributes:
        fault: The fault in words, or an empty text.
        lost: The attempt never arrives.
        copies: How often it arrives.
        later: How long it is held back, by the sandbox's clock.
        overtaken: It is held back only until another notification was attempted.
        age: Seconds by which its timestamp is too old.
        corrupted: Its body changes after it was signed.
    """

    fault: str = ""
    lost: bool = False
    copies: int = 1
    later: timedelta = timedelta()
    overtaken: bool = False
    age: int = 0
    corrupted: bool = False

    def body(self, signed: str, nonce: str) -> str:
        """Return the body that is sent, from the one that was signed, and the name of its nonce."""
        return corrupt_body(signed, nonce) if self.corrupted else signed


UNALTERED: Final = DeliveryPlan()


class ArmedFaults:
    """Holds faults until they are disarmed, and decides which of them a call or a notification meets."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, kind: FaultKind, on: str, options: Mapping[str, Any]) -> Fault:
        """Add a fault, and return it.

        Args:
            kind: Its row of the catalogue.
            on: The operation, or the kind of notification.
            options: Those of its kind, and those that say what triggers it.

        Raises:
            InvalidArgumentError: `on` is unknown, or an option is unknown or breaks its rule.
        """
        field, known = ("about", EVENTS) if kind.of_notification else ("operation", CALLS)
        if on not in known:
            raise invalid_argument(field, f"one of {', '.join(known)}", on)
        kind.check(options)
        given: dict[str, Any] = {"phase": next(iter(kind.phases), None), **options}
        if given.get("probability") is not None:
            given = {"times": None, **given}
            given["seed"] = secrets.randbits(32) if given.get("seed") is None else given["seed"]
        own = {name: given.pop(name) for name in kind.options if name in given}
        fault = Fault(kind=kind.name, options=own, on=on, on_disarm=self.remove, **given)
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Remove a fault that was disarmed."""
        self._faults.remove(fault)

    def armed(self) -> list[Fault]:
        """Return the faults that may still fire, in the order in which they were armed."""
        return [fault for fault in self._faults if fault.armed]

    def clear(self) -> None:
        """Disarm all faults."""
        for fault in tuple(self._faults):
            fault.disarm()

    def check(self) -> None:
        """Check that every fault has fired or was disarmed.

        Raises:
            FaultNeverFiredError: One has not; the error names it.
        """
        missed = [f"{fault}, which saw {fault.seen} of these" for fault in self._faults if fault.missed]
        if missed:
            advice = "Arm it for what the test does, or disarm it"
            raise FaultNeverFiredError(f"armed and never fired: {'; '.join(missed)}. {advice}")

    def fire_for_call(self, operation: str, numbers: AbstractSet[str], *, reused: bool) -> Fault | None:
        """Return the fault that a call meets: of those that it triggers, the one that was armed first.

        All faults that match the call count it. One fires, and the others wait for the next call.

        Args:
            operation: The call's.
            numbers: Those that it names.
            reused: Whether its connection has carried another call before.
        """
        return self._fire(
            operation, numbers, lambda fault: fault.phase is not None and (reused or fault.kind != "stale_keep_alive")
        )

    def plan_delivery(self, event: str, numbers: AbstractSet[str], *, timed: bool) -> DeliveryPlan:
        """Return what a fault makes of an attempt to deliver a notification.

        Args:
            event: The kind of notification.
            numbers: Those that it names.
            timed: Whether it carries a time.
        """
        fault = self._fire(
            event, numbers, lambda fault: fault.phase is None and (timed or fault.kind != "notification.old_timestamp")
        )
        if fault is None:
            return UNALTERED
        seconds = fault.options.get("seconds", 0)
        effects: dict[str, dict[str, Any]] = {
            "notification.drop": {"lost": True},
            "notification.duplicate": {"copies": 2},
            "notification.reorder": {"later": timedelta(seconds=seconds), "overtaken": True},
            "notification.delay": {"later": timedelta(seconds=seconds)},
            "notification.corrupt": {"corrupted": True},
            "notification.old_timestamp": {"age": seconds},
        }
        return DeliveryPlan(fault=str(fault), **effects[fault.kind])

    def _fire(self, on: str, numbers: AbstractSet[str], fits: Callable[[Fault], bool]) -> Fault | None:
        triggered = [fault for fault in tuple(self._faults) if fits(fault) and fault.count(on, numbers)]
        if not triggered:
            return None
        triggered[0].fired += 1
        return triggered[0]


_DIGIT: Final = re.compile(r"[0-9](?=[^0-9]*$)", re.ASCII)


def corrupt_body(body: str, nonce: str = NONCE) -> str:
    """Return a body in which one character differs: as long, and still JSON. Without a digit it loses its end.

    A character of the nonce is preferred, because not all of a body need be signed; else it is the last digit.
    """
    found = re.search(rf'"{re.escape(nonce)}": ?"[0-9a-f]', body) or _DIGIT.search(body)
    if not found:
        return body[:-1]
    at = found.end() - 1
    # 1 to 9, so that no number begins with a 0.
    other = int(body[at]) % 9 + 1 if body[at].isdecimal() else 0
    return f"{body[:at]}{other}{body[at + 1 :]}"


def iterate_strings(document: object) -> Iterator[str]:
    """Yield the text values in a JSON document, among them the numbers of what it is about."""
    match document:
        case str():
            yield document
        case dict():
            yield from iterate_strings([*document.values()])
        case list():
            for each in document:
                yield from iterate_strings(each)
        case _:
            pass
