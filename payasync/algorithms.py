"""The algorithms that a signature scheme can name: bytes and a key in, a signature out."""

import hashlib
import hmac
import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, Protocol

from attrs import frozen

from payasync.errors import ConfigurationError
from payasync.secret import Secret

AlgorithmName = Literal["md5", "hmac-md5", "hmac-sha256", "hmac-sha512", "rsa-sha256", "rsa-sha512", "ed25519"]


class Algorithm(Protocol):
    """What a scheme needs of an algorithm.

    Attributes:
        symmetric: The key that signs also verifies.
        blocking: Signing takes so long that it belongs off the event loop.
    """

    @property
    def symmetric(self) -> bool: ...  # noqa: D102 - said above
    @property
    def blocking(self) -> bool: ...  # noqa: D102 - said above
    def sign(self, message: bytes, key: Secret) -> bytes: ...  # noqa: D102 - as it says
    def signer(self, key: Secret) -> Callable[[bytes], bytes]: ...  # noqa: D102 - `sign` with one key, prepared
    def verify(self, message: bytes, signature: bytes, key: Secret) -> bool: ...  # noqa: D102 - as it says


@frozen
class _Hmac:
    digest: str
    symmetric: bool = True
    blocking: bool = False

    def sign(self, message: bytes, key: Secret) -> bytes:
        return hmac.digest(key.reveal().encode(), message, self.digest)

    def signer(self, key: Secret) -> Callable[[bytes], bytes]:
        keyed = hmac.new(key.reveal().encode(), digestmod=self.digest)

        def sign(message: bytes) -> bytes:
            made = keyed.copy()  # a digest that has taken the key in: half of what a short message costs
            made.update(message)
            return made.digest()

        return sign

    def verify(self, message: bytes, signature: bytes, key: Secret) -> bool:
        return hmac.compare_digest(self.sign(message, key), signature)


@frozen
class _Md5:
    """A plain digest: the key is in the message, as `key_param` put it there."""

    symmetric: bool = True
    blocking: bool = False

    def sign(self, message: bytes, key: Secret) -> bytes:  # noqa: ARG002 - the message holds it
        return hashlib.md5(message, usedforsecurity=False).digest()

    def signer(self, key: Secret) -> Callable[[bytes], bytes]:
        return partial(self.sign, key=key)

    def verify(self, message: bytes, signature: bytes, key: Secret) -> bool:
        return hmac.compare_digest(self.sign(message, key), signature)


@frozen
class _Asymmetric:
    """RSA and Ed25519, through the `cryptography` package, loaded when first used."""

    name: str
    blocking: bool
    symmetric: bool = False

    def sign(self, message: bytes, key: Secret) -> bytes:
        signature: bytes = _cryptography(self.name).sign(self.name, message, key)
        return signature

    def signer(self, key: Secret) -> Callable[[bytes], bytes]:
        return partial(self.sign, key=key)

    def verify(self, message: bytes, signature: bytes, key: Secret) -> bool:
        verified: bool = _cryptography(self.name).verify(self.name, message, signature, key)
        return verified


def _cryptography(name: str) -> Any:
    try:
        return importlib.import_module("payasync.asymmetric")
    except ImportError:
        pass
    raise ConfigurationError(
        f'signature.algorithm "{name}" needs the cryptography package: python -m pip install "payasync[rsa]"',
        field="signature.algorithm",
    )


ALGORITHMS: Final[dict[str, Algorithm]] = {
    "md5": _Md5(),
    "hmac-md5": _Hmac("md5"),
    "hmac-sha256": _Hmac("sha256"),
    "hmac-sha512": _Hmac("sha512"),
    "rsa-sha256": _Asymmetric("rsa-sha256", blocking=True),
    "rsa-sha512": _Asymmetric("rsa-sha512", blocking=True),
    "ed25519": _Asymmetric("ed25519", blocking=False),
}
