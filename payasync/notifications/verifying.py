"""Whether a notification is from the service, by what the profile says of its signature (spec: Events, 5)."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import Any, ClassVar, TypeAlias

from attrs import evolve, field, frozen
from multidict import CIMultiDict, CIMultiDictProxy

from payasync.answer_signature import service_keys, signs
from payasync.credentials import Credentials
from payasync.documents import at
from payasync.errors import ConfigurationError
from payasync.notifications import standard_webhooks
from payasync.notifications.intake import MAX_BYTES, Headers, Raw, body_of, headers_of
from payasync.notifications.notification import Notification
from payasync.notifications.reading import read
from payasync.notifications.timestamps import check_window, seconds, unverified
from payasync.profile import Profile, not_configured
from payasync.secret import Secret
from payasync.shapes import NotificationShape
from payasync.signing import SignatureScheme, SortedPairs

Verifier: TypeAlias = Callable[[bytes, Mapping[str, str]], bool]
"""A check of one's own: the body and the headers in, whether the service sent them out; a plain function."""


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
        ConfigurationError: There is no key that could verify it.
    """
    verification = verification_of(profile, credentials, verifier)
    return verification.notification(raw, headers, kind=kind, now=clock(), max_bytes=max_bytes)


def verification_of(profile: Profile, credentials: Credentials, verifier: Verifier | None = None) -> "Verification":
    """Return how notifications are verified.

    Args:
        profile: What the service does.
        credentials: Its keys.
        verifier: Verifies in the profile's place.

    Raises:
        NotConfiguredError: The profile does not say how they are signed.
        ConfigurationError: There is no key that could verify one, or the verifier is no plain function.
    """
    if verifier is not None:
        return ByVerifier(profile, verifier)
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


def _in_body(profile: Profile, credentials: Credentials) -> "InBody":
    if not profile.notification.signature:
        raise not_configured("notification.signature", "the path of the signature, where it stands in the body")
    if profile.signature is None:
        raise not_configured("signature", "the scheme that the service signs notifications with")
    _check_covered(profile.notification, profile.signature)
    keys = service_keys(credentials, profile.signature, signed="notifications", point="notification.verification")
    return InBody(profile, profile.signature, keys)


def _check_covered(shape: NotificationShape, scheme: SignatureScheme) -> None:
    """Refuse a payload that no signature covers: anybody could write his own beside a genuine one."""
    above, steps = shape.signature.split(".")[:-1], shape.data.split(".") if shape.data else []
    inner = steps[len(above) :]
    left_out = inner and isinstance(scheme, SortedPairs) and (scheme.nested == "omit" or inner[0] in scheme.exclude)
    if left_out or steps[: len(above)] != above:
        raise ConfigurationError(
            f"notification.data is {shape.data!r}, which the signature at {shape.signature!r} does not cover: it is "
            "made over the object that it stands in. Correct one of the two, or signature.nested and signature.exclude",
            field="notification.data",
        )


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
        notification = read(body, received, profile=self.profile, kind=kind, received_at=arrived)
        self.check_document(notification.document, now)
        return evolve(notification, verified=self.proves)

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> None:
        """Refuse a body and headers that are not the service's."""

    def check_document(self, document: Mapping[str, Any], now: float) -> None:
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
        standard_webhooks.check_keys(self.keys)

    @property
    def checks(self) -> str:
        """What is looked at, in words."""
        window = f"{standard_webhooks.TIMESTAMP} within {self.profile.notification.tolerance} seconds"
        return f"{standard_webhooks.SIGNATURE} over the body, by {len(self.keys)} of your keys; {window}"

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> None:
        """Refuse what the service has not signed, or too long ago."""
        tolerance = self.profile.notification.tolerance
        standard_webhooks.check(body, headers, keys=self.keys, tolerance=tolerance, now=now)


@frozen
class InBody(Verification):
    """By the profile's scheme, over the object that holds the signature."""

    scheme: SignatureScheme
    keys: tuple[Secret, ...]
    proves = True

    def __attrs_post_init__(self) -> None:
        if isinstance(self.scheme, SortedPairs):
            for key in self.keys:
                self.scheme.verify({}, "", path="", key=key)  # raises for a key that it cannot use

    @property
    def checks(self) -> str:
        """What is looked at, in words."""
        shape = self.profile.notification
        window = f"; {shape.time} within {shape.tolerance} seconds" if shape.time else ""
        return f"{shape.signature} over the object that holds it, by {len(self.keys)} of your keys{window}"

    def check_document(self, document: Mapping[str, Any], now: float) -> None:
        """Refuse what the service has not signed; or too long ago, where the profile says where a time stands."""
        field = self.profile.notification.signature
        above, _, name = field.rpartition(".")
        signed = at(document, above)
        if not isinstance(signed, dict) or name not in signed:
            raise unverified(field, "is missing")
        if not isinstance(signed[name], str):
            raise unverified(field, "is no text")
        if not signs(self.scheme, signed, name, path="", keys=self.keys):
            raise unverified(field, "is not that of the object it stands in, by any of the keys")
        self._check_time(document, now)

    def _check_time(self, document: Mapping[str, Any], now: float) -> None:
        shape = self.profile.notification
        if not shape.time:
            return
        sent = seconds(at(document, shape.time))
        if sent is None:
            raise unverified(shape.time, "is no time: neither ISO 8601 with an offset, nor a number")
        check_window(shape.time, sent, now, shape.tolerance)
