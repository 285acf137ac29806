"""RSA (PKCS #1 v1.5) and Ed25519, on the `cryptography` package: extra `[rsa]`."""

import base64
import binascii
import functools
from collections.abc import Callable
from typing import Final, TypeVar

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from payasync.errors import ConfigurationError
from payasync.secret import Secret

PrivateKey = RSAPrivateKey | Ed25519PrivateKey
PublicKey = RSAPublicKey | Ed25519PublicKey
Key = TypeVar("Key")

MIN_RSA_BITS: Final = 2048
_HASHES: Final = {"rsa-sha256": hashes.SHA256(), "rsa-sha512": hashes.SHA512()}


def sign(name: str, message: bytes, key: Secret) -> bytes:
    """Return the signature of a message by a private key.

    Raises:
        ConfigurationError: The key is not one for this algorithm.
    """
    private = private_key(name, key)
    if isinstance(private, RSAPrivateKey):
        return private.sign(message, padding.PKCS1v15(), _HASHES[name])
    return private.sign(message)


def verify(name: str, message: bytes, signature: bytes, key: Secret) -> bool:
    """Return whether a signature is that of the message.

    Raises:
        ConfigurationError: The key is not one for this algorithm.
    """
    public = public_key(name, key)
    try:
        if isinstance(public, RSAPublicKey):
            public.verify(signature, message, padding.PKCS1v15(), _HASHES[name])
        else:
            public.verify(signature, message)
    except InvalidSignature:
        return False
    return True


@functools.lru_cache(maxsize=64)
def private_key(name: str, key: Secret) -> PrivateKey:
    """Read a private key: PEM, or base64 of PKCS #8.

    Raises:
        ConfigurationError: It is none, or not for this algorithm, or an RSA key below 2048 bits.
    """
    loaded = _loaded(key, serialization.load_pem_private_key, serialization.load_der_private_key, password=None)
    return _fitting(name, loaded, (RSAPrivateKey, Ed25519PrivateKey), "credentials.signing_key", "private")


@functools.lru_cache(maxsize=64)
def public_key(name: str, key: Secret) -> PublicKey:
    """Read a public key: PEM, or base64 of SubjectPublicKeyInfo.

    Raises:
        ConfigurationError: It is none, or not for this algorithm, or an RSA key below 2048 bits.
    """
    loaded = _loaded(key, serialization.load_pem_public_key, serialization.load_der_public_key)
    return _fitting(name, loaded, (RSAPublicKey, Ed25519PublicKey), "credentials.service_keys", "public")


def _loaded(key: Secret, pem: Callable[..., object], der: Callable[..., object], **options: None) -> object:
    """Return the key that a text holds, or `None`: the loaders' own errors could quote it."""
    try:
        if "-----BEGIN" in key.reveal():
            return pem(key.reveal().encode(), **options)
        return der(base64.b64decode("".join(key.reveal().split()), validate=True), **options)
    except (ValueError, TypeError, UnsupportedAlgorithm, binascii.Error):
        return None


def _fitting(name: str, loaded: object, kinds: tuple[type[Key], type[Key]], field: str, side: str) -> Key:
    rsa, ed25519 = kinds
    wanted = ed25519 if name == "ed25519" else rsa
    if not isinstance(loaded, wanted):
        form = f"a {side} key for {name}: PEM, or base64 of {'PKCS #8' if side == 'private' else 'SubjectPublicKeyInfo'}"
        raise ConfigurationError(f"{field} is not {form}, without a password", field=field)
    bits = getattr(loaded, "key_size", MIN_RSA_BITS)
    if bits < MIN_RSA_BITS:
        raise ConfigurationError(f"{field} has {bits} bits: an RSA key needs {MIN_RSA_BITS} or more", field=field)
    return loaded
