"""`payasync verify-notification`: whether a notification that was kept is from the service."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, Literal
from urllib.parse import unquote

from attrs import frozen

from payasync.cli.http_message import LONGEST, HttpMessage
from payasync.documents import at
from payasync.errors import InvalidArgumentError, InvalidSignatureError
from payasync.notifications.answers import kind_of
from payasync.notifications.notification import Notification
from payasync.notifications.reading import parse
from payasync.notifications.standard_webhooks import SIGNATURE, TIMESTAMP
from payasync.notifications.timestamps import MISMATCH, seconds
from payasync.notifications.verifications import Verification
from payasync.profile import Profile

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
    routed = kind or kind_of(unquote(message.target.partition("?")[0]))
    facts = tuple(_facts(message, verification, routed, now))
    try:
        found = verification.notification(message.body, message.headers, now=now, kind=routed, max_bytes=LONGEST)
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
        return seconds(told.headers.get(TIMESTAMP))
    return seconds(at(told.document, shape.time)) if shape.time else None


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
