"""Standard Webhooks: the signature stands in headers, over the body as it was sent.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from typing import Final

from multidict import MultiMapping

from payasync.errors import ConfigurationError
from payasync.notifications.identity import WEBHOOK_ID
from payasync.notifications.timestamps import MISMATCH, check_window, unverified
from payasync.secret import Secret

A_WORD: Final = "a text of 1 to 256 visible ASCII characters"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"

_VERSION: Final = "v1"
_PREFIX: Final = "whsec_"
_LEAST: Final = 24
"""Bytes of a key: the scheme has no shorter ones, so that one of which a part is missing is found."""
_KEYS: Final = "credentials.notification_keys"
_WORD: Final = re.compile(r"[\x21-\x7e]{1,256}")
_SECONDS: Final = re.compile(r"[0-9]{1,11}")


def check(body: bytes, headers: MultiMapping[str], *, keys: Iterable[Secret], tolerance: float, now: float) -> None:
    """Refuse what the service has not signed, or has signed too long ago.

    Args:
        body: As it was received.
        headers: Names in any case.
        keys: Several while they rotate; `check_keys` has passed them.
        tolerance: Seconds that the two clocks may be apart.
        now: Seconds since 1970.

    Raises:
        InvalidSignatureError: The header, and what is wrong with it.
    """
    number = _single(headers, WEBHOOK_ID, _WORD, A_WORD)
    sent = _single(headers, TIMESTAMP, _SECONDS, "a number of seconds since 1970")
    check_window(TIMESTAMP, int(sent), now, tolerance)
    given = list(_signatures(_only(headers, SIGNATURE)))
    if not given:
        raise unverified(SIGNATURE, f"holds no signature of version {_VERSION}")
    content = _content(body, number, sent)
    if not any(_holds(given, _digest(key, content)) for key in keys):
        raise unverified(SIGNATURE, f"is not that of the body, by any of the keys: {MISMATCH}")


def sign(body: bytes, *, number: str, sent: int, key: Secret) -> str:
    """Return the signature of a body, as its header holds it.

    Args:
        body: As it is sent.
        number: The header `webhook-id`.
        sent: The header `webhook-timestamp`: seconds since 1970.
        key: `check_keys` has passed it.
    """
    signature = _digest(key, _content(body, number, str(sent)))
    return f"{_VERSION},{base64.b64encode(signature).decode()}"


def is_word(number: object) -> bool:
    """Return whether a value can be the header `webhook-id`."""
    return isinstance(number, str) and bool(_WORD.fullmatch(number))


def check_keys(keys: Iterable[Secret]) -> None:
    """Refuse keys that can verify nothing.

    Raises:
        ConfigurationError: There is none, or one is no base64, or too short.
    """
    number = 0
    for number, key in enumerate(keys, start=1):
        if len(_decoded(key)) < _LEAST:
            raise ConfigurationError(
                f"{_KEYS}: key {number} must be {_PREFIX} and base64 of {_LEAST} bytes or more, whole as the service "
                "shows it",
                field=_KEYS,
            )
    if not number:
        raise ConfigurationError(
            f"{_KEYS} is empty (PAYASYNC_NOTIFICATION_KEYS in the environment): the profile says that notifications "
            "are signed by Standard Webhooks, and they are verified with it",
            field=_KEYS,
        )


def _single(headers: MultiMapping[str], name: str, form: re.Pattern[str], wanted: str) -> str:
    value = _only(headers, name)
    if not form.fullmatch(value):
        raise unverified(name, f"is not {wanted}")
    return value


def _only(headers: MultiMapping[str], name: str) -> str:
    """Return a header that must stand there once: of two, nobody could say which one was signed."""
    values = headers.getall(name, [])
    if len(values) != 1:
        raise unverified(name, "stands there twice" if values else "is missing")
    return values[0]


def _signatures(header: str) -> Iterator[bytes]:
    """Yield the signatures of our version; others, and what is none, are passed over."""
    for each in header.split(" "):
        version, _, text = each.partition(",")
        if version == _VERSION and (signature := _bytes(text)):
            yield signature


def _holds(given: Iterable[bytes], right: bytes) -> bool:
    return any(hmac.compare_digest(right, each) for each in given)


def _content(body: bytes, number: str, sent: str) -> bytes:
    return b".".join((number.encode(), sent.encode(), body))


def _digest(key: Secret, content: bytes) -> bytes:
    return hmac.digest(_decoded(key), content, hashlib.sha256)


def _decoded(key: Secret) -> bytes:
    """Return the key's bytes, which no caller keeps: a traceback may show what is local."""
    text = key.reveal().strip().removeprefix(_PREFIX)
    return _bytes(text + "=" * (-len(text) % 4))


def _bytes(text: str) -> bytes:
    """Return what a text of base64 holds; nothing, where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
