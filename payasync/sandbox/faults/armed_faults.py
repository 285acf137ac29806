"""The faults that are armed, whose turn it is, and what each makes of a delivery."""

import re
import secrets
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Final

from attrs import frozen

from payasync.profile.schema import NONCE
from payasync.sandbox.faults.catalogue import (
    Delay,
    Drop,
    Duplicate,
    Effect,
    OfNotification,
    OldTimestamp,
    Reorder,
    StaleKeepAlive,
)
from payasync.sandbox.faults.trigger import Aiming, Fault, FaultNeverFiredError, aimed

_NONCE: Final = re.compile(rf'"{NONCE}": ?"[0-9a-f]')
_DIGIT: Final = re.compile(r"[0-9](?=[^0-9]*$)", re.ASCII)


@frozen(kw_only=True)
class Passage:
    """How one attempt goes.

    Attributes:
        fault: What befalls it, in words; empty: nothing.
        lost: It never arrives.
        copies: How often it arrives.
        later: It is not attempted now, but so much later by the sandbox's clock.
        overtaken: It need not wait so long, once another one was attempted.
        age: Seconds by which its timestamp lies back.
        corrupted: Its body is changed after it was signed.
    """

    fault: str = ""
    lost: bool = False
    copies: int = 1
    later: timedelta = timedelta()
    overtaken: bool = False
    age: int = 0
    corrupted: bool = False

    def body(self, signed: str) -> str:
        """Return the body that goes over the wire.

        Args:
            signed: As it was signed.
        """
        return corrupted(signed) if self.corrupted else signed


PLAIN: Final = Passage()


def passage(effect: Effect, fault: str) -> Passage:
    """Return how an attempt goes that meets a fault.

    Args:
        effect: What the fault does.
        fault: The fault in words.
    """
    match effect:
        case Drop():
            return Passage(fault=fault, lost=True)
        case Duplicate():
            return Passage(fault=fault, copies=2)
        case Reorder(seconds=seconds):
            return Passage(fault=fault, later=timedelta(seconds=seconds), overtaken=True)
        case Delay(seconds=seconds):
            return Passage(fault=fault, later=timedelta(seconds=seconds))
        case OldTimestamp(seconds=age):
            return Passage(fault=fault, age=age)
        case _:
            return Passage(fault=fault, corrupted=True)


def texts(document: object) -> Iterator[str]:
    """Yield the texts in a JSON document, without their names: among them are the numbers that it tells of."""
    match document:
        case str():
            yield document
        case dict():
            yield from texts([*document.values()])
        case list():
            for each in document:
                yield from texts(each)
        case _:
            pass


def corrupted(body: str) -> str:
    """Return a body in which one character is another: still as long, and still JSON; else it loses its end.

    It is one of the nonce where there is one, because not all that a body holds need be signed; else the last digit.
    """
    found = _NONCE.search(body) or _DIGIT.search(body)
    if not found:
        return body[:-1]
    at = found.end() - 1
    # 1 to 9, so that no number begins with a 0.
    other = int(body[at]) % 9 + 1 if body[at].isdecimal() else 0
    return f"{body[:at]}{other}{body[at + 1 :]}"


class Armoury:
    """Keeps faults until they are disarmed.

    Args:
        seed: Draws one, where a probability comes without.
    """

    def __init__(self, seed: Callable[[], int] = lambda: secrets.randbits(32)) -> None:
        self._seed = seed
        self._faults: list[Fault] = []

    def arm(self, effect: Effect, on: str, options: Aiming, ended: Callable[[Fault], None] | None = None) -> Fault:
        """Keep a new fault, and return it.

        Args:
            effect: What it does.
            on: The operation, or the kind of notification.
            options: How it is aimed.
            ended: Told when it is disarmed.

        Raises:
            InvalidArgumentError: An option that there is not, or not with this kind of fault.
        """

        def forget(fault: Fault) -> None:
            self._faults.remove(fault)
            if ended:
                ended(fault)

        fault = Fault(effect, aimed(effect, on, options, self._seed), forget)
        self._faults.append(fault)
        return fault

    def armed(self) -> list[Fault]:
        """Return the faults that may still happen, in the order in which they were armed."""
        return [fault for fault in self._faults if fault.armed]

    def clear(self) -> None:
        """Disarm all."""
        for fault in tuple(self._faults):
            fault.disarm()

    def check(self) -> None:
        """Check that every fault has happened, those aside that were disarmed.

        Raises:
            FaultNeverFiredError: One has not; it is named.
        """
        missed = [f"{fault}, which saw {fault.seen} of these" for fault in self._faults if fault.missed]
        if missed:
            raise FaultNeverFiredError(
                f"armed and never fired: {'; '.join(missed)}. Aim it at what the test does, or disarm it"
            )

    def for_call(self, operation: str, numbers: AbstractSet[str], *, reused: bool) -> Fault | None:
        """Return the fault whose turn it is at a call: the one that was armed first.

        All that are aimed at the call count it; one happens, and the others wait for the next.

        Args:
            operation: The call's.
            numbers: Those that it names.
            reused: Whether its connection has carried another call before.
        """
        faults = (each for each in tuple(self._faults) if not isinstance(each.effect, OfNotification))
        fitting = (each for each in faults if reused or not isinstance(each.effect, StaleKeepAlive))
        return _first(fitting, operation, numbers)

    def for_notification(self, kind: str, numbers: AbstractSet[str], *, timed: bool) -> Passage:
        """Return how an attempt to deliver a notification goes.

        Args:
            kind: What the notification is about.
            numbers: Those that it names.
            timed: Whether it carries a time.
        """
        faults = (each for each in tuple(self._faults) if isinstance(each.effect, OfNotification))
        fitting = (each for each in faults if timed or not isinstance(each.effect, OldTimestamp))
        fault = _first(fitting, kind, numbers)
        return passage(fault.effect, str(fault)) if fault else PLAIN


def _first(faults: Iterator[Fault], on: str, numbers: AbstractSet[str]) -> Fault | None:
    due = [fault for fault in faults if fault.due(on, numbers)]
    if not due:
        return None
    due[0].fire()
    return due[0]
