"""A request as it travelled, kept in a file: what `listen` stores, and `verify-notification` reads."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, Self

from attrs import evolve, field, frozen

from payasync.errors import InvalidArgumentError

Pairs = tuple[tuple[str, str], ...]

LONGEST: Final = 1 << 20
"""Bytes of a file; more of it is not read: it may have no end."""
LENGTH: Final = "content-length"
_DIGITS: Final = 18
"""Of a length; Python reads no number of thousands of digits, and no file is so long."""

_START: Final = re.compile(rb"POST ([!-~]+) HTTP/[0-9.]+\r?\n")
_LINE_END: Final = re.compile(rb"\r?\n")
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")


def _lower(pairs: Iterable[tuple[str, str]]) -> Pairs:
    return tuple((name.lower(), value) for name, value in pairs)


@frozen
class HttpMessage:
    """A POST request.

    Attributes:
        body: Its bytes.
        headers: Pairs, their names in lower case.
        target: The path that it was sent to; empty where nobody knows.
    """

    body: bytes
    headers: Pairs = field(default=(), converter=_lower)
    target: str = ""

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Return the request that a file holds; a file that does not begin as one is a body alone.

        Raises:
            InvalidArgumentError: It is empty, or too long, or begins as one, and does not go on as one.
        """
        if not raw.strip():
            raise InvalidArgumentError("the file is empty", field="file", rule="a body, or a whole HTTP message")
        if len(raw) > LONGEST:
            rule = f"{LONGEST} bytes long at most"
            raise InvalidArgumentError(f"the file must be {rule}: it is no notification", field="file", rule=rule)
        start = _START.match(raw)
        if start is None:
            return cls(raw)
        end = _HEAD_END.search(raw, start.end() - 1)
        if end is None:
            raise _broken("an empty line after its headers")
        head = raw[start.end() : end.start()]
        headers = tuple(_header(line) for line in _LINE_END.split(head) if line)
        message = cls(raw[end.end() :], headers, start[1].decode())
        return evolve(message, body=_whole(message.body, message.length))

    @property
    def length(self) -> int | None:
        """The length of the body, as its headers have it, if they do."""
        given = dict(self.headers).get(LENGTH, "")
        return int(given.lstrip("0")[:_DIGITS] or 0) if given.isascii() and given.isdigit() else None

    def with_headers(self, others: Mapping[str, str]) -> Self:
        """Return it with other headers, by lower-case names, in the place of those of the same name."""
        kept = [(name, value) for name, value in self.headers if name not in others]
        return evolve(self, headers=(*kept, *others.items()))

    def written(self) -> bytes:
        """Return the file's bytes, from which `read` makes this request, its length among the headers."""
        length = str(len(self.body))
        pairs = self.with_headers({LENGTH: length}).headers
        lines = [f"POST {self.target or '/'} HTTP/1.1", *(f"{name}: {value}" for name, value in pairs), "", ""]
        return "\r\n".join(lines).encode("latin-1", "replace") + self.body


def _header(line: bytes) -> tuple[str, str]:
    name, colon, value = line.decode("latin-1").partition(":")
    if not colon:
        raise _broken("a colon in each of its headers")
    return name.strip(), value.strip()


def _whole(body: bytes, length: int | None) -> bytes:
    """Return a body without the line end that an editor has added."""
    if length is None:
        return body
    if length > len(body):
        raise _broken(f"a body of {length} bytes, as its Content-Length says: the file has {len(body)}")
    return body if body[length:].strip(b"\r\n") else body[:length]


def _broken(wanted: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the HTTP message must have {wanted}", field="file", rule=wanted)
