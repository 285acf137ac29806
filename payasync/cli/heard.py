"""What a developer is told of one notification that arrived: decided without I/O."""

import json
from datetime import datetime
from typing import Final, Literal

from attrs import asdict, frozen

from payasync.absent import ABSENT
from payasync.errors import InvalidSignatureError
from payasync.notifications.inbox import Added
from payasync.notifications.notification import Notification
from payasync.notifications.reception import Arrival, key_of
from payasync.profile import Profile

Verdict = Literal["verified", "hint", "refused", "not kept"]

NO_KIND: Final = "nothing says its kind: give the service one of the addresses above"
TOO_MUCH: Final = "it is too long, or too many come at once"
OTHER_BODY: Final = "quarantined: another body came with this key"
AMOUNTS: Final = ("refundAmt", "totalAmt", "amount")
"""Wire names of the service's document, the narrowest first."""


@frozen(kw_only=True)
class Heard:
    """One notification, as it is shown.

    Attributes:
        at: When it came, aware.
        verdict: `verified` by its signature; `hint` where none is asked for; `refused`; or `not kept`, and to come
            again.
        status: The HTTP status that it was answered with.
        kind: `payment`, `refund` or `subscription`; empty where nothing says it, like all that follow.
        event: The service's own name of the event.
        reference: The number of the order, the refund or the subscription.
        amount: As it was told, in whatever unit that is.
        key: What says that two notifications are of one event.
        again: The same had come before.
        why: What there is to say of it.
        file: Where it was saved.
    """

    at: datetime
    verdict: Verdict
    status: int
    kind: str = ""
    event: str = ""
    reference: str = ""
    amount: str = ""
    key: str = ""
    again: bool = False
    why: str = ""
    file: str = ""

    def json(self) -> str:
        """Return all of it as one line."""
        return json.dumps({**asdict(self), "at": self.at.isoformat(timespec="milliseconds")})


def heard(arrival: Arrival, profile: Profile, at: datetime, kind: str | None = None) -> Heard:
    """Return what is told of a notification.

    Args:
        arrival: What became of it.
        profile: What the service does.
        at: When it came.
        kind: What its address is for.
    """
    told, status = arrival.notification, arrival.answer.status
    if told is None:
        return Heard(at=at, verdict="refused", status=status, kind=kind or "", why=_wrong(arrival.error))
    believed: Verdict = "verified" if told.verified else "hint"
    return Heard(
        at=at,
        verdict=believed if arrival.added else "not kept",
        status=status,
        kind=told.kind or "",
        event=told.event or "",
        reference=told.out_refund_no or told.out_trade_no or told.subscription_id or told.payment_id or "",
        amount=_amount(told, profile),
        key=key_of(told),
        again=arrival.added is Added.AGAIN,
        why=_remark(told, arrival.added) if arrival.added else _wrong(arrival.error),
    )


def _wrong(error: Exception | None) -> str:
    if error is None:
        return TOO_MUCH
    return f"{error.field} {error.reason}" if isinstance(error, InvalidSignatureError) else str(error)


def _remark(told: Notification, added: Added | None) -> str:
    if added is Added.CONFLICT:
        return OTHER_BODY
    return "" if told.kind else NO_KIND


def _amount(told: Notification, profile: Profile) -> str:
    names = (*AMOUNTS, profile.fields.get("subscription_amount", ""))
    amount = next((found for name in names if name and (found := told.get(name, ABSENT)) is not ABSENT), None)
    if not (isinstance(amount, str) or type(amount) is int):
        return ""
    currency = told.get("currency")
    return f"{amount} {currency}" if isinstance(currency, str) else str(amount)
