"""Drafts of intents, made from calls before they are sent, or from requests to queue."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import orjson
from attrs import fields

from payasync.endpoints import ARGUMENTS, BY_NAME, Operation, camel_case
from payasync.errors import InvalidArgumentError
from payasync.evidence.comparison import COMPARED_NAMES, by_document_names
from payasync.journal.intents import Draft, Intent, check_queued
from payasync.profile.dates import read_date
from payasync.resources.orders import CloseOrder, PlaceOrder
from payasync.resources.payments import CreatePayment
from payasync.resources.refunds import CreateRefund
from payasync.resources.subscriptions import CancelSubscription, CreateSubscription, UpdateSubscription
from payasync.settings import invalid_setting
from payasync.strict_json import ABSENT, at, copy_plain, find_flaw
from payasync.wire.call import Call, Layout, number_key
from payasync.wire.request import Request
from payasync.wire.response import Response
from payasync.wire.validators import NOTHING, check_word, invalid_argument

COUNTED: Final[Mapping[str, tuple[str, ...]]] = {
    "payments.create": ("amount", "currency"),
    "orders.place": ("out_trade_no", "total_amt", "currency"),
    "orders.close": ("out_trade_no",),
    "refunds.create": ("out_trade_no", "out_refund_no", "total_amt", "refund_amt"),
    # The frequency moves money, too. Only the customer and the first day distinguish two subscriptions.
    "subscriptions.create": ("amount", "frequency", "start_date", "customer"),
    "subscriptions.update": ("subscription_id", "amount", "frequency", "start_date", "customer"),
    "subscriptions.cancel": ("subscription_id",),
}
"""The arguments that move money, by operation. For an endpoint that the document does not show, all fields count."""

_COUNTED_SETS: Final = {operation: frozenset(names) for operation, names in COUNTED.items()}
"""Made once, because each write compares its arguments with one."""

CUSTOMER: Final = "customer"
START: Final = "start_date"
UNREADABLE: Final = "this version of payasync cannot read it"
_COMPARABLE: Final = (str, int)
"""A union would be made anew for each value."""

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

Keep: TypeAlias = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""Returns the arguments of an operation that a journal may store."""


def keep_all_but_customer(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return all arguments but the customer's details."""
    del operation
    return _without_customer(arguments)


def _without_customer(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    if CUSTOMER not in arguments:
        return arguments
    return {name: value for name, value in arguments.items() if name != CUSTOMER}


def digest(operation: str, merchant: str, arguments: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal digits, of the arguments that move money.

    Args:
        operation: Its name.
        merchant: The merchant's number.
        arguments: All arguments by their names in Python; of an endpoint of `request`, its fields.
    """
    counted, amounts = _COUNTED_SETS.get(operation), arguments
    if counted is not None and not counted.issuperset(arguments):
        amounts = {name: value for name, value in arguments.items() if name in counted}
    return hashlib.sha256(orjson.dumps([operation, merchant, amounts], option=orjson.OPT_SORT_KEYS)).hexdigest()


def draft_from_call(call: Call, merchant: str, keep: Keep | None) -> Draft:
    """Return the draft to store before a call is sent.

    Args:
        call: The call.
        merchant: The merchant's number.
        keep: Returns what may be stored. `None`: what moves money, but for the customer's details: no free text, and no
            addresses.

    Raises:
        ConfigurationError: `keep` returns something that cannot be stored.
    """
    name, layout, sent = call.operation.name, call.layout, call.fields
    # Each write needs the arguments that move money alone, unless the user's own function asks for the others.
    wanted = _counted_names(layout, name) if keep is None else tuple(layout.names.items())
    if layout.nested:
        found = {argument: at(sent, field) for argument, field in wanted}
        arguments = {argument: value for argument, value in found.items() if value is not ABSENT}
    else:
        arguments = {argument: sent[field] for argument, field in wanted if field in sent}
    if unsent := call.comparison.asked:
        named = ((argument, camel_case(argument)) for argument in COUNTED[name])
        arguments |= {argument: unsent[field] for argument, field in named if field in unsent}
    counted: Mapping[str, Any] = arguments
    if name not in ARGUMENTS:
        own = call.profile.idempotency.field
        counted = {field: value for field, value in sent.items() if field != own}
    elif START in arguments:
        counted = {**arguments, START: _format_day(arguments[START], call.profile.formats.get(START, ""))}
    return Draft(
        operation=name,
        merchant=merchant,
        reference=call.reference,
        number=number_key(call.operation, call.reference),
        intent=call.intent,
        hash=digest(name, merchant, counted),
        # The amounts were validated with the request.
        request=_without_customer(arguments) if keep is None else _apply_keep(keep, name, arguments),
        named=named_by(call),
        idempotency_key=call.idempotency_key or None,
    )


@lru_cache(maxsize=1024)
def _counted_names(layout: Layout, operation: str) -> tuple[tuple[str, str], ...]:
    """Return the arguments of an operation that move money, with their wire names."""
    return tuple((each, layout.names[each]) for each in COUNTED.get(operation, ()) if each in layout.names)


def named_by(call: Call) -> dict[str, object]:
    """Return the values that responses are compared with and that are no arguments, by wire names.

    They are the merchant, if it is sent, and numbers, amounts and currencies from the profile's constants or `extra`.
    """
    if call.operation.name not in ARGUMENTS:  # no response is about an endpoint that the document does not show
        return {}
    named = by_document_names(call)
    names = sorted(COMPARED_NAMES & named.keys() - call.layout.document_names)
    return {name: value for name in names if isinstance(value := named[name], _COMPARABLE)}


def draft_from_request(request: Request[Response], merchant: str, intent: str | None, keep: Keep) -> Draft:
    """Return the draft of a request to queue. It holds the whole request, to be sent from the journal.

    Raises:
        InvalidArgumentError: The request is not a write, the intent or the merchant is not a text, or something of the
            request may not be stored.
        ConfigurationError: `keep` returns something that cannot be stored.
    """
    if WRITES.get(request.operation.name if isinstance(request, Request) else "") is not type(request):
        raise invalid_argument("request", "a write, such as CreateRefund(...)", request)
    operation = request.operation
    given = {each.name: getattr(request, each.name) for each in fields(type(request))}
    arguments = {
        name: value.isoformat() if isinstance(value, date) else copy_plain(value)
        for name, value in given.items()
        if value is not ABSENT and value is not NOTHING
    }
    counted = {**arguments, START: _format_day(arguments[START])} if START in arguments else arguments
    draft = Draft(
        operation=operation.name,
        merchant=check_word("merchant", merchant, operation),
        reference=request.reference,
        number=number_key(operation, request.reference),
        intent=None if intent is None else check_word("intent", intent, operation),
        hash=digest(operation.name, merchant, counted),
        request=_apply_keep(keep, operation.name, arguments),
        queued=True,
    )
    if left_out := sorted(arguments.keys() - draft.request.keys()):
        raise _not_kept_error(operation, ", ".join(left_out))
    if any(draft.request[name] != value for name, value in arguments.items()):
        raise _not_kept_error(operation, "what `keep` changes")
    return draft


def request_from_intent(intent: Intent) -> Request[Response]:
    """Return the request that was queued.

    Raises:
        InvalidArgumentError: The intent is not queued, its row is damaged, or its request cannot be made any more.
    """
    check_queued(intent)
    why = intent.damaged or UNREADABLE
    # An operation or an argument may be one that a newer payasync knows.
    with suppress(KeyError, TypeError, ValueError):
        if not intent.damaged:
            arguments = dict(intent.request)
            if START in arguments:
                arguments[START] = _parse_date(arguments[START])
            return cast("Request[Response]", WRITES[intent.operation](**arguments))
    rule = "an intent that can be sent"
    words = f"intent_id must be {rule}: {why}; nothing was sent. Look at it: payasync journal show {intent.id}"
    raise InvalidArgumentError(words, field="intent_id", rule=rule, value=intent.id, reason=why)


def find_contradiction(stored: Intent) -> str:
    """Return how a stored intent contradicts itself: it was changed or damaged. Return an empty text if it does not.

    Only a queued request is stored whole, so that its hash can be compared.
    """
    request, write = stored.request, WRITES.get(stored.operation)
    operation = BY_NAME.get(stored.operation)
    same = operation is None or stored.number == number_key(operation, stored.reference)
    if write and stored.queued:
        counted = {**request, START: _format_day(request[START])} if START in request else request
        same = same and stored.reference == request.get(write.operation.reference or "")
        same = same and stored.hash == digest(stored.operation, stored.merchant, counted)
    return "" if same else "was changed or damaged: its request does not match its hash or its number"


def _format_day(text: str, form: str = "") -> str:
    """Return the day of a date in a profile's format, or in ISO's; in UTC if the date has a zone."""
    with suppress(TypeError, ValueError):  # a row may be damaged
        found = read_date(text, form) if form else _parse_date(text)
        if isinstance(found, datetime):
            found = (found.astimezone(UTC) if found.tzinfo else found).date()
        return text if found is None else found.isoformat()
    return text


def _parse_date(text: str) -> date:
    return datetime.fromisoformat(text) if "T" in text else date.fromisoformat(text)


def _apply_keep(keep: Keep, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    stored: Any = keep(operation, arguments)
    if not isinstance(stored, Mapping) or find_flaw(stored):
        raise invalid_setting("keep", f"must return a mapping of names to JSON values, not {type(stored).__name__}")
    return dict(copy_plain(stored))


def _not_kept_error(operation: Operation, what: str) -> InvalidArgumentError:
    why = f"request must be one that is kept whole, and {what} is not"
    advice = "send it directly, or give the journal `keep=` to say that it may be kept"
    return InvalidArgumentError(f"{why}: {advice}", field="request", rule="kept whole", operation=operation.name)
