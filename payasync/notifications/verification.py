"""Whether a notification comes from the service, as the profile says (docs/reference/service.md#notifications)."""

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property, partial
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Final, TypeAlias, cast

from attrs import evolve, field, frozen
from multidict import CIMultiDict, CIMultiDictProxy, MultiMapping

from payasync.credentials import Credentials, Secret
from payasync.endpoints import OPERATIONS
from payasync.errors import ConfigurationError, InvalidSignatureError, frameless
from payasync.evidence.comparison import COMPARED_NAMES, comparison_of
from payasync.middleware.verify import hidden_field, is_signed_by_any, read_as_signed, refused_field, service_keys
from payasync.notifications.notification import (
    MAX_BYTES,
    Headers,
    Notification,
    Raw,
    copy_body,
    decode_body,
    is_there,
    read_document,
    read_headers,
    with_facts,
)
from payasync.profile import signed_fields
from payasync.profile.consistency import check_keys
from payasync.profile.profile import Profile
from payasync.profile.schema import STANDARD_WEBHOOKS, NotificationShape, SignedHeader
from payasync.profile.signed_fields import join_path, notification_coverage
from payasync.profile.wire_names import COMPARED
from payasync.settings import invalid_setting, not_configured
from payasync.signing.schemes import Keyed, SignatureScheme, SortedPairs
from payasync.signing.templates import parse_time, values_at
from payasync.strict_json import at

MISMATCH: Final = "the body is not the one that was signed, or the key is wrong"
"""The possible causes of a wrong signature."""
NOT_OF_THE_BODY: Final = f"is not valid for the body with any of the keys: {MISMATCH}"


def check_window(field: str, sent: float, now: float, tolerance: float) -> None:
    """Check that a notification was sent about now.

    Args:
        field: The header or path of the time.
        sent: The time, in seconds since 1970.
        now: The time of this machine's clock, in seconds since 1970.
        tolerance: The greatest difference in either direction, in seconds.

    Raises:
        InvalidSignatureError: The times differ by more.
    """
    age = now - sent
    if not abs(age) <= tolerance:
        side = "ago" if age > 0 else "ahead of this machine's clock"
        raise _error(field, f"is {abs(age):.0f} seconds {side}: more than notification.tolerance, {tolerance:g}")


def _check_time(field: str, value: object, shape: NotificationShape, now: float) -> None:
    sent = parse_time(value, shape.zone)
    if sent is None:
        raise _error(field, "is not a time: neither ISO 8601 with an offset, nor a number")
    check_window(field, sent, now, shape.tolerance)


def _error(field: str, reason: str) -> InvalidSignatureError:
    """Return the error for an unverified notification. Its reason has neither a key nor the right signature."""
    return InvalidSignatureError(f"the notification is not verified: {field} {reason}", field=field, reason=reason)


A_WORD: Final = "a text of 1 to 256 visible ASCII characters"
MISSING: Final = "is missing"
MOST_SIGNATURES: Final = 8
"""Signatures in headers that are checked. A service sends two or three while it rotates its keys."""

_VERSION: Final = "v1"
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
) -> None:
    """Check a signature of Standard Webhooks.

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
    check_window(names.timestamp, int(sent), now, tolerance)
    pairs = [each.partition(",") for each in _get_header(headers, names.signature).split(" ")]
    signatures = [_decode_base64(text) for version, _, text in pairs if version == _VERSION]  # other versions may come
    if not any(signatures):
        raise _error(names.signature, f"holds no signature of version {_VERSION}")
    if not any(_is_among(signatures, _sign_content(body, number, sent, key)) for key in keys):
        raise _error(names.signature, NOT_OF_THE_BODY)


def sign_webhook(body: bytes, *, number: str, sent: int, key: Secret) -> str:
    """Return the value of the header `webhook-signature` for a body.

    Args:
        body: The body, as it is sent.
        number: The header `webhook-id`.
        sent: The header `webhook-timestamp`: seconds since 1970.
        key: A key that `check_secrets` accepts.
    """
    return f"{_VERSION},{base64.b64encode(_sign_content(body, number, str(sent), key)).decode()}"


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


def _get_header(headers: MultiMapping[str], name: str, form: re.Pattern[str] | None = None, wanted: str = "") -> str:
    """Return a header that must be there once. Of two, nobody could say which one was signed."""
    values = headers.getall(name, [])
    if len(values) != 1:
        raise _error(name, "is there twice" if values else MISSING)
    if form and not form.fullmatch(values[0]):
        raise _error(name, f"is not {wanted}")
    return values[0]


def _is_among(signatures: Iterable[bytes], right: bytes) -> bool:
    return any(hmac.compare_digest(right, each) for each in signatures)


def _sign_content(body: bytes, number: str, sent: str, key: Secret) -> bytes:
    return hmac.digest(_decode_key(key), b".".join((number.encode(), sent.encode(), body)), hashlib.sha256)


def _decode_key(key: Secret) -> bytes:
    """Return the key's bytes. No caller assigns them to a variable, which a traceback could show."""
    text = key.reveal().strip().removeprefix(_PREFIX)
    return _decode_base64(text + "=" * (-len(text) % 4))


def _decode_base64(text: str) -> bytes:
    """Return the decoded text; no bytes if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
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
    believed = [(name, getattr(shape, name)) for name in ("out_trade_no", "out_refund_no", "subscription_id")]
    believed += [(f"tells.{kind}", path) for kind, path in shape.tells.items()]
    believed += [(f"id.{kind}", path) for kind, paths in shape.id.items() for path in paths]
    for name, path in believed:
        if path:
            yield f"notification.{name}", path, join_path(shape.data, path)


def is_made_by_service(profile: Profile, service_paths: frozenset[str], document: Mapping[str, Any]) -> bool:
    """Return whether a document has what no request has: a known event, a time, a telling field, or a known state.

    Args:
        profile: Lists the events and the states.
        service_paths: The paths that count, as `check_sent_back` returns them.
        document: A notification with a valid signature.
    """
    shape = profile.notification
    events = [name for names in shape.kinds.values() for name in names]
    if shape.kind_path in service_paths and at(document, shape.kind_path) in events:
        return True
    if shape.time in service_paths and parse_time(at(document, shape.time), shape.zone) is not None:
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
            "with notification.kinds), of a time (notification.time), of a field that tells the kind "
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


@frozen
class Verification:
    """How notifications are verified. This base class is for services that do not sign them.

    Attributes:
        profile: What the service does.
        proves: Whether a notification that passes comes from the service.
    """

    profile: Profile = field(repr=False)
    proves: ClassVar[bool] = False

    @property
    def timed(self) -> bool:
        """Whether the signature covers the time when a notification was sent, so that it cannot come again later."""
        return False

    @property
    def checks(self) -> str:
        """What is checked, in words."""
        return "nothing"

    def verify(
        self, raw: Raw, headers: Headers, *, now: float, kind: str | None = None, max_bytes: int = MAX_BYTES
    ) -> Notification:
        """Return a notification that passes, as the function `verify` does.

        Args:
            raw: The body's bytes.
            headers: A mapping, or pairs.
            now: Seconds since 1970.
            kind: The kind that its address says.
            max_bytes: The greatest length of the body.
        """
        body, received = copy_body(raw, max_bytes), read_headers(headers)
        self.check_bytes(body, received, now)  # first, so that nothing is decoded for a forger
        document = decode_body(body)
        self.check_document(body, document, now)  # before anything else is read, for the same reason
        arrived = datetime.fromtimestamp(now, UTC)
        notification = read_document(body, document, received, profile=self.profile, kind=kind, received_at=arrived)
        return with_facts(notification, verified=self.proves)

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> None:
        """Check a signature over body and headers."""

    def check_document(self, body: bytes, document: Mapping[str, Any], now: float) -> None:
        """Check a signature inside the document."""


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
        genuine: object
        try:
            genuine = self.verifier(body, CIMultiDictProxy(headers))
        except Exception:  # noqa: BLE001 - the user's code; an error verifies nothing
            genuine = False
        if genuine is not True:
            raise _error("verifier", "does not say that it is from the service")


@frozen
class KeyedVerification(Verification):
    """Verification by keys. Unless a subclass differs, the signature stands in a header, and covers the exact body.

    Attributes:
        keys: The keys, several while they rotate.
        service_paths: If a key signs requests, too, the paths of values that only the service sends.
    """

    keys: tuple[Secret, ...]
    service_paths: frozenset[str] | None
    proves = True

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

    def _check_origin(self, field: str, document: Mapping[str, Any]) -> None:
        """Check that a document is not a request that is sent back."""
        if self.service_paths is not None and not is_made_by_service(self.profile, self.service_paths, document):
            raise _error(field, SENT_BACK)


@frozen
class WebhookVerification(KeyedVerification):
    """Verification by Standard Webhooks."""

    def __attrs_post_init__(self) -> None:
        check_secrets(self.keys)

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> None:
        """Check the headers of Standard Webhooks."""
        shape = self.profile.notification
        check_webhook(body, headers, keys=self.keys, tolerance=shape.tolerance, now=now, names=shape.headers)


@frozen
class HeaderVerification(KeyedVerification):
    """Verification by the algorithm and the encoding of the profile's scheme."""

    scheme: Keyed
    merchant_id: str

    def __attrs_post_init__(self) -> None:
        for key in self.keys:
            self.scheme.verify_text(b"", "", key=key)  # raises for a key that it cannot use

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> None:
        """Check the signature, and the time if a header has it."""
        shape = self.profile.notification
        names = shape.headers
        sent, text, missing = _read_signed(names, headers, body, self.merchant_id)
        if missing:
            place, _, why = missing.partition(" ")
            raise _error(place, why)
        if names.timestamp:
            _check_time(names.timestamp, sent, shape, now)
        signatures = names.signatures(headers)[:MOST_SIGNATURES]
        if not signatures:
            why = f"has no {names.prefix!r}" if values_at(headers, names.signature) else MISSING
            raise _error(names.signature, why)
        if not any(self.scheme.verify_text(text, each, key=key) for key in self.keys for each in signatures):
            raise _error(names.signature, NOT_OF_THE_BODY)

    def check_document(self, body: bytes, document: Mapping[str, Any], now: float) -> None:  # noqa: ARG002 - all of it is signed
        """Check that the document is not a request, and its time if no header has the time."""
        shape = self.profile.notification
        self._check_origin(shape.headers.signature, document)
        if shape.time and not shape.headers.timestamp:
            _check_time(shape.time, at(document, shape.time), shape, now)


def _read_signed(
    names: SignedHeader, headers: CIMultiDict[str], body: bytes, merchant_id: str
) -> tuple[str, bytes, str]:
    """Return the timestamp, the signed text, and what is wrong with a header, so that no other error is a context."""
    try:
        return *names.read(headers, body, {"merchant_id": merchant_id}), ""
    except ValueError as error:
        return "", b"", str(error)


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

    def _names_read(self, document: object) -> frozenset[str]:
        """Return the signed fields of a notification that payasync reads."""
        return signed_fields.names_read_in_notifications(self.profile, self._compared, document)

    @property
    def checks(self) -> str:
        """What is checked, in words."""
        shape, coverage = self.profile.notification, notification_coverage(self.profile)
        unsigned = [path for path in (shape.kind_path, shape.time) if path and coverage and not coverage.covers(path)]
        warning = f"; not signed: {', '.join(unsigned)}" if unsigned else ""
        return f"{self._describe(f'{shape.signature} over the object that holds it', shape.time)}{warning}"

    def check_document(self, body: bytes, document: Mapping[str, Any], now: float) -> None:
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
            if why := refused_field(self.scheme, signed, above, name):
                raise _error(field, f"cannot be checked: {why}")
            raise _error(field, f"is not valid for its object with any of the keys: {MISMATCH}")
        if doubt := hidden_field(self.scheme, signed, above, name, partial(self._names_read, document)):
            raise _error(field, f"proves nothing: {doubt}")
        self._check_origin(field, document)
        if shape.time:
            _check_time(shape.time, at(document, shape.time), shape, now)


@frameless
def verify(
    raw: Raw,
    headers: Headers,
    *,
    profile: Profile,
    credentials: Credentials,
    kind: str | None = None,
    verifier: Verifier | None = None,
    clock: Callable[[], float] = time.time,
    max_bytes: int = MAX_BYTES,
) -> Notification:
    """Return a notification that the service has signed: `verified` is `True`.

    If the profile says that notifications are not signed (`verification = "none"`) and no `verifier` is given,
    `verified` stays `False`: the notification is only a hint.

    Args:
        raw: The body's bytes, as they were received.
        headers: A mapping, or pairs; names in any case.
        profile: What the service does.
        credentials: Its `service_keys` or `notification_keys` verify.
        kind: `payment`, `refund` or `subscription`, if the address at which it arrived says so.
        verifier: Verifies in the profile's place. It gets body and headers, and must return `True`.
        clock: A function that returns seconds since 1970, to check signed times.
        max_bytes: The greatest length of the body.

    Raises:
        InvalidSignatureError: It is not from the service, or too old, or from the future.
        InvalidArgumentError: It is no notification at all; as `parse` raises it.
        NotConfiguredError: The profile does not say how notifications are signed.
        ConfigurationError: No key can verify it, a key is unusable, or the signature does not cover what would be
            believed. Or a request that is sent back would pass for a notification.
    """
    verification = verification_of(profile, credentials, verifier)
    return verification.verify(raw, headers, kind=kind, now=clock(), max_bytes=max_bytes)


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
        return CustomVerification(profile, verifier)
    if shape.verification == "standard-webhooks":
        return WebhookVerification(profile, credentials.notification_keys, None)
    if shape.verification in {"body", "header"}:
        return _keyed_verification(profile, credentials)
    if not shape.verification:
        how = "how notifications are signed: body, header, standard-webhooks, or none"
        raise not_configured("notification.verification", how)
    return Verification(profile)


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
        return HeaderVerification(profile, keys, service_paths, scheme, credentials.merchant_id)
    return BodyVerification(profile, keys, service_paths, cast("SignatureScheme", scheme))
