"""RSA (PKCS #1 v1.5) and Ed25519, on the `cryptography` package: extra `[rsa]`."""

import functools
import re
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from payasync.credentials import Secret
from payasync.settings import invalid_setting
from payasync.signing.algorithms import MIN_RSA_BITS, SERVICE_KEYS, SIGNING_KEY, decode_base64

PrivateKey = RSAPrivateKey | Ed25519PrivateKey
PublicKey = RSAPublicKey | Ed25519PublicKey

_LABEL: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_HASHES: Final = {"rsa-sha256": hashes.SHA256(), "rsa-sha512": hashes.SHA512()}


def sign(name: str, key: Secret, message: bytes, *, min_rsa_bits: int = MIN_RSA_BITS) -> bytes:
    """Return the signature of a message by a private key.

    Raises:
        ConfigurationError: The key is not one for this algorithm.
    """
    private = private_key(name, key, min_rsa_bits)
    if isinstance(private, RSAPrivateKey):
        return private.sign(message, padding.PKCS1v15(), _HASHES[name])
    return private.sign(message)


def verify(name: str, message: bytes, signature: bytes, key: Secret, *, min_rsa_bits: int = MIN_RSA_BITS) -> bool:
    """Return whether a signature is that of the message.

    Raises:
        ConfigurationError: The key is not one for this algorithm.
    """
    public = public_key(name, key, min_rsa_bits)
    try:
        if isinstance(public, RSAPublicKey):
            public.verify(signature, message, padding.PKCS1v15(), _HASHES[name])
        else:
            public.verify(signature, message)
    except InvalidSignature:
        return False
    return True


@functools.lru_cache(maxsize=64)
def private_key(name: str, key: Secret, min_rsa_bits: int) -> PrivateKey:
    """Read a private key: PEM, or base64 of PKCS #8.

    Raises:
        ConfigurationError: The text is not such a key, or the key is for another algorithm, or too short.
    """
    loaded = _load(key, serialization.load_pem_private_key, serialization.load_der_private_key, password=None)
    if not isinstance(loaded, PrivateKey) or isinstance(loaded, Ed25519PrivateKey) is not (name == "ed25519"):
        why = _explain(name, key, loaded, private=True)
        raise invalid_setting(SIGNING_KEY, f"is not a private key for {name}: {why}")
    _check_bits(SIGNING_KEY, loaded, min_rsa_bits)
    return loaded


@functools.lru_cache(maxsize=64)
def public_key(name: str, key: Secret, min_rsa_bits: int) -> PublicKey:
    """Read a public key: PEM, or base64 of SubjectPublicKeyInfo.

    Raises:
        ConfigurationError: The text is not such a key, or the key is for another algorithm, or too short.
    """
    loaded = _load(key, serialization.load_pem_public_key, serialization.load_der_public_key)
    if not isinstance(loaded, PublicKey) or isinstance(loaded, Ed25519PublicKey) is not (name == "ed25519"):
        why = _explain(name, key, loaded, private=False)
        raise invalid_setting(SERVICE_KEYS, f"is not a public key for {name}: {why}")
    _check_bits(SERVICE_KEYS, loaded, min_rsa_bits)
    return loaded


def _load(key: Secret, pem: Callable[..., object], der: Callable[..., object], **options: None) -> object:
    """Return the key in a text, or `None`; the errors of the loaders are dropped, because they could quote the key."""
    try:
        if "-----BEGIN" in key.reveal():
            return pem(key.reveal().encode(), **options)
        return der(decode_base64("".join(key.reveal().split())), **options)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def _explain(name: str, key: Secret, loaded: object, *, private: bool) -> str:
    """Describe a refused key without quoting it, with the next step."""
    if loaded is not None:
        return f"it is a key of another algorithm. Give one for {name}, or correct signature.algorithm"
    label = found[1] if (found := _LABEL.search(key.reveal())) else ""
    if "CERTIFICATE" in label:
        return "it is a certificate. Give the public key in it: openssl x509 -pubkey -noout -in FILE"
    if "ENCRYPTED" in label or "Proc-Type: 4,ENCRYPTED" in key.reveal():
        return "it is locked by a password. Give a copy without one: openssl pkey -in FILE -out COPY"
    if private and "PUBLIC KEY" in label:
        return "it is a public key. Give the private key that belongs to it"
    if not private and "PRIVATE KEY" in label:
        return "it is a private key. Give the public key that the service shows"
    return f"it must be PEM, or base64 of {'PKCS #8, and without a password' if private else 'SubjectPublicKeyInfo'}"


def _check_bits(field: str, key: PrivateKey | PublicKey, least: int) -> None:
    if isinstance(key, RSAPrivateKey | RSAPublicKey) and key.key_size < least:
        why = f"has {key.key_size} bits: an RSA key needs {least} or more. Use a longer one"
        if least == MIN_RSA_BITS:
            why += ", or, if the service has nothing better, set signature.min_rsa_bits"
        raise invalid_setting(field, why)
