"""From a call, or a request that is to be queued, to what a journal keeps of it, redacted."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import orjson
from attrs import fields, frozen
from multidict import CIMultiDict

from payasync.documents import ABSENT, at, copy_plain, dumps, find_flaw
from payasync.endpoints import ARGUMENTS, Kind, Operation
from payasync.errors import (
    ConfigurationError,
    IntentConflictError,
    InvalidArgumentError,
    OutcomeUnknownError,
    PayasyncError,
)
from payasync.journal.intents import COUNTED, Begun, Draft, Intent, Outcome, Step, asked_for, check_queued, digest
from payasync.profile.profile import Profile
from payasync.profile.sandbox_profile import PROFILE as SANDBOX
from payasync.profile.schema import NONCE, SIGN, AnswerShape
from payasync.resources.orders import CloseOrder, PlaceOrder
from payasync.resources.payments import CreatePayment
from payasync.resources.refunds import CreateRefund
from payasync.resources.subscriptions import CancelSubscription, CreateSubscription, UpdateSubscription
from payasync.wire.call import Call, Reply
from payasync.wire.match import COMPARED_NAMES
from payasync.wire.request import NOTHING, Request, invalid, word
from payasync.wire.response import Response, payload

HIDDEN: Final = "***"
LONG: Final = 6
"""Characters from which a detail is looked for inside of other texts: a shorter one stands there by chance."""
MANY: Final = 10**6
"""From here on a number tells somebody apart; a smaller one may be an amount."""

OWN: Final = (
    "payment_id",
    "payment_status",
    "redirect_url",
    "order_status",
    "refund_status",
    "subscription_id",
    "subscription_status",
)
"""What the profile locates in an answer's data is the service's own, whatever else it may look like."""


def kept_outcome(call: Call, reply: Reply, *, whole: bool = False) -> Outcome:
    """Return what may be kept of the answer to a call.

    Args:
        call: What was asked.
        reply: What came.
        whole: Keep the whole document, but for what may never be kept.
    """
    shape = call.profile.answer
    document = reply.document if whole else located(shape, reply.document)
    kind, _, header = shape.request_id.partition(":")
    told = reply.headers.get(header) if header and kind == "header" else None
    return Outcome(
        status=reply.status,
        headers={} if told is None else {header: told},
        body=_written(_keeper(call, reply.document).kept(document)),
        verified=reply.verified,
        recovered=reply.recovered,
    )


def located(shape: AnswerShape, document: Any) -> dict[str, Any]:
    """Return, of a document, what the profile's paths lead to, each where it stood."""
    found: dict[str, Any] = {}
    inner = shape.data and at(document, shape.data) is not ABSENT
    if inner:
        _put(found, shape.data, {})
    where = f"{shape.data}." if inner else ""
    within = (f"{where}{path}" for name in OWN if (path := getattr(shape, name)))
    for path in (shape.code, shape.message, shape.request_id, *within):
        value = at(document, path) if path else ABSENT
        if isinstance(value, str | int):
            _put(found, path, value)
    return found


def _written(document: Any) -> bytes:
    try:
        return dumps(document)
    except TypeError:  # an integer beyond 64 bits, such as the service's number of a payment
        return json.dumps(document).encode()


def _put(document: dict[str, Any], path: str, value: str | int | dict[str, Any]) -> None:
    """Set what stands at a dotted path; what was a list on its way is an object then, read by the same path."""
    *way, last = path.split(".")
    for step in way:
        document = document.setdefault(step, {})
    document[last] = value


def kept_words(call: Call, text: str) -> str:
    """Return a text in one line, without the customer's details."""
    return " ".join(_keeper(call, None).text(text).split())


@frozen
class _Keeper:
    """What is taken out of a document.

    Attributes:
        names: Of members that are left out wherever they stand.
        details: Of the customer.
        located: Texts that the profile's paths lead to; they are the service's own, and stay whole.
    """

    names: frozenset[str]
    details: tuple[str | int, ...]
    located: tuple[str | int, ...]

    def kept(self, value: Any) -> Any:
        """Return a copy of a JSON value with nothing in it that may not be kept."""
        if isinstance(value, dict):
            return {self.text(name): self.kept(inner) for name, inner in value.items() if name not in self.names}
        if isinstance(value, list):
            return [self.kept(inner) for inner in value]
        if isinstance(value, str):
            return self.text(value)
        return HIDDEN if type(value) is int and value not in self.located and value in self.details else value

    def text(self, text: str) -> str:
        """Return a text without the customer's details."""
        if text in self.located:
            return text
        if text in self.details:
            return HIDDEN
        for detail in self.details:
            if isinstance(detail, str) and len(detail) >= LONG:
                text = text.replace(detail, HIDDEN)
        return text


def _keeper(call: Call, document: Any) -> _Keeper:
    shape = call.profile.answer
    customer = wire_names(call.operation.name, call.profile).get(CUSTOMER, CUSTOMER)
    signature = shape.signature.rpartition(".")[2] or SIGN
    details = _leaves(call.fields.get(customer))
    return _Keeper(frozenset({NONCE, SIGN, signature, CUSTOMER, customer}), tuple(details), _located(shape, document))


def _leaves(value: Any) -> Iterator[str | int]:
    """Yield what stands at the ends of a JSON value, where it tells somebody apart."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif (isinstance(value, str) and value) or (type(value) is int and value >= MANY):
        yield value


def _located(shape: AnswerShape, document: Any) -> tuple[str | int, ...]:
    data = payload(shape, document)
    found = [
        at(document, shape.code),
        at(document, shape.request_id),
        *(at(data, path) for each in OWN if (path := getattr(shape, each))),
    ]
    return tuple(each for each in found if isinstance(each, str) or type(each) is int)


Keep: TypeAlias = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""Returns, of an operation's arguments, those that a journal may keep."""

CUSTOMER: Final = "customer"
START: Final = "start_date"

_POINTS: Final = {
    operation: tuple(each.point for each in arguments if each.point and not each.wire)
    for operation, arguments in ARGUMENTS.items()
}
"""By operation, the keys of the profile's `fields` that name its arguments."""

WRITES: Final[Mapping[str, type[Request[Any]]]] = {
    kind.operation.name: kind
    for kind in (
        CreatePayment,
        PlaceOrder,
        CloseOrder,
        CreateRefund,
        CreateSubscription,
        UpdateSubscription,
        CancelSubscription,
    )
}
"""The requests that can be queued, by operation."""


def without_customer(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keep all arguments but the customer's details."""
    del operation
    return {name: value for name, value in arguments.items() if name != CUSTOMER}


def moving(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keep what moves money, but for the customer's details: no words, and no addresses."""
    counted = COUNTED.get(operation, ())
    return {name: value for name, value in arguments.items() if name in counted and name != CUSTOMER}


def entry_of_call(call: Call, merchant: str, keep: Keep) -> Draft:
    """Return what is kept of a call that is about to be sent.

    Of the fields that its caller named beyond the document, that is only what responses are compared with.

    Raises:
        ConfigurationError: `keep` returns what cannot be kept.
    """
    name = call.operation.name
    wire = wire_names(name, call.profile)
    arguments = {argument: call.fields[field] for argument, field in wire.items() if field in call.fields}
    return Draft(
        operation=name,
        merchant=merchant,
        reference=call.reference,
        number=_number(call.operation, call.reference),
        intent=call.intent,
        hash=digest(name, merchant, _counted(arguments, call.profile) if name in ARGUMENTS else call.fields),
        request=_kept(keep, name, arguments),
        named=beyond_arguments(call),
    )


def beyond_arguments(call: Call) -> dict[str, object]:
    """Return what responses to a call are compared with, and none of its arguments says, by wire names.

    That is the merchant, if it is sent, and a number, an amount or a currency of the profile's constants or of `extra`.
    """
    name = call.operation.name
    if name not in ARGUMENTS:  # no response is about an endpoint that the document does not show
        return {}
    found = ((each, call.fields.get(each)) for each in _names(name, call.profile)[1])
    return {each: value for each, value in found if isinstance(value, str | int)}


def wire_names(operation: str, profile: Profile) -> Mapping[str, str]:
    """Return by argument its wire name, for those that have one."""
    return _names(operation, profile)[0]


def _names(operation: str, profile: Profile) -> tuple[Mapping[str, str], tuple[str, ...]]:
    called = [profile.fields.get(point, "") for point in _POINTS.get(operation, ())]
    return _names_of(operation, *called)


@lru_cache
def _names_of(operation: str, *called: str) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the wire names of arguments, and the names that are compared and are none of these.

    Args:
        operation: Its name.
        called: What the profile calls the arguments that the document does not show.
    """
    points = dict(zip(_POINTS.get(operation, ()), called, strict=True))
    found = {each.name: each.wire or points.get(each.point, "") for each in ARGUMENTS.get(operation, ())}
    wire = {argument: name for argument, name in found.items() if name}
    return wire, tuple(name for name in COMPARED_NAMES if name not in wire.values())


def entry_of_request(request: Request[Response], merchant: str, intent: str | None, keep: Keep) -> Draft:
    """Return what is kept of a request that is to be queued: all of it, as it is sent from there.

    Raises:
        InvalidArgumentError: It is no write; the intent or the merchant is no text; or something of the request may
            not be kept.
        ConfigurationError: `keep` returns what cannot be kept.
    """
    if WRITES.get(request.operation.name if isinstance(request, Request) else "") is not type(request):
        raise invalid("request", "a write, such as CreateRefund(...)", request)
    operation, arguments = request.operation, _arguments(request)
    draft = Draft(
        operation=operation.name,
        merchant=word("merchant", merchant, operation),
        reference=request.reference,
        number=_number(operation, request.reference),
        intent=None if intent is None else word("intent", intent, operation),
        hash=digest(operation.name, merchant, _counted(arguments)),
        request=_kept(keep, operation.name, arguments),
        queued=True,
    )
    if left_out := sorted(arguments.keys() - draft.request.keys()):
        raise _not_kept(operation, ", ".join(left_out))
    if any(draft.request[name] != value for name, value in arguments.items()):
        raise _not_kept(operation, "what `keep` changes")
    return draft


def request_of(intent: Intent) -> Request[Response]:
    """Return the request that was queued.

    Raises:
        InvalidArgumentError: It is not queued.
    """
    check_queued(intent)
    arguments = dict(intent.request)
    if START in arguments:
        arguments[START] = _date(arguments[START])
    return cast("Request[Response]", WRITES[intent.operation](**arguments))


def _counted(arguments: Mapping[str, Any], profile: Profile | None = None) -> Mapping[str, Any]:
    """Return arguments with the start as a day, whoever has written it: here, or the profile."""
    if START not in arguments:
        return arguments
    return {**arguments, START: _day(arguments[START], profile.formats.get(START, "") if profile else "")}


def _day(text: str, form: str) -> str:
    with suppress(ValueError):
        return (datetime.strptime(text, form) if form else _date(text)).strftime("%Y-%m-%d")  # noqa: DTZ007 - a day
    return text


def _arguments(request: Request[Response]) -> dict[str, Any]:
    given = {each.name: getattr(request, each.name) for each in fields(type(request))}
    return {name: _plain(value) for name, value in given.items() if value is not ABSENT and value is not NOTHING}


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else copy_plain(value)


def _date(text: str) -> date:
    return datetime.fromisoformat(text) if "T" in text else date.fromisoformat(text)


def _number(operation: Operation, reference: str | None) -> str | None:
    named = operation.kind is Kind.KEYED and reference is not None
    return f"{operation.name}:{reference}" if named else None


def _kept(keep: Keep, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    kept: Any = keep(operation, arguments)
    if not isinstance(kept, Mapping) or find_flaw(kept):
        raise ConfigurationError(
            f"keep must return a mapping of names to JSON values, not {type(kept).__name__}", field="keep"
        )
    return dict(copy_plain(kept))


def _not_kept(operation: Operation, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"request must be one that is kept whole, and {what} is not: send it directly, or give the journal "
        "`keep=` to say that it may be kept",
        field="request",
        rule="kept whole",
        operation=operation.name,
    )


ASK: Final = "it may have been done: ask for its state, do not repeat it"
AT_IT: Final = "it is being sent, or whoever was sending it was cut off"
TAKEN: Final = "somebody else has taken it, or ended it, meanwhile"
"""Of what was held by a claim that counts no more."""


def recorded_reply(intent: Intent) -> Reply:
    """Return the answer that was kept; of what a person has ended, one without a body."""
    kept = intent.outcome or Outcome(status=204, recovered=True)
    return Reply(
        status=kept.status,
        headers=CIMultiDict(kept.headers),
        body=kept.body,
        attempts=0,
        recovered=kept.recovered,
        verified=kept.verified,
    )


def conflict(intent: Intent) -> IntentConflictError:
    """Return why a request is neither sent nor kept whose key stands for another intention."""
    return IntentConflictError(
        f"{_shown(intent)} stands for another request: intention {intent.id} in the journal. Take another number "
        "or intent for this one, or make that one again as it was",
        operation=intent.operation,
        reference=intent.reference,
        reason="the same key was used before for a different request",
        intent_id=intent.id,
    )


def refusal_of(begun: Begun, profile: Profile) -> PayasyncError:
    """Return why an intention is not sent.

    Args:
        begun: What the journal says.
        profile: The session's.
    """
    intent = begun.intent
    if begun.step is Step.CONFLICT:
        return conflict(intent)
    reason = intent.reason or "an earlier attempt has no recognised answer"
    if begun.step is Step.WAIT:
        reason = AT_IT if intent.state == "sending" else TAKEN
    where = f"intention {intent.id} in the journal is {intent.state}"
    return OutcomeUnknownError(
        f"{where}: {reason}; {_next(intent)}",
        operation=intent.operation,
        reference=intent.reference,
        reason=reason,
        intent_id=intent.id,
        asked=asked_for(intent, profile),
        used_before=intent.answered,
    )


def lost_lease_error(intent: Intent, error: PayasyncError, profile: Profile) -> OutcomeUnknownError:
    """Return what a call ends with that sent nothing, if another process has taken its write over.

    Args:
        intent: The intention, as the call held it.
        error: Why nothing was sent.
        profile: The session's.
    """
    return OutcomeUnknownError(
        f"this call sent nothing, but its lease on intention {intent.id} in the journal is over, and another process "
        "may have sent it. Ask for its state, or make the same call again: the journal answers it. Take no new number",
        operation=intent.operation,
        reference=intent.reference,
        attempts=error.attempts,
        reason=TAKEN,
        intent_id=intent.id,
        asked=asked_for(intent, profile),
    )


def _next(intent: Intent) -> str:
    """Return what to do next: what asking leads nowhere for is a person's, and nobody is asked about what is sent."""
    if intent.state == "manual":
        return f"it may have been done: find out, and say so: payasync journal resolve {intent.id}"
    if intent.state == "sending" and intent.lease is not None:
        until = intent.lease.astimezone(UTC)
        return f"it may have been done: payasync reconcile asks from {until:%Y-%m-%d %H:%M:%S} UTC on; do not repeat it"
    if intent.number is None:
        return f"it may have been done: look for it at the service, and say so: payasync journal resolve {intent.id}"
    return ASK


def _called(service: str) -> str:
    return "the sandbox" if service == SANDBOX.name else service


def _shown(intent: Intent) -> str:
    keys = [f"intent {intent.intent!r}" if intent.intent else "", f"number {intent.reference}" if intent.number else ""]
    return " and ".join(filter(None, keys))


def other_service_error(merchant: str, kept: str, given: str, place: str) -> ConfigurationError:
    """Return why a session of another service may neither send nor ask."""
    same = "nothing was done there" if kept == SANDBOX.name else "it is the same one at a new address"
    old = "sandbox" if kept == SANDBOX.name else kept
    moved = f"; if {same}, tell it: payasync journal move {old} {given} --journal {shlex.quote(place)}"
    return ConfigurationError(
        f"journal {place!r} has what merchant {merchant!r} sent to {_called(kept)}, and this session's service is "
        f"{_called(given)}: nothing was sent or asked. Give each service a journal of its own"
        f"{'' if given == SANDBOX.name else moved}",
        field="journal",
    )


def outcome_text(outcome: Outcome) -> str:
    """Return an outcome as JSON; `read` gives it back."""
    facts: dict[str, Any] = {
        "status": outcome.status,
        "headers": dict(outcome.headers),
        "body": outcome.body.decode(errors="backslashreplace"),
        "verified": outcome.verified,
        "recovered": outcome.recovered,
    }
    return orjson.dumps(facts).decode()


def outcome_from_text(text: str) -> Outcome:
    """Return the outcome that was written so."""
    facts: dict[str, Any] = orjson.loads(text)
    return Outcome(**{**facts, "body": facts["body"].encode()})
