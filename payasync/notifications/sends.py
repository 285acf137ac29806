"""How often the write was sent that an event is about. An event does not say of which send it is."""

import re
from math import inf
from typing import TYPE_CHECKING, Final

from attrs import frozen

from payasync.endpoints import CREATE_REFUND, PLACE_ORDER
from payasync.evidence.claims import STATE_CLAIMS, Claim, counts_after
from payasync.notifications.notification import Notification
from payasync.profile.profile import Profile
from payasync.profile.wire_names import names_of

if TYPE_CHECKING:
    from payasync.journal.journal import Journal

_WRITES: Final = {"payment": (PLACE_ORDER.name, "out_trade_no"), "refund": (CREATE_REFUND.name, "out_refund_no")}
"""By kind, the write, and the number that names it. Each payment without an order has a number of its own."""
_REPEATED: Final = ("out_trade_no", "out_refund_no", "merchant_id", "total_amt", "refund_amt", "currency")
"""The arguments that are the same in each send of a write."""
_ADDED: Final = re.compile(r"(#\d+)?(:\d+)?\Z")
"""What is added to a key: the number of sends, and the number of an event that is not confirmed."""


@frozen
class Sends:
    """Counts the sends of the write that an event is about.

    Attributes:
        profile: Says how late the service may carry out a write.
        merchant_id: The merchant whose write it is.
        journal: The session's. Without one, each write counts as sent once.
    """

    profile: Profile
    merchant_id: str = ""
    journal: "Journal | None" = None

    async def count(self, about: Notification, state: str | None) -> tuple[int, float]:
        """Return how often the write was sent, and how many seconds from now a query is in time to say this state.

        The journal is read only if the time of the state matters. The seconds are `inf` if no query ever is in time.

        Raises:
            StorageError: The journal cannot be read.
        """
        write, name = _WRITES.get(about.kind or "", ("", ""))
        number, claim = getattr(about, name, None), _claim(about, state)
        if self.journal is None or number is None or counts_after(claim, write, None, sends=2) <= 0:
            return 1, -inf
        sends, ago = await self.journal.sends(write, number, merchant=self.merchant_id)
        return max(sends, 1), counts_after(claim, write, self.profile.recovery.quarantine, sends=sends) - ago

    async def count_ended(self, event: Notification) -> int:
        """Return how often the write was sent that a verified event says has ended; 1 for all other events.

        Raises:
            StorageError: The journal cannot be read.
        """
        is_end = event.verified and _claim(event, event.state) is Claim.ENDED
        return (await self.count(event, event.state))[0] if is_end else 1

    def key(self, event: Notification, state: str | None, sends: int) -> str:
        """Return the key of an event of the last send, so that a second genuine "failed" is another event.

        Only a key that is made of number and state has the number of sends in it.
        """
        if not self._is_repeated(event):
            return event.dedup_key
        return _ADDED.sub("", event.dedup_key) + suffix(event, state, sends)

    def released_key(self, event: Notification) -> str:
        """Return another key for an event that is not confirmed yet, because an equal one may be of a later send."""
        own = f":{event.id}"
        is_own = event.dedup_key.endswith(own) or not self._is_repeated(event)
        return event.dedup_key if is_own else event.dedup_key + own

    def _is_repeated(self, event: Notification) -> bool:
        """Return whether an event of another send may have the same key."""
        shape, answer = self.profile.notification, self.profile.answer
        states = (answer.order_status, answer.payment_status, answer.refund_status, shape.kind, *shape.tells.values())
        numbers = (shape.out_trade_no, shape.out_refund_no, answer.payment_id)
        named = (name for each in _REPEATED for name in names_of(self.profile, each))
        by_values = event.dedup_key.startswith(f"{event.kind}:")
        return by_values and {*states, *numbers, *named}.issuperset(shape.id.get(event.kind or "", ()))


def suffix(event: Notification, state: str | None, sends: int) -> str:
    """Return what a key has besides number and state: from the second send on, the number of sends."""
    return f"#{sends}" if sends > 1 and _claim(event, state) is Claim.ENDED else ""


def _claim(event: Notification, state: str | None) -> Claim | None:
    """Return what a state claims about the write that an event is about."""
    write, _ = _WRITES.get(event.kind or "", ("", ""))
    return STATE_CLAIMS.get(write, {}).get(state or "")
