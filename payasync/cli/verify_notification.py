"""`payasync verify-notification`: whether a notification that was kept is from the service."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, Self
from urllib.parse import unquote

from attrs import evolve, field, frozen
from rich.console import Console

from payasync.cli.terminal import Lines, plain
from payasync.documents import at
from payasync.errors import InvalidArgumentError, InvalidSignatureError
from payasync.notifications.ingest import kind_of_path
from payasync.notifications.notification import Notification, parse
from payasync.notifications.verification import MISMATCH, SIGNATURE, TIMESTAMP, Verification, parse_time
from payasync.profile.profile import Profile

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


Verdict = Literal["genuine", "not genuine", "cannot tell"]

Facts = tuple[tuple[str, str], ...]

EXIT_CODES: Final[dict[Verdict, int]] = {"genuine": 0, "not genuine": 1, "cannot tell": 2}

_SAID: Final = {
    "Event": "event",
    "Order": "out_trade_no",
    "Refund": "out_refund_no",
    "Subscription": "subscription_id",
}
_UNSIGNED: Final = (
    'the profile says that notifications are not signed (notification.verification = "none"): '
    "it is a hint, and only the service can say whether it is so"
)


@frozen
class Finding:
    """What was found.

    Attributes:
        verdict: In two words.
        why: What speaks against it; empty where nothing does.
        facts: What it says, and what was checked, by their names.
        hint: What to try next; empty where there is nothing.
    """

    verdict: Verdict
    why: str
    facts: Facts
    hint: str = ""


def examine(
    raw: bytes, headers: Mapping[str, str], verification: Verification, *, kind: str | None, now: float
) -> Finding:
    """Return what is found of a notification.

    Args:
        raw: What the file holds: its body, or the whole HTTP message.
        headers: In the place of those in the file, by lower-case names.
        verification: How it is verified.
        kind: For which the address is; `None`: what the last part of the path says.
        now: Seconds since 1970: as if it had arrived then.
    """
    try:
        message = HttpMessage.read(raw).with_headers(headers)
    except InvalidArgumentError as error:
        return Finding("cannot tell", str(error), ())
    routed = kind or kind_of_path(unquote(message.target.partition("?")[0]))
    facts = tuple(_facts(message, verification, routed, now))
    try:
        found = verification.verify(message.body, message.headers, now=now, kind=routed, max_bytes=LONGEST)
    except InvalidSignatureError as error:
        hint = _hint(message, verification.profile, error, facts)
        return Finding("not genuine", f"{error.field} {error.reason}", facts, hint)
    except InvalidArgumentError as error:
        return Finding("not genuine", str(error), facts, _length_hint(message))
    return Finding("genuine", "", facts) if found.verified else Finding("cannot tell", _UNSIGNED, facts)


def _facts(message: HttpMessage, verification: Verification, kind: str | None, now: float) -> Iterator[tuple[str, str]]:
    """Yield what it says, as far as it can be read, and what is checked."""
    try:
        told = parse(message.body, message.headers, profile=verification.profile, kind=kind, max_bytes=LONGEST)
    except InvalidArgumentError:
        told = None
    if told is not None:
        yield "Kind", told.kind or "none that the profile knows"
        yield from ((name, text) for name in _SAID if (text := getattr(told, _SAID[name])))
        yield "Key", f"{told.dedup_key}{' (weak: a hash of the body)' if told.weak else ''}"
        if (sent := _sent(verification.profile, told)) is not None:
            yield "Sent", _written(sent)
            yield "Age", f"{now - sent:.0f} seconds"
    yield "Checked", verification.checks


def _sent(profile: Profile, told: Notification) -> float | None:
    """Return when it says that it was sent."""
    shape = profile.notification
    if shape.verification == "standard-webhooks":
        return parse_time(told.headers.get(TIMESTAMP))
    return parse_time(at(told.document, shape.time)) if shape.time else None


def _written(sent: float) -> str:
    try:
        return datetime.fromtimestamp(sent, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return f"{sent:.0f} seconds after 1970"


def _hint(message: HttpMessage, profile: Profile, error: InvalidSignatureError, facts: Facts) -> str:
    """Return what to try next."""
    late = error.field in {TIMESTAMP, profile.notification.time} and dict(facts).get("Sent")
    if late:
        return f"to look at it as of then, add --at {late}"
    if not message.headers and str(error.field).startswith("webhook-"):
        return 'a file of the body alone has no headers: give each with -H "name: value"'
    if length := _length_hint(message):
        return length
    if message.length is None and message.body.endswith(b"\n"):
        return "the file ends in a line end, which the body may not have had: then the signature is another"
    if error.field == SIGNATURE and MISMATCH in str(error.reason):
        return "JSON that was read and written again is another body: only the bytes that came are signed"
    return ""


def _length_hint(message: HttpMessage) -> str:
    size = len(message.body)
    if message.length in {None, size}:
        return ""
    return f"Content-Length is {message.length}, the file has {size}: the body was changed after it came"


_STYLES: Final[dict[Verdict, str]] = {
    "genuine": "bold green",
    "not genuine": "bold red",
    "cannot tell": "bold yellow",
}
_WIDTH: Final = 12
"""Of the names of facts."""


class VerificationScreen:
    """The terminal.

    Args:
        console: Written to in place of the terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._lines = Lines(console)

    def file(self, name: str, *, first: bool) -> None:
        """Show which file the next finding is of, where there are several."""
        if not first:
            self._lines.write()
        self._lines.write((plain(name), "bold"))

    def found(self, finding: Finding) -> None:
        """Show what was found: the verdict first."""
        why = f": {_shown(finding.why)}" if finding.why else ""
        self._lines.write((finding.verdict, _STYLES[finding.verdict]), why, hang=2)
        for name, text in finding.facts:
            self._lines.row(name, _shown(text), "", width=_WIDTH)
        if finding.hint:
            self._lines.write((f"  {'hint':{_WIDTH}}  ", "cyan"), _shown(finding.hint), hang=_WIDTH + 4)


def _shown(text: str) -> str:
    """Return a text as it may be shown: a notification is anybody's, and may hold what a terminal would obey."""
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in text)
