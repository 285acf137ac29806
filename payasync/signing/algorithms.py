"""The signature algorithms: a message and a key in, a signature out."""

import hashlib
import hmac
import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from attrs import frozen

from payasync.credentials import Secret
from payasync.errors import ConfigurationError
from payasync.settings import invalid_setting

AlgorithmName = Literal["md5", "hmac-md5", "hmac-sha256", "hmac-sha512", "rsa-sha256", "rsa-sha512", "ed25519"]

SHORTEST: Final = 8
"""The fewest characters of a shared secret; a shorter one could be guessed."""
SIGNING_KEY: Final = "credentials.signing_key"
SERVICE_KEYS: Final = "credentials.service_keys"


@frozen(kw_only=True)
class _SharedSecret:
    """HMAC, or the plain digest of a message that already holds the key (`key_param`)."""

    digest: str
    keyed: bool = True
    symmetric: bool = True
    blocking: bool = False

    def check(self, key: Secret, *, signs: bool) -> None:
        field = SIGNING_KEY if signs else SERVICE_KEYS
        if "-----BEGIN" in key.reveal():
            raise invalid_setting(
                field,
                "must be a shared secret, not a PEM text: anybody who has a public key could sign with it. "
                "Give the secret that the service shows, or the service's own signature.algorithm",
            )
        if len(key.reveal()) < SHORTEST:
            raise invalid_setting(
                field,
                f"must be a shared secret of {SHORTEST} characters or more: a shorter one is guessed. "
                "Give the whole secret that the service shows",
            )

    def signer(self, key: Secret) -> Callable[[bytes], bytes]:
        self.check(key, signs=True)
        if not self.keyed:
            return self._hash
        keyed = hmac.new(key.reveal().encode(), digestmod=self.digest)

        def sign(message: bytes) -> bytes:
            made = keyed.copy()  # the key is hashed once: half the cost of a short message
            made.update(message)
            return made.digest()

        return sign

    def verify(self, message: bytes, signature: bytes, key: Secret) -> bool:
        self.check(key, signs=False)
        made = hmac.digest(key.reveal().encode(), message, self.digest) if self.keyed else self._hash(message)
        return hmac.compare_digest(made, signature)

    def _hash(self, message: bytes) -> bytes:
        return hashlib.new(self.digest, message, usedforsecurity=False).digest()


@frozen
class _Asymmetric:
    """RSA and Ed25519; the `cryptography` package is imported on first use."""

    name: str
    blocking: bool
    symmetric: bool = False

    def check(self, key: Secret, *, signs: bool) -> None:
        read = _cryptography(self.name)
        (read.private_key if signs else read.public_key)(self.name, key)

    def signer(self, key: Secret) -> Callable[[bytes], bytes]:
        return partial(_cryptography(self.name).sign, self.name, key)

    def verify(self, message: bytes, signature: bytes, key: Secret) -> bool:
        verified: bool = _cryptography(self.name).verify(self.name, message, signature, key)
        return verified


def _cryptography(name: str) -> Any:
    try:
        return importlib.import_module("payasync.signing.asymmetric")
    except ImportError:
        pass
    raise ConfigurationError(
        f'signature.algorithm "{name}" needs the cryptography package: python -m pip install "payasync[rsa]"',
        field="signature.algorithm",
    )


Algorithm: TypeAlias = _SharedSecret | _Asymmetric
"""`symmetric`: one key signs and verifies; `blocking`: signing takes so long that it belongs off the event loop."""

ALGORITHMS: Final[dict[str, Algorithm]] = {
    "md5": _SharedSecret(digest="md5", keyed=False),
    "hmac-md5": _SharedSecret(digest="md5"),
    "hmac-sha256": _SharedSecret(digest="sha256"),
    "hmac-sha512": _SharedSecret(digest="sha512"),
    "rsa-sha256": _Asymmetric("rsa-sha256", blocking=True),
    "rsa-sha512": _Asymmetric("rsa-sha512", blocking=True),
    "ed25519": _Asymmetric("ed25519", blocking=False),
}
