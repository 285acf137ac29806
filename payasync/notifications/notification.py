"""A notification that the service sends to the merchant's server, parsed without I/O.

See docs/reference/service.md#notifications.
"""

import hashlib
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from attrs import evolve, field, fields, frozen
from multidict import CIMultiDict

from payasync.clocks import utc_moment, utc_now
from payasync.endpoints import QUERY_ORDER, QUERY_REFUND
from payasync.errors import InvalidArgumentError, frameless, frameless_async
from payasync.middleware.verify import read_as_signed
from payasync.profile.profile import Profile
from payasync.profile.schema import KINDS, STANDARD_WEBHOOKS, Kind, NotificationShape
from payasync.profile.signed_fields import SignedFields, notification_coverage
from payasync.profile.wire_names import NONCE, arguments_of, names_of, unaskable
from payasync.resources.orders import QueryOrder
from payasync.resources.payments import QueryPayment
from payasync.resources.refunds import QueryRefund
from payasync.settings import invalid_setting
from payasync.signing.templates import parse_time
from payasync.strict_json import ABSENT, LongInteger, at, dumps, explain_unread, loads_exact
from payasync.transport.send import gunzip
from payasync.wire.request import Request
from payasync.wire.response import Response

if TYPE_CHECKING:
    from payasync.notifications.inbox import InboxEvent
    from payasync.session import Session

Raw: TypeAlias = bytes | bytearray | memoryview
Text: TypeAlias = str | bytes
Headers: TypeAlias = Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[Text, Text]]

MAX_BYTES: Final = 1 << 20
"""The greatest length of a body. A forged one has to be read, too, before it can be refused."""
_GZIP: Final = b"\x1f\x8b"
"""How each body in gzip begins, and no JSON. Its header may say otherwise: proxies drop it, and servers leave it."""
MAX_CONTAINERS: Final = 1000
"""Objects and lists of a body, and one more for every 32 bytes. A body with more is costly to decode."""
MAX_COMMAS: Final = 30_000
"""Commas of a body, whatever its length: about the number of its values, each of which is costly."""
HELD: Final = "held:"
"""Begins the key of what was held before it was dispatched, so that it does not stand in the way of a better one."""
OF_ANOTHER: Final = "merchant:"
"""Begins the key of a genuine notification of another merchant."""
HINT: Final = "hint:"
"""Begins the key of a notification that nobody has signed, until a query confirms it."""
SIGNED: Final = "signed:"
"""Begins the key of a genuine notification whose signature may be of another merchant's."""
CONFIRMED: Final = "confirmed:"
"""Begins the key of what a query has confirmed."""
PLURALS: Final[Mapping[str, str]] = {"payment": "payments", "refund": "refunds", "subscription": "subscriptions"}

T = TypeVar("T")


@frozen(kw_only=True, slots=False)
class Notification:
    """A notification as it was received. Believe it only if it is `verified` or `confirmed`.

    Attributes:
        kind: `payment`, `refund` or `subscription`; `None` if neither the payload nor the address says it.
        event: The service's own name of the event, or `None` if it has no name or a hint was confirmed.
        data: The payload inside the profile's envelope, else the document. If the signature is in the body, only
            the signed part. If a hint was confirmed, the data of the service's response.
        document: The whole decoded JSON, signed or not, with exact integers.
        raw: The body, as it was received, but without gzip.
        headers: By names in any case.
        dedup_key: Names the event: a redelivery has the same key.
        weak: The key is only a hash of the body: two events with equal bodies count as one.
        digest: SHA-256 of the body without what a redelivery may change, in hexadecimal.
        verified: The signature is valid: `data`, and every value read from it, comes from the service.
        received_at: The time of arrival, in UTC.
        event_time: The event's own time, in UTC, if the profile locates it and the payload has it.
        out_trade_no: The order's number, if the profile locates it and the payload has it.
        out_refund_no: The refund's number, likewise.
        subscription_id: The subscription's number, likewise.
        payment_id: The service's number of the payment, at its path in responses.
        id: The inbox's number of the event, or `None` if it does not come from an inbox.
        attempt: 1 at the first attempt; a `NOT_YET` counts, too.
        confirmed: The service's response, if the service was asked to confirm it.
    """

    kind: Kind | None
    event: str | None
    data: Any = field(repr=False, eq=False)
    document: Any = field(repr=False, eq=False)
    raw: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False, hash=False)
    dedup_key: str
    weak: bool
    digest: str = field(repr=False)
    verified: bool = False
    received_at: datetime
    event_time: datetime | None = None
    out_trade_no: str | None = None
    out_refund_no: str | None = None
    subscription_id: str | None = None
    payment_id: str | None = None
    id: int | None = None
    attempt: int = 1
    confirmed: Response | None = field(default=None, hash=False)
    _state: str | None = field(default=None, repr=False, alias="state")
    _session: "Session | None" = field(default=None, repr=False, eq=False)
    _asks_with_order: bool = field(default=False, repr=False, eq=False, alias="asks_with_order")
    """The service wants the order's number in a query about a refund; else a hint's number of it says nothing."""
    _unaskable: str = field(default="", repr=False, eq=False, alias="unaskable")
    """Why no query takes the merchant's number that this notification names; empty if one does."""

    @property
    def state(self) -> str | None:
        """Our name of the state, such as `paid`, from the confirmed response, else from `data`.

        `None` if the profile does not map the state: neither "paid" nor "failed" is a guess.
        """
        return self._state if self.confirmed is None else self.confirmed.state

    @property
    def trusted(self) -> Any:
        """The data to act upon: that of the confirmed response, else `data` if it is verified, else `None`."""
        if self.confirmed is not None:
            return self.confirmed.data
        return self.data if self.verified else None

    def get(self, path: str, default: Any = None) -> Any:
        """Return the value at a dotted path in `data`, or the default."""
        return at(self.data, path, default)

    def to(self, kind: type[T]) -> T:
        """Return `data` as an attrs class, strictly: no text becomes a number, and `"false"` is not true.

        Raises:
            InvalidArgumentError: The data does not fit the class; the message says where.
        """
        from payasync.wire.structure import structure_as  # noqa: PLC0415 - few need cattrs, and it loads slowly

        return structure_as(self.data, kind, "the notification")

    @frameless_async
    async def confirm(self, *, session: "Session | None" = None) -> Response:
        """Ask the service to confirm the notification, and return its response (docs/reference/service.md#queries).

        A payment is queried by its order number, or by the service's own number if it names no order; a refund by
        its refund number.

        Args:
            session: Sends the query. Default: the receiver's session.

        Raises:
            ConfigurationError: There is no session.
            InvalidArgumentError: It names nothing that can be queried, or the number is invalid.
            PayasyncError: As for any query: `ServiceError` if the service knows no such number.
        """
        session = session or self._session
        if session is None:
            why = "is missing: a notification is confirmed by a query"
            raise invalid_setting("session", f"{why}. Give Receiver(session=...), or confirm(session=...)")
        return await session.send(self.inquiry())

    def inquiry(self) -> Request[Response]:
        """Return the query that confirms this notification.

        Raises:
            InvalidArgumentError: No query can confirm it: subscriptions have no query, and a query needs a number.
                By the profile, the query may take the service's number, which only a signature makes believable.
        """
        if self._unaskable and (self.out_refund_no if self.kind == "refund" else self.out_trade_no):
            raise InvalidArgumentError(self._unaskable, field="notification", rule="names a number that a query takes")
        if self.kind == "payment" and self.out_trade_no:
            return QueryOrder(out_trade_no=self.out_trade_no)
        if self.kind == "payment" and self.payment_id:
            return QueryPayment(identifier=self.payment_id)
        without_order = self._asks_with_order and not self.out_trade_no
        if self.kind == "refund" and self.out_refund_no and not without_order:
            order = self.out_trade_no if self._asks_with_order else None
            return QueryRefund(identifier=self.out_refund_no, out_trade_no=order or ABSENT)
        if self.kind not in {"payment", "refund"}:
            why = f"there is no query about {self.kind or 'an unknown event'}: nothing can confirm it"
        elif self.kind == "refund" and self.out_refund_no:
            why = "it does not name its order, which the query needs, too: notification.out_trade_no is the path"
        else:
            point = "out_trade_no" if self.kind == "payment" else "out_refund_no"
            why = f"the notification has no number to query: notification.{point} is its path"
        raise InvalidArgumentError(why, field="notification", rule="names a payment or a refund")

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the session of copies and pickles."""
        return {each.name: None if each.name == "_session" else getattr(self, each.name) for each in fields(type(self))}


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
    """Return the parsed notification. Do not believe it: `verified` is `False`.

    Args:
        raw: The body's bytes, as they were received.
        headers: A mapping, or pairs; names in any case.
        profile: The profile of the service.
        kind: `payment`, `refund` or `subscription`, if the address at which it arrived says so.
        received_at: The time of arrival, aware. Default: now.
        max_bytes: The greatest length of the body.

    Raises:
        InvalidArgumentError: It is not a strict JSON object, too long, of another kind than its address, or has a
            number of an invalid form. Nothing else is raised, whatever was received.
    """
    body, received = unpack_body(copy_body(raw, max_bytes), max_bytes), read_headers(headers)
    return read_document(body, decode_body(body), received, profile=profile, kind=kind, received_at=received_at)


def parse_event(
    event: "InboxEvent", profile: Profile, kind: str | None, session: "Session | None" = None
) -> Notification:
    """Return the notification that is stored as an event, as one of a kind. What was held is given a key of its own.

    Raises:
        InvalidArgumentError: The profile has changed since it was stored.
    """
    # As another kind, it would have another key.
    named = kind == event.kind and event.digest and not event.key.startswith((HELD, OF_ANOTHER, SIGNED, CONFIRMED))
    known = (event.key, event.weak, event.digest) if named else None
    unknown = kind is None and event.key.startswith(HELD)  # until a person says its kind
    body, document, headers = event.raw, decode_body(event.raw), CIMultiDict(event.headers)
    stored: Any = {"id": event.id, "attempt": event.attempts, "verified": event.verified}
    stored |= {"received_at": event.received_at, "session": session}
    read = read_document(body, document, headers, profile=profile, kind=kind, identity=known, signed=unknown, **stored)
    if known and read.kind != event.kind:  # the profile knows its name now
        return parse_event(evolve(event, digest=""), profile, kind, session)
    # A name that stood in a header was stored without the header.
    return evolve(read, event=event.event) if event.event and not read.event else read


def copy_body(raw: Raw, max_bytes: int = sys.maxsize) -> bytes:
    """Return a copy of a body as bytes.

    Raises:
        InvalidArgumentError: It is a text, or another type, or too long.
    """
    if not isinstance(raw, bytes | bytearray | memoryview):
        rule = "the body's bytes, as they were received: the signature is of these, and a decoded text may differ"
        raise _error("raw", rule, type(raw).__name__)
    try:
        body = bytes(raw)
    except ValueError:
        body = None
    if body is None:
        raise _error("raw", "bytes that can still be read", "a memoryview that was released")
    if len(body) > max_bytes:
        raise _error("raw", f"{max_bytes} bytes long at most", f"of {len(body)}")
    return body


def unpack_body(body: bytes, max_bytes: int) -> bytes:
    """Return a body without gzip. Another body stays, also one that is broken gzip.

    Raises:
        InvalidArgumentError: It is too long without gzip.
    """
    plain = gunzip(body, max_bytes) if body.startswith(_GZIP) else None
    if plain is not None and len(plain) > max_bytes:
        raise _error("raw", f"{max_bytes} bytes long at most", "longer without gzip")
    return body if plain is None else plain


def read_headers(headers: Headers) -> CIMultiDict[str]:
    """Return headers as texts, by names in any case. Bytes are decoded as latin-1.

    Raises:
        InvalidArgumentError: They are neither a mapping of texts or bytes, nor pairs.
    """
    given: Any = headers
    texts = CIMultiDict[str]()
    for pair in given.items() if isinstance(given, Mapping) else given if isinstance(given, Iterable) else [given]:
        match pair:
            case (str() | bytes() as name, str() | bytes() as value):
                texts.add(_to_text(name), _to_text(value))
            case _:
                raise _error("headers", "a mapping of names to texts, or pairs of the two", type(headers).__name__)
    return texts


def _to_text(given: Text) -> str:
    """Return a text that can be encoded: servers pass undecodable bytes as lone surrogates."""
    if isinstance(given, bytes):
        return given.decode("latin-1")
    return given if given.isascii() else given.encode(errors="replace").decode()


def is_crowded(body: bytes, length: int = MAX_BYTES) -> bool:
    """Return whether a body has more brackets than one of a length may have, or too many commas."""
    return body.count(b"{") + body.count(b"[") > MAX_CONTAINERS + length // 32 or body.count(b",") > MAX_COMMAS


def decode_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body.

    Raises:
        InvalidArgumentError: The body is not a strict JSON object.
    """
    crowded = is_crowded(body, len(body))
    document = ABSENT if crowded else loads_exact(body)
    if not isinstance(document, dict):
        flaw = "one with thousands of brackets or commas" if crowded else explain_unread(body)
        raise _error("raw", "a JSON object in UTF-8", flaw)
    return document


def unreadable(
    body: bytes, headers: Mapping[str, str], kind: str | None, received_at: datetime, *, verified: bool = False
) -> Notification:
    """Return a genuine notification whose body cannot be used: its key is that of its bytes."""
    digest = hashlib.sha256(body).hexdigest()
    routed: Kind | None = next((each for each in KINDS if each == kind), None)
    facts: Any = {"kind": routed, "event": None, "data": ABSENT, "document": ABSENT, "raw": body, "headers": headers}
    key = f"sha256:{digest}"
    return Notification(**facts, dedup_key=key, weak=True, digest=digest, verified=verified, received_at=received_at)


def read_document(
    body: bytes,
    document: dict[str, Any],
    headers: Mapping[str, str],
    *,
    profile: Profile,
    kind: str | None = None,
    received_at: datetime | None = None,
    identity: tuple[str, bool, str] | None = None,
    signed: bool = False,
    **facts: Any,
) -> Notification:
    """Return the notification of a decoded body, as `parse` does. Its identity is found unless it is given.

    The facts are further attributes, by their names.

    If it is `signed`, the address alone does not say its kind where the profile says what tells the kind.

    If the signature is in the body, only what it covers is read, because anybody could have written the rest. The event
    is an exception: it chooses the kind, as the address does, which is unsigned, too.
    """
    shape, coverage = profile.notification, notification_coverage(profile)
    read = coverage.read(document) if coverage else document
    data = at(read, shape.data, read)
    name = headers.get(shape.kind_header) if shape.kind_header else at(document, shape.kind, None)
    event = name if isinstance(name, str) else None
    hidden = signed and not _covers_event(shape, coverage) and any(shape.kinds.values())
    found = _find_kind(shape, event, data, kind, signed=signed, is_name_unsigned=hidden)
    numbers = _read_numbers(profile, found, data)
    if identity is None:
        covered = coverage.normalize(read_as_signed(body, document, profile.scheme)) if coverage else document
        nonces = names_of(profile, "nonce") if profile.fields else _USUAL_NONCE
        identity = identify(shape, found, covered, at(covered, shape.data, covered), headers, nonces=nonces)
    (key, weak, digest), asked = identity, _ASKED.get(found, "")
    if received_at is not None and (not isinstance(received_at, datetime) or received_at.utcoffset() is None):
        raise _error("received_at", "an aware datetime, such as datetime.now(UTC)", repr(received_at))
    return Notification(
        kind=found,
        event=event if _covers_event(shape, coverage) else None,
        data=data,
        document=document,
        raw=body,
        headers=headers,
        dedup_key=key,
        weak=weak,
        digest=digest,
        received_at=utc_now() if received_at is None else received_at.astimezone(UTC),
        event_time=_find_event_time(shape, read),
        state=_find_state(profile, found, data),
        asks_with_order=found == "refund" and any(each.name == "out_trade_no" for each in arguments_of(profile, asked)),
        unaskable=str(unaskable(profile, asked) or ""),
        **numbers,
        **facts,
    )


def _covers_event(shape: NotificationShape, coverage: SignedFields | None) -> bool:
    """Return whether the name of the event may be believed as much as the rest. No signature covers its header."""
    if shape.kind_header:
        return shape.verification in {"", "none"}
    return coverage is None or coverage.covers(shape.kind)


def _find_kind(
    shape: NotificationShape, event: str | None, data: Any, routed: str | None, *, signed: bool, is_name_unsigned: bool
) -> Kind | None:
    """Return the kind.

    A field that tells the kind decides it, or an event whose name the profile knows; otherwise the address does.
    Anybody can post a signed response of the service to an address.
    """
    by_address: Kind | None = next((each for each in KINDS if each == routed), None)
    if routed is not None and by_address is None:
        raise _error("kind", f"one of {', '.join(KINDS)}, or left out", "another")
    by_event: Kind | None = next((each for each in KINDS if event in shape.kinds.get(each, ())), None)
    by_field = list(kinds_told(shape, data))
    kind = by_event or (by_field[0] if len(by_field) == 1 else None)
    if by_event and by_field and by_event not in by_field:
        rule, told = "the kind that its event has", by_field[0]
        why = f"holds {shape.tells[told]}, which only those about a {told} have, but its event is about a {by_event}"
    elif kind and by_address and kind != by_address:
        rule = "the kind that its address is for"
        why = f"is about a {kind}, but arrived at the address for {PLURALS[by_address]}"
    elif signed and not by_field and kind is None and ((shape.kind and event is None) or by_address in shape.tells):
        rule = "the kind that an event or a field tells"
        why = f"lacks {shape.kind or shape.tells[by_address or 'payment']}, which tells its kind"
    elif is_name_unsigned and not by_field and not (kind or by_address):
        rule = "the kind that an event or an address tells"
        why = f"has no kind: only {shape.kind}, which is not signed, could tell it"
    else:
        return kind or by_address
    raise InvalidArgumentError(f"kind: the notification {why}", field="kind", rule=rule)


def kinds_told(shape: NotificationShape, data: Any) -> Iterator[Kind]:
    """Yield the kinds whose own fields a payload has. A field of several kinds tells none."""
    paths = list(shape.tells.values())
    return (
        kind
        for kind in (KINDS if paths else ())
        if (path := shape.tells.get(kind)) and paths.count(path) == 1 and is_there(at(data, path, None))
    )


def is_there(value: object) -> bool:
    """Return whether a value is more than null or an empty text, which a signature may leave out."""
    return value is not None and value != ""


_STATEFUL: Final[Mapping[str | None, tuple[str, ...]]] = {
    "payment": ("order", "payment"),
    "refund": ("refund",),
    "subscription": ("subscription",),
}
"""Whose state a notification of a kind may have. A payment is usually that of an order."""


def _find_state(profile: Profile, kind: Kind | None, data: Any) -> str | None:
    """Return our name of the state, which is at the same path as in responses, or in the field that tells the kind."""
    for thing in _STATEFUL.get(kind, ()):
        for path in (getattr(profile.answer, f"{thing}_status"), profile.notification.tells.get(kind or "")):
            if path and (state := profile.states.name(thing, at(data, path))):
                return state
    return None


def _find_event_time(shape: NotificationShape, read: Any) -> datetime | None:
    """Return the event's own time, or `None` if there is none in the years of the calendar."""
    if not shape.event_time or (seconds := parse_time(at(read, shape.event_time), shape.zone)) is None:
        return None
    with suppress(ValueError, OverflowError, OSError):
        return utc_moment(seconds)
    return None


def _read_numbers(profile: Profile, kind: Kind | None, data: Any) -> dict[str, Any]:
    """Return the numbers of a payload, by the names of their attributes; `None` for one that is not there.

    The merchant's own numbers must match the profile's `identifier`. The service's own numbers need not. No number may
    have a control character, because handlers, databases and logs would receive it.

    Raises:
        InvalidArgumentError: A number is another text.
    """
    paths = own_number_paths(profile.notification, kind) | {"payment_id": profile.answer.payment_id}
    numbers = {name: number_at(data, path) for name, path in paths.items()}
    for name, number in numbers.items():
        if number is None:
            continue
        identifier = profile.identifier if name in {"out_trade_no", "out_refund_no"} else ""
        if identifier and not re.fullmatch(identifier, number):
            raise _error(name, f"a number that matches {identifier} (the profile's `identifier`)", "another text")
        if not number.isprintable():
            raise _error(name, "a number without control characters", "another text")
    return numbers


def own_number_paths(shape: NotificationShape, kind: Kind | None) -> dict[str, str]:
    """Return where a notification has its own numbers. At the place of both, it has that of its kind."""
    paths = {"out_trade_no": shape.out_trade_no, "out_refund_no": shape.out_refund_no}
    paths["subscription_id"] = shape.subscription_id
    if shape.out_trade_no == shape.out_refund_no and kind in {"payment", "refund"}:
        paths["out_refund_no" if kind == "payment" else "out_trade_no"] = ""
    return paths


def number_at(data: Any, path: str) -> str | None:
    """Return the number at a path as a text, or `None`."""
    found = at(data, path, None) if path else None
    return None if found is None or not is_identifier(found) else str(found)


def is_identifier(value: object) -> bool:
    """Return whether a value can identify something: an integer, or a text that is not blank."""
    return bool(value.strip()) if isinstance(value, str) else isinstance(value, int) and not isinstance(value, bool)


def _error(field: str, rule: str, what: str) -> InvalidArgumentError:
    """Return the error for an invalid notification. It never quotes what was received."""
    return InvalidArgumentError(f"{field} must be {rule}, not {what}", field=field, rule=rule)


_ASKED: Final[Mapping[str | None, str]] = {"payment": QUERY_ORDER.name, "refund": QUERY_REFUND.name}
"""By kind, the query by the merchant's number that confirms a notification."""
_USUAL_NONCE: Final = frozenset({NONCE})
MAX_KEY: Final = 200
"""Characters of a key. A longer one is replaced by its hash."""
WEBHOOK_ID: Final = STANDARD_WEBHOOKS.nonce
_EVENT_TIMED: Final = frozenset({"standard-webhooks", "none"})
"""Verifications in which a time in the body is that of the event. In others, each delivery has a new one.

It is also that of the event if a header has the time of the delivery.
"""


def identify(
    shape: NotificationShape,
    kind: str | None,
    document: Any,
    data: Any,
    headers: Mapping[str, str],
    *,
    nonces: frozenset[str] = _USUAL_NONCE,
) -> tuple[str, bool, str]:
    """Return what identifies the event of a notification.

    These are the values at the profile's paths for its kind, else the header of Standard Webhooks, else the body.

    Returns:
        The key, the same in each redelivery; whether it is only a hash of the body; and the body's digest.
    """
    event_timed = shape.verification in _EVENT_TIMED or (shape.header is not None and shape.header.timestamp)
    sent = "" if event_timed else shape.time
    digest = digest_document(shape, document, sent=sent, nonces=nonces)
    names = [at(data, path) for path in shape.id.get(kind or "", ())]
    if names and all(map(is_identifier, names)):
        return build_key(f"{kind}:", names), False, digest
    number = webhook_id(shape, headers)
    if number is not None and is_identifier(number):
        return shorten_key("webhook:", number), False, digest
    # The hash includes the event's time, or else that of the delivery, because an equal renewal a month later is
    # another event.
    with_sent = sent and not _find_event_time(shape, document)
    hashed = digest_document(shape, document, nonces=nonces) if with_sent else digest
    return ":".join(filter(None, ("weak", kind, hashed))), True, digest


def webhook_id(shape: NotificationShape, headers: Mapping[str, str]) -> str | None:
    """Return the number of the event by Standard Webhooks, which an inbox stores under the standard's own name."""
    if shape.verification != "standard-webhooks":
        return None
    return headers.get(shape.headers.nonce, headers.get(WEBHOOK_ID))


def build_key(prefix: str, values: list[str | int]) -> str:
    """Return the key of values that together identify an event."""
    return shorten_key(prefix, dumps(values).decode())


def shorten_key(prefix: str, name: str) -> str:
    """Return a key of a prefix and a name, or of the name's hash if it is long."""
    key = prefix + name
    return key if len(key) <= MAX_KEY else f"{prefix}sha256:{_sha256(name)}"


def digest_document(
    shape: NotificationShape, document: Any, *, sent: str = "", nonces: frozenset[str] = _USUAL_NONCE
) -> str:
    """Return the SHA-256, in hexadecimal, of a document without what a redelivery may change.

    That is its signature, its nonce, and the profile's `volatile` fields: a name for every field of that name, a dotted
    path for one. The order of names makes no difference.

    Args:
        shape: The profile's `[notification]`.
        document: A decoded body.
        sent: The path of a time that is new in each delivery, or an empty text.
        nonces: The service's names of the nonce.
    """
    changing = (*nonces, *shape.volatile)
    fresh = {each for each in changing if "." not in each}
    dotted = [each for each in changing if "." in each]
    paths = [tuple(each.split(".")) for each in (*dotted, shape.signature, sent) if each]
    return _sha256(_canonical_json(_without(document, frozenset(fresh), paths)))


def _without(value: Any, names: frozenset[str], paths: Collection[tuple[str, ...]]) -> Any:
    if isinstance(value, dict):
        return {
            name: each if type(each) is str else _without(each, names, _below(paths, name))
            for name, each in value.items()
            if name not in names and (name,) not in paths
        }
    if not isinstance(value, list):
        return str(value) if type(value) is LongInteger else value  # `json` cannot write it
    steps = {path[0] for path in paths}  # a forged list may be very long, and few of its items have a path
    return [
        _without(each, names, _below(paths, step) if step in steps else ())
        for step, each in ((str(index), each) for index, each in enumerate(value))
        if step not in steps or (step,) not in paths
    ]


def _below(paths: Collection[tuple[str, ...]], step: str) -> list[tuple[str, ...]]:
    return [path[1:] for path in paths if path[0] == step and len(path) > 1]


_canonical_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
