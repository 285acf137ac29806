"""A notification: what the service tells the merchant's server, and how far it can be believed (spec: Events)."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from attrs import field, fields, frozen
from multidict import CIMultiDict

from payasync.documents import at
from payasync.errors import ConfigurationError, InvalidArgumentError, frameless_async
from payasync.profile.schema import Kind
from payasync.resources.orders import QueryOrder
from payasync.resources.payments import QueryPayment
from payasync.resources.refunds import QueryRefund
from payasync.wire.request import Request
from payasync.wire.response import Response, structure_as

if TYPE_CHECKING:
    from payasync.session import Session

Raw: TypeAlias = bytes | bytearray | memoryview
Text: TypeAlias = str | bytes
Headers: TypeAlias = Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[Text, Text]]

MAX_BYTES: Final = 64 << 10
"""Of a notification's body; a stranger's has to be read, too, before it can be refused."""


def body_of(raw: Raw, max_bytes: int = MAX_BYTES) -> bytes:
    """Return a body as bytes of its own.

    Raises:
        InvalidArgumentError: It is a text, or anything else but bytes, or too long.
    """
    if not isinstance(raw, bytes | bytearray | memoryview):
        rule = "the body's bytes, as they were received: a signature is made over these, and no text has them all"
        raise refused("raw", rule, type(raw).__name__)
    try:
        body = bytes(raw)
    except ValueError:
        body = None
    if body is None:
        raise refused("raw", "bytes that can still be read", "a memoryview that was released")
    if len(body) > max_bytes:
        raise refused("raw", f"{max_bytes} bytes long at most", f"of {len(body)}")
    return body


def headers_of(headers: Headers) -> CIMultiDict[str]:
    """Return headers by names in any case, as texts; bytes are read as latin-1.

    Raises:
        InvalidArgumentError: They are neither a mapping of texts or bytes, nor pairs of them.
    """
    given: Any = headers.items() if isinstance(headers, Mapping) else headers
    pairs = list(given) if isinstance(given, Iterable) else [given]
    if not all(map(_is_pair, pairs)):
        raise refused("headers", "a mapping of names to texts, or pairs of the two", type(headers).__name__)
    return CIMultiDict([(_text(each[0]), _text(each[1])) for each in pairs])


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, tuple | list) and [isinstance(each, Text) for each in pair] == [True, True]


def _text(given: Text) -> str:
    """Return a text that can be written anywhere: a server may hand over bytes that are no text as lone surrogates."""
    return given.decode("latin-1") if isinstance(given, bytes) else given.encode(errors="replace").decode()


def refused(field: str, rule: str, what: str) -> InvalidArgumentError:
    """Return the error for what cannot be a notification; it never holds what was received."""
    return InvalidArgumentError(f"{field} must be {rule}, not {what}", field=field, rule=rule)


T = TypeVar("T")

PLURALS: Final[Mapping[str, str]] = {"payment": "payments", "refund": "refunds", "subscription": "subscriptions"}
"""Of the kinds, in words."""


@frozen(kw_only=True, slots=False)
class Notification:
    """What the service told, as it was received; nobody need believe it before it is `verified` or `confirmed`.

    Attributes:
        kind: `payment`, `refund` or `subscription`; `None` where neither the payload nor the route says.
        event: The service's own name of the event; `None` where there is none, or a hint was confirmed.
        data: The payload inside the profile's envelope, else the document; where it is signed in the body, as much
            of it as the signature covers; where a hint was confirmed, what the service answered.
        document: The decoded JSON, its integers exact; all of it, signed or not.
        raw: The body, as it was received.
        headers: By names in any case.
        dedup_key: Names the event: a redelivery has the same one.
        weak: The key is but a hash of the body: two events that say the same are taken for one.
        digest: SHA-256 of the body without what a redelivery may change, in hexadecimal.
        verified: Its signature was checked: `data`, and all that is read of it, is from the service.
        received_at: When, in UTC.
        out_trade_no: The order's number, where the profile says where it stands, and it stands there.
        out_refund_no: The refund's number, in the same way.
        subscription_id: The subscription's number, in the same way.
        payment_id: The service's number of the payment, where it stands as in answers.
        id: The inbox's number of it; `None` where it comes from none.
        attempt: 1 for the first time that it is dispatched.
        confirmed: The service's answer, where it was asked whether this is so.
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
    out_trade_no: str | None = None
    out_refund_no: str | None = None
    subscription_id: str | None = None
    payment_id: str | None = None
    id: int | None = None
    attempt: int = 1
    confirmed: Response | None = field(default=None, hash=False)
    _state: str | None = field(default=None, repr=False, alias="state")
    _session: "Session | None" = field(default=None, repr=False, eq=False)

    @property
    def state(self) -> str | None:
        """Our name of what has come of it, such as `paid`: by the confirmed answer, else by `data`.

        `None` where the profile maps none: neither "paid" nor "failed" is a guess.
        """
        return self._state if self.confirmed is None else self.confirmed.state

    @property
    def trusted(self) -> Any:
        """What may be acted upon: the confirmed answer's data, else `data` where it is verified, else `None`."""
        if self.confirmed is not None:
            return self.confirmed.data
        return self.data if self.verified else None

    def get(self, path: str, default: Any = None) -> Any:
        """Return what stands at a dotted path in `data`, or the default."""
        return at(self.data, path, default)

    def to(self, kind: type[T]) -> T:
        """Return `data` as an attrs class, strictly: no text becomes a number, and `"false"` is not true.

        Raises:
            InvalidArgumentError: The data does not fit the class; the message says where.
        """
        return structure_as(self.data, kind, "the notification")

    @frameless_async
    async def confirm(self, *, session: "Session | None" = None) -> Response:
        """Ask the service whether this is so, and return its answer (spec: Endpoints, rules 3 and 6).

        A payment is asked about by endpoint 3, or by endpoint 6 where the notification has no order number but the
        service's own; a refund by endpoint 7.

        Args:
            session: Asks; left out: the receiver's own.

        Raises:
            ConfigurationError: There is no session.
            InvalidArgumentError: It names nothing that could be asked about, or by no valid number.
            PayasyncError: As any query raises it: `ServiceError` where the service knows no such thing.
        """
        asking = session or self._session
        if asking is None:
            raise ConfigurationError(
                "session is missing: a notification is confirmed by asking the service. "
                "Give Receiver(session=...), or confirm(session=...)",
                field="session",
            )
        return await asking.send(self.inquiry())

    def inquiry(self) -> Request[Response]:
        """Return the request that asks the service about what this notification tells of.

        Raises:
            InvalidArgumentError: There is no such request: subscriptions have none, and without a number
                there is nothing to ask about.
        """
        if self.kind == "payment" and self.out_trade_no:
            return QueryOrder(out_trade_no=self.out_trade_no)
        if self.kind == "payment" and self.payment_id:
            return QueryPayment(identifier=self.payment_id)
        if self.kind == "refund" and self.out_refund_no:
            return QueryRefund(identifier=self.out_refund_no)
        raise InvalidArgumentError(self._unaskable(), field="notification", rule="names a payment or a refund")

    def _unaskable(self) -> str:
        """Return why nobody can be asked about it."""
        if self.kind not in {"payment", "refund"}:
            return f"the service answers no query about {self.kind or 'an unknown event'}: nothing can confirm it"
        point = "out_trade_no" if self.kind == "payment" else "out_refund_no"
        return f"the notification holds no number to ask about: notification.{point} says where it stands"

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles are plain: without a session."""
        return {each.name: None if each.name == "_session" else getattr(self, each.name) for each in fields(type(self))}
