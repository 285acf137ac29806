"""`sandbox.faults.notifications`: a method for each kind of fault that a notification can meet."""

from typing import Unpack

from payasync.sandbox.faults import effects
from payasync.sandbox.faults.aim import ANY, Aiming, Fault, Options
from payasync.sandbox.faults.armoury import Armoury


class NotificationFaults:
    """Arms faults of notifications.

    Each method takes what the notification is about, `"payment"`, `"refund"`, `"subscription"`, or `"*"` for any,
    and the options of `Faults` without `phase`. What counts is the attempt to deliver: a redelivery is one more,
    and one that was held back is not counted again.

    Args:
        armoury: The sandbox's.
    """

    def __init__(self, armoury: Armoury) -> None:
        self._armoury = armoury

    def drop(self, about: str = ANY, **aim: Unpack[Aiming]) -> Fault:
        """Lose it on its way: the attempt has failed, and it is sent again when its next one is due."""
        return self._armoury.arm(effects.Drop(), about, aim)

    def duplicate(self, about: str = ANY, **aim: Unpack[Aiming]) -> Fault:
        """Deliver it twice."""
        return self._armoury.arm(effects.Duplicate(), about, aim)

    def reorder(self, about: str = ANY, *, seconds: float = 60.0, **aim: Unpack[Aiming]) -> Fault:
        """Hold it back until another one has been attempted, or so many seconds of the sandbox's clock have passed."""
        return self._armoury.arm(effects.Reorder(seconds=seconds), about, aim)

    def delay(self, about: str = ANY, *, seconds: float = 60.0, **aim: Unpack[Aiming]) -> Fault:
        """Send it so many seconds later, by the sandbox's clock."""
        return self._armoury.arm(effects.Delay(seconds=seconds), about, aim)

    def corrupt(self, about: str = ANY, **aim: Unpack[Aiming]) -> Fault:
        """Change one character of its body after it was signed: the signature is no longer right."""
        return self._armoury.arm(effects.Corrupt(), about, aim)

    def old_timestamp(self, about: str = ANY, *, seconds: int = 86_400, **aim: Unpack[Aiming]) -> Fault:
        """Sign it, rightly, with a time so many seconds ago."""
        return self._armoury.arm(effects.OldTimestamp(seconds=seconds), about, aim)

    def before_answer(self, operation: str = ANY, **aim: Unpack[Options]) -> Fault:
        """Deliver what a call has to tell before the call itself is answered.

        Args:
            operation: The call's, such as `refunds.create`; not a kind of notification.
            aim: As for all.
        """
        return self._armoury.arm(effects.BeforeAnswer(), operation, aim)
