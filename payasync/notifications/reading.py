"""What a notification says, read without any I/O, and believed by nobody yet (spec: Events, 4)."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from payasync.absent import ABSENT
from payasync.answer_signature import as_signed
from payasync.documents import MAX_DEPTH, at, exactly
from payasync.errors import InvalidArgumentError
from payasync.notifications.coverage import coverage_of
from payasync.notifications.identity import identity, names
from payasync.notifications.intake import MAX_BYTES, Headers, Raw, body_of, headers_of, refused
from payasync.notifications.notification import PLURALS, Notification
from payasync.profile import Profile
from payasync.shapes import KINDS, Kind, NotificationShape
from payasync.tracebacks import frameless

MOST_CONTAINERS: Final = 1000
"""Objects and lists of a body, and one more for every 32 bytes of it: with more of them it is costly, and says no more.
"""

_THINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "payment": ("order", "payment"),
    "refund": ("refund",),
    "subscription": ("subscription",),
}
"""What a notification of a kind can tell the state of; a payment is told of as an order where it is one."""


@frameless
def parse(
    raw: Raw,
    headers: Headers,
    *,
    profile: Profile,
    kind: str | None = None,
    received_at: datetime | None = None,
    max_bytes: int = MAX_BYTES,
) -> Notification:
    """Return what a notification says; nobody need believe it: `verified` is `False`.

    Args:
        raw: The body's bytes, as they were received.
        headers: A mapping, or pairs; names in any case.
        profile: What the service does.
        kind: `payment`, `refund` or `subscription`, where the address at which it arrived says so.
        received_at: When, aware; left out: now.
        max_bytes: The greatest length of the body.

    Raises:
        InvalidArgumentError: It is no strict JSON of an object, too long, of another kind than its address, or has a
            number of an invalid form. Nothing else is raised, whatever was received.
    """
    body, received = body_of(raw, max_bytes), headers_of(headers)
    return read(body, document_of(body), received, profile=profile, kind=kind, received_at=received_at)


def read(
    body: bytes,
    document: dict[str, Any],
    headers: Mapping[str, str],
    *,
    profile: Profile,
    kind: str | None = None,
    received_at: datetime | None = None,
) -> Notification:
    """Return what a body and headers say that were taken in already; as `parse`.

    Where a signature stands in the body, what it does not cover is not read, since nobody could tell who wrote it; but
    for the kind, which the address says otherwise, and nobody signs that.
    """
    shape, coverage = profile.notification, coverage_of(profile)
    told = coverage.read(document) if coverage else document
    said = coverage.said(as_signed(body, document, profile.signature)) if coverage else document
    found, event = _kind(shape, document, _routed(kind))
    data = _payload(shape, told)
    named = identity(shape, found, said, _payload(shape, said), headers)
    return Notification(
        kind=found,
        event=event if coverage is None or coverage.covers(shape.kind) else None,
        data=data,
        document=document,
        raw=body,
        headers=headers,
        dedup_key=named.key,
        weak=named.weak,
        digest=named.digest,
        received_at=_aware(received_at),
        out_trade_no=_checked("out_trade_no", number_at(data, shape.out_trade_no), profile.identifier),
        out_refund_no=_checked("out_refund_no", number_at(data, shape.out_refund_no), profile.identifier),
        subscription_id=_checked("subscription_id", number_at(data, shape.subscription_id)),
        payment_id=_checked("payment_id", number_at(data, profile.answer.payment_id)),
        state=_state(profile, found, data),
    )


def says_kind(profile: Profile) -> bool:
    """Return whether the payload can say its kind; else its address must."""
    return bool(profile.notification.kind and profile.notification.kinds)


def document_of(body: bytes) -> dict[str, Any]:
    """Return the document that a body is.

    Raises:
        InvalidArgumentError: It is none.
    """
    crowded = body.count(b"{") + body.count(b"[") > MOST_CONTAINERS + len(body) // 32
    document = ABSENT if crowded else exactly(body)
    if not isinstance(document, dict):
        rule = (
            f"a JSON object in UTF-8, no name twice in an object, every number finite, {MAX_DEPTH} deep at most, and "
            "not of thousands of objects"
        )
        raise refused("raw", rule, "what arrived")
    return document


def _routed(kind: str | None) -> Kind | None:
    """Return the kind that the address says."""
    if kind is None:
        return None
    for each in KINDS:
        if kind == each:
            return each
    raise refused("kind", f"one of {', '.join(KINDS)}, or left out", "another")


def _payload(shape: NotificationShape, document: dict[str, Any]) -> Any:
    found = at(document, shape.data)
    return document if found is ABSENT else found


def _kind(shape: NotificationShape, document: Any, routed: Kind | None) -> tuple[Kind | None, str | None]:
    """Return the kind, and the service's name of the event.

    The payload says the kind where the profile knows the name; else the address does.
    """
    name = at(document, shape.kind, None) if shape.kind else None
    event = name if isinstance(name, str) else None
    told = _told(shape, event)
    if told and routed and told != routed:
        raise InvalidArgumentError(
            f"kind: the notification tells of a {told}, but arrived at the address for {PLURALS[routed]}",
            field="kind",
            rule="the kind that its address is for",
        )
    return told or routed, event


def _told(shape: NotificationShape, event: str | None) -> Kind | None:
    for each in KINDS:
        if event in shape.kinds.get(each, ()):
            return each
    return None


def _state(profile: Profile, kind: Kind | None, data: Any) -> str | None:
    """Return our name of a state, which stands where it stands in answers."""
    for thing in _THINGS.get(kind or "", ()):
        path = getattr(profile.answer, f"{thing}_status")
        if path and (state := profile.states.name(thing, at(data, path))):
            return state
    return None


def _checked(name: str, number: str | None, identifier: str = "") -> str | None:
    """Return a number as it is.

    The merchant's own numbers match the profile's `identifier`. Those of the service may have another form. But no
    number may hold a control character: it would end up in handlers, databases and logs.

    Raises:
        InvalidArgumentError: It is another text.
    """
    if number is not None and identifier and not re.fullmatch(identifier, number):
        raise refused(name, f"a number that matches {identifier} (the profile's `identifier`)", "another text")
    if number is not None and not number.isprintable():
        raise refused(name, "a number without control characters", "another text")
    return number


def _aware(at_time: datetime | None) -> datetime:
    if at_time is None:
        return datetime.now(UTC)
    if not isinstance(at_time, datetime) or at_time.utcoffset() is None:
        raise refused("received_at", "an aware datetime, such as datetime.now(UTC)", repr(at_time))
    return at_time.astimezone(UTC)


def number_at(data: Any, path: str) -> str | None:
    """Return a number that names something, as a text; `None` where there is none."""
    found = at(data, path) if path else None
    return str(found) if names(found) else None
