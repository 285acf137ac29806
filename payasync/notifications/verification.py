"""The ways in which a notification is shown to come from the service (docs/service.md#notifications)."""

import base64
import binascii
import hashlib
import hmac
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Final, TypeAlias

from attrs import evolve, field, frozen
from multidict import CIMultiDict, CIMultiDictProxy, MultiMapping

from payasync.credentials import Credentials, Secret
from payasync.errors import ConfigurationError, InvalidSignatureError, frameless
from payasync.middleware.verify import is_signed_by_any, read_as_signed, refused_field, service_keys
from payasync.notifications.notification import (
    MAX_BYTES,
    WEBHOOK_ID,
    Headers,
    Notification,
    Raw,
    copy_body,
    coverage_of,
    decode_body,
    read_document,
    read_headers,
)
from payasync.profile import signed_fields
from payasync.profile.consistency import check_keys
from payasync.profile.profile import Profile, not_configured
from payasync.profile.schema import NotificationShape
from payasync.profile.signed_fields import join_path
from payasync.settings import is_number
from payasync.signing.schemes import SignatureScheme, SortedPairs
from payasync.strict_json import at

MISMATCH: Final = "the body is not the one that was signed, or the key is another"
"""The cause of a wrong signature."""
MILLISECONDS_FROM: Final = 10**11
"""So many seconds after 1970 are the year 5138: a number from here on counts milliseconds."""
_NUMBER: Final = re.compile(r"[0-9]{1,19}(\.[0-9]{1,9})?", re.ASCII)


def parse_time(value: object) -> float | None:
    """Return a time as seconds since 1970; `None` for what is no time.

    Args:
        value: ISO 8601 with an offset, or seconds since 1970, or milliseconds; a text of digits is a number.
    """
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            return None
        return None if instant.utcoffset() is None else instant.timestamp()
    if not isinstance(value, str) and not is_number(value):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    return number / 1000 if number >= MILLISECONDS_FROM else number


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
        raise _refuse(field, f"is {abs(age):.0f} seconds {side}: more than notification.tolerance, {tolerance:g}")


def _refuse(field: str, reason: str) -> InvalidSignatureError:
    """Return the error for an unverified notification; the reason holds neither a key nor the right signature."""
    return InvalidSignatureError(f"the notification is not verified: {field} {reason}", field=field, reason=reason)


A_WORD: Final = "a text of 1 to 256 visible ASCII characters"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"

_VERSION: Final = "v1"
_PREFIX: Final = "whsec_"
_LEAST: Final = 24
"""Bytes of a key: the scheme has no shorter ones, so that one of which a part is missing is found."""
_KEYS: Final = "credentials.notification_keys"
_WORD: Final = re.compile(r"[\x21-\x7e]{1,256}")
_SECONDS: Final = re.compile(r"[0-9]{1,11}")


def check_webhook(
    body: bytes, headers: MultiMapping[str], *, keys: Iterable[Secret], tolerance: float, now: float
) -> None:
    """Refuse what the service has not signed, or has signed too long ago.

    Args:
        body: As it was received.
        headers: Names in any case.
        keys: Several while they rotate; `check_secrets` has passed them.
        tolerance: Seconds that the two clocks may be apart.
        now: Seconds since 1970.

    Raises:
        InvalidSignatureError: The header, and what is wrong with it.
    """
    number = _get_header(headers, WEBHOOK_ID, _WORD, A_WORD)
    sent = _get_header(headers, TIMESTAMP, _SECONDS, "a number of seconds since 1970")
    check_window(TIMESTAMP, int(sent), now, tolerance)
    pairs = [each.partition(",") for each in _get_header(headers, SIGNATURE).split(" ")]
    signatures = [_decode_base64(text) for version, _, text in pairs if version == _VERSION]  # other versions may come
    if not any(signatures):
        raise _refuse(SIGNATURE, f"holds no signature of version {_VERSION}")
    if not any(_is_among(signatures, _sign_content(body, number, sent, key)) for key in keys):
        raise _refuse(SIGNATURE, f"is not that of the body, by any of the keys: {MISMATCH}")


def sign_webhook(body: bytes, *, number: str, sent: int, key: Secret) -> str:
    """Return the signature of a body, as its header holds it.

    Args:
        body: As it is sent.
        number: The header `webhook-id`.
        sent: The header `webhook-timestamp`: seconds since 1970.
        key: `check_secrets` has passed it.
    """
    return f"{_VERSION},{base64.b64encode(_sign_content(body, number, str(sent), key)).decode()}"


def is_word(number: object) -> bool:
    """Return whether a value can be the header `webhook-id`."""
    return isinstance(number, str) and bool(_WORD.fullmatch(number))


def check_secrets(keys: Iterable[Secret]) -> None:
    """Refuse keys that can verify nothing.

    Raises:
        ConfigurationError: There is none, or one is no base64, or too short.
    """
    number = 0
    for number, key in enumerate(keys, start=1):
        if len(_decode_key(key)) < _LEAST:
            raise ConfigurationError(
                f"{_KEYS}: key {number} must be {_PREFIX} and base64 of {_LEAST} bytes or more, whole as the service "
                "shows it",
                field=_KEYS,
            )
    if not number:
        raise ConfigurationError(
            f"{_KEYS} is empty (PAYASYNC_NOTIFICATION_KEYS in the environment): the profile says that notifications "
            "are signed by Standard Webhooks, and they are verified with it",
            field=_KEYS,
        )


def _get_header(headers: MultiMapping[str], name: str, form: re.Pattern[str] | None = None, wanted: str = "") -> str:
    """Return a header that must stand there once: of two, nobody could say which one was signed."""
    values = headers.getall(name, [])
    if len(values) != 1:
        raise _refuse(name, "stands there twice" if values else "is missing")
    if form and not form.fullmatch(values[0]):
        raise _refuse(name, f"is not {wanted}")
    return values[0]


def _is_among(signatures: Iterable[bytes], right: bytes) -> bool:
    return any(hmac.compare_digest(right, each) for each in signatures)


def _sign_content(body: bytes, number: str, sent: str, key: Secret) -> bytes:
    return hmac.digest(_decode_key(key), b".".join((number.encode(), sent.encode(), body)), hashlib.sha256)


def _decode_key(key: Secret) -> bytes:
    """Return the key's bytes, which no caller keeps: a traceback may show what is local."""
    text = key.reveal().strip().removeprefix(_PREFIX)
    return _decode_base64(text + "=" * (-len(text) % 4))


def _decode_base64(text: str) -> bytes:
    """Return what a text of base64 holds; nothing, where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def check_covered(profile: Profile) -> None:
    """Refuse a profile that would have something believed that no signature covers.

    Where the name of an event stands is no matter: like the address, one that nobody signed says the kind, and no more.
    Nor where its time stands: one that nobody signed is better than none, which may be left out.

    Raises:
        ConfigurationError: It names the point.
    """
    if signed := coverage_of(profile):
        signed_fields.check_covered(signed, profile.notification.signature, _list_believed(profile.notification))


def _list_believed(shape: NotificationShape) -> Iterator[tuple[str, str, str]]:
    """Yield the points that name what is acted upon, with their paths, and where in the document that stands."""
    yield "notification.data", shape.data, join_path(shape.data, "any field of it")
    for name in ("out_trade_no", "out_refund_no", "subscription_id"):
        if path := getattr(shape, name):
            yield f"notification.{name}", path, join_path(shape.data, path)
    for kind, paths in shape.id.items():
        for path in paths:
            yield f"notification.id.{kind}", path, join_path(shape.data, path)


def is_made_by_service(profile: Profile, telling: frozenset[str], document: Mapping[str, Any]) -> bool:
    """Return whether a document holds something that no request says: a known event, a time, or a known state.

    Args:
        profile: Says which events and states there are.
        telling: The paths that count, as `check_sent_back` returns them.
        document: A notification whose signature is right.
    """
    shape = profile.notification
    events = [name for names in shape.kinds.values() for name in names]
    if shape.kind in telling and at(document, shape.kind) in events:
        return True
    if shape.time in telling and parse_time(at(document, shape.time)) is not None:
        return True
    states = [(thing, path) for thing, path in _list_state_paths(profile) if path in telling]
    return any(profile.states.name(thing, at(document, path)) for thing, path in states)


def check_sent_back(profile: Profile, credentials: Credentials) -> frozenset[str] | None:
    """Refuse a profile by which a request that is sent back could not be told from a notification.

    Returns:
        The signed paths that requests do not have; `None` if no key that signs requests verifies notifications.

    Raises:
        ConfigurationError: No event name, time or state stands inside the signature.
    """
    signed, shape = coverage_of(profile), profile.notification
    if signed is None or not signed_fields.shares_key(profile, credentials):
        return None
    event = shape.kind if any(shape.kinds.values()) else ""
    paths = (event, shape.time, *(path for _, path in _list_state_paths(profile)))
    telling = frozenset(signed_fields.only_from_the_service(profile, signed, paths))
    if not telling:
        raise ConfigurationError(
            "notification.kind, notification.time and answer.*_status name nothing inside the signature that your "
            "requests do not have. The same key signs requests and verifies notifications, so a request of yours that "
            "is sent back would be believed. Add a path inside the signature: of an event name (notification.kind, "
            "with notification.kinds), of a time (notification.time) or of a state (such as answer.order_status, with "
            "states.order). If the service signs with a key of its own, give credentials.service_keys instead",
            field="notification.kind",
        )
    return telling


def _list_state_paths(profile: Profile) -> list[tuple[str, str]]:
    """Return the things and the paths of their states, if the profile knows values of these.

    A document without the payload's path is a payload itself.
    """
    things = ("order", "payment", "refund", "subscription")
    paths = {thing: getattr(profile.answer, f"{thing}_status") for thing in things}
    known = {thing: path for thing, path in paths.items() if path and getattr(profile.states, thing)}
    return [
        (thing, join_path(place, path)) for place in (profile.notification.data, "") for thing, path in known.items()
    ]


SENT_BACK: Final = (
    "is right, but covers no event, time or state that the profile knows: it may be a request of yours, sent back"
)

Verifier: TypeAlias = Callable[[bytes, Mapping[str, str]], bool]
"""A check of one's own: the body and the headers in, whether the service sent them out; a plain function."""


@frozen
class Verification:
    """How notifications are verified; this base class verifies nothing, for a profile that says they are not signed.

    Attributes:
        profile: What the service does.
        proves: Whether a notification that passes comes from the service.
    """

    profile: Profile = field(repr=False)
    proves: ClassVar[bool] = False

    @property
    def timed(self) -> bool:
        """Whether what passes is signed with the time when it was sent, so that it does not pass later."""
        return False

    @property
    def checks(self) -> str:
        """What is looked at, in words."""
        return "nothing"

    def verify(
        self, raw: Raw, headers: Headers, *, now: float, kind: str | None = None, max_bytes: int = MAX_BYTES
    ) -> Notification:
        """Return a notification that passed, as the function `verify`.

        Args:
            raw: The body's bytes.
            headers: A mapping, or pairs.
            now: Seconds since 1970.
            kind: Where its address says so.
            max_bytes: The greatest length of the body.
        """
        body, received = copy_body(raw, max_bytes), read_headers(headers)
        self.check_bytes(body, received, now)  # first: who cannot sign has nothing read
        document = decode_body(body)
        self.check_document(body, document, now)  # before more is made of it, for the same reason
        arrived = datetime.fromtimestamp(now, UTC)
        notification = read_document(body, document, received, profile=self.profile, kind=kind, received_at=arrived)
        return evolve(notification, verified=self.proves)

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> None:
        """Refuse a body and headers that are not the service's."""

    def check_document(self, body: bytes, document: Mapping[str, Any], now: float) -> None:
        """Refuse a document that is not the service's."""


@frozen
class CustomVerification(Verification):
    """By a function of the merchant's own."""

    verifier: Verifier
    proves = True

    def __attrs_post_init__(self) -> None:
        called = getattr(type(self.verifier), "__call__", None)  # noqa: B004 - of an object with such a method
        if not callable(self.verifier) or iscoroutinefunction(self.verifier) or iscoroutinefunction(called):
            raise ConfigurationError(
                "verifier must be a plain function of the body and the headers, not a coroutine function: "
                "what it returns is not awaited, and nothing would ever verify",
                field="verifier",
            )

    @property
    def checks(self) -> str:
        """What is looked at, in words."""
        return "whatever the verifier looks at"

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> None:  # noqa: ARG002 - it has its own
        """Refuse what the function does not call true."""
        genuine: object
        try:
            genuine = self.verifier(body, CIMultiDictProxy(headers))
        except Exception:  # noqa: BLE001 - anybody's code; what raises has verified nothing
            genuine = False
        if genuine is not True:
            raise _refuse("verifier", "does not say that it is from the service")


@frozen
class WebhookVerification(Verification):
    """By Standard Webhooks."""

    keys: tuple[Secret, ...]
    proves = True

    def __attrs_post_init__(self) -> None:
        check_secrets(self.keys)

    @property
    def timed(self) -> bool:
        """Whether what passes is signed with the time when it was sent: it always is."""
        return True

    @property
    def checks(self) -> str:
        """What is looked at, in words."""
        window = f"{TIMESTAMP} within {self.profile.notification.tolerance} seconds"
        return f"{SIGNATURE} over the body, by {len(self.keys)} of your keys; {window}"

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> None:
        """Refuse what the service has not signed, or too long ago."""
        tolerance = self.profile.notification.tolerance
        check_webhook(body, headers, keys=self.keys, tolerance=tolerance, now=now)


@frozen
class BodyVerification(Verification):
    """By the profile's scheme, over the object that holds the signature.

    Attributes:
        scheme: The profile's.
        keys: Several while they rotate.
        telling: If one of the keys signs requests, the paths of which one must show that the service made it.
    """

    scheme: SignatureScheme
    keys: tuple[Secret, ...]
    telling: frozenset[str] | None = None
    proves = True

    def __attrs_post_init__(self) -> None:
        if isinstance(self.scheme, SortedPairs):
            for key in self.keys:
                self.scheme.verify({}, "", path="", key=key)  # raises for a key that it cannot use

    @property
    def timed(self) -> bool:
        """Whether what passes is signed with the time when it was sent: the profile says where it stands."""
        coverage, time = coverage_of(self.profile), self.profile.notification.time
        return bool(time and coverage and coverage.covers(time))

    @property
    def checks(self) -> str:
        """What is looked at, in words."""
        shape, coverage = self.profile.notification, coverage_of(self.profile)
        window = f"; {shape.time} within {shape.tolerance} seconds" if shape.time else ""
        unsigned = [path for path in (shape.kind, shape.time) if path and coverage and not coverage.covers(path)]
        warning = f"; not signed: {', '.join(unsigned)}" if unsigned else ""
        return f"{shape.signature} over the object that holds it, by {len(self.keys)} of your keys{window}{warning}"

    def check_document(self, body: bytes, document: Mapping[str, Any], now: float) -> None:
        """Refuse what the service has not signed; or too long ago, where the profile says where a time stands."""
        shape = self.profile.notification
        field = shape.signature
        above, _, name = field.rpartition(".")
        signed = at(read_as_signed(body, document, self.scheme), above)
        if not isinstance(signed, dict) or name not in signed:
            raise _refuse(field, "is missing")
        if not isinstance(signed[name], str):
            raise _refuse(field, "is no text")
        if not is_signed_by_any(self.scheme, signed, name, path="", keys=self.keys):
            if why := refused_field(self.scheme, signed, above, name):
                raise _refuse(field, f"cannot be checked: {why}")
            raise _refuse(field, f"is not that of the object it stands in, by any of the keys: {MISMATCH}")
        if self.telling is not None and not is_made_by_service(self.profile, self.telling, document):
            raise _refuse(field, SENT_BACK)
        if shape.time:
            sent = parse_time(at(document, shape.time))
            if sent is None:
                raise _refuse(shape.time, "is no time: neither ISO 8601 with an offset, nor a number")
            check_window(shape.time, sent, now, shape.tolerance)


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
        clock: Seconds since 1970.
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
        ConfigurationError: As for `verify`; or the verifier is no plain function.
    """
    shape = profile.notification
    if verifier is not None:  # it looks at every byte, and not at a signature in the body
        whole = evolve(profile, notification=evolve(shape, verification="")) if coverage_of(profile) else profile
        return CustomVerification(whole, verifier)
    if shape.verification == "standard-webhooks":
        return WebhookVerification(profile, credentials.notification_keys)
    if shape.verification == "body":
        return _body_verification(profile, credentials)
    if not shape.verification:
        raise not_configured(
            "notification.verification", "how notifications are signed: body, standard-webhooks, or none"
        )
    return Verification(profile)


def _body_verification(profile: Profile, credentials: Credentials) -> BodyVerification:
    if not profile.notification.signature:
        raise not_configured("notification.signature", "the path of the signature, where it stands in the body")
    if profile.signature is None:
        raise not_configured("signature", "the scheme that the service signs notifications with")
    check_covered(profile)
    keys = service_keys(credentials, profile.signature, signed="notifications", point="notification.verification")
    check_keys(profile, credentials)
    return BodyVerification(profile, profile.signature, keys, check_sent_back(profile, credentials))
