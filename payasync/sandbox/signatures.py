"""Signatures as the service would make them (spec: Authentication, 3 and 4).

The client's code signs; this code checks. It shares nothing with it but the names of the options, so
that a mistake in one cannot hide in the other.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from payasync.errors import PayasyncError
from payasync.sandbox import asymmetric
from payasync.sandbox_profile import PROFILE
from payasync.secret import Secret
from payasync.signing import SignatureScheme, SortedPairs

_DIGESTS: Final = {"hmac-md5": "md5", "hmac-sha256": "sha256", "hmac-sha512": "sha512"}
_OWN: Final = cast("SortedPairs", PROFILE.signature)


class UnsignableError(Exception):
    """A field has no one form that could be signed.

    Attributes:
        field: Its wire name.
    """

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


def verify(
    scheme: SignatureScheme | None, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret
) -> bool:
    """Return whether a signature is that of a request's fields.

    A scheme that is not `SortedPairs` is asked itself: only its owner knows how it signs. What the profile
    leaves open is as the sandbox's own profile has it.

    Args:
        scheme: The profile's.
        fields: By their wire names.
        signature: As it was received.
        path: The endpoint's path, without the base URL's.
        key: The merchant's signing key: the shared secret, or the private key.

    Raises:
        UnsignableError: A field has no one form that could be signed.
    """
    options = scheme or _OWN
    if not isinstance(options, SortedPairs):
        return _asked(options, fields, signature, path, key)
    algorithm, encoding = _answered(options)
    message = _message(options, fields, path, key.reveal())
    if algorithm in asymmetric.ALGORITHMS:
        raw = _decoded(signature, encoding)
        return raw is not None and asymmetric.verify(algorithm, message, raw, key.reveal())
    expected = _encoded(_symmetric(algorithm, message, key.reveal().encode()), encoding)
    return hmac.compare_digest(expected.encode(), signature.encode())


def _asked(scheme: SignatureScheme, fields: Mapping[str, Any], signature: str, path: str, key: Secret) -> bool:
    try:
        return scheme.verify(fields, signature, path=path, key=key)
    except (PayasyncError, ValueError, TypeError):
        return False


def _answered(options: SortedPairs) -> tuple[str, str]:
    return options.algorithm or _OWN.algorithm, options.encoding or _OWN.encoding


def _message(options: SortedPairs, fields: Mapping[str, Any], path: str, key: str) -> bytes:
    text = options.separator.join(_pairs(options, fields))
    if options.key_param:
        text += f"{options.separator}{options.key_param}={key}"
    if options.append_path:
        text += path
    return hashlib.sha256(text.encode()).hexdigest().encode() if options.prehash else text.encode()


def _pairs(options: SortedPairs, fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in sorted(fields.items()):
        if name in options.exclude or (options.nested == "omit" and isinstance(value, dict | list)):
            continue
        text = _text(options, name, value)
        if text or not options.skip_empty:
            yield f"{name}={text}"


def _text(options: SortedPairs, name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    if options.nested == "json" and isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    raise UnsignableError(name)


def _symmetric(algorithm: str, message: bytes, key: bytes) -> bytes:
    if algorithm == "md5":
        return hashlib.md5(message, usedforsecurity=False).digest()
    return hmac.digest(key, message, _DIGESTS[algorithm])


def _encoded(raw: bytes, encoding: str) -> str:
    if encoding == "base64":
        return base64.b64encode(raw).decode()
    return raw.hex().upper() if encoding == "HEX" else raw.hex()


def _decoded(signature: str, encoding: str) -> bytes | None:
    try:
        if encoding == "base64":
            return base64.b64decode(signature, validate=True)
        return bytes.fromhex(signature)
    except (ValueError, binascii.Error):
        return None
