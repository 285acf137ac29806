"""The failure matrix: the meaning of each end of an attempt, and the client's next step."""

import enum
from typing import Any, Final, TypeAlias

from attrs import evolve

from payasync.clocks import utc_now
from payasync.endpoints import CLOSE_ORDER, CREATE_REFUND, MAY_HAVE_NO_BODY, PLACE_ORDER
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
    clean,
)
from payasync.evidence import comparison
from payasync.evidence.claims import Claim, claim_of_success
from payasync.evidence.comparison import Objection
from payasync.evidence.origin import is_own, listed_meaning, precedes_execution, says_absent
from payasync.profile.signed_fields import SignedFields
from payasync.profile.wire_names import unaskable
from payasync.strict_json import ABSENT, at, first_at, is_one_of, paths_of
from payasync.wire.call import Call, Reply, number_key
from payasync.wire.response import Response, describe_unusable, parse_retry_after, scalar_at

AttemptResult: TypeAlias = Reply | PayasyncError
"""How an attempt ended."""


class Outcome(enum.Enum):
    """The meaning of the end of an attempt. The values are the words that errors use."""

    SUCCESS = "success"
    NOT_SENT = "not sent"
    NOT_SENDABLE = "not sent, and not worth another try"
    NO_RESPONSE = "no response"
    UNRECOGNISED = "a response that the profile does not recognise"
    UNVERIFIED = "a response that is not signed by the service"
    REDIRECT = "a redirect, which is never followed"
    NOT_EXECUTED = "refused before it was done"
    ABSENT = "not found"
    DUPLICATE = "the number was used before"
    UNLISTED = "a response that the profile neither counts as success nor lists in its codes"
    RATE_LIMITED = "too many requests"
    SERVER_ERROR = "the service failed"


SUCCESS: Final = Outcome.SUCCESS
"""A constant, because the hot path reads it, and a lookup in the enum takes ten times as long."""

REFUSALS: Final = frozenset(
    {Outcome.NOT_EXECUTED, Outcome.ABSENT, Outcome.DUPLICATE, Outcome.UNLISTED, Outcome.RATE_LIMITED}
)
"""Outcomes in which the service says that it did not carry out the request."""


class Action(enum.Enum):
    """The client's next step."""

    DONE = "done"
    """The reply is the call's response."""
    REPEAT = "repeat"
    """Wait, and try again with a new nonce and signature. If no attempt is left, raise the final error."""
    QUERY = "query"
    """Ask the service about the write before anything else."""
    END = "end"
    """Raise the final error without a further attempt."""


class Recourse(enum.IntEnum):
    """The client's options after a lost response: the columns of the matrix."""

    NONE = 0
    """Endpoints 1, 2 without a number, and 8 to 10: no query names the write, so it is never sent twice."""
    REPEAT = 1
    """Endpoints 3, 6 and 7: these are reads, and repeating a read changes nothing."""
    CLOSE = 2
    """Endpoint 4: an order that is closed twice is closed, and no money moves."""
    QUERY = 3
    """Endpoints 2 with a number, and 5: a query by the number shows whether the write was done."""
    KEY = 4
    """As `NONE`, with an idempotency key: the service says that repeating the write under the key changes nothing."""


done: Final = Action.DONE
repeat: Final = Action.REPEAT
query: Final = Action.QUERY
end: Final = Action.END

# fmt: off
MATRIX: Final[dict[Outcome, tuple[Action, ...]]] = {
    # by recourse:          none    repeat  close   query   key
    Outcome.SUCCESS:       (done,   done,   done,   done,   done),
    Outcome.NOT_SENT:      (repeat, repeat, repeat, repeat, repeat),
    Outcome.NOT_SENDABLE:  (end,    end,    end,    end,    end),
    Outcome.NO_RESPONSE:   (end,    repeat, repeat, query,  repeat),
    Outcome.UNRECOGNISED:  (end,    repeat, repeat, query,  repeat),
    Outcome.UNVERIFIED:    (end,    end,    repeat, query,  repeat),
    Outcome.REDIRECT:      (end,    end,    end,    query,  end),
    Outcome.NOT_EXECUTED:  (end,    end,    end,    end,    end),
    Outcome.ABSENT:        (end,    end,    end,    end,    end),
    Outcome.UNLISTED:      (end,    end,    end,    query,  end),
    Outcome.DUPLICATE:     (end,    end,    end,    end,    repeat),  # after an earlier send of ours: see `decide`
    Outcome.RATE_LIMITED:  (end,    repeat, repeat, query,  repeat),  # repeat if the profile says: before execution
    Outcome.SERVER_ERROR:  (end,    repeat, repeat, query,  repeat),
}
# fmt: on

DEFINITE: Final = frozenset({Outcome.NOT_EXECUTED, Outcome.ABSENT, Outcome.DUPLICATE})
"""Refusals of one attempt. They do not show whether an earlier attempt was carried out."""


def classify(call: Call, result: AttemptResult) -> Outcome:
    """Return the meaning of the end of an attempt."""
    if not isinstance(result, Reply):
        if isinstance(result, NoAnswerError):
            return Outcome.NO_RESPONSE
        repeatable = isinstance(result, NotSentError) and not result.permanent
        return Outcome.NOT_SENT if repeatable else Outcome.NOT_SENDABLE
    status, document = result.status, result.document
    outcome = _classify_2xx(call, result, document) if 200 <= status < 300 else _classify_status(call, result)
    refused = outcome is not SUCCESS
    if refused and (status >= 500 or outcome is Outcome.REDIRECT):
        return outcome
    shape = call.profile.answer
    if (shape.signature or shape.header) and _is_unverified(call, outcome, result):
        return Outcome.UNVERIFIED
    objected = _object_to_refusal(call, outcome, result) if refused else _object_to_success(call, document)
    return Outcome.UNRECOGNISED if objected else outcome


def _classify_2xx(call: Call, reply: Reply, document: object) -> Outcome:
    answer = call.profile.answer
    if not isinstance(document, dict):
        return SUCCESS if _is_bodiless_success(call, reply) else Outcome.UNRECOGNISED
    if not (paths := answer.code):
        return _find_listed_outcome(call, reply) or SUCCESS
    code = at(document, paths) if isinstance(paths, str) else first_at(document, paths)
    if is_one_of(code, answer.ok):
        return SUCCESS
    if answer.code_optional and (code is ABSENT or code is None):
        return _find_listed_outcome(call, reply) or SUCCESS
    if code is ABSENT:
        return Outcome.UNRECOGNISED
    return _find_listed_outcome(call, reply) or Outcome.UNLISTED


def _is_bodiless_success(call: Call, reply: Reply) -> bool:
    """Return whether a 204 says that something was ended or changed."""
    answer = call.profile.answer
    coded = answer.code and not answer.code_optional
    return reply.status == 204 and not (reply.body or coded) and call.operation in MAY_HAVE_NO_BODY


def _classify_status(call: Call, reply: Reply) -> Outcome:
    """Return the meaning of a response outside 2xx, before its signature and its numbers are checked."""
    status = reply.status
    if status == 429:
        return Outcome.RATE_LIMITED
    if status >= 500:
        return Outcome.SERVER_ERROR
    if status >= 400:
        listed = _find_listed_outcome(call, reply)
        return listed or (_classify_4xx(call, status) if is_own(call, reply) else Outcome.UNRECOGNISED)
    return Outcome.REDIRECT if status >= 300 else Outcome.UNRECOGNISED


def _classify_4xx(call: Call, status: int) -> Outcome:
    http = call.profile.http
    if call.read and status in http.absent:
        return Outcome.ABSENT
    if status in http.not_executed:
        return Outcome.NOT_EXECUTED
    return Outcome.DUPLICATE if status in http.duplicate else Outcome.UNLISTED


_LISTED: Final = {
    "not_executed": Outcome.NOT_EXECUTED,
    "unauthenticated": Outcome.NOT_EXECUTED,
    "retryable": Outcome.SERVER_ERROR,
    "duplicate": Outcome.DUPLICATE,
    "absent": Outcome.ABSENT,
}
"""The outcome for each key of the profile's `codes`."""


def _find_listed_outcome(call: Call, reply: Reply) -> Outcome | None:
    """Return the outcome that the profile lists for the result code, or else for the message."""
    key = listed_meaning(call, reply)
    return _LISTED[key] if key else None


def _is_unverified(call: Call, outcome: Outcome, reply: Reply) -> bool:
    """Return whether the signature of a response is wrong, or is missing where it is required."""
    if outcome is SUCCESS:
        return not reply.verified
    if outcome is Outcome.RATE_LIMITED:
        return False
    demanded = outcome in REFUSALS and call.profile.answer.refusals_signed is True
    return reply.verified is False or (demanded and not is_vouched_for(call, reply))


def is_vouched_for(call: Call, reply: Reply) -> bool:
    """Return whether the service signed a response. A request that was sent back does not count."""
    return reply.verified is True and not comparison.is_sent_back(call.comparison.response_only, reply.document)


def objection_to(call: Call, reply: Reply) -> Objection | None:
    """Return the objection to a recognised response whose signature is not at fault, or `None`."""
    in_2xx = 200 <= reply.status < 300
    outcome = _classify_2xx(call, reply, reply.document) if in_2xx else _classify_status(call, reply)
    return _object_to_success(call, reply.document) if outcome is SUCCESS else _object_to_refusal(call, outcome, reply)


def _object_to_refusal(call: Call, outcome: Outcome, reply: Reply) -> Objection | None:
    if outcome not in REFUSALS:
        return None
    if found := _find_mismatch(call, reply.document, success=False):
        return found
    if outcome is Outcome.DUPLICATE:  # the response may describe the earlier use of the number
        return None
    profile, data = call.profile, at(reply.document, call.profile.answer.data)
    if reply.verified and outcome is not Outcome.RATE_LIMITED and _may_be_signed_success(call, reply.document, data):
        return Objection("its signature does not cover the refusal, and what is signed may be a success")
    return comparison.contradiction(call.operation, profile, data, absent=outcome is Outcome.ABSENT)


def _object_to_success(call: Call, document: object) -> Objection | None:
    compared = call.comparison
    if compared.response_only and comparison.is_sent_back(compared.response_only, document):
        return Objection("it may be a request that was sent back: it holds nothing that only a response says")
    if compared.as_sent and document is not ABSENT and not call.profile.answer.data:  # most responses
        return comparison.mismatch(call.fields, compared, document)
    return _find_mismatch(call, document, success=True)


def _find_mismatch(call: Call, document: object, *, success: bool) -> Objection | None:
    """Return in what a response differs from what is expected. If the envelope is missing, its payload is empty."""
    compared, path = call.comparison, call.profile.answer.data
    # A 204 names nothing.
    fields = {} if document is ABSENT else call.fields if compared.as_sent else comparison.fields_to_match(call)
    data = at(document, path) if path else document
    found = comparison.mismatch(fields, compared, data, success=success)
    if found or data is not ABSENT:
        return found
    # Another number beside the missing envelope is still another number.
    return comparison.mismatch(fields, compared, document, success=False)


def _may_be_signed_success(call: Call, document: object, data: object) -> bool:
    """Return whether a refusal may be a signed success whose status and code were changed on the way."""
    shape = call.profile.answer
    code = first_at(document, shape.code) if shape.code else ABSENT
    if is_one_of(code, shape.ok):
        return True
    # If codes stand only in failures, a success that was relabelled has none.
    said = not shape.code_optional or not (code is ABSENT or code is None or code == "")
    return not (said and _signs_code(call)) and comparison.may_be_success(
        call.operation, call.profile, comparison.fields_to_match(call), call.comparison, data
    )


def _signs_code(call: Call) -> bool:
    """Return whether the signature of a response covers each place of its result code."""
    shape = call.profile.answer
    signed = SignedFields.of_answers(call.profile)
    return bool(shape.code) and all(map(signed.covers, paths_of(shape.code)))


def recourse(call: Call) -> Recourse:
    """Return the client's option if the response to a call is lost."""
    if call.read:
        return Recourse.REPEAT
    if call.operation == CLOSE_ORDER:
        return Recourse.CLOSE
    if has_own_number(call):
        return Recourse.QUERY
    return Recourse.KEY if call.idempotency_key else Recourse.NONE


def has_own_number(call: Call) -> bool:
    """Return whether a write carries the merchant's own number of an order or refund."""
    return number_key(call.operation, call.reference) is not None


def leaves_doubt(call: Call, outcome: Outcome, result: AttemptResult) -> bool:
    """Return whether an attempt that ended so may have carried out a write."""
    if call.read:
        return False
    if outcome is Outcome.RATE_LIMITED:
        return not (isinstance(result, Reply) and precedes_execution(call, result))
    if outcome is Outcome.DUPLICATE:
        return not has_own_number(call)
    # The matrix asks about a write exactly if the write may have been carried out.
    return MATRIX[outcome][Recourse.QUERY] is Action.QUERY


def decide(call: Call, outcome: Outcome, *, doubt: bool) -> Action:
    """Return the client's next step after an attempt.

    Args:
        call: The call.
        outcome: The meaning of the attempt's end.
        doubt: The call is a write, and this attempt or an earlier one may have been carried out. Doubt is sticky: a
            refusal of attempt 2 does not show whether attempt 1 was carried out.
    """
    by_recourse = recourse(call)
    if doubt and outcome in DEFINITE:
        # On a close, "used before" may also mean that the order was paid.
        asks = by_recourse is Recourse.QUERY or (by_recourse is Recourse.CLOSE and outcome is Outcome.DUPLICATE)
        if asks:
            return Action.QUERY
        return Action.REPEAT if is_in_progress(call, outcome) else Action.END
    if outcome is Outcome.RATE_LIMITED and not doubt:
        return Action.REPEAT
    if by_recourse is Recourse.NONE and doubt and outcome is not SUCCESS:
        return Action.END
    return MATRIX[outcome][by_recourse]


def is_in_progress(call: Call, outcome: Outcome) -> bool:
    """Return whether the service says that it still carries out an earlier attempt under the same idempotency key."""
    return outcome is Outcome.DUPLICATE and recourse(call) is Recourse.KEY


def decide_after_absence(call: Call, outcome: Outcome) -> Action:
    """Return the client's next step once "not found" is final, so that no attempt was carried out.

    A refusal of the last attempt is definite now. After any other outcome the write is sent again.
    """
    action = decide(call, outcome, doubt=False)
    return Action.REPEAT if action is Action.QUERY else action


def confirms_absence(question: Call, result: AttemptResult) -> bool:
    """Return whether the response to a query proves that the service does not know the number.

    If the service signs responses, this refusal must be signed, too, unless the profile says that refusals are not. An
    attacker who relabels a genuine success cannot change the amounts and the code that its signature covers.
    """
    if not isinstance(result, Reply) or classify(question, result) is not Outcome.ABSENT:
        return False
    if not says_absent(question, result):
        return False
    shape, codes = question.profile.answer, question.profile.codes
    if not shape.signed:
        return True
    if not is_vouched_for(question, result):
        return shape.refusals_signed is False
    if _signs_code(question):
        code = first_at(result.document, shape.code)
        if codes.meaning(question.operation.name, [code]) == "absent":
            return True
    # No signed field says "not found". The signed fields must at least name this number, and show no success.
    return comparison.names_only_the_number(question, at(result.document, shape.data))


REPEAT_HINT: Final = "repeating it is harmless"
QUERY_HINT: Final = "it may have been done: ask for its state, do not repeat it"
FOREIGN: Final = "a response that may be of a gateway, and not of the service"
_AFTER_DOUBT: Final = "after an attempt whose outcome is unknown"


def final_error(call: Call, outcome: Outcome, result: AttemptResult, *, doubt: bool) -> PayasyncError:
    """Return the error of a call that has no further attempt.

    Args:
        call: The call.
        outcome: The meaning of the last attempt's end; not a success.
        result: How that attempt ended.
        doubt: The call is a write, and this attempt or an earlier one may have been carried out.
    """
    if isinstance(result, PayasyncError):
        unknown = doubt or (isinstance(result, NoAnswerError) and not call.read)
        if not unknown or isinstance(result, OutcomeUnknownError):
            return result
        reason, words = result.reason or str(result.args[0]), result.args[0]
        if isinstance(result, NotSentError):  # its own words say that repeating is harmless
            reason = words = f"{Outcome.NOT_SENT.value}: {reason}, {_AFTER_DOUBT}"
        error = OutcomeUnknownError(f"{words}; {advice(call)}", reason=reason)
        error.__cause__ = result.__cause__
        return error
    if not doubt and _was_refused(call, outcome, result):
        return _refusal_error(call, outcome, result)
    return _unclear_response_error(call, outcome, result)


def _unclear_response_error(call: Call, outcome: Outcome, reply: Reply) -> PayasyncError:
    """Return the error for a response that does not show whether the request was carried out."""
    kind, hint = (NoAnswerError, REPEAT_HINT) if call.read else (OutcomeUnknownError, advice(call))
    objection = objection_to(call, reply) if outcome is Outcome.UNRECOGNISED else None
    if objection:
        words = f"a response that cannot be believed: {objection.words}"
    elif outcome is Outcome.UNVERIFIED and reply.doubt:
        words = f"a response whose signature cannot be checked: {reply.doubt}"
    elif _was_refused(call, outcome, reply):
        words = f"{outcome.value}, {_AFTER_DOUBT}"
    elif outcome is Outcome.RATE_LIMITED:
        sure = call.profile.http.rate_limit_precedes_execution
        key = "http.uncoded" if sure else "http.rate_limit_precedes_execution"
        words = f"{outcome.value}, which may have been executed (see {key} in the profile)"
    elif reply.status // 100 == 4 and not is_own(call, reply):
        words = f"{FOREIGN}: list {reply.status} in http.uncoded of the profile if your service sends this itself"
    elif is_in_progress(call, outcome):
        words = "a request with the same idempotency key is in progress"
    else:
        words = (outcome is Outcome.UNRECOGNISED and describe_unusable(reply, call.profile.answer)) or outcome.value
    message, facts = f"HTTP {reply.status}, {words}{_quote_message(call, reply)}; {hint}", _facts_of(call, reply)
    if outcome is not Outcome.UNVERIFIED:
        return kind(message, sent=True, reason=words, objection=objection, **facts)
    forged = InvalidSignatureError(f"HTTP {reply.status}, {words}", sent=True, **facts)
    return forged if call.read else kind(message, sent=True, reason=forged, **facts)


def _was_refused(call: Call, outcome: Outcome, reply: Reply) -> bool:
    """Return whether a response refuses a read, or proves that a write was not carried out."""
    return (outcome in REFUSALS or outcome is Outcome.REDIRECT) and not leaves_doubt(call, outcome, reply)


def _refusal_error(call: Call, outcome: Outcome, reply: Reply) -> ServiceError:
    kind: type[ServiceError] = ServiceError
    if outcome is Outcome.DUPLICATE and has_own_number(call):
        kind = DuplicateError
    elif outcome is Outcome.RATE_LIMITED:
        kind = RateLimitedError
    elif outcome is Outcome.NOT_EXECUTED and _is_about_keys(call, reply):
        kind = AuthenticationError
    code, message = _said(call, reply)
    advised = "ask for its state" if _has_query(call) else f"look at {call.reference} at the service"
    hint = f"; {advised}" if outcome is Outcome.DUPLICATE else ""
    return kind(
        f"HTTP {reply.status}, {outcome.value}{describe_age(reply)}{_quote_message(call, reply)}{hint}",
        code=code,
        message=message,
        http_status=reply.status,
        sent=True,
        reason=outcome.value,
        **_facts_of(call, reply),
    )


def _is_about_keys(call: Call, reply: Reply) -> bool:
    """Return whether the status or the result code of a refusal is about the merchant's keys."""
    return reply.status in call.profile.http.unauthenticated or listed_meaning(call, reply) == "unauthenticated"


def _has_query(call: Call) -> bool:
    """Return whether the profile says how to ask about what a write is about, by the merchant's number."""
    mapped = call.operation != CREATE_REFUND or call.profile.refund_status is not None
    return mapped and not unaskable(call.profile, call.operation.name)


def advice(call: Call) -> str:
    """Return the advice for a person about a write that may have been carried out."""
    if has_own_number(call) and _has_query(call):
        return QUERY_HINT
    if call.reference is not None:
        return f"it may have been done: look at {call.reference} at the service, and do not repeat it"
    given = {argument: at(call.fields, name, None) for argument, name in call.layout.names.items()} or dict(call.fields)
    amount, currency = given.get("amount", given.get("total_amt", given.get("totalAmt"))), given.get("currency") or ""
    marks = [] if amount is None else [f"{amount} {currency}".strip()]
    texts = [text for name in ("description", "subject", "body") if (text := given.get(name)) is not None]
    marks += [repr(clean(text).strip()) for text in texts[:1]]
    marks.append(f"at about {utc_now():%Y-%m-%d %H:%M} UTC")
    number = "With an out_trade_no of your own, payasync could have asked for its state"
    hint = f". {number}" if call.operation == PLACE_ORDER else ""
    return f"it may have been done: look for it at the service ({', '.join(marks)}), and do not repeat it{hint}"


def unknown_error(
    call: Call, reason: str, reply: Reply, *, objection: Objection | None = None, hint: str = QUERY_HINT
) -> OutcomeUnknownError:
    """Return the error of a write if the response to the query about it leaves the outcome unknown.

    Args:
        call: The write.
        reason: Why the response is not enough, or why it is not believed.
        reply: The response to the query.
        objection: Why the response is not believed, if it was recognised.
        hint: What to do.
    """
    message = f"{reason}; {hint}"
    return OutcomeUnknownError(message, sent=True, reason=reason, objection=objection, **_facts_of(call, reply))


def claim_about(write: Call, question: Call, result: AttemptResult) -> Claim | None:
    """Return what the response to a query claims about a write, in time or not; `None` if it is not believed."""
    if confirms_absence(question, result):
        return Claim.ABSENT
    if not isinstance(result, Reply) or classify(question, result) is not SUCCESS:
        return None
    profile, thing = question.profile, comparison.thing_of(question.operation)
    if comparison.is_empty_envelope(profile.answer, result.document):
        return Claim.UNCLEAR
    return claim_of_success(profile, write.operation.name, thing, _state_in(question, result), asked=True)


def describe_claim(question: Call, reply: Reply, claim: Claim | None = None) -> str:
    """Return what the response to a query says, and why it does not count yet if its claim is given."""
    thing, state = comparison.thing_of(question.operation), _state_in(question, reply)
    words = f"the {thing}'s state is {state}" if state else f"the profile does not say what the {thing}'s state means"
    if comparison.is_empty_envelope(question.profile.answer, reply.document):
        words = f"the service says nothing about {question.reference}"
    earlier = ", perhaps of an earlier send" if claim in {Claim.UNDER_WAY, Claim.ENDED, Claim.DONE} else ""
    return (words if 200 <= reply.status < 300 else Outcome.ABSENT.value) + (describe_age(reply) or earlier)


def _state_in(question: Call, reply: Reply) -> str | None:
    data = at(reply.document, question.profile.answer.data)
    return comparison.state_in(question.profile, comparison.thing_of(question.operation), data)


def describe_age(reply: Reply) -> str:
    """Return how long a cache may have had a response; an empty text if none had it."""
    return f", from a cache, {reply.age:.0f} s old" if reply.age >= 1 else ""


def result_of_query(write: Call, question: Call, reply: Reply, claim: Claim) -> AttemptResult:
    """Return how a write ends by a claim that counts.

    Args:
        write: The write.
        question: The query about it.
        reply: The response to the query.
        claim: What it claims about the write.
    """
    if claim in {Claim.DONE, Claim.UNDER_WAY, Claim.ENDED}:
        return evolve(reply, recovered=True)
    reason = describe_claim(question, reply)
    if claim is Claim.REFUSED:
        return ServiceError(reason, http_status=reply.status, sent=True, reason=reason, **_facts_of(write, reply))
    return unknown_error(write, reason, reply)


def _quote_message(call: Call, reply: Reply) -> str:
    """Return the result code and the message of a response in brackets. A code that is a text is quoted."""
    code, message = _said(call, reply)
    words = filter(None, (None if code is None else f"code {code!r}", message))
    return f" ({shown})" if (shown := ": ".join(words)) else ""


def _said(call: Call, reply: Reply) -> tuple[str | int | None, str | None]:
    """Return the result code and the message of a response, as far as an error may show them."""
    answer = call.profile.answer
    code, message = (scalar_at(reply.document, path) for path in (answer.code, answer.message))
    shown = clean(code)
    return code if shown == str(code) else shown, None if message is None else clean(message).strip()


def _facts_of(call: Call, reply: Reply) -> dict[str, Any]:
    return {
        "operation": call.operation.name,
        "reference": call.reference,
        "attempts": reply.attempts,
        "retry_after": parse_retry_after(reply.headers.get("Retry-After")),
        "response": Response.of(call, reply),
    }
