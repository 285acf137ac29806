"""What a notification says, when, and which event it tells of; read without any I/O (spec: Events, 4)."""

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final

from attrs import frozen

from payasync.credentials import Credentials
from payasync.documents import ABSENT, MAX_DEPTH, at, loads_exact
from payasync.errors import ConfigurationError, InvalidArgumentError, InvalidSignatureError, frameless
from payasync.middleware.verify import read_as_signed
from payasync.notifications.notification import (
    MAX_BYTES,
    PLURALS,
    Headers,
    Notification,
    Raw,
    body_of,
    headers_of,
    refused,
)
from payasync.profile import signed_fields
from payasync.profile.profile import Profile
from payasync.profile.schema import KINDS, NONCE, Kind, NotificationShape
from payasync.profile.signed_fields import SignedFields, join_path
from payasync.settings import is_number

_LOCATED: Final = ("order", "payment", "refund", "subscription")


def coverage_of(profile: Profile) -> SignedFields | None:
    """Return what the signatures of notifications cover; `None` where none stands in the body."""
    shape = profile.notification
    if shape.verification != "body" or not shape.signature:
        return None
    return SignedFields.under(shape.signature, profile.signature)


def check_covered(profile: Profile) -> None:
    """Refuse a profile that would have something believed that no signature covers.

    Where the name of an event stands is no matter: like the address, one that nobody signed says the kind, and no more.
    Nor where its time stands: one that nobody signed is better than none, which may be left out.

    Raises:
        ConfigurationError: It names the point.
    """
    if signed := coverage_of(profile):
        signed_fields.check_covered(signed, profile.notification.signature, _believed(profile.notification))


def _believed(shape: NotificationShape) -> Iterator[tuple[str, str, str]]:
    """Yield the points that name what is acted upon, with their paths, and where in the document that stands."""
    yield "notification.data", shape.data, join_path(shape.data, "any field of it")
    for name in ("out_trade_no", "out_refund_no", "subscription_id"):
        if path := getattr(shape, name):
            yield f"notification.{name}", path, join_path(shape.data, path)
    for kind, paths in shape.id.items():
        for path in paths:
            yield f"notification.id.{kind}", path, join_path(shape.data, path)


def telling_paths(profile: Profile) -> frozenset[str]:
    """Return the paths that show that the service made a notification: of an event name, a time or a state.

    Each is covered by the signature, and requests have no such field.
    """
    signed, shape = coverage_of(profile), profile.notification
    if signed is None:
        return frozenset()
    named = shape.kind if any(shape.kinds.values()) else ""
    paths = (named, shape.time, *(path for _, path in _state_paths(profile)))
    return frozenset(signed_fields.only_from_the_service(profile, signed, paths))


def made_by_service(profile: Profile, telling: frozenset[str], document: Mapping[str, Any]) -> bool:
    """Return whether a document holds something that no request says: a known event, a time, or a known state.

    Args:
        profile: Says which events and states there are.
        telling: The paths that count, as `telling_paths` returns them.
        document: A notification whose signature is right.
    """
    shape = profile.notification
    events = [name for names in shape.kinds.values() for name in names]
    if shape.kind in telling and at(document, shape.kind) in events:
        return True
    if shape.time in telling and seconds(at(document, shape.time)) is not None:
        return True
    states = [(thing, path) for thing, path in _state_paths(profile) if path in telling]
    return any(profile.states.name(thing, at(document, path)) for thing, path in states)


def check_sent_back(profile: Profile, credentials: Credentials) -> frozenset[str] | None:
    """Refuse a profile by which a request that is sent back could not be told from a notification.

    Returns:
        The paths that tell the two apart; `None` if no key that signs requests verifies notifications.

    Raises:
        ConfigurationError: No event name, time or state stands inside the signature.
    """
    if coverage_of(profile) is None or not signed_fields.shares_key(profile, credentials):
        return None
    if not (telling := telling_paths(profile)):
        raise ConfigurationError(
            "notification.kind, notification.time and answer.*_status name nothing inside the signature that your "
            "requests do not have. The same key signs requests and verifies notifications, so a request of yours that "
            "is sent back would be believed. Add a path inside the signature: of an event name (notification.kind, "
            "with notification.kinds), of a time (notification.time) or of a state (such as answer.order_status, with "
            "states.order). If the service signs with a key of its own, give credentials.service_keys instead",
            field="notification.kind",
        )
    return telling


def _state_paths(profile: Profile) -> list[tuple[str, str]]:
    """Return the things and the paths of their states, if the profile knows values of these.

    A document without the payload's path is a payload itself.
    """
    paths = {thing: getattr(profile.answer, f"{thing}_status") for thing in _LOCATED}
    known = {thing: path for thing, path in paths.items() if path and getattr(profile.states, thing)}
    return [
        (thing, join_path(place, path)) for place in (profile.notification.data, "") for thing, path in known.items()
    ]


MILLISECONDS_FROM: Final = 10**11
"""So many seconds after 1970 are the year 5138: a number from here on counts milliseconds."""

MISMATCH: Final = "the body is not the one that was signed, or the key is another"
"""What a signature that is not the right one comes from."""

_NUMBER: Final = re.compile(r"[0-9]{1,19}(\.[0-9]{1,9})?", re.ASCII)


def seconds(value: object) -> float | None:
    """Return a time as seconds since 1970; `None` for what is no time.

    Args:
        value: ISO 8601 with an offset, or seconds since 1970, or milliseconds; a text of digits is a number.
    """
    if isinstance(value, str):
        return _counted(float(value)) if _NUMBER.fullmatch(value) else _instant(value)
    if not is_number(value):
        return None
    try:
        return _counted(float(value))
    except OverflowError:
        return None


def _counted(number: float) -> float | None:
    if not math.isfinite(number):
        return None
    return number / 1000 if number >= MILLISECONDS_FROM else number


def _instant(text: str) -> float | None:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if instant.utcoffset() is None else instant.timestamp()


def check_window(field: str, sent: float, now: float, tolerance: float) -> None:
    """Refuse what was sent too long ago, or would have been sent in the future.

    Args:
        field: Where it says when it was sent.
        sent: Seconds since 1970, as all of these.
        now: By this machine's clock.
        tolerance: How far the two may be apart, both ways.

    Raises:
        InvalidSignatureError: They are further apart.
    """
    age = now - sent
    if not abs(age) <= tolerance:
        side = "ago" if age > 0 else "ahead of this machine's clock"
        raise unverified(field, f"is {abs(age):.0f} seconds {side}: more than notification.tolerance, {tolerance:g}")


def unverified(field: str, reason: str) -> InvalidSignatureError:
    """Return the error for what nobody has shown to be from the service.

    Args:
        field: A header, or a path in the document.
        reason: What is wrong with it: never a key, nor what would have been right.
    """
    return InvalidSignatureError(f"the notification is not verified: {field} {reason}", field=field, reason=reason)


MAX_KEY: Final = 200
"""Characters of a key; of a longer one there is a hash."""

WEBHOOK_ID: Final = "webhook-id"

OF_THE_EVENT: Final = frozenset({"standard-webhooks", "none"})
"""Ways of verification by which a time in the payload is that of the event, and stays; else a redelivery has a new one.
"""

Path = tuple[str, ...]


@frozen
class Identity:
    """Names an event.

    Attributes:
        key: The same in each redelivery.
        weak: It is but the digest: two events that say the same are taken for one.
        digest: SHA-256 of the body without what a redelivery may change.
    """

    key: str
    weak: bool
    digest: str


def identity(
    shape: NotificationShape, kind: str | None, document: Any, data: Any, headers: Mapping[str, str]
) -> Identity:
    """Return which event a notification tells of.

    By the profile's paths of its kind, else by the header of Standard Webhooks, else by what the body says.

    Args:
        shape: The profile's.
        kind: Of the notification.
        document: Its body, decoded.
        data: The payload in it.
        headers: Its headers.
    """
    digested = digest(shape, document, sent="" if shape.verification in OF_THE_EVENT else shape.time)
    named = [at(data, path) for path in shape.id.get(kind or "", ())]
    if named and all(map(names, named)):
        return Identity(key_of(f"{kind}:", named), weak=False, digest=digested)
    if shape.verification == "standard-webhooks" and names(headers.get(WEBHOOK_ID)):
        return Identity(_key("webhook:", headers[WEBHOOK_ID]), weak=False, digest=digested)
    # With its time: a renewal that says the same a month later is another event, and must not be lost.
    return Identity(":".join(filter(None, ("weak", kind, digest(shape, document)))), weak=True, digest=digested)


def names(value: object) -> bool:
    """Return whether a value can name something: a number, or a text that is not blank."""
    return bool(value.strip()) if isinstance(value, str) else type(value) is int


def key_of(of: str, values: list[str | int]) -> str:
    """Return the key that values make, which together name something, behind what it is a key of."""
    return _key(of, _json(values))


def _key(of: str, name: str) -> str:
    key = of + name
    return key if len(key) <= MAX_KEY else f"{of}sha256:{_sha256(name)}"


def digest(shape: NotificationShape, document: Any, *, sent: str = "") -> str:
    """Return the SHA-256, in hexadecimal, of a document without what a redelivery may change.

    That is its signature and its nonce, which are made afresh; and the profile's `volatile` fields: a name stands for
    every field of it, a dotted path for one. The order of names, and what stands between them, makes no difference.

    Args:
        shape: The profile's.
        document: A body, decoded.
        sent: The path of a time that is new in each delivery, too.
    """
    fresh = {NONCE, *(each for each in shape.volatile if "." not in each)}
    dotted = [each for each in shape.volatile if "." in each]
    paths = [tuple(each.split(".")) for each in (*dotted, shape.signature, sent) if each]
    return _sha256(_json(_without(document, frozenset(fresh), paths)))


def _without(value: Any, names: frozenset[str], paths: Collection[Path]) -> Any:
    if not isinstance(value, dict | list):
        return value
    if isinstance(value, dict):
        kept = [name for name in value if name not in names and (name,) not in paths]
        return {name: _without(value[name], names, _below(paths, name)) for name in kept}
    meant = {path[0] for path in paths}  # a stranger's list may be very long, and few of its places are meant
    return [
        _without(each, names, _below(paths, place) if place in meant else ()) if isinstance(each, dict | list) else each
        for place, each in zip(map(str, count()), value, strict=False)
        if place not in meant or (place,) not in paths
    ]


def _below(paths: Collection[Path], step: str) -> list[Path]:
    return [path[1:] for path in paths if path[0] == step and len(path) > 1]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
    said = coverage.normalize(read_as_signed(body, document, profile.signature)) if coverage else document
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
    document = ABSENT if crowded else loads_exact(body)
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
