"""The sandbox's own few lines of RSA (PKCS #1 v1.5) and Ed25519, on the `cryptography` package.

The package is an extra, so it is imported by what needs it. The sandbox makes the merchant's keys, so it
knows the private one, and derives the public one that checks.
"""

import functools
import importlib
from typing import Any, Final

from payasync.errors import ConfigurationError

ALGORITHMS: Final = frozenset({"rsa-sha256", "rsa-sha512", "ed25519"})
_PRIMITIVES: Final = "cryptography.hazmat.primitives"


def new_key(algorithm: str) -> str:
    """Return a new private key, as PEM.

    Raises:
        ConfigurationError: The `cryptography` package is not installed.
    """
    if algorithm == "ed25519":
        key = _module("asymmetric.ed25519").Ed25519PrivateKey.generate()
    else:
        key = _module("asymmetric.rsa").generate_private_key(public_exponent=65537, key_size=2048)
    serial = _module("serialization")
    pem: bytes = key.private_bytes(serial.Encoding.PEM, serial.PrivateFormat.PKCS8, serial.NoEncryption())
    return pem.decode()


def public_pem(private_pem: str) -> str:
    """Return the public key of a private one, as PEM."""
    serial = _module("serialization")
    pem: bytes = _public(private_pem).public_bytes(serial.Encoding.PEM, serial.PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()


def sign(algorithm: str, message: bytes, private_pem: str) -> bytes:
    """Return the signature of a message."""
    private = _private(private_pem)
    signature: bytes = private.sign(message) if algorithm == "ed25519" else private.sign(message, *_pkcs1(algorithm))
    return signature


def verify(algorithm: str, message: bytes, signature: bytes, private_pem: str) -> bool:
    """Return whether a signature was made with a private key."""
    public = _public(private_pem)
    try:
        if algorithm == "ed25519":
            public.verify(signature, message)
        else:
            public.verify(signature, message, *_pkcs1(algorithm))
    except importlib.import_module("cryptography.exceptions").InvalidSignature:
        return False
    return True


def _pkcs1(algorithm: str) -> tuple[Any, Any]:
    hashes = _module("hashes")
    return _module("asymmetric.padding").PKCS1v15(), hashes.SHA256() if algorithm == "rsa-sha256" else hashes.SHA512()


@functools.lru_cache(maxsize=16)
def _private(private_pem: str) -> Any:
    return _module("serialization").load_pem_private_key(private_pem.encode(), password=None)


def _public(private_pem: str) -> Any:
    return _private(private_pem).public_key()


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"{_PRIMITIVES}.{name}")
    except ImportError:
        pass
    raise ConfigurationError(
        'the profile\'s signature.algorithm needs the cryptography package: pip install "payasync[rsa]"',
        field="signature.algorithm",
    )
