"""Signatures as the service would make them, and the keys that it draws (spec: Authentication, 3 and 4)."""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

from attrs import frozen

from payasync.credentials import Credentials, Secret
from payasync.profile.profile import Profile
from payasync.profile.sandbox_profile import PROFILE
from payasync.sandbox import asymmetric
from payasync.signing.schemes import SignatureScheme, SortedPairs

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
    signing_key, service, verifying = (
        _pairs_of(str(getattr(scheme, "algorithm", "")), kept) if paired else _shared(kept)
    )
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


def _pairs_of(algorithm: str, kept: Kept) -> tuple[str, str, str]:
    """Return the merchant's private key, the service's, and the service's public one."""
    merchant, service = (
        kept(f"{whose}_key {algorithm}", lambda: asymmetric.new_key(algorithm)) for whose in ("signing", "service")
    )
    return merchant, service, asymmetric.public_pem(service)


def _notification_key() -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"


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


def sign(scheme: SignatureScheme | None, fields: Mapping[str, Any], *, path: str, key: Secret) -> str | Awaitable[str]:
    """Return the signature of what the service itself sends; a scheme that is not `SortedPairs` makes its own.

    Args:
        scheme: The profile's.
        fields: By their wire names, without the signature.
        path: The endpoint's path.
        key: The service's: the shared secret, or its private key.

    Raises:
        UnsignableError: A field has no one form that could be signed.
    """
    options = scheme or _OWN
    if not isinstance(options, SortedPairs):
        return options.sign(fields, path=path, key=key)
    algorithm, encoding = _answered(options)
    message = _message(options, fields, path, key.reveal())
    if algorithm in asymmetric.ALGORITHMS:
        return _encoded(asymmetric.sign(algorithm, message, key.reveal()), encoding)
    return _encoded(_symmetric(algorithm, message, key.reveal().encode()), encoding)


def text(scheme: SignatureScheme | None, fields: Mapping[str, Any], *, path: str) -> str:
    """Return the text that a request's signature is made of, without the key; nothing where only its owner knows.

    Args:
        scheme: The profile's.
        fields: By their wire names.
        path: The endpoint's path.

    Raises:
        UnsignableError: A field has no one form that could be signed.
    """
    options = scheme or _OWN
    return _text_of(options, fields, path, "<signing key>") if isinstance(options, SortedPairs) else ""


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
    except Exception:  # noqa: BLE001 - whatever a scheme of somebody else raises, it has not verified
        return False


def _answered(options: SortedPairs) -> tuple[str, str]:
    return options.algorithm or _OWN.algorithm, options.encoding or _OWN.encoding


def _message(options: SortedPairs, fields: Mapping[str, Any], path: str, key: str) -> bytes:
    message = _text_of(options, fields, path, key).encode()
    if options.prehash == "sha256-hex":
        return hashlib.sha256(message).hexdigest().encode()
    return hashlib.sha256(message).digest() if options.prehash else message


def _text_of(options: SortedPairs, fields: Mapping[str, Any], path: str, key: str) -> str:
    pairs = options.separator.join(_pairs(options, fields))
    keyed = f"{pairs}{options.separator}{options.key_param}={key}" if options.key_param else pairs
    return keyed + path if options.append_path else keyed


def _pairs(options: SortedPairs, fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in sorted(fields.items()):
        if name in options.exclude or (options.nested == "omit" and isinstance(value, dict | list)):
            continue
        if value is None and options.skip_null:
            continue
        written = _written(options, name, value)
        if written or not options.skip_empty:
            yield f"{name}={written}"


def _written(options: SortedPairs, name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    plain = (
        value is None
        or (options.booleans == "json" and isinstance(value, bool))
        or (options.numbers == "text" and isinstance(value, float))
        or (options.nested == "json" and isinstance(value, dict | list))
    )
    if plain:
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
