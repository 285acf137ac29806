"""What an answer means: which row of the failure matrix it falls in, and which error is its last word.

Nothing here does I/O. The rows are those of the design's matrix: 3xx, 429 and 5xx by status alone; other 4xx
by a listed result code, then by status; 2xx by result code, or, where the profile has no path to one, by
being a JSON object.
"""

import enum
import re
from typing import Any, Final

from payasync.absent import ABSENT
from payasync.calls import Call, Reply
from payasync.documents import at
from payasync.errors import (
    AuthenticationError,
    DuplicateError,
    InvalidSignatureError,
    NoAnswerError,
    NotSentError,
    OutcomeUnknownError,
    PayasyncError,
    RateLimitedError,
    ServiceError,
)
from payasync.operations import Kind
from payasync.profile import Profile
from payasync.responses import Response
from payasync.retry_after import retry_after
from payasync.shapes import among

REPEAT: Final = "repeating it is harmless"
EARLIER: Final = "after an attempt that nobody knows the end of"
ASK: Final = "it may have been done: ask for its state, do not repeat it"

_SHOWN: Final = 200
"""Characters of a service's own words that an error's text shows; the error itself has them all."""

_GAP: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
"""White space and control characters: a log takes a text with a line end in it for two."""


class Row(enum.Enum):
    """What an answer turned out to be; the value is how people say it."""

    SUCCESS = "success"
    UNSENT = "not sent"
    HOPELESS = "not sent, and not worth another try"
    UNANSWERED = "no answer"
    UNRECOGNISED = "an answer that the profile does not recognise"
    UNVERIFIED = "an answer that is not signed by the service"
    REDIRECT = "a redirect, which is never followed"
    NOT_EXECUTED = "refused before it was done"
    ABSENT = "not found"
    DUPLICATE = "the number was used before"
    UNLISTED = "an answer that the profile neither takes for success nor lists in its codes"
    RATE_LIMITED = "too many requests"
    BROKEN = "the service failed"


SUCCESS: Final = Row.SUCCESS
"""Most calls end so, and a constant is looked up ten times faster than an enum's member."""


def row(call: Call, outcome: Reply | PayasyncError) -> Row:
    """Return the row that an attempt's end falls in."""
    if not isinstance(outcome, Reply):
        return _unanswered(outcome)
    status = outcome.status
    if 200 <= status < 300:
        found = _succeeded(call.profile, outcome)
    elif status == 429:
        return Row.RATE_LIMITED
    elif status >= 500:
        return Row.BROKEN
    elif 300 <= status < 400:
        return Row.REDIRECT
    else:
        found = _refused(call, outcome) if status >= 400 else Row.UNRECOGNISED
    unsigned = found is SUCCESS and call.profile.answer.signature and not outcome.verified
    return Row.UNVERIFIED if unsigned or outcome.verified is False else found


def _unanswered(error: PayasyncError) -> Row:
    if isinstance(error, NoAnswerError):
        return Row.UNANSWERED
    repeatable = isinstance(error, NotSentError) and not error.permanent
    return Row.UNSENT if repeatable else Row.HOPELESS


def _succeeded(profile: Profile, reply: Reply) -> Row:
    document, answer = reply.document, profile.answer
    if not isinstance(document, dict):
        return Row.UNRECOGNISED
    if not answer.code:
        return _listed(profile, reply) or SUCCESS
    code = at(document, answer.code)
    if code is ABSENT:
        return Row.UNRECOGNISED
    return SUCCESS if among(code, answer.ok) else _listed(profile, reply) or Row.UNLISTED


def _refused(call: Call, reply: Reply) -> Row:
    http = call.profile.http
    if found := _listed(call.profile, reply):
        return found
    if call.read and reply.status in http.absent:
        return Row.ABSENT
    if reply.status in http.not_executed:
        return Row.NOT_EXECUTED
    return Row.DUPLICATE if reply.status == 409 else Row.UNLISTED


_CODE_ROWS: Final = {
    "not_executed": Row.NOT_EXECUTED,
    "retryable": Row.BROKEN,
    "duplicate": Row.DUPLICATE,
    "absent": Row.ABSENT,
}


def _listed(profile: Profile, reply: Reply) -> Row | None:
    """Return the row of a listed result code, else of a listed message."""
    for said in (at(reply.document, path) for path in (profile.answer.code, profile.answer.message) if path):
        for name, found in _CODE_ROWS.items():
            if among(said, getattr(profile.codes, name)):
                return found
    return None


def last_word(call: Call, found: Row, outcome: Reply | PayasyncError, *, doubt: bool) -> PayasyncError:
    """Return the error that a call ends with where no further attempt follows.

    Args:
        call: Which call it was.
        found: The row of its last attempt.
        outcome: What that attempt ended as; no success.
        doubt: A write, and this attempt or an earlier one may have been executed.
    """
    if isinstance(outcome, PayasyncError):
        unknown = doubt or (isinstance(outcome, NoAnswerError) and not call.read)
        return _in_doubt(outcome) if unknown else outcome
    if not doubt and _was_refused(call, found):
        return _refusal(call, found, outcome)
    return _lost(call, found, outcome)


def _in_doubt(outcome: PayasyncError) -> OutcomeUnknownError:
    if isinstance(outcome, OutcomeUnknownError):
        return outcome
    unknown = OutcomeUnknownError(f"{outcome.args[0]}; {ASK}", reason=outcome.reason or str(outcome.args[0]))
    unknown.__cause__ = outcome.__cause__
    return unknown


def _lost(call: Call, found: Row, reply: Reply) -> PayasyncError:
    """Return the error of a reply that says nothing of what was done."""
    kind, hint = (NoAnswerError, REPEAT) if call.read else (OutcomeUnknownError, ASK)
    earlier = _was_refused(call, found)  # so that the doubt is of an attempt before it
    words = f"{found.value}, {EARLIER}" if earlier else found.value
    if found is Row.UNVERIFIED and reply.doubt:
        words = f"an answer whose signature cannot be checked: {reply.doubt}"
    message = f"HTTP {reply.status}, {words}{_said(call, reply)}; {hint}"
    if found is not Row.UNVERIFIED:
        return kind(message, sent=True, reason=words, **_facts(call, reply))
    forged = InvalidSignatureError(f"HTTP {reply.status}, {words}", sent=True, **_facts(call, reply))
    return forged if call.read else kind(message, sent=True, reason=forged, **_facts(call, reply))


def still_unknown(call: Call, why: str, reply: Reply) -> OutcomeUnknownError:
    """Return the error of a write that was asked about, where the answer says nothing of it.

    Args:
        call: The write.
        why: What the answer says.
        reply: The answer.
    """
    return OutcomeUnknownError(f"{why}; {ASK}", sent=True, reason=why, **_facts(call, reply))


def _was_refused(call: Call, found: Row) -> bool:
    """Return whether an answer proves that nothing was done, or asks about a read, where that hardly matters."""
    if found in {Row.NOT_EXECUTED, Row.ABSENT}:
        return True
    if found is Row.RATE_LIMITED:
        return call.read or call.profile.http.rate_limit_precedes_execution
    if found is Row.DUPLICATE:
        return call.read or names_its_thing(call)
    return call.read and found in {Row.REDIRECT, Row.UNLISTED}


def names_its_thing(call: Call) -> bool:
    """Return whether a write names what it makes or closes by the merchant's own number."""
    return call.operation.kind is Kind.KEYED and call.reference is not None


def _refusal(call: Call, found: Row, reply: Reply) -> ServiceError:
    code, message = _text(reply, call.profile.answer.code), _text(reply, call.profile.answer.message)
    hint = "; ask for its state" if found is Row.DUPLICATE else ""
    return _refusal_kind(call, found, reply)(
        f"HTTP {reply.status}, {found.value}{_said(call, reply)}{hint}",
        code=code,
        message=None if message is None else str(message),
        http_status=reply.status,
        sent=True,
        reason=found.value,
        **_facts(call, reply),
    )


def _said(call: Call, reply: Reply) -> str:
    """Return the result code and the message of an answer in brackets; a text is quoted, so that it is no number."""
    code, message = _text(reply, call.profile.answer.code), _text(reply, call.profile.answer.message)
    words = [] if code is None else [f"code {(_short(code) if isinstance(code, str) else code)!r}"]
    if message is not None and (shown := _short(str(message))):
        words.append(shown)
    return f" ({': '.join(words)})" if words else ""


def _short(words: str) -> str:
    """Return a service's words on one line, and not more of them than a person reads."""
    line = _GAP.sub(" ", words).strip()
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def _refusal_kind(call: Call, found: Row, reply: Reply) -> type[ServiceError]:
    if found is Row.DUPLICATE and names_its_thing(call):
        return DuplicateError
    if found is Row.RATE_LIMITED:
        return RateLimitedError
    return AuthenticationError if reply.status in {401, 403} and found is Row.NOT_EXECUTED else ServiceError


def _facts(call: Call, reply: Reply) -> dict[str, Any]:
    return {
        "operation": call.operation.name,
        "reference": call.reference,
        "attempts": reply.attempts,
        "retry_after": retry_after(reply.headers.get("Retry-After")),
        "response": Response.of(call, reply),
    }


def _text(reply: Reply, path: str) -> str | int | None:
    found = at(reply.document, path) if path else None
    return found if isinstance(found, str) or type(found) is int else None
