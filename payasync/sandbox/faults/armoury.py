"""The faults that are armed, and whose turn it is."""

import secrets
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

from payasync.sandbox.faults.aim import Aiming, Fault, FaultNeverFiredError, aimed
from payasync.sandbox.faults.effects import Effect, OfNotification, OldTimestamp, StaleKeepAlive
from payasync.sandbox.faults.passage import PLAIN, Passage, passage


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
