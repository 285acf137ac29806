"""What arrives: the bytes of a body and the headers, whoever hands them over."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from multidict import CIMultiDict

from payasync.errors import InvalidArgumentError

Raw: TypeAlias = bytes | bytearray | memoryview
Text: TypeAlias = str | bytes
Headers: TypeAlias = Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[Text, Text]]

MAX_BYTES: Final = 64 << 10
"""Of a notification's body; a stranger's has to be read, too, before it can be refused."""


def body_of(raw: Raw, max_bytes: int = MAX_BYTES) -> bytes:
    """Return a body as bytes of its own.

    Raises:
        InvalidArgumentError: It is a text, or anything else but bytes, or too long.
    """
    if not isinstance(raw, bytes | bytearray | memoryview):
        rule = "the body's bytes, as they were received: a signature is made over these, and no text has them all"
        raise refused("raw", rule, type(raw).__name__)
    try:
        body = bytes(raw)
    except ValueError:
        body = None
    if body is None:
        raise refused("raw", "bytes that can still be read", "a memoryview that was released")
    if len(body) > max_bytes:
        raise refused("raw", f"{max_bytes} bytes long at most", f"of {len(body)}")
    return body


def headers_of(headers: Headers) -> CIMultiDict[str]:
    """Return headers by names in any case, as texts; bytes are read as latin-1.

    Raises:
        InvalidArgumentError: They are neither a mapping of texts or bytes, nor pairs of them.
    """
    given: Any = headers.items() if isinstance(headers, Mapping) else headers
    pairs = list(given) if isinstance(given, Iterable) else [given]
    if not all(map(_is_pair, pairs)):
        raise refused("headers", "a mapping of names to texts, or pairs of the two", type(headers).__name__)
    return CIMultiDict([(_text(each[0]), _text(each[1])) for each in pairs])


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, tuple | list) and [isinstance(each, Text) for each in pair] == [True, True]


def _text(given: Text) -> str:
    """Return a text that can be written anywhere: a server may hand over bytes that are no text as lone surrogates."""
    return given.decode("latin-1") if isinstance(given, bytes) else given.encode(errors="replace").decode()


def refused(field: str, rule: str, what: str) -> InvalidArgumentError:
    """Return the error for what cannot be a notification; it never holds what was received."""
    return InvalidArgumentError(f"{field} must be {rule}, not {what}", field=field, rule=rule)
