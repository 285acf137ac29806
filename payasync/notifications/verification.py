"""Whether a notification comes from the service, as the profile says (docs/reference/service.md#notifications)."""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from inspect import iscoroutinefunction
from typing import ClassVar, Final, NamedTuple, TypeAlias, cast
from weakref import WeakValueDictionary

from attrs import evolve, field, frozen
from multidict import CIMultiDict, CIMultiDictProxy, MultiMapping

from payasync.clocks import utc_moment, wall_time
from payasync.credentials import Credentials, Secret
from payasync.endpoints import OPERATIONS
from payasync.errors import ConfigurationError, InvalidArgumentError, InvalidSignatureError, PayasyncError, frameless
from payasync.evidence.comparison import COMPARED_NAMES, comparison_of, find_another, named_merchants
from payasync.middleware.verify import hidden_field, is_signed_by_any, read_as_signed, refused_field, service_keys
from payasync.notifications.notification import (
    HELD,
    MAX_BYTES,
    OF_ANOTHER,
    Headers,
    Notification,
    Raw,
    copy_body,
    decode_body,
    is_crowded,
    is_there,
    read_document,
    read_headers,
    unpack_body,
    unreadable,
)
from payasync.notifications.transitions import hold_another, hold_unclear
from payasync.profile import signed_fields
from payasync.profile.consistency import check_keys
from payasync.profile.profile import Profile
from payasync.profile.schema import STANDARD_WEBHOOKS, NotificationShape, SignedHeader
from payasync.profile.signed_fields import join_path, key_owner, notification_coverage, signs_merchant
from payasync.profile.wire_names import COMPARED
from payasync.settings import invalid_setting, not_configured
from payasync.signing.algorithms import decode_base64
from payasync.signing.schemes import Keyed, SignatureScheme, SortedPairs
from payasync.signing.templates import parse_time, signatures_at, values_at
from payasync.strict_json import ABSENT, at, loads_leniently

MISMATCH: Final = "the body is not the one that was signed, or the key is wrong"
"""The possible causes of a wrong signature."""
NOT_OF_THE_BODY: Final = f"is not valid for the body with any of the keys: {MISMATCH}"

NOT_A_TIME: Final = "is not a time: neither ISO 8601 with an offset, nor a number"
"""Why a genuine notification is held that has no readable time. It is not late: it would come again like that."""

MAX_EXPLAINED: Final = 1 << 16
"""The greatest length of a body for which payasync looks for the field that the scheme refuses."""

UNPACKED: Final = ". If the service signs the gzip, use web.Application(handler_args={'auto_decompress': False})"
"""Added to the reason if the header says gzip, and the body is none: then aiohttp has unpacked it."""


def late_error(field: str, sent: float, now: float, tolerance: float) -> InvalidSignatureError | None:
    """Return the error for a notification that was not sent about now, or `None`.

    Args:
        field: The header or path of the time.
        sent: The time, in seconds since 1970.
        now: The time of this machine's clock, in seconds since 1970.
        tolerance: The greatest difference in either direction, in seconds.
    """
    age = now - sent
    if abs(age) <= tolerance:
        return None
    side = "ago" if age > 0 else "ahead of this machine's clock"
    return _error(field, f"is {abs(age):.0f} seconds {side}: more than notification.tolerance, {tolerance:g}")


def _check_time(field: str, value: object, shape: NotificationShape, now: float) -> InvalidSignatureError | None:
    sent = parse_time(value, shape.zone)
    return _error(field, NOT_A_TIME) if sent is None else late_error(field, sent, now, shape.tolerance)


def _error(field: str, reason: str) -> InvalidSignatureError:
    """Return the error for an unverified notification. Its reason has neither a key nor the right signature."""
    return InvalidSignatureError(f"the notification is not verified: {field} {reason}", field=field, reason=reason)


A_WORD: Final = "a text of 1 to 256 visible ASCII characters"
MISSING: Final = "is missing"

_VERSION: Final = "v1,"
_PREFIX: Final = "whsec_"
_MIN_KEY_BYTES: Final = 24
"""The scheme has no shorter keys. A shorter one was cut off when it was copied."""
_KEYS: Final = "credentials.notification_keys"
_WORD: Final = re.compile(r"[\x21-\x7e]{1,256}")
_SECONDS: Final = re.compile(r"[0-9]{1,11}")


def check_webhook(
    body: bytes,
    headers: MultiMapping[str],
    *,
    keys: Iterable[Secret],
    tolerance: float,
    now: float,
    names: SignedHeader = STANDARD_WEBHOOKS,
) -> InvalidSignatureError | None:
    """Check a signature of Standard Webhooks. Return an error if it is right, but too old or from the future.

    Args:
        body: The body, as it was received.
        headers: The headers.
        keys: The keys, several while they rotate, as `check_secrets` accepts them.
        tolerance: The greatest difference of the clocks, in seconds.
        now: Seconds since 1970.
        names: The names of the headers.

    Raises:
        InvalidSignatureError: It names the header and the defect.
    """
    number = _get_header(headers, names.nonce, _WORD, A_WORD)
    sent = _get_header(headers, names.timestamp, _SECONDS, "a number of seconds since 1970")
    # Other versions may stand beside.
    signatures = [_decode_base64(text) for text in signatures_at(headers, names.signature, _VERSION)]
    if not any(signatures):
        raise _no_signature(headers, names.signature, _VERSION)
    if not any(_is_among(signatures, _sign_content(body, number, sent, key)) for key in keys):
        raise _error(names.signature, NOT_OF_THE_BODY)
    return late_error(names.timestamp, int(sent), now, tolerance)


def sign_webhook(body: bytes, *, number: str, sent: int, key: Secret) -> str:
    """Return the value of the header `webhook-signature` for a body.

    Args:
        body: The body, as it is sent.
        number: The header `webhook-id`.
        sent: The header `webhook-timestamp`: seconds since 1970.
        key: A key that `check_secrets` accepts.
    """
    return f"{_VERSION}{base64.b64encode(_sign_content(body, number, str(sent), key)).decode()}"


def is_word(number: object) -> bool:
    """Return whether a value can be the header `webhook-id`."""
    return isinstance(number, str) and bool(_WORD.fullmatch(number))


def check_secrets(keys: Iterable[Secret]) -> None:
    """Check keys of Standard Webhooks.

    Raises:
        ConfigurationError: There is no key, or one is not base64, or too short.
    """
    number = 0
    for number, key in enumerate(keys, start=1):
        if len(_decode_key(key)) < _MIN_KEY_BYTES:
            rule = f"{_PREFIX} and base64 of {_MIN_KEY_BYTES} bytes or more, whole as the service shows it"
            raise ConfigurationError(f"{_KEYS}: key {number} must be {rule}", field=_KEYS)
    if not number:
        why = "the profile says that notifications are signed by Standard Webhooks, and they are verified with it"
        raise invalid_setting(_KEYS, f"is empty (PAYASYNC_NOTIFICATION_KEYS in the environment): {why}")


def _no_signature(headers: Mapping[str, str], place: str, prefix: str) -> InvalidSignatureError:
    after = f" after {prefix!r}" if prefix else ""
    return _error(place, f"holds no signature{after}" if values_at(headers, place) else MISSING)


def _get_header(headers: MultiMapping[str], name: str, form: re.Pattern[str], wanted: str) -> str:
    """Return a header that must be there once. Of two, nobody could say which one was signed."""
    values = headers.getall(name, [])
    if len(values) != 1:
        raise _error(name, "is there twice" if values else MISSING)
    if not form.fullmatch(values[0]):
        raise _error(name, f"is not {wanted}")
    return values[0]


def _is_among(signatures: Iterable[bytes], right: bytes) -> bool:
    return any(hmac.compare_digest(right, each) for each in signatures)


def _sign_content(body: bytes, number: str, sent: str, key: Secret) -> bytes:
    return hmac.digest(_decode_key(key), b".".join((number.encode(), sent.encode(), body)), hashlib.sha256)


def _decode_key(key: Secret) -> bytes:
    """Return the key's bytes. No caller assigns them to a variable, which a traceback could show."""
    text = key.reveal().strip().removeprefix(_PREFIX).rstrip("=")
    return _decode_base64(text + "=" * (-len(text) % 4))


def _decode_base64(text: str) -> bytes:
    """Return the decoded text; no bytes if it is not base64."""
    try:
        return decode_base64(text)
    except ValueError:
        return b""


def check_covered(profile: Profile) -> None:
    """Check that the signature covers all that is believed of a notification.

    The event's name and the time may be unsigned. An unsigned name only chooses the kind, as the address does. An
    unsigned time is better than none.

    Raises:
        ConfigurationError: The signature does not cover a path of the profile. The error names it.
    """
    if signed := notification_coverage(profile):
        signed_fields.check_covered(signed, profile.notification.signature, _list_believed(profile.notification))


def _list_believed(shape: NotificationShape) -> Iterator[tuple[str, str, str]]:
    """Yield the profile's keys of believed values, each with its path and its place in the document."""
    yield "notification.data", shape.data, join_path(shape.data, "any field of it")
    numbers = ("out_trade_no", "out_refund_no", "subscription_id", "merchant_id")
    believed = [(name, getattr(shape, name)) for name in numbers]
    believed += [(f"must.{path}", path) for path in shape.must]
    believed += [(f"tells.{kind}", path) for kind, path in shape.tells.items()]
    believed += [(f"id.{kind}", path) for kind, paths in shape.id.items() for path in paths]
    for name, path in believed:
        if path:
            yield f"notification.{name}", path, join_path(shape.data, path)


def is_made_by_service(profile: Profile, service_paths: frozenset[str], document: object) -> bool:
    """Return whether a document has what no request has: a known event, a time, a telling field, or a known state.

    A document that is no object cannot be a request either.

    Args:
        profile: Lists the events and the states.
        service_paths: The paths that count, as `check_sent_back` returns them.
        document: A notification with a valid signature.
    """
    shape = profile.notification
    events = [name for names in shape.kinds.values() for name in names]
    told = shape.kind_path in service_paths and at(document, shape.kind_path) in events
    if told or not isinstance(document, dict):
        return True
    times = service_paths.intersection((shape.time, shape.event_time))
    if any(parse_time(at(document, path), shape.zone) is not None for path in times):
        return True
    if any(path in service_paths and is_there(at(document, path, None)) for path in signed_fields.tell_paths(shape)):
        return True
    states = [(thing, path) for thing, path in signed_fields.state_paths(profile) if path in service_paths]
    return any(profile.states.name(thing, at(document, path)) for thing, path in states)


def check_sent_back(profile: Profile, credentials: Credentials) -> frozenset[str] | None:
    """Check that notifications can be distinguished from your own requests, if one key signs both.

    Returns:
        The signed paths that only notifications have; `None` if no key that signs requests verifies notifications.

    Raises:
        ConfigurationError: There is no such path of an event name, a time, a telling field or a state.
    """
    if signed_fields.signed_in_notifications(profile) is None or not signed_fields.shares_key(profile, credentials):
        return None
    service_paths = frozenset(signed_fields.notification_only_paths(profile))
    if not service_paths:
        raise ConfigurationError(
            "notification.kind, notification.time and answer.*_status name nothing inside the signature that your "
            "requests do not have. The same key signs requests and verifies notifications, so a request of yours that "
            "is sent back would be believed. Add a path inside the signature: of an event name (notification.kind, "
            "with notification.kinds), of a time (notification.time or .event_time), of a field that tells the kind "
            "(notification.tells) or of a state (such as answer.order_status, with states.order). If the "
            "service signs with a key of its own, give credentials.service_keys instead",
            field="notification.kind",
        )
    return service_paths


SENT_BACK: Final = (
    "is right, but covers no event, time or state that the profile knows: it may be a request of yours, sent back"
)

Verifier: TypeAlias = Callable[[bytes, Mapping[str, str]], bool]
"""A plain function of the user's. It gets body and headers, and returns whether the service sent them."""


def _hold(notification: Notification, prefix: str = HELD) -> Notification:
    return evolve(notification, dedup_key=prefix + notification.dedup_key)


class Examined(NamedTuple):
    """A notification that may be stored.

    Attributes:
        notification: What could be read of it.
        held: Why it is held, though it is genuine; `None` if it is not.
        late: Its time is outside the window, so that it is not acknowledged, and comes again with a new time.
    """

    notification: Notification
    held: PayasyncError | None = None
    late: bool = False


@frozen
class Verification:
    """How notifications are verified. This base class is for services that do not sign them.

    Attributes:
        profile: What the service does.
        proves: Whether a notification that passes comes from the service.
    """

    profile: Profile = field(repr=False)
    credentials: Credentials = field(repr=False, kw_only=True)
    proves: ClassVar[bool] = False

    @property
    def shared(self) -> bool:
        """Whether a signature may be that of any merchant, unless what it covers names one. The profile must say so."""
        return key_owner(self.profile) == ("shared", True)

    def begin(self) -> None:
        """Begin to be used by a receiver."""

    def end(self) -> None:
        """End to be used by it."""

    @property
    def timed(self) -> bool:
        """Whether the signature covers the time when a notification was sent, so that it cannot come again later."""
        return False

    @property
    def checks(self) -> str:
        """What is checked, in words."""
        return "nothing"

    def examine(
        self,
        raw: bytes,
        headers: Headers,
        *,
        now: float,
        kind: str | None = None,
        max_bytes: int = MAX_BYTES,
        by_address: bool = False,
    ) -> Examined:
        """Return a notification that passes, or that is genuine and must be held. Another one raises an error.

        The arguments are those of `verify`; `now` is in seconds since 1970. With `by_address`, as in `verify`, the
        address alone may say the kind of a genuine one.
        """
        received, arrived = read_headers(headers), utc_moment(now)
        read = partial(read_document, profile=self.profile, kind=kind, received_at=arrived)
        if not self.proves:
            plain = unpack_body(raw, max_bytes)
            return Examined(read(plain, decode_body(plain), received))
        body, late = self._check_packed(raw, received, now, max_bytes)  # first: nothing is decoded for a forger
        try:
            document, odd = decode_body(body), None
        except InvalidArgumentError as error:
            document, odd = {}, error
        whole = document if odd is None else ABSENT if is_crowded(body) else loads_leniently(body)
        late = self.check_document(body, whole, now) or late
        is_late = late is not None and late.reason != NOT_A_TIME
        named = list(named_merchants(self.profile, document))
        another = find_another(named, self.credentials.merchant_id)
        verified = another is None and (bool(named) or not self.shared)  # else it is a hint, or another merchant's
        try:
            if odd is not None:
                raise odd
            notification = read(body, document, received, signed=not by_address, verified=verified)
        except InvalidArgumentError as error:
            routed = None if error.field == "kind" else kind
            # Anybody can vary what a signature in the body does not cover, so that such rows are not kept for ever.
            lasting = notification_coverage(self.profile) is None and not self.shared
            unread = unreadable(body, received, routed, arrived, verified=lasting)
            return Examined(_hold(unread), error, is_late)
        if another is not None:
            return Examined(_hold(notification, OF_ANOTHER), _error(*another))
        return Examined(_hold(notification) if late else notification, late, is_late)

    def _check_packed(
        self, body: bytes, headers: CIMultiDict[str], now: float, max_bytes: int
    ) -> tuple[bytes, InvalidSignatureError | None]:
        """Check a signature over the body as received, or else unpacked; return it unpacked, and why it is late."""
        plain, unpacked = unpack_body(body, max_bytes), "gzip" in headers.get("Content-Encoding", "").lower()
        try:
            return plain, self.check_bytes(body, headers, now)
        except InvalidSignatureError as error:
            failed = error
        if plain is not body:
            return plain, self.check_bytes(plain, headers, now)
        raise _error(str(failed.field), f"{failed.reason}{UNPACKED}") if unpacked else failed

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> InvalidSignatureError | None:
        """Check a signature over body and headers. Return an error if it is genuine, and its time is not about now."""

    def check_document(self, body: bytes, document: object, now: float) -> InvalidSignatureError | None:
        """Check a signature inside the document, likewise. The document may be `ABSENT`."""


@frozen
class CustomVerification(Verification):
    """Verification by a function of the user's."""

    verifier: Verifier
    proves = True

    def __attrs_post_init__(self) -> None:
        called = getattr(type(self.verifier), "__call__", None)  # noqa: B004 - of an object with such a method
        if not callable(self.verifier) or iscoroutinefunction(self.verifier) or iscoroutinefunction(called):
            rule = "must be a plain function of the body and the headers, not a coroutine function"
            raise invalid_setting("verifier", f"{rule}: what it returns is not awaited, and nothing would ever verify")

    @property
    def checks(self) -> str:
        """What is checked, in words."""
        return "whatever the verifier checks"

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> None:  # noqa: ARG002 - it has no use for the time
        """Call the function. Only `True` means genuine."""
        genuine: object = False
        with suppress(Exception):  # the user's code; an error verifies nothing
            genuine = self.verifier(body, CIMultiDictProxy(headers))
        if genuine is not True:
            raise _error("verifier", "does not say that it is from the service")


_receiving: Final = WeakValueDictionary[int, "KeyedVerification"]()
"""The verifications of the open receivers of this process."""


@frozen
class KeyedVerification(Verification):
    """Verification by keys. Unless a subclass differs, the signature stands in a header, and covers the exact body.

    Attributes:
        keys: The keys, several while they rotate.
        service_paths: If a key signs requests, too, the paths of values that only the service sends.
        merchants: Whose receivers have had one of the keys while this one was open. What was sent to one that has been
            closed may still come to another.
    """

    keys: tuple[Secret, ...]
    service_paths: frozenset[str] | None
    merchants: set[str] = field(factory=set, init=False, eq=False)
    proves = True

    @property
    def shared(self) -> bool:
        """Whether the key is that of all merchants, as the profile or this process shows; not if a header names one."""
        whose, is_given = key_owner(self.profile)
        shared = whose == "shared" or (not is_given and len(self.merchants) > 1)
        return shared and not signs_merchant(self.profile.notification)

    def begin(self) -> None:
        """Look which open receivers have one of the keys, and let receivers to come look at this one."""
        self.merchants.add(self.credentials.merchant_id)
        for other in list(_receiving.values()):
            if not self.same_keys().isdisjoint(other.same_keys()):
                self.merchants.update(other.merchants)
                other.merchants.update(self.merchants)
        _receiving[id(self)] = self

    def same_keys(self) -> set[object]:
        """Return the keys so that equal ones are equal, however they are written."""
        return set(self.keys)

    def end(self) -> None:
        """Let no further receiver look at this one."""
        _receiving.pop(id(self), None)

    @property
    def timed(self) -> bool:
        """Whether a header or the body has the time; the signature covers both."""
        shape = self.profile.notification
        return bool(shape.headers.timestamp or shape.time)

    @property
    def checks(self) -> str:
        """What is checked, in words."""
        names = self.profile.notification.headers
        return self._describe(f"{names.signature} over the body", names.timestamp or self.profile.notification.time)

    def _describe(self, what: str, sent: str) -> str:
        window = f"; {sent} within {self.profile.notification.tolerance} seconds" if sent else ""
        return f"{what}, by {len(self.keys)} of your keys{window}"

    def _check_origin(self, field: str, document: object) -> None:
        """Check that a document is not a request that is sent back."""
        if self.service_paths is not None and not is_made_by_service(self.profile, self.service_paths, document):
            raise _error(field, SENT_BACK)


@frozen
class WebhookVerification(KeyedVerification):
    """Verification by Standard Webhooks."""

    def __attrs_post_init__(self) -> None:
        check_secrets(self.keys)

    def same_keys(self) -> set[object]:
        """Return the bytes of the keys, which may be written with a prefix or without."""
        return set(map(_decode_key, self.keys))

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> InvalidSignatureError | None:
        """Check the headers of Standard Webhooks."""
        shape = self.profile.notification
        return check_webhook(body, headers, keys=self.keys, tolerance=shape.tolerance, now=now, names=shape.headers)


@frozen
class HeaderVerification(KeyedVerification):
    """Verification by the algorithm and the encoding of the profile's scheme."""

    scheme: Keyed

    def __attrs_post_init__(self) -> None:
        for key in self.keys:
            self.scheme.verify_text(b"", "", key=key)  # raises for a key that it cannot use

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> InvalidSignatureError | None:
        """Check the signature, and the time if a header has it."""
        shape = self.profile.notification
        names = shape.headers
        sent, text, missing = "", b"", ""
        try:
            sent, text = names.read(headers, body, {"merchant_id": self.credentials.merchant_id})
        except ValueError as error:
            missing = str(error)  # raised below, so that no other error is a context
        if missing:
            place, _, why = missing.partition(" ")
            raise _error(place, why)
        signatures = names.signatures(headers)
        if not signatures:
            raise _no_signature(headers, names.signature, names.prefix)
        if not any(self.scheme.verify_text(text, each, key=key) for key in self.keys for each in signatures):
            raise _error(names.signature, NOT_OF_THE_BODY)
        return _check_time(names.timestamp, sent, shape, now) if names.timestamp else None

    def check_document(self, body: bytes, document: object, now: float) -> InvalidSignatureError | None:  # noqa: ARG002 - all of it is signed
        """Check that the document is not a request, and its time if no header has the time."""
        shape = self.profile.notification
        self._check_origin(shape.headers.signature, document)
        timed = shape.time and not shape.headers.timestamp and document is not ABSENT
        return _check_time(shape.time, at(document, shape.time), shape, now) if timed else None


@frozen
class BodyVerification(KeyedVerification):
    """Verification by the profile's scheme, over the object that holds the signature."""

    scheme: SignatureScheme

    def __attrs_post_init__(self) -> None:
        if isinstance(self.scheme, SortedPairs):
            for key in self.keys:
                self.scheme.verify({}, "", path="", key=key)  # raises for a key that it cannot use

    @property
    def timed(self) -> bool:
        """Whether the signature covers the profile's path of the time."""
        coverage, time = notification_coverage(self.profile), self.profile.notification.time
        return bool(time and coverage and coverage.covers(time))

    @cached_property
    def _compared(self) -> frozenset[str]:
        """The paths in the payload that payasync compares, under each name that they may have."""
        given = (getattr(self.profile.answer, name) for name in COMPARED)
        named = (path for operation in OPERATIONS for path in comparison_of(operation, self.profile).paths)
        return frozenset({*COMPARED_NAMES, *(path for path in given if path), *named})

    @property
    def checks(self) -> str:
        """What is checked, in words."""
        shape, coverage = self.profile.notification, notification_coverage(self.profile)
        paths = filter(None, (shape.kind_path, shape.time, shape.event_time))
        unsigned = [path for path in paths if coverage and not coverage.covers(path)]
        warning = f"; not signed: {', '.join(unsigned)}" if unsigned else ""
        return f"{self._describe(f'{shape.signature} over the object that holds it', shape.time)}{warning}"

    def check_document(self, body: bytes, document: object, now: float) -> InvalidSignatureError | None:
        """Check the signature in the document, and the time if the profile has its path."""
        shape = self.profile.notification
        field = shape.signature
        above, _, name = field.rpartition(".")
        signed = at(read_as_signed(body, document, self.scheme), above)
        if not isinstance(signed, dict) or name not in signed:
            raise _error(field, MISSING)
        if not isinstance(signed[name], str):
            raise _error(field, "is not a text")
        if not is_signed_by_any(self.scheme, signed, name, path="", keys=self.keys):
            if len(body) <= MAX_EXPLAINED and (why := refused_field(self.scheme, signed, above, name)):
                raise _error(field, f"cannot be checked: {why}")
            raise _error(field, f"is not valid for its object with any of the keys: {MISMATCH}")
        read = partial(signed_fields.names_read_in_notifications, self.profile)
        if doubt := hidden_field(self.scheme, signed, above, name, lambda: read(self._compared, document)):
            raise _error(field, f"proves nothing: {doubt}")
        self._check_origin(field, document)
        return _check_time(shape.time, at(document, shape.time), shape, now) if shape.time else None


@frameless
def verify(
    raw: Raw,
    headers: Headers,
    *,
    profile: Profile,
    credentials: Credentials,
    kind: str | None = None,
    verifier: Verifier | None = None,
    clock: Callable[[], float] = wall_time,
    max_bytes: int = MAX_BYTES,
) -> Notification:
    """Return a notification that the service has signed, and that no receiver would hold before it asks `expect`.

    There is one exception: if the profile has a path or a field that tells the kind, and it is missing, a receiver
    holds the notification. Here, `kind` decides. So give `kind` only if your address gets nothing else, because anybody
    who got a signed response of the service can post it there.

    If `verified` is `True`, the service has sent it to this merchant. If it is `False`, the notification is only a
    hint, for one of two reasons: the profile says that notifications are not signed (`verification = "none"`), and no
    `verifier` is given. Or all merchants share the key, and nothing that is signed names the merchant.

    Args:
        raw: The body's bytes, as they were received.
        headers: A mapping, or pairs; names in any case.
        profile: What the service does.
        credentials: Its `service_keys` or `notification_keys` verify.
        kind: `payment`, `refund` or `subscription`, if the address at which it arrived says so. It decides if neither
            an event nor a field tells the kind.
        verifier: Verifies in the profile's place. It gets body and headers, and must return `True`.
        clock: A function that returns seconds since 1970, to check signed times.
        max_bytes: The greatest length of the body.

    Raises:
        InvalidSignatureError: It is not from the service, or too old, or from the future, or another merchant's.
        InvalidArgumentError: It is no notification at all, as `parse` raises it. Or it lacks the payload or a number,
            differs from `notification.must`, or contradicts itself.
        NotConfiguredError: The profile does not say how notifications are signed.
        ConfigurationError: No key can verify it, a key is unusable, or the signature does not cover what would be
            believed. Or a request that is sent back would pass for a notification.
    """
    verification = verification_of(profile, credentials, verifier)
    verification.begin()
    now = clock()
    body = copy_body(raw, max_bytes)
    found, held, _ = verification.examine(body, headers, now=now, kind=kind, max_bytes=max_bytes, by_address=True)
    if held is not None:
        raise held
    if verification.proves and (why := find_hold(found, verification)):
        words, rule = f"the notification cannot be used: {why}", "one that no receiver would hold"
        raise InvalidArgumentError(words, field="notification", rule=rule)
    return found


def find_hold(found: Notification, verification: Verification) -> str:
    """Return why a receiver holds a genuine notification after it was stored; empty if it does not."""
    held = hold_unclear(found, verification.profile, signed=True)
    if held is None and found.verified:
        held = hold_another(found, verification.credentials.merchant_id, verification.profile)
    return held.reason if held else ""


def verification_of(profile: Profile, credentials: Credentials, verifier: Verifier | None = None) -> Verification:
    """Return how notifications are verified.

    Args:
        profile: What the service does.
        credentials: Its keys.
        verifier: Verifies in the profile's place.

    Raises:
        NotConfiguredError: The profile does not say how they are signed.
        ConfigurationError: As for `verify`; or the verifier is not a plain function.
    """
    shape = profile.notification
    if verifier is not None:  # it covers every byte, not only what a signature in the body covers
        if notification_coverage(profile):
            profile = evolve(profile, notification=evolve(shape, verification=""))
        return CustomVerification(profile, verifier, credentials=credentials)
    if shape.verification == "standard-webhooks":
        return WebhookVerification(profile, credentials.notification_keys, None, credentials=credentials)
    if shape.verification in {"body", "header"}:
        return _keyed_verification(profile, credentials)
    if not shape.verification:
        how = "how notifications are signed: body, header, standard-webhooks, or none"
        raise not_configured("notification.verification", how)
    return Verification(profile, credentials=credentials)


def _keyed_verification(profile: Profile, credentials: Credentials) -> BodyVerification | HeaderVerification:
    in_body, scheme = profile.notification.verification == "body", profile.scheme
    if in_body and not profile.notification.signature:
        raise not_configured("notification.signature", "the path of the signature in the body")
    if scheme is None:
        raise not_configured("signature", "the scheme that the service signs notifications with")
    check_covered(profile)
    keys = service_keys(credentials, scheme, signed="notifications", point="notification.verification")
    check_keys(profile, credentials)
    service_paths = check_sent_back(profile, credentials)
    if isinstance(scheme, Keyed) and not in_body:
        return HeaderVerification(profile, keys, service_paths, scheme, credentials=credentials)
    return BodyVerification(profile, keys, service_paths, cast("SignatureScheme", scheme), credentials=credentials)
