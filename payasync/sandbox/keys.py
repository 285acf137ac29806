"""The keys of a sandbox's merchant, drawn afresh for each sandbox."""

import base64
import secrets
from typing import Final

from payasync.credentials import Credentials
from payasync.profile import Profile
from payasync.sandbox import asymmetric
from payasync.signing import SortedPairs

MERCHANT_ID: Final = "SANDBOX"


def new_credentials(profile: Profile) -> Credentials:
    """Return the credentials of a new merchant, with the kind of signing key that a profile's algorithm needs.

    Raises:
        ConfigurationError: The algorithm needs a package that is not installed.
    """
    return Credentials(
        MERCHANT_ID,
        secret_key=f"sk_sandbox_{secrets.token_urlsafe(24)}",
        public_key=f"pk_sandbox_{secrets.token_urlsafe(24)}",
        signing_key=_signing_key(profile),
        notification_keys=(f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}",),
    )


def _signing_key(profile: Profile) -> str:
    scheme = profile.signature
    if isinstance(scheme, SortedPairs) and scheme.algorithm in asymmetric.ALGORITHMS:
        return asymmetric.new_key(scheme.algorithm)
    return secrets.token_urlsafe(32)
