"""The ways in which a notification is shown to be from the service (spec: Events, 5)."""

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Final, TypeAlias

from attrs import evolve, field, frozen
from multidict import CIMultiDict, CIMultiDictProxy, MultiMapping

from payasync.credentials import Credentials, Secret
from payasync.documents import at
from payasync.errors import ConfigurationError, frameless
from payasync.middleware.verify import is_signed_by_any, read_as_signed, refused_field, service_keys
from payasync.notifications.notification import MAX_BYTES, Headers, Notification, Raw, body_of, headers_of
from payasync.notifications.reading import (
    MISMATCH,
    WEBHOOK_ID,
    check_covered,
    check_sent_back,
    check_window,
    coverage_of,
    document_of,
    made_by_service,
    read,
    seconds,
    unverified,
)
from payasync.profile.consistency import check_keys
from payasync.profile.profile import Profile, not_configured
from payasync.signing.schemes import SignatureScheme, SortedPairs

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
        keys: Several while they rotate; `check_keys` has passed them.
        tolerance: Seconds that the two clocks may be apart.
        now: Seconds since 1970.

    Raises:
        InvalidSignatureError: The header, and what is wrong with it.
    """
    number = _single(headers, WEBHOOK_ID, _WORD, A_WORD)
    sent = _single(headers, TIMESTAMP, _SECONDS, "a number of seconds since 1970")
    check_window(TIMESTAMP, int(sent), now, tolerance)
    given = list(_signatures(_only(headers, SIGNATURE)))
    if not given:
        raise unverified(SIGNATURE, f"holds no signature of version {_VERSION}")
    content = _content(body, number, sent)
    if not any(_holds(given, _digest(key, content)) for key in keys):
        raise unverified(SIGNATURE, f"is not that of the body, by any of the keys: {MISMATCH}")


def sign_webhook(body: bytes, *, number: str, sent: int, key: Secret) -> str:
    """Return the signature of a body, as its header holds it.

    Args:
        body: As it is sent.
        number: The header `webhook-id`.
        sent: The header `webhook-timestamp`: seconds since 1970.
        key: `check_keys` has passed it.
    """
    signature = _digest(key, _content(body, number, str(sent)))
    return f"{_VERSION},{base64.b64encode(signature).decode()}"


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
        if len(_decoded(key)) < _LEAST:
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


def _single(headers: MultiMapping[str], name: str, form: re.Pattern[str], wanted: str) -> str:
    value = _only(headers, name)
    if not form.fullmatch(value):
        raise unverified(name, f"is not {wanted}")
    return value


def _only(headers: MultiMapping[str], name: str) -> str:
    """Return a header that must stand there once: of two, nobody could say which one was signed."""
    values = headers.getall(name, [])
    if len(values) != 1:
        raise unverified(name, "stands there twice" if values else "is missing")
    return values[0]


def _signatures(header: str) -> Iterator[bytes]:
    """Yield the signatures of our version; others, and what is none, are passed over."""
    for each in header.split(" "):
        version, _, text = each.partition(",")
        if version == _VERSION and (signature := _bytes(text)):
            yield signature


def _holds(given: Iterable[bytes], right: bytes) -> bool:
    return any(hmac.compare_digest(right, each) for each in given)


def _content(body: bytes, number: str, sent: str) -> bytes:
    return b".".join((number.encode(), sent.encode(), body))


def _digest(key: Secret, content: bytes) -> bytes:
    return hmac.digest(_decoded(key), content, hashlib.sha256)


def _decoded(key: Secret) -> bytes:
    """Return the key's bytes, which no caller keeps: a traceback may show what is local."""
    text = key.reveal().strip().removeprefix(_PREFIX)
    return _bytes(text + "=" * (-len(text) % 4))


def _bytes(text: str) -> bytes:
    """Return what a text of base64 holds; nothing, where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


SENT_BACK: Final = (
    "is right, but covers no event, time or state that the profile knows: it may be a request of yours, sent back"
)

Verifier: TypeAlias = Callable[[bytes, Mapping[str, str]], bool]
"""A check of one's own: the body and the headers in, whether the service sent them out; a plain function."""


@frozen
class Verification:
    """How notifications are verified: here not at all, since the profile says that they are not signed.

    Attributes:
        profile: What the service does.
        proves: What passes is from the service.
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

    def notification(
        self, raw: Raw, headers: Headers, *, now: float, kind: str | None = None, max_bytes: int = MAX_BYTES
    ) -> Notification:
        """Return a notification that passed; as `verify`.

        Args:
            raw: The body's bytes.
            headers: A mapping, or pairs.
            now: Seconds since 1970.
            kind: Where its address says so.
            max_bytes: The greatest length of the body.
        """
        body, received = body_of(raw, max_bytes), headers_of(headers)
        self.check_bytes(body, received, now)  # first: who cannot sign has nothing read
        arrived = datetime.fromtimestamp(now, UTC)
        document = document_of(body)
        self.check_document(body, document, now)  # before more is made of it, for the same reason
        notification = read(body, document, received, profile=self.profile, kind=kind, received_at=arrived)
        return evolve(notification, verified=self.proves)

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> None:
        """Refuse a body and headers that are not the service's."""

    def check_document(self, body: bytes, document: Mapping[str, Any], now: float) -> None:
        """Refuse a document that is not the service's."""


@frozen
class ByVerifier(Verification):
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
        if not self._says_true(body, headers):
            raise unverified("verifier", "does not say that it is from the service")

    def _says_true(self, body: bytes, headers: CIMultiDict[str]) -> bool:
        try:
            return self.verifier(body, CIMultiDictProxy(headers)) is True
        except Exception:  # noqa: BLE001 - anybody's code; what raises has verified nothing
            return False


@frozen
class InHeaders(Verification):
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
class InBody(Verification):
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
        field = self.profile.notification.signature
        above, _, name = field.rpartition(".")
        signed = at(read_as_signed(body, document, self.scheme), above)
        if not isinstance(signed, dict) or name not in signed:
            raise unverified(field, "is missing")
        if not isinstance(signed[name], str):
            raise unverified(field, "is no text")
        if not is_signed_by_any(self.scheme, signed, name, path="", keys=self.keys):
            why = refused_field(self.scheme, signed, above, name)
            raise unverified(
                field,
                f"cannot be checked: {why}"
                if why
                else f"is not that of the object it stands in, by any of the keys: {MISMATCH}",
            )
        if self.telling is not None and not made_by_service(self.profile, self.telling, document):
            raise unverified(field, SENT_BACK)
        self._check_time(document, now)

    def _check_time(self, document: Mapping[str, Any], now: float) -> None:
        shape = self.profile.notification
        if not shape.time:
            return
        sent = seconds(at(document, shape.time))
        if sent is None:
            raise unverified(shape.time, "is no time: neither ISO 8601 with an offset, nor a number")
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

    Where the profile says that notifications are not signed (`verification = "none"`), and no `verifier` is given,
    it stays `False`: what it says is a hint.

    Args:
        raw: The body's bytes, as they were received.
        headers: A mapping, or pairs; names in any case.
        profile: What the service does.
        credentials: Its `service_keys` or `notification_keys` verify.
        kind: `payment`, `refund` or `subscription`, where the address at which it arrived says so.
        verifier: Verifies in the profile's place: gets body and headers; only `True` from it is true.
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
    return verification.notification(raw, headers, kind=kind, now=clock(), max_bytes=max_bytes)


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
    if verifier is not None:
        return ByVerifier(_as_a_whole(profile), verifier)
    how = profile.notification.verification
    if how == "standard-webhooks":
        return InHeaders(profile, credentials.notification_keys)
    if how == "body":
        return _in_body(profile, credentials)
    if not how:
        raise not_configured(
            "notification.verification", "how notifications are signed: body, standard-webhooks, or none"
        )
    return Verification(profile)


def _in_body(profile: Profile, credentials: Credentials) -> InBody:
    if not profile.notification.signature:
        raise not_configured("notification.signature", "the path of the signature, where it stands in the body")
    if profile.signature is None:
        raise not_configured("signature", "the scheme that the service signs notifications with")
    check_covered(profile)
    keys = service_keys(credentials, profile.signature, signed="notifications", point="notification.verification")
    check_keys(profile, credentials)
    return InBody(profile, profile.signature, keys, check_sent_back(profile, credentials))


def _as_a_whole(profile: Profile) -> Profile:
    """Return the profile of notifications of which a function looks at every byte, and not a signature in the body."""
    shape = profile.notification
    return evolve(profile, notification=evolve(shape, verification="")) if shape.verification == "body" else profile
