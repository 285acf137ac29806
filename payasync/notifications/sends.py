"""How often the write was sent that an event is about. An event does not say of which send it is."""

import re
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from attrs import frozen

from payasync.endpoints import CREATE_REFUND, PLACE_ORDER
from payasync.evidence.claims import STATE_CLAIMS, Claim, counts_after
from payasync.notifications.notification import HELD, Notification, shorten_key
from payasync.profile.profile import Profile
from payasync.profile.wire_names import names_of

if TYPE_CHECKING:
    from payasync.journal.journal import Journal

_WRITES: Final = {"payment": (PLACE_ORDER.name, "out_trade_no"), "refund": (CREATE_REFUND.name, "out_refund_no")}
"""By kind, the write, and the number that names it. A payment without an order has a new number in each send."""
_SAME: Final = ("out_trade_no", "out_refund_no", "merchant_id", "total_amt", "refund_amt", "currency")
"""The arguments that are the same in each send of a write."""
_ADDED: Final = re.compile(r"(#\d+)?(:\d+)?\Z")
"""What is added to a key: the number of sends, and the id of an event that is not confirmed."""


class Name(NamedTuple):
    """What distinguishes an event from others.

    Attributes:
        key: A redelivery has the same key.
        fact: The number and our state. A verified event and one that a query confirms have other keys, but one fact.
        sends: How often the write was sent, if it has ended.
    """

    key: str
    fact: str | None = None
    sends: int = 1


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

    async def count(self, event: Notification, state: str | None) -> tuple[int, float]:
        """Return how often the write was sent, and how many seconds from now a query is in time to say its state.

        The journal is read only if the time matters. The seconds are `inf` if no query ever is in time.

        Args:
            event: The event.
            state: Our name of the state.

        Raises:
            StorageError: The journal cannot be read.
        """
        write, name = _WRITES.get(event.kind or "", ("", ""))
        claim, number = STATE_CLAIMS.get(write, {}).get(state or ""), getattr(event, name, None)
        if self.journal is None or number is None or counts_after(claim, write, None, sends=2) <= 0:
            return 1, -inf
        sends, ago = await self.journal.sends(write, number, merchant=self.merchant_id)
        return max(sends, 1), counts_after(claim, write, self.profile.recovery.quarantine, sends=sends) - ago

    async def name(self, event: Notification) -> Name:
        """Return the name of a verified event that arrives or is replayed.

        Raises:
            StorageError: The journal cannot be read.
        """
        state = event.state
        sends = (await self.count(event, state))[0] if _is_end(event, state) else 1
        by_order = event.out_trade_no if self.profile.notification.out_trade_no else event.payment_id
        number = event.out_refund_no if event.kind == "refund" else by_order
        key = self.key(event, state, sends) if sends > 1 else event.dedup_key
        return Name(key, build_fact(event.kind, number, state, suffix(event, state, sends)), sends)

    def key(self, event: Notification, state: str | None, sends: int) -> str:
        """Return the key of a verified event about the last send."""
        key = event.dedup_key
        return _ADDED.sub("", key) + suffix(event, state, sends) if self.may_recur(event) else key

    def may_recur(self, event: Notification) -> bool:
        """Return whether a verified event about another send may have the same key: it is of number and state alone."""
        shape, answer = self.profile.notification, self.profile.answer
        states = answer.order_status, answer.payment_status, answer.refund_status, *shape.tells.values(), shape.kind
        numbers = shape.out_trade_no, shape.out_refund_no, answer.payment_id
        same = {*states, *numbers, *(name for each in _SAME for name in names_of(self.profile, each))}
        kind = event.kind or ""
        return event.dedup_key.removeprefix(HELD).startswith(f"{kind}:") and same.issuperset(shape.id.get(kind, ()))


def build_fact(kind: str | None, number: str | None, state: str | None, added: str = "") -> str | None:
    """Return the fact of an event about a payment or a refund, if its number and our state are known."""
    return shorten_key(f"{kind}:", f"{state}:{number}") + added if kind in _WRITES and number and state else None


def suffix(event: Notification, state: str | None, sends: int) -> str:
    """Return the number of sends, which a key of number and state ends with, so that a second "failed" arrives."""
    return f"#{sends}" if sends > 1 and _is_end(event, state) else ""


def _is_end(event: Notification, state: str | None) -> bool:
    """Return whether a state says that the write of an event ended, and that no money moved."""
    write, _ = _WRITES.get(event.kind or "", ("", ""))
    return STATE_CLAIMS.get(write, {}).get(state or "") is Claim.ENDED
