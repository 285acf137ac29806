"""The failure matrix: what a response means, and what follows from the end of an attempt."""

import enum
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from payasync.documents import ABSENT, at
from payasync.endpoints import CLOSE_ORDER, PLACE_ORDER, Kind
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
from payasync.profile.profile import Profile
from payasync.profile.schema import among
from payasync.profile.signed_fields import SignedFields
from payasync.wire import match
from payasync.wire.call import Call, Objection, Reply
from payasync.wire.match import names_an_amount
from payasync.wire.response import OrderResponse, Response, payload

_FAR = 10**9


def _utc_now() -> datetime:
    return datetime.now(UTC)


def retry_after(value: str | None, now: Callable[[], datetime] = _utc_now) -> float | None:
    """Return the seconds that a service asked to wait, or `None` where it did not say, or not clearly.

    Args:
        value: The header, as it came.
        now: The wall clock, which a date is measured against.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdecimal():
        return float(text) if len(text) < len(str(_FAR)) else None
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - now()).total_seconds())


REPEAT: Final = "repeating it is harmless"
EARLIER: Final = "after an attempt that nobody knows the end of"
ASK: Final = "it may have been done: ask for its state, do not repeat it"
LOOK: Final = "look at the number at the service: if it stands for another one, and both are owed, take a new number"
WITHOUT_A_NUMBER: Final = "With an out_trade_no of your own, payasync could have asked for its state"

_DESCRIBING: Final = ("description", "subject", "body")

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


REFUSALS: Final = frozenset({Row.NOT_EXECUTED, Row.ABSENT, Row.DUPLICATE, Row.UNLISTED, Row.RATE_LIMITED})
"""Rows of a response that says that the request was not done."""


def row(call: Call, outcome: Reply | PayasyncError) -> Row:
    """Return the row that an attempt's end falls in."""
    if not isinstance(outcome, Reply):
        return _unanswered(outcome)
    status, answer = outcome.status, call.profile.answer
    found = _succeeded(call.profile, outcome) if 200 <= status < 300 else _by_status(call, outcome)
    if status >= 500 or found is Row.REDIRECT:
        return found
    if answer.signature and _is_unverified(call, found, outcome):
        return Row.UNVERIFIED
    doubted = _objection_to_success(call, outcome) if found is SUCCESS else _objection_to_refusal(call, found, outcome)
    return Row.UNRECOGNISED if doubted else found


def _is_unverified(call: Call, found: Row, reply: Reply) -> bool:
    """Return whether a response is not believed because its signature is missing or wrong."""
    if found is SUCCESS:
        return not reply.verified
    if found is Row.RATE_LIMITED:
        return False
    demanded = found in REFUSALS and call.profile.answer.refusals_signed is True
    return reply.verified is False or (demanded and not is_vouched_for(call, reply))


def is_vouched_for(call: Call, reply: Reply) -> bool:
    """Return whether the service signed a response: a request that was sent back has its sender's signature."""
    return reply.verified is True and not match.is_sent_back(call.expected.proofs, reply.document)


def _by_status(call: Call, reply: Reply) -> Row:
    """Return the row of a response that is not 2xx, whoever sends it and whatever it is about."""
    status = reply.status
    if status == 429:
        return Row.RATE_LIMITED
    if status >= 500:
        return Row.BROKEN
    if status >= 400:
        return _refused(call, reply)
    return Row.REDIRECT if status >= 300 else Row.UNRECOGNISED


def objection(call: Call, reply: Reply) -> Objection | None:
    """Return what speaks against believing a response though it is recognised, and signed where it must be."""
    found = _succeeded(call.profile, reply) if 200 <= reply.status < 300 else _by_status(call, reply)
    return _objection_to_success(call, reply) if found is SUCCESS else _objection_to_refusal(call, found, reply)


def _objection_to_refusal(call: Call, found: Row, reply: Reply) -> Objection | None:
    if found not in REFUSALS:
        return None
    profile, told = call.profile, payload(call.profile.answer, reply.document)
    if mismatch := match.mismatch(_named(call), call.expected.compared, told, success=False):
        return mismatch
    if found is Row.DUPLICATE:  # who says that a number was used may say for what
        return None
    if reply.verified and found is not Row.RATE_LIMITED and _signs_a_success(call, reply.document, told):
        return Objection("its signature does not cover the refusal, and what is signed may be a success")
    return match.contradiction(call.operation, profile, told, absent=found is Row.ABSENT)


def _objection_to_success(call: Call, reply: Reply) -> Objection | None:
    expected, told = call.expected, reply.document
    if expected.proofs and match.is_sent_back(expected.proofs, told):
        return Objection("it may be a request that was sent back: it holds nothing that only a response says")
    if data := call.profile.answer.data:
        told = at(told, data, told)
    return match.mismatch(_named(call) if expected.asked else call.fields, expected.compared, told)


def _named(call: Call) -> Mapping[str, object]:
    """Return what a response to a call is compared with: its fields, and those of the write that it asks about."""
    asked = call.expected.asked
    return {**call.fields, **asked} if asked else call.fields


def _signs_a_success(call: Call, document: object, told: object) -> bool:
    """Return whether the signed part of a refusal may be that of a success: its status and its code were changed."""
    shape = call.profile.answer
    if shape.code and among(at(document, shape.code), shape.ok):
        return True
    covered = bool(shape.code) and SignedFields.under(shape.signature, call.profile.signature).covers(shape.code)
    return not covered and match.may_be_relabelled(call.operation, call.profile, told)


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
    return Row.DUPLICATE if reply.status in http.duplicate else Row.UNLISTED


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
        return _in_doubt(call, outcome) if unknown else outcome
    if not doubt and _was_refused(call, found):
        return _refusal(call, found, outcome)
    return _lost(call, found, outcome)


def _in_doubt(call: Call, outcome: PayasyncError) -> OutcomeUnknownError:
    if isinstance(outcome, OutcomeUnknownError):
        return outcome
    unknown = OutcomeUnknownError(f"{outcome.args[0]}; {advice(call)}", reason=outcome.reason or str(outcome.args[0]))
    unknown.__cause__ = outcome.__cause__
    return unknown


def _lost(call: Call, found: Row, reply: Reply) -> PayasyncError:
    """Return the error of a reply that says nothing of what was done."""
    kind, hint = (NoAnswerError, REPEAT) if call.read else (OutcomeUnknownError, advice(call))
    why = objection(call, reply) if found is Row.UNRECOGNISED else None
    words = f"a response that cannot be believed: {why.words}" if why else _words(call, found)
    if found is Row.UNVERIFIED and reply.doubt:
        words = f"an answer whose signature cannot be checked: {reply.doubt}"
    message = f"HTTP {reply.status}, {words}{_said(call, reply)}; {hint}"
    if found is not Row.UNVERIFIED:
        return kind(message, sent=True, reason=words, objection=why, **_facts(call, reply))
    forged = InvalidSignatureError(f"HTTP {reply.status}, {words}", sent=True, **_facts(call, reply))
    return forged if call.read else kind(message, sent=True, reason=forged, **_facts(call, reply))


def _words(call: Call, found: Row) -> str:
    """Return what a response is that says nothing of what was done."""
    if _was_refused(call, found):
        return f"{found.value}, {EARLIER}"
    if found is Row.RATE_LIMITED:
        return f"{found.value}, which may have been executed (see http.rate_limit_precedes_execution in the profile)"
    return str(found.value)


def advice(call: Call) -> str:
    """Return what to do about a write that may have been done."""
    if names_its_thing(call):
        return ASK
    if call.reference is not None:
        return f"it may have been done: look at {call.reference} at the service, and do not repeat it"
    why = f". {WITHOUT_A_NUMBER}" if call.operation is PLACE_ORDER else ""
    return f"it may have been done: look for it at the service ({_marks(call)}), and do not repeat it{why}"


def _marks(call: Call) -> str:
    """Return by what a person finds a write that has no number: amount, description and time."""
    amount = call.fields.get("amount", call.fields.get("totalAmt"))
    money = "" if amount is None else f"{amount} {call.fields.get('currency', '')}".strip()
    texts = [repr(_short(str(call.fields[name]))) for name in _DESCRIBING if name in call.fields]
    return ", ".join(filter(None, [money, *texts[:1], f"at about {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"]))


def still_unknown(call: Call, why: str, reply: Reply, *, objection: Objection | None = None) -> OutcomeUnknownError:
    """Return the error of a write that was asked about, where the answer says nothing of it.

    Args:
        call: The write.
        why: What the answer says.
        reply: The answer.
        objection: Why it is not believed.
    """
    return OutcomeUnknownError(f"{why}; {ASK}", sent=True, reason=why, objection=objection, **_facts(call, reply))


def of_close(call: Call, reply: Reply) -> Reply | PayasyncError:
    """Return what a close comes to, of which the service said "used before", by the state of its order.

    Args:
        call: The close.
        reply: To the query about its order.
    """
    state = OrderResponse.of(call, reply).state
    if state in {"closed", "expired", "failed"}:
        return reply
    why = f"the order's state is {state}" if state else "the profile does not say what the order's state means"
    if state in {"paid", "refunded"}:
        return ServiceError(why, http_status=reply.status, sent=True, reason=why, **_facts(call, reply))
    return still_unknown(call, why, reply)


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


class Action(enum.Enum):
    """What is done next."""

    DONE = "done"
    """The reply is the call's answer."""
    REPEAT = "repeat"
    """Try again, with a new nonce and signature, after a wait; else end with the last word."""
    QUERY = "query"
    """Ask what became of it, before anything else."""
    END = "end"
    """No further attempt: end with the last word."""


class Column(enum.IntEnum):
    """The kind of a call; the columns of the matrix."""

    UNNAMED = 0
    """1, 2 without a number, 8 to 10: nothing can be asked about, so nothing is sent twice."""
    READ = 1
    """3, 6 and 7: asking again changes nothing."""
    CLOSE = 2
    """4: closing is a target state, and repeating it moves no money."""
    NAMED = 3
    """2 with a number, and 5: the number can be asked about."""


R, Q, O, D = Action.REPEAT, Action.QUERY, Action.END, Action.DONE  # noqa: E741 - as the design's table has it
F = Action.END

# fmt: off
MATRIX: Final[dict[Row, tuple[Action, Action, Action, Action]]] = {
    #                 unnamed read close named
    Row.SUCCESS:      (D, D, D, D),
    Row.UNSENT:       (R, R, R, R),
    Row.HOPELESS:     (F, F, F, F),
    Row.UNANSWERED:   (O, R, R, Q),
    Row.UNRECOGNISED: (O, R, R, Q),
    Row.UNVERIFIED:   (O, F, R, Q),
    Row.REDIRECT:     (O, F, O, Q),
    Row.NOT_EXECUTED: (F, F, F, F),
    Row.ABSENT:       (F, F, F, F),
    Row.UNLISTED:     (O, F, O, Q),
    Row.DUPLICATE:    (O, F, F, F),  # the first send; after an earlier one of ours, close and named ask
    Row.RATE_LIMITED: (O, R, R, Q),  # R everywhere if the profile says that it precedes execution
    Row.BROKEN:       (O, R, R, Q),
}
# fmt: on

DOUBTFUL: Final = frozenset(
    {Row.UNANSWERED, Row.UNRECOGNISED, Row.UNVERIFIED, Row.REDIRECT, Row.UNLISTED, Row.BROKEN},
)
"""Rows after which a write may have been done; of two more it depends on the call."""

REFUSED: Final = frozenset({Row.NOT_EXECUTED, Row.ABSENT, Row.DUPLICATE})
"""Rows that say nothing of an earlier attempt."""


def column(call: Call) -> Column:
    """Return the column of a call."""
    if call.read:
        return Column.READ
    if call.operation is CLOSE_ORDER:
        return Column.CLOSE
    return Column.NAMED if names_its_thing(call) else Column.UNNAMED


def leaves_doubt(call: Call, found: Row) -> bool:
    """Return whether a write may have been done by the attempt that ended so."""
    if call.read:
        return False
    if found is Row.RATE_LIMITED:
        return not call.profile.http.rate_limit_precedes_execution
    if found is Row.DUPLICATE:
        return not names_its_thing(call)
    return found in DOUBTFUL


def decide(call: Call, found: Row, *, doubt: bool) -> Action:
    """Return what follows from an attempt's end.

    Args:
        call: Which call it was.
        found: What the attempt ended as.
        doubt: A write, and this attempt or an earlier one may have been executed. Doubt is sticky: a refusal of
            attempt 2 says nothing of attempt 1.
    """
    where = column(call)
    if doubt and found in REFUSED:
        # On a close, "used before" may also mean that the order was paid.
        asks = where is Column.NAMED or (where is Column.CLOSE and found is Row.DUPLICATE)
        return Action.QUERY if asks else Action.END
    if found is Row.RATE_LIMITED and not (doubt or leaves_doubt(call, found)):
        return Action.REPEAT
    if where is Column.UNNAMED and doubt and found is not Row.SUCCESS:
        return Action.END
    return MATRIX[found][where]


def decide_afresh(call: Call, found: Row) -> Action:
    """Return what follows once an absent answer was final: what may have been done was not.

    A refusal that came after what was in doubt is definite now; whatever else led to the question is repeated.
    """
    action = decide(call, found, doubt=False)
    return Action.REPEAT if action is Action.QUERY else action


def confirms_absence(question: Call, answer: Reply | PayasyncError) -> bool:
    """Return whether the response to a query says, and may be believed, that there is no such thing.

    Signed responses need a signature over the refusal, unless the profile says that the service signs none. An
    attacker who relabels a genuine success cannot change the amounts and the code that its signature covers.
    """
    if not isinstance(answer, Reply) or row(question, answer) is not Row.ABSENT:
        return False
    profile, shape = question.profile, question.profile.answer
    if not shape.signature:
        return True
    if not is_vouched_for(question, answer):
        return shape.refusals_signed is False
    code_is_signed = SignedFields.under(shape.signature, profile.signature).covers(shape.code)
    if code_is_signed and among(at(answer.document, shape.code), profile.codes.absent):
        return True
    return not names_an_amount(profile, payload(shape, answer.document))
