"""The keys of a sandbox's merchant, and of its service: drawn afresh for each database."""

import base64
import secrets
from collections.abc import Callable
from typing import Final, TypeAlias

from attrs import frozen

from payasync.credentials import Credentials
from payasync.profile import Profile
from payasync.sandbox import asymmetric
from payasync.secret import Secret
from payasync.signing import SortedPairs

MERCHANT_ID: Final = "SANDBOX"


@frozen
class Keys:
    """What a sandbox keeps secret.

    Attributes:
        merchant: The merchant's credentials; their `service_keys` verify what the service signs.
        service: What the service signs its answers and its notifications with: the merchant's signing key
            where the profile's algorithm is symmetric, else a private key of its own.
        admin: The token that opens the dashboard.
    """

    merchant: Credentials
    service: Secret
    admin: Secret


Kept: TypeAlias = Callable[[str, Callable[[], str]], str]
"""Gives the key that is kept by a name, or keeps the one that is drawn."""


def _fresh(_name: str, draw: Callable[[], str]) -> str:
    return draw()


def keys_of(profile: Profile, kept: Kept = _fresh) -> Keys:
    """Return the keys of a sandbox, of the kind that a profile's algorithm needs.

    Args:
        profile: What the service does.
        kept: Where the keys of an earlier start are.

    Raises:
        ConfigurationError: The algorithm needs a package that is not installed.
    """
    scheme = profile.signature
    paired = isinstance(scheme, SortedPairs) and scheme.algorithm in asymmetric.ALGORITHMS
    signing_key, service, verifying = _pairs(str(getattr(scheme, "algorithm", "")), kept) if paired else _shared(kept)
    merchant = Credentials(
        MERCHANT_ID,
        secret_key=kept("secret_key", lambda: f"sk_sandbox_{secrets.token_urlsafe(24)}"),
        public_key=kept("public_key", lambda: f"pk_sandbox_{secrets.token_urlsafe(24)}"),
        signing_key=signing_key,
        service_keys=(verifying,),
        notification_keys=(kept("notification_key", _notification_key),),
    )
    return Keys(merchant, Secret(service), Secret(kept("admin_token", lambda: secrets.token_urlsafe(24))))


def _shared(kept: Kept) -> tuple[str, str, str]:
    """Return one key thrice: it signs on both sides, and verifies."""
    key = kept("signing_key", lambda: secrets.token_urlsafe(32))
    return key, key, key


def _pairs(algorithm: str, kept: Kept) -> tuple[str, str, str]:
    """Return the merchant's private key, the service's, and the service's public one."""
    merchant, service = (
        kept(f"{whose}_key {algorithm}", lambda: asymmetric.new_key(algorithm)) for whose in ("signing", "service")
    )
    return merchant, service, asymmetric.public_pem(service)


def _notification_key() -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"
