"""How the profile says that a notification is shown to be from the service, and whether it is (spec: Events, 5)."""

import time
from collections.abc import Callable

from attrs import evolve

from payasync.answer_signature import service_keys
from payasync.credentials import Credentials
from payasync.keys import check_keys
from payasync.notifications.coverage import check_covered, check_sent_back
from payasync.notifications.intake import MAX_BYTES, Headers, Raw
from payasync.notifications.notification import Notification
from payasync.notifications.verifications import ByVerifier, InBody, InHeaders, Verification, Verifier
from payasync.profile import Profile, not_configured
from payasync.tracebacks import frameless


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
