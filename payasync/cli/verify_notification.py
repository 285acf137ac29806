"""`payasync verify-notification`: whether a notification in a file is from the service."""

import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Literal, Self
from urllib.parse import unquote

import click
from attrs import evolve, field, frozen

from payasync.cli.options import HOW_SIGNED, profile_named, profile_option
from payasync.cli.terminal import Lines, fail
from payasync.credentials import Credentials
from payasync.errors import InvalidArgumentError, InvalidSignatureError, PayasyncError, plain
from payasync.notifications.ingest import explain
from payasync.notifications.notification import Headers, Notification, parse
from payasync.notifications.verification import MISMATCH, Verification, find_hold, verification_of
from payasync.notifications.web_adapters import kind_of_path
from payasync.profile.profile import Profile
from payasync.profile.schema import KINDS
from payasync.signing.templates import parse_time, values_at
from payasync.strict_json import at

Pairs = tuple[tuple[str, str], ...]
Verdict = Literal["genuine", "genuine, but held", "not genuine", "cannot tell"]

EXIT_CODES: Final[dict[Verdict, int]] = {"genuine": 0, "not genuine": 1, "cannot tell": 2, "genuine, but held": 3}
LONGEST: Final = 1 << 20
"""The greatest number of bytes that are read of a file, because it may have no end."""

_END: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
"""No receiver has a later time on its clock."""
_LENGTH: Final = "content-length"
_START: Final = re.compile(rb"POST ([!-~]+) HTTP/[0-9.]+\r?\n")
_LINE_END: Final = re.compile(rb"\r?\n")
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")


def _parse_time(_context: click.Context, _option: click.Parameter, text: str | None) -> float:
    moment = time.time() if text is None else parse_time(text)
    if moment is None or not 0 <= moment < _END:
        rule = "ISO 8601 with an offset, such as 2027-01-31T00:00:00Z, or seconds since 1970"
        raise click.BadParameter(f"it must be {rule}")
    return moment


def _parse_headers(_context: click.Context, _option: click.Parameter, lines: tuple[str, ...]) -> dict[str, str]:
    pairs = [line.partition(":") for line in lines]
    if not all(colon for _, colon, _ in pairs):
        raise click.BadParameter("it must be a name and a value, with a colon between them")
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


@click.command("verify-notification")
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True)
)
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    callback=_parse_headers,
    metavar="NAME:VALUE",
    help="A header of the notification.",
)
@profile_option
@click.option("--kind", type=click.Choice(KINDS), help="The kind of notifications that the receiving address is for.")
@click.option(
    "--at",
    "now",
    callback=_parse_time,
    metavar="TIME",
    help="Check it as if it had arrived at this time, such as 2027-01-31T00:00:00Z.",
)
def verify_notification(
    files: tuple[str, ...], headers: dict[str, str], profile: str | None, kind: str | None, now: float
) -> None:
    """Check that a notification in a file is genuine, and that a receiver can use it.

    FILE holds the body as it was received, or the whole HTTP message; "-" reads standard input. The keys come from the
    environment, as for `Credentials.from_env`.

    \b
    Examples:
      payasync verify-notification notification.http
      payasync verify-notification body.json -H "webhook-id: 1" --kind payment

    \b
    Exit codes; of several files, the highest:
      0    it is genuine
      1    it is not genuine
      2    this cannot be determined
      3    it is genuine, but a receiver holds it, and a person must look at it
    """  # noqa: D301 - click does not wrap a paragraph after this character
    try:
        verification = verification_of(profile_named(profile, needed=HOW_SIGNED)[0], Credentials.from_env())
    except PayasyncError as error:
        fail("verify-notification", f"cannot tell: {error}")
    lines, codes = Lines(strict=True), set[int]()
    for place, name in enumerate(files):
        try:
            with click.open_file(name, "rb") as file:
                finding = examine(file.read(LONGEST + 1), headers, verification, kind=kind, now=now)
        except OSError as error:
            finding = Finding("cannot tell", f"the file cannot be read: {error.strerror}")
        if place > 0:
            lines.write()
        if len(files) > 1:
            lines.write((plain(name), "bold"))
        show(finding, lines)
        codes.add(EXIT_CODES[finding.verdict])
    sys.exit(max(codes))


def _lower(pairs: Iterable[tuple[str, str]]) -> Pairs:
    return tuple((name.lower(), value) for name, value in pairs)


@frozen
class HttpMessage:
    """A POST request.

    Attributes:
        body: The bytes of the body.
        headers: Pairs; the names are in lower case.
        target: The path that it was sent to; empty if unknown.
    """

    body: bytes
    headers: Pairs = field(default=(), converter=_lower)
    target: str = ""

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Return the request that a file holds; a file that does not begin as a request is a body alone.

        Raises:
            InvalidArgumentError: The file is empty, too long, or an HTTP message that is broken.
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
        lines = [line.decode("latin-1") for line in _LINE_END.split(raw[start.end() : end.start()]) if line]
        if not all(":" in line for line in lines):
            raise _broken("a colon in each of its headers")
        pairs = [line.partition(":") for line in lines]
        message = cls(raw[end.end() :], [(name.strip(), value.strip()) for name, _, value in pairs], start[1].decode())
        length, body = message.length, message.body
        if length is not None and length > len(body):
            raise _broken(f"a body of {length} bytes, as its Content-Length says: the file has {len(body)}")
        # An editor may have added a line end to the body.
        return message if length is None or body[length:].strip(b"\r\n") else evolve(message, body=body[:length])

    @property
    def length(self) -> int | None:
        """The length of the body by its headers, if they have one."""
        found = re.fullmatch(r"0*([0-9]+)", dict(self.headers).get(_LENGTH, ""))
        # Python reads no number of thousands of digits, and no file is so long.
        return int(found[1][:18]) if found else None

    def with_headers(self, others: Mapping[str, str]) -> Self:
        """Return it with other headers, by lower-case names, in place of those of the same name."""
        kept = [(name, value) for name, value in self.headers if name not in others]
        return evolve(self, headers=(*kept, *others.items()))

    def to_bytes(self) -> bytes:
        """Return the bytes of a file from which `read` makes this request, with its length among the headers."""
        pairs = self.with_headers({_LENGTH: str(len(self.body))}).headers
        lines = [f"POST {self.target or '/'} HTTP/1.1", *(f"{name}: {value}" for name, value in pairs), "", ""]
        return "\r\n".join(lines).encode("latin-1", "replace") + self.body


def _broken(wanted: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the HTTP message must have {wanted}", field="file", rule=wanted)


@frozen
class Finding:
    """What was found.

    Attributes:
        verdict: In a few words.
        why: Why it is not genuine, or is held, or why nobody can tell; empty if it is genuine.
        facts: The contents and the checks, by name.
        hint: What to try next; empty if there is nothing.
    """

    verdict: Verdict
    why: str = ""
    facts: Pairs = ()
    hint: str = ""


def examine(
    raw: bytes, headers: Mapping[str, str], verification: Verification, *, kind: str | None, now: float
) -> Finding:
    """Return the findings about a notification.

    Args:
        raw: The content of the file: the body, or the whole HTTP message.
        headers: Replace those in the file, by lower-case names.
        verification: How it is verified.
        kind: What the address is for; `None`: what the last part of the path says.
        now: When it arrived, in seconds since 1970.
    """
    try:
        message = HttpMessage.read(raw).with_headers(headers)
    except InvalidArgumentError as error:
        return Finding("cannot tell", str(error))
    routed = kind or kind_of_path(unquote(message.target.partition("?")[0]))
    facts = tuple(_facts(message, verification, routed, now))
    try:
        found, held, late = verification.examine(message.body, message.headers, now=now, kind=routed, max_bytes=LONGEST)
    except (InvalidSignatureError, InvalidArgumentError) as error:
        return Finding("not genuine", explain(error), facts, _hint(message, verification.profile, error))
    if verification.proves and (why := explain(held) if held else find_hold(found, verification)):
        sent = dict(facts).get("Sent", "")
        hint = f"to check it as of that time, add --at {sent}" if late and sent.endswith("Z") else ""
        return Finding("genuine, but held", why, facts, hint)
    if found.verified:
        return Finding("genuine", facts=facts)
    unsigned = 'the profile says that notifications are not signed (notification.verification = "none")'
    if verification.proves:
        unsigned = "its signature is right, but any merchant of the service may get such a signature, and it names none"
    return Finding("cannot tell", f"{unsigned}: it is only a hint; query the service to confirm it", facts)


def read(body: bytes, headers: Headers, profile: Profile, kind: str | None) -> Notification | None:
    """Return what can be read of a notification, also if its kind or a number is invalid; `None` if nothing can."""
    with suppress(InvalidArgumentError):
        return parse(body, headers, profile=profile, kind=kind, max_bytes=LONGEST)
    with suppress(InvalidArgumentError):
        return parse(body, headers, profile=evolve(profile, identifier=""), max_bytes=LONGEST)
    return None


def _facts(message: HttpMessage, verification: Verification, kind: str | None, now: float) -> Iterator[tuple[str, str]]:
    """Yield the readable contents of the notification, and the checks."""
    if parsed := read(message.body, message.headers, verification.profile, kind):
        yield "Kind", parsed.kind or "unknown to the profile"
        numbers = {"Order": parsed.out_trade_no, "Refund": parsed.out_refund_no, "Subscription": parsed.subscription_id}
        yield from ((name, text) for name, text in {"Event": parsed.event, **numbers}.items() if text)
        yield "Key", f"{parsed.dedup_key}{' (weak: a hash of the body)' if parsed.weak else ''}"
        if (sent := _sent_at(verification.profile, parsed)) is not None:
            yield "Sent", _written(sent)
            yield "Age", f"{now - sent:.0f} seconds"
        if path := verification.profile.notification.event_time:
            lost = f"{'not found' if at(parsed.document, path, None) is None else 'unreadable'} at {path}"
            yield "Event time", _written(parsed.event_time.timestamp()) if parsed.event_time else lost
    yield "Checked", verification.checks


def _sent_at(profile: Profile, parsed: Notification) -> float | None:
    shape = profile.notification
    if shape.verification in {"header", "standard-webhooks"} and (place := shape.headers.timestamp):
        return parse_time(next(iter(values_at(parsed.headers, place)), None), shape.zone)
    return parse_time(at(parsed.document, shape.time), shape.zone) if shape.time else None


def _written(sent: float) -> str:
    try:
        return datetime.fromtimestamp(sent, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return f"{sent:.0f} seconds after 1970"


def _hint(message: HttpMessage, profile: Profile, error: InvalidSignatureError | InvalidArgumentError) -> str:
    """Return what to try next."""
    shape = profile.notification
    in_headers = {shape.headers.signature, shape.headers.timestamp, shape.headers.nonce}
    if not message.headers and error.field in in_headers:
        return 'the file holds only the body: give each header with -H "name: value"'
    size = len(message.body)
    if message.length not in {None, size}:
        return f"Content-Length is {message.length}, the file has {size}: the body was changed after it was received"
    if message.length is None and message.body.endswith(b"\n") and isinstance(error, InvalidSignatureError):
        return "the file ends with a line break; if the body had none, remove it, because it changes the signature"
    if error.field == shape.headers.signature and MISMATCH in str(error):
        return "the signature covers the exact bytes: JSON that was parsed and written again does not match"
    return ""


_STYLES: Final[dict[Verdict, str]] = {
    "genuine": "bold green",
    "genuine, but held": "bold yellow",
    "not genuine": "bold red",
    "cannot tell": "bold yellow",
}
_WIDTH: Final = 12
"""The width of the names of facts."""


def show(finding: Finding, lines: Lines) -> None:
    """Show a finding, the verdict first."""
    why = f": {_ascii(finding.why)}" if finding.why else ""
    lines.write((finding.verdict, _STYLES[finding.verdict]), why, hang=2)
    for name, text in finding.facts:
        lines.row(name, _ascii(text), "", width=_WIDTH)
    if finding.hint:
        lines.write((f"  {'hint':{_WIDTH}}  ", "cyan"), _ascii(finding.hint), hang=_WIDTH + 4)


def _ascii(text: str) -> str:
    """Return a text without lookalike letters: anybody may have written the notification."""
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in text)
