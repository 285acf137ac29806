"""A request as it travelled, kept in a file: what `listen` stores, and `verify-notification` reads."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, Self

from attrs import evolve, field, frozen

from payasync.errors import InvalidArgumentError

Pairs = tuple[tuple[str, str], ...]

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
            InvalidArgumentError: It begins as one, and does not go on as one.
        """
        start = _START.match(raw)
        if start is None:
            return cls(raw)
        end = _HEAD_END.search(raw, start.end() - 1)
        if end is None:
            raise _broken("an empty line after its headers")
        head = raw[start.end() : end.start()]
        headers = tuple(_header(line) for line in _LINE_END.split(head) if line)
        return cls(_whole(raw[end.end() :], dict(_lower(headers))), headers, start[1].decode())

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


def _whole(body: bytes, headers: dict[str, str]) -> bytes:
    """Return a body as long as its header says: an editor may have added a line end."""
    given = headers.get(LENGTH, "")
    length = int(given.lstrip("0")[:_DIGITS] or 0) if given.isascii() and given.isdigit() else len(body)
    if length > len(body):
        raise _broken(f"a body of {length} bytes, as its Content-Length says")
    return body[:length]


def _broken(wanted: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the HTTP message must have {wanted}", field="file", rule=wanted)
