"""From a call, or from a request that is to be queued, to what a journal keeps of it.

Arguments are kept by their names in Python: no profile is needed to read them, and none changes what they mean.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

from attrs import fields

from payasync.absent import ABSENT
from payasync.arguments import ARGUMENTS
from payasync.calls import Call
from payasync.documents import flaw, plain
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.journal.hashing import COUNTED, digest
from payasync.journal.intents import Draft, Intent, check_queued
from payasync.match import NAMED
from payasync.operations import Kind, Operation
from payasync.profile import Profile
from payasync.requests import NOTHING, Request, invalid, word
from payasync.resources.orders import CloseOrder, PlaceOrder
from payasync.resources.payments import CreatePayment
from payasync.resources.refunds import CreateRefund
from payasync.resources.subscriptions import CancelSubscription, CreateSubscription, UpdateSubscription
from payasync.responses import Response

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


def of_call(call: Call, merchant: str, keep: Keep) -> Draft:
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
    return wire, tuple(name for name in NAMED if name not in wire.values())


def of_request(request: Request[Response], merchant: str, intent: str | None, keep: Keep) -> Draft:
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
    return value.isoformat() if isinstance(value, date) else plain(value)


def _date(text: str) -> date:
    return datetime.fromisoformat(text) if "T" in text else date.fromisoformat(text)


def _number(operation: Operation, reference: str | None) -> str | None:
    named = operation.kind is Kind.KEYED and reference is not None
    return f"{operation.name}:{reference}" if named else None


def _kept(keep: Keep, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    kept: Any = keep(operation, arguments)
    if not isinstance(kept, Mapping) or flaw(kept):
        raise ConfigurationError(
            f"keep must return a mapping of names to JSON values, not {type(kept).__name__}", field="keep"
        )
    return dict(plain(kept))


def _not_kept(operation: Operation, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"request must be one that is kept whole, and {what} is not: send it directly, or give the journal "
        "`keep=` to say that it may be kept",
        field="request",
        rule="kept whole",
        operation=operation.name,
    )
