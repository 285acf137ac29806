"""The signature algorithms: a message and a key in, a signature out."""

import base64
import hashlib
import hmac
import importlib
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from attrs import evolve, frozen

from payasync.credentials import QUOTES, Secret, trim
from payasync.errors import ConfigurationError
from payasync.settings import invalid_setting

AlgorithmName = Literal["md5", "hmac-md5", "hmac-sha256", "hmac-sha512", "rsa-sha256", "rsa-sha512", "ed25519"]

SHORTEST: Final = 8
"""The fewest characters of a shared secret; a shorter one could be guessed."""
LONG_ENOUGH: Final = 16
"""Characters of a shared secret; a shorter one is used, with a warning."""
MIN_RSA_BITS: Final = 2048
"""The fewest bits of an RSA key, unless the profile allows fewer; a shorter one could be broken."""
SIGNING_KEY: Final = "credentials.signing_key"
SERVICE_KEYS: Final = "credentials.service_keys"


_ENCODED: Final = re.compile("[^A-Za-z0-9+/_-]*(?:M[A-P]|30)")
"""How base64, and hexadecimal digits, of a sequence in DER begin."""


def decode_base64(text: str) -> bytes:
    """Return the bytes that a text means in base64. Pythons differ in the padding that they accept beyond what is due.

    Raises:
        ValueError: It is not base64, or has not the padding that is due.
    """
    if len(text) % 4 or text.endswith("==="):
        raise ValueError("base64 must have the padding that is due")
    return base64.b64decode(text, validate=True)


def _is_of_a_pair(text: str) -> bool:
    """Return whether a text is a key of a key pair, or a certificate.

    It may be PEM, as OpenSSH writes it, a JSON Web Key, or base64 or hexadecimal digits of DER. That is one sequence,
    which begins with a sequence or a number. An Ed25519 public key, with 42 bytes, is the shortest.
    """
    named = "-----BEGIN" in text or '"kty"' in text or text.startswith(("ssh-", "ecdsa-"))
    if named or not _ENCODED.match(text):
        return named
    plain = re.sub("[^A-Za-z0-9+/]", "", text.replace("-", "+").replace("_", "/"))
    with suppress(ValueError, IndexError):
        der = bytes.fromhex(plain) if plain.startswith("30") else base64.b64decode(f"{plain}==")
        start = 2 + max(der[1] - 128, 0)
        size = int.from_bytes(der[2:start] or der[1:2], "big")
        # A number; or a sequence that is long, as in a certificate, or begins with the name of an algorithm.
        inner = der[start] == 2 or (der[start] == 48 and (der[start + 1] >= 128 or der[start + 2] == 6))  # noqa: PLR2004
        return der[:1] == b"0" and len(der) - start == size >= 42 and inner  # noqa: PLR2004 - above
    return False


@frozen(kw_only=True)
class _SharedSecret:
    """HMAC, or the plain digest of a message that already holds the key (`key_param`)."""

    digest: str
    keyed: bool = True
    symmetric: bool = True
    blocking: bool = False

    def check(self, key: Secret, *, signs: bool) -> None:
        field = SIGNING_KEY if signs else SERVICE_KEYS
        if _is_of_a_pair(key.reveal()):
            rule = "must be a shared secret, not a PEM text or another form of a public key"
            why = "anybody who has a public key could sign with it"
            advice = "Give the secret that the service shows, or the service's own signature.algorithm"
            raise invalid_setting(field, f"{rule}: {why}. {advice}")
        if len(key.reveal()) < SHORTEST:
            rule = f"must be a shared secret of {SHORTEST} characters or more: a shorter one is guessed"
            raise invalid_setting(field, f"{rule}. Give the whole secret that the service shows")

    def weakness(self, key: Secret, *, signs: bool) -> str:  # noqa: ARG002 - one key signs and verifies
        odd = next((each for each in key.reveal() if not each.isprintable()), "")
        if odd:
            return f"holds U+{ord(odd):04X}, which nobody sees and which changes each signature: copy the key again"
        if trim(key.reveal()) != key.reveal() or QUOTES.intersection(key.reveal()[:1] + key.reveal()[-1:]):
            odd = "has white space or a quote at an end, which changes each signature"
            return f"{odd}: remove it if it is not of the key"
        short = f"has fewer than {LONG_ENOUGH} characters, and could be guessed: ask for a longer one"
        return short if len(key.reveal()) < LONG_ENOUGH else ""

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
    min_rsa_bits: int = MIN_RSA_BITS

    def check(self, key: Secret, *, signs: bool) -> None:
        self._read(key, signs=signs)

    def weakness(self, key: Secret, *, signs: bool) -> str:
        if self.min_rsa_bits >= MIN_RSA_BITS:
            return ""
        bits: int = getattr(self._read(key, signs=signs), "key_size", MIN_RSA_BITS)
        return f"has {bits} bits, and could be broken: use a longer one" if bits < MIN_RSA_BITS else ""

    def _read(self, key: Secret, *, signs: bool) -> Any:
        read = _cryptography(self.name)
        return (read.private_key if signs else read.public_key)(self.name, key, self.min_rsa_bits)

    def signer(self, key: Secret) -> Callable[[bytes], bytes]:
        return partial(_cryptography(self.name).sign, self.name, key, min_rsa_bits=self.min_rsa_bits)

    def verify(self, message: bytes, signature: bytes, key: Secret) -> bool:
        check = _cryptography(self.name).verify
        verified: bool = check(self.name, message, signature, key, min_rsa_bits=self.min_rsa_bits)
        return verified


def _cryptography(name: str) -> Any:
    try:
        return importlib.import_module("payasync.signing.asymmetric")
    except ImportError:
        pass
    why = f'signature.algorithm "{name}" needs the cryptography package: python -m pip install "payasync[rsa]"'
    raise ConfigurationError(why, field="signature.algorithm")


Algorithm: TypeAlias = _SharedSecret | _Asymmetric
"""`symmetric`: one key signs and verifies; `blocking`: signing takes so long that it belongs off the event loop.

`check` refuses a key that cannot sign or verify, and `weakness` says why a key that can is not safe.
"""

ALGORITHMS: Final[dict[str, Algorithm]] = {
    "md5": _SharedSecret(digest="md5", keyed=False),
    "hmac-md5": _SharedSecret(digest="md5"),
    "hmac-sha256": _SharedSecret(digest="sha256"),
    "hmac-sha512": _SharedSecret(digest="sha512"),
    "rsa-sha256": _Asymmetric("rsa-sha256", blocking=True),
    "rsa-sha512": _Asymmetric("rsa-sha512", blocking=True),
    "ed25519": _Asymmetric("ed25519", blocking=False),
}


def algorithm_of(name: AlgorithmName, min_rsa_bits: int = MIN_RSA_BITS) -> Algorithm:
    """Return an algorithm; RSA accepts keys of these bits or more."""
    found = ALGORITHMS[name]
    if min_rsa_bits == MIN_RSA_BITS or isinstance(found, _SharedSecret):
        return found
    return evolve(found, min_rsa_bits=min_rsa_bits)
