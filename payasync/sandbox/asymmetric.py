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


def verify(algorithm: str, message: bytes, signature: bytes, private_pem: str) -> bool:
    """Return whether a signature was made with a private key."""
    public = _public(private_pem)
    try:
        if algorithm == "ed25519":
            public.verify(signature, message)
        else:
            padding, hashes = _module("asymmetric.padding"), _module("hashes")
            digest = hashes.SHA256() if algorithm == "rsa-sha256" else hashes.SHA512()
            public.verify(signature, message, padding.PKCS1v15(), digest)
    except importlib.import_module("cryptography.exceptions").InvalidSignature:
        return False
    return True


@functools.lru_cache(maxsize=16)
def _public(private_pem: str) -> Any:
    return _module("serialization").load_pem_private_key(private_pem.encode(), password=None).public_key()


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"{_PRIMITIVES}.{name}")
    except ImportError:
        pass
    raise ConfigurationError(
        'the profile\'s signature.algorithm needs the cryptography package: pip install "payasync[rsa]"',
        field="signature.algorithm",
    )
