"""Between the sandbox and the wire: requests in and responses out, in the words of a profile."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from http import HTTPStatus
from itertools import pairwise
from typing import Any, Final, Literal, get_args

from attrs import evolve, fields_dict, frozen

from payasync.endpoints import BRACES, BY_NAME, CREATE_PAYMENT, CREATE_REFUND, PLACE_ORDER, Argument, Operation
from payasync.errors import ConfigurationError
from payasync.evidence.comparison import digits_of
from payasync.profile.profile import Profile
from payasync.profile.sandbox_profile import PROFILE
from payasync.profile.schema import AnswerShape, Code, Kind, NotificationShape
from payasync.profile.signed_fields import join_path
from payasync.profile.wire_names import (
    COMPARED,
    SIGN,
    SOUGHT,
    arguments_of,
    has_another,
    is_unsent,
    operation_of,
    shown_names,
    unaskable,
    wire_name,
)
from payasync.sandbox.arguments import (
    ARGUMENTS,
    SORTS,
    Sort,
    check_accepted,
    check_constants,
    make_checks,
    read_digits,
    with_integers,
)
from payasync.sandbox.model import MERCHANT_ID, Event, Order, Refund, RefusedError, Subscription, Why, format_instant
from payasync.settings import invalid_setting
from payasync.signing.schemes import Keyed, Scheme, SortedPairs
from payasync.signing.templates import parts_of
from payasync.strict_json import ABSENT, at, paths_of


def set_at(document: dict[str, Any], path: str, value: object) -> None:
    """Set a value at a dotted path, with the objects on the way.

    An empty path is the document itself: an object is merged into it, and anything else is ignored.
    """
    if not path:
        document.update(value if isinstance(value, dict) else {})
        return
    above, _, name = path.rpartition(".")
    _put(_holder_at(document, above, name), name, value)


def table_at(document: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the object at a dotted path, and make it if necessary. An empty path is the document itself."""
    holder: dict[str, Any] = _holder_at(document, path, "")
    return holder


def _holder_at(document: Any, path: str, name: str) -> Any:
    """Return the object at a dotted path, or the list if a number follows; make it if necessary."""
    steps = path.split(".") if path else []
    for step, following in pairwise([*steps, name]):
        inner = at(document, step, None)
        if not isinstance(inner, dict) and not (isinstance(inner, list) and following.isdecimal()):
            inner = list[Any]() if following.isdecimal() else dict[str, Any]()
            _put(document, step, inner)
        document = inner
    return document


def _add_missing(document: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Set values at dotted paths at which nothing stands."""
    for path, value in given.items():
        if at(document, path) is ABSENT:
            set_at(document, path, value)


def _put(holder: Any, step: str, value: object) -> None:
    """Set an entry of an object or of a list, which grows as far as that."""
    if isinstance(holder, list):
        holder.extend({} for _ in range(int(step) + 1 - len(holder)))
        holder[int(step)] = value
    else:
        holder[step] = value


def write_time(moment: datetime, shape: NotificationShape) -> str:
    """Return a time as the service writes it in notifications: `2026-11-22 10:30:00`, if it has a time zone."""
    if shape.zone is None:
        return format_instant(moment)
    local = moment.astimezone(shape.zone)
    # An hour that the clocks repeat would be read as the first of the two.
    return (local if local.fold else local.replace(tzinfo=None)).isoformat(" ", "seconds")


def sibling_path(path: str, name: str) -> str:
    """Return the path of a name in the object that holds a path, or that holds its list."""
    above, dot, step = path.rpartition(".")
    while step.isdecimal() and dot:
        above, dot, step = above.rpartition(".")
    return f"{above}{dot}{name}"


STATUSES: Final[Mapping[Why, int]] = {
    "invalid": 422,
    "unauthenticated": 401,
    "bad_signature": 401,
    "nonce_used": 403,
    "wrong_state": 409,
    "already_paid": 409,
    "refund_mismatch": 422,
    "duplicate": 409,
    "absent": 404,
    "busy": 503,
}
"""The sandbox's own choice (docs/reference/service.md#errors)."""

_MEANINGS: Final[Mapping[Why, str]] = {
    "unauthenticated": "unauthenticated",
    "bad_signature": "unauthenticated",
    "duplicate": "duplicate",
    "absent": "absent",
    "busy": "retryable",
}
"""The refusals that have one meaning, with the list of a profile's codes that means it."""

_LIKE: Final[Mapping[str, tuple[str, ...]]] = {
    "scheduled": ("active",),
    "closed": ("expired", "failed"),
    "expired": ("closed", "failed"),
    "failed": ("closed", "expired"),
}
"""States that a profile with fewer names has under another name: the first of these that it has."""
_LIKE_EVENT: Final[Mapping[str, str]] = {"started": "renewed"}
"""The same of events."""


def _beside(names: Iterable[str], constants: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield constants by their names. What holds arguments, too, gives its members, by dotted names."""
    for name, value in constants.items():
        if isinstance(value, Mapping | list) and any(each.startswith(f"{name}.") for each in names):
            members = value.items() if isinstance(value, Mapping) else enumerate(value)
            yield from _beside(names, {f"{name}.{member}": inner for member, inner in members})
        else:
            yield name, value


class WireNames:
    """Names, values and places of one profile, worked out once, with no point open.

    Args:
        profile: The service's.

    Attributes:
        profile: As given.
        answer: Where things stand in responses.
        code_path: Where a refusal has its result code, if there are several places for it.
        done_path: Where a success has its result code.
        message_path: The same as `code_path`, of the message.
        done_message_path: Where a success has its message; empty if only refusals have one.
        notification: The same for notifications.
        date_format: How dates are written, as for `strptime`.
        signature: The scheme, with the algorithm and encoding of the sandbox's own where they are open.
        operations: The endpoints, as the profile changes them.
        arguments: The arguments of each operation, by their wire names.
        constants: What every request of an operation carries, unless an argument has that name.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile: Final = profile
        self.answer: Final = _fill_answer(profile.answer)
        self.code_path: Final = _first_path(self.answer.code)
        self.done_path: Final = (paths_of(profile.answer.code) or (self.code_path,))[-1]
        self.message_path: Final = _first_path(self.answer.message)
        holder = f"{self.code_path.rpartition('.')[0]}."
        beside = self.message_path.startswith(holder) and not self.done_path.startswith(holder)
        several = profile.answer.code and len(paths_of(profile.answer.message)) > 1
        self.done_message_path: Final = "" if several or beside else self.message_path
        self.notification: Final = _fill_notification(profile.notification)
        self.date_format: Final[str] = profile.formats.get("start_date") or PROFILE.formats["start_date"]
        self.signature: Final = _fill_signature(profile.scheme)
        self.operations: Final[Mapping[str, Operation]] = {name: operation_of(profile, name) for name in ARGUMENTS}
        self.arguments: Final[Mapping[str, Mapping[str, Argument]]] = {
            operation: {
                self.name(operation, each): each
                for each in (*arguments, *arguments_of(profile, operation))
                if not is_unsent(profile, operation, each.name)
            }
            for operation, arguments in ARGUMENTS.items()
        }
        self.constants: Final[Mapping[str, Mapping[str, Any]]] = {each: self._constants_of(each) for each in ARGUMENTS}

    def _constants_of(self, operation: str) -> dict[str, Any]:
        arguments, constants = self.arguments[operation], self.profile.constants
        given = {**constants.get("*", {}), **constants.get(operation, {})}
        return {name: value for name, value in _beside(arguments, given) if name not in arguments}

    def name(self, operation: str, argument: Argument | str) -> str:
        """Return the wire name of an argument, or of `nonce`, `sign` or `merchant_id`, of an operation."""
        return wire_name(self.profile, operation, argument) or wire_name(PROFILE, operation, argument)

    def marks(self, operation: str) -> frozenset[str]:
        """Return the wire names of the arguments without which no request of an operation is complete."""
        required = self.profile.accept.required.get(operation, ())
        arguments = self.arguments[operation].items()
        return frozenset(name for name, each in arguments if each.required or each.name in required)

    def demanded(self, operation: str) -> list[str]:
        """Return the fields beside the arguments that each request of an operation must have."""
        known = {each.name for each in ARGUMENTS[operation]}
        return sorted(set(self.profile.accept.required.get(operation, ())) - known)

    def required_number(self, operation: str) -> str:
        """Return the wire name of the merchant's own number that a payment needs in `extra`; empty if it needs none."""
        name = self.name(operation, "out_trade_no")
        return name if operation == CREATE_PAYMENT.name and name in self.demanded(operation) else ""

    def sharing(self, operation: str) -> list[Operation]:
        """Return the operations with the method and the path of one, itself included, in the document's order."""
        address = self._address(self.operations[operation])
        return [each for each in self.operations.values() if self._address(each) == address]

    def _address(self, operation: Operation) -> tuple[str, str]:
        return operation.method, BRACES.sub("{}", operation.path) + "/{}" * (operation.place == "path")

    def differ(self, one: str, other: str) -> bool:
        """Return whether a constant, or an argument that only one of them has, tells two operations' requests apart."""
        constants, others = self.constants[one], self.constants[other]
        alone = (self.marks(each) - self.arguments[rival].keys() for each, rival in ((one, other), (other, one)))
        told = any(constants[name] != others[name] for name in constants.keys() & others.keys()) or all(alone)
        return told and self.operations[one].in_path == self.operations[other].in_path

    @property
    def title(self) -> str:
        """The profile's name, and a warning if only its own code can sign."""
        name = self.profile.name or "unnamed"
        if isinstance(self.signature, Keyed):
            return name
        if not hasattr(self.signature, "verify"):
            return f"{name}: signatures are not checked, because {type(self.signature).__name__} only makes them"
        return f"{name}: signatures are made and checked by its own {type(self.signature).__name__}, by nothing else"

    def has_fields_to_sign(self, operation: str) -> bool:
        """Return whether a request carries a nonce and a signature among its fields."""
        return operation in self.profile.signed and not hasattr(self.signature, "sign_request")

    def state(self, thing: str, state: str) -> Code:
        """Return the service's value for one of our states of an order, payment, refund or subscription."""
        given: Mapping[str, tuple[Code, ...]] = getattr(self.profile.states, thing)
        found = next((given[name] for name in (state, *_LIKE.get(state, ())) if given.get(name)), None)
        value: Code = (found or getattr(PROFILE.states, thing)[state])[0]
        return value

    def path(self, name: str, thing: str = "") -> str:
        """Return where responses name one of the things that they are compared in; empty if it is switched off."""
        path: str | None = getattr(self.answer, name)
        argument = "amount" if (thing, name) == ("payment", "total_amt") else name
        operation = _DESCRIBED_BY.get(thing, PLACE_ORDER.name)
        # What stands in the path of a query has no name there, nor has what it does not take.
        names = shown_names(self.profile, operation, argument)
        hidden = argument in self.operations[operation].in_path or names[0] == self.own_path(thing)
        return path or names[-1 if hidden else 0]

    def own_path(self, thing: str) -> str:
        """Return where responses name the sandbox's number that a query takes; empty if it takes the merchant's."""
        operation = _DESCRIBED_BY.get(thing, "")
        if not unaskable(self.profile, operation):
            return ""
        name = self.name(operation, BY_NAME[operation].reference or "")
        return "" if name == wire_name(self.profile, *SOUGHT[operation]) else name

    def made_parts(self) -> Iterator[str]:
        """Yield the parts of the customer's address that no request for an order has."""
        given = (*self.arguments[PLACE_ORDER.name], *self.constants[PLACE_ORDER.name])
        for part in parts_of(self.profile.answer.redirect_template):
            if not any(f"{part}.".startswith(f"{name}.") for name in given):
                yield part

    def code(self, why: Why, operation: str = "") -> Code | None:
        """Return the service's result code for a refusal; `None` if its HTTP status alone tells it.

        Args:
            why: Why it is refused.
            operation: Its name, because the codes of one operation go before the general ones.
        """
        named: Code | None = self.profile.sandbox.codes.get(why)
        if why not in _MEANINGS:
            return named
        meaning, codes = _MEANINGS[why], self.profile.codes
        own = codes.by_operation.get(operation, {}).get(meaning, ())
        if named is not None and (not own or codes.meaning(operation, [named]) == meaning):
            return named
        general = (code for code in getattr(codes, meaning) if codes.meaning(operation, [code]) == meaning)
        return next(iter((*own, *general)), None)

    def status(self, why: Why, operation: str = "") -> int:
        """Return the HTTP status of a refusal: the usual one, unless the profile reads it as something else."""
        usual, meaning = STATUSES[why], _MEANINGS.get(why, "not_executed")
        if meaning == "unauthenticated":
            keys, meaning = self.profile.http.unauthenticated, "not_executed"
            usual = usual if usual in keys else next(iter(keys), usual)
        listed: tuple[int, ...] = getattr(self.profile.http, meaning, ())
        if not listed or usual in listed:
            return usual
        coded = self.profile.codes.meaning(operation, [self.code(why, operation)])
        if meaning == "not_executed" and coded in {"not_executed", "unauthenticated"}:
            return usual
        unprocessable = STATUSES["invalid"]
        return unprocessable if unprocessable in listed else listed[0]

    def message(self, refused: RefusedError, operation: str = "") -> str:
        """Return the service's message for a refusal: its code, if the profile has codes in messages, else words."""
        answer, code = self.profile.answer, self.code(refused.why, operation)
        if answer.message and not answer.code and code is not None:
            return str(code)
        # Only the merchant may read the text itself.
        hint = "; the sandbox's dashboard shows the text to sign" if refused.expected else ""
        return f"{refused.message}{hint}"

    def event(self, kind: Kind, name: str) -> str | None:
        """Return the service's name of an event; `None` if it has no such event.

        The profile's names are used in the order of the sandbox's own, and the last one stands for the rest. Events of
        orders need a name of their own: `trade.paid` must not stand for an order that has expired.
        """
        own = PROFILE.notification.kinds[kind]
        names = self.notification.kinds.get(kind) or own
        position = own.index(f"{kind}.{name}" if len(names) >= len(own) else f"{kind}.{_LIKE_EVENT.get(name, name)}")
        return None if kind == "payment" and position >= len(names) else names[min(position, len(names) - 1)]


def _fill_signature(given: Scheme | None) -> Scheme:
    scheme, own = given or SortedPairs(), PROFILE.signature
    if isinstance(scheme, Keyed) and isinstance(own, SortedPairs):
        return evolve(scheme, algorithm=scheme.algorithm or own.algorithm, encoding=scheme.encoding or own.encoding)
    return scheme


_NO_PATHS: Final = frozenset(
    {"header", "tolerance", "ok", "code_optional", "redirect_template", "refusals_signed", "must"}
)
"""Points of a profile's answer that are not paths."""
_FRAME: Final = frozenset({"data", "code", "message", "request_id", "signature"})
"""Points of a profile's answer that are paths from the top; the others begin at `data`."""


def locate_point(answer: AnswerShape, point: str) -> str:
    """Return the whole path of a point of a response; empty if it has none."""
    path: str = getattr(answer, point)
    return path if point in _FRAME or not path else join_path(answer.data, path)


def _first_path(paths: str | tuple[str, ...]) -> str:
    return next(iter(paths_of(paths)), "")


def _fill_answer(given: AnswerShape) -> AnswerShape:
    """Return a shape with its open points filled; an empty `data` means the document, an empty `signature` none.

    A point is left out if its own place would collide with one that the profile answers. Of several paths, refusals
    have the first.
    """
    given = evolve(given, code=_first_path(given.code), message=_first_path(given.message))
    points = [name for name in fields_dict(AnswerShape) if name not in _NO_PATHS]
    answered = [name for name in points if getattr(given, name)]
    # An open point that is compared has its wire name.
    unanswered = [name for name in points if name not in answered and name not in COMPARED]
    if given.redirect_template:
        unanswered.remove("redirect_url")
    own: dict[str, Any] = {name: getattr(PROFILE.answer, name) for name in unanswered}
    filled = evolve(given, ok=given.ok or PROFILE.answer.ok, **own)
    colliding = [name for name in unanswered if any(_would_overwrite(filled, name, other) for other in answered)]
    left_out: dict[str, Any] = dict.fromkeys(colliding, "")
    return evolve(filled, **left_out)


def _would_overwrite(answer: AnswerShape, one: str, other: str) -> bool:
    """Return whether a point would overwrite another in a response that has both."""
    if one.endswith("_status") and other.endswith("_status"):
        return False
    path, other_path = (f"{locate_point(answer, point)}." for point in (one, other))
    return other_path.startswith(path) or (other != "data" and path.startswith(other_path))


def _fill_notification(given: NotificationShape) -> NotificationShape:
    """Return a shape with its open points filled; if the profile says how it is verified, empty means absent."""
    if not given.verification:
        unanswered = [name for name in fields_dict(NotificationShape) if not getattr(given, name)]
        return evolve(given, **{name: getattr(PROFILE.notification, name) for name in unanswered})
    if given.verification == "body" and not given.signature:
        return evolve(given, signature=join_path(given.data, SIGN))
    return given


_SUBSCRIBE: Final = "subscriptions.create"
_DESCRIBED_BY: Final = {"payment": "payments.status", "order": "orders.query", "refund": "refunds.status"}
"""By thing, the operation that asks about it."""
_NUMBERED: Final = frozenset({PLACE_ORDER.name, CREATE_REFUND.name})
"""The operations that can be refused because of a used number."""
_MAKE: Final = frozenset({CREATE_PAYMENT.name, PLACE_ORDER.name, _SUBSCRIBE})
"""The operations that name nothing that could be absent."""

Failures = Literal["", "status", "200"]
"""How refusals are sent: by the HTTP status, or inside HTTP 200; empty: as the profile suggests."""

INSIDE: Final = frozenset({401, 403, 404, 409, 422})
"""What a service that answers 200 to all that it has understood says by its result code alone."""


@frozen(kw_only=True)
class Outgoing:
    """A response before it is sent.

    Attributes:
        status: The HTTP status.
        code: The result code, wherever it is in the document; `None` if there is none.
        headers: Its headers.
        document: The JSON.
        refused: The request was refused.
    """

    status: int
    code: Code | None
    headers: Mapping[str, str]
    document: Mapping[str, Any]
    refused: bool = False

    @property
    def body(self) -> str:
        """The JSON as it is sent; a 204 has none."""
        return "" if self.status == HTTPStatus.NO_CONTENT else json.dumps(self.document, ensure_ascii=False)


_ORDER: Final = Order(out_trade_no="T", payment_id="P", token="", origin="order", total_amt=1, currency="CAD")
_REFUND: Final = Refund(out_refund_no="R", refund_id="N", out_trade_no="T", total_amt=1, refund_amt=1, fingerprint="")
_SUBSCRIPTION: Final = Subscription(
    subscription_id="S", frequency="monthly", amount=1, start_date="2027-01-31", customer="{}"
)
SAMPLES: Final = (
    Event(kind="payment", name="paid", subject=_ORDER, url=None),
    Event(kind="refund", name="succeeded", subject=_REFUND, url=None),
    Event(kind="subscription", name="renewed", subject=_SUBSCRIPTION, url=None),
)
"""One event of each kind, to see what notifications look like."""


class Dialect:
    """Reads requests and writes responses and notifications, as a profile says.

    Args:
        profile: The service's; what it leaves open is as in the sandbox's own.
        failures: How refusals are sent. Empty: as `sandbox.failures` says. If that is empty, too: inside HTTP 200 if
            the profile has a result code and says that no HTTP status means "not done" (`http.not_executed = []`),
            else by the status.

    Attributes:
        names: What the profile calls things, with no point open.
        failures_inside: Whether refusals are sent inside HTTP 200.
        checks: The checks of arguments, by what they check.

    Raises:
        ConfigurationError: Two operations have one address, a refusal inside HTTP 200 would have no code, or refusals
            cannot be sent so.
    """

    def __init__(self, profile: Profile, failures: Failures = "") -> None:
        if failures not in get_args(Failures):
            raise ConfigurationError(f'failures must be "status" or "200", not {failures!r}', field="failures")
        guess: Failures = "200" if profile.answer.code and not profile.http.not_executed else "status"
        self.names: Final = WireNames(profile)
        self.failures_inside: Final = (failures or profile.sandbox.failures or guess) == "200"
        _check_addresses(self.names)
        if self.failures_inside:
            _check_codes(self.names)
        self.checks: Final = make_checks(profile.identifier, self.names.date_format)

    def number_paths(self) -> dict[str, str]:
        """Return where responses name orders, refunds and subscriptions, and the customer's page."""
        answer = self.names.answer
        inside = {name: self.names.path(name) for name in ("out_trade_no", "out_refund_no")}
        inside |= {name: getattr(answer, name) for name in ("subscription_id", "payment_id", "redirect_url")}
        return {name: join_path(answer.data, path) for name, path in inside.items() if path}

    def describe_order(
        self, order: Order, redirect_url: str = "", thing: Literal["order", "payment"] = "order", amounts: str = ""
    ) -> dict[str, Any]:
        """Return an order or a payment as endpoints 1 to 4 and 6 show it, with the customer's page if it is new.

        Args:
            order: The order.
            redirect_url: The address of that page.
            thing: What the endpoint is about.
            amounts: The unit of amounts. Default: that of responses.
        """
        answer, payload = self.names.answer, dict[str, Any]()
        set_at(payload, answer.payment_id, order.payment_id)
        set_at(payload, getattr(answer, f"{thing}_status"), self.names.state(thing, order.state))
        if redirect_url:
            set_at(payload, answer.redirect_url, redirect_url)
        set_at(payload, self.names.own_path(thing), order.payment_id)
        self._add_names(payload, thing, order, ("out_trade_no", "total_amt", "currency"), amounts)
        if redirect_url:
            _add_missing(payload, dict.fromkeys(self.names.made_parts(), order.token))
        return payload

    def describe_refund(self, refund: Refund, amounts: str = "") -> dict[str, Any]:
        """Return a refund as endpoints 5 and 7 show it, or with amounts in another unit."""
        payload: dict[str, Any] = {}
        set_at(payload, self.names.answer.refund_status, self.names.state("refund", refund.state))
        set_at(payload, self.names.own_path("refund"), refund.refund_id)
        names = ("out_refund_no", "out_trade_no", "total_amt", "refund_amt")
        return self._add_names(payload, "refund", refund, names, amounts)

    def describe_subscription(self, subscription: Subscription) -> dict[str, Any]:
        """Return a subscription as endpoints 8 to 10 show it."""
        names = self.names
        payload: dict[str, Any] = {}
        set_at(payload, names.name(_SUBSCRIBE, "frequency"), subscription.frequency)
        set_at(payload, names.name(_SUBSCRIBE, "amount"), subscription.amount)
        set_at(payload, names.name(_SUBSCRIBE, "start_date"), subscription.start_date.strftime(names.date_format))
        set_at(payload, names.answer.subscription_id or "", subscription.subscription_id)
        set_at(payload, names.answer.subscription_status, names.state("subscription", subscription.state))
        return self._add_names(payload, "subscription", subscription, ())

    def _add_names(
        self, payload: dict[str, Any], thing: str, subject: object, names: tuple[str, ...], amounts: str = ""
    ) -> dict[str, Any]:
        """Add to a payload what it is about; a point that the profile does not compare gives way to what it reads."""
        answer = self.names.answer
        values = {name: getattr(subject, name) for name in names}
        if answer.merchant_id:
            values["merchant_id"] = MERCHANT_ID
        if (amounts or answer.amounts) == "major":
            digits = digits_of(getattr(subject, "currency", ""))
            counted = {name: value for name, value in values.items() if name.endswith("_amt")}
            values |= {name: str(Decimal(value).scaleb(-digits)) for name, value in counted.items()}
        for name, value in values.items():
            path = self.names.path(name, thing)
            if getattr(answer, name) != "" or at(payload, path, None) is None:
                set_at(payload, path, value)
        return payload

    def describe_sample(self, thing: str, redirect_url: str = "") -> dict[str, Any]:
        """Return what responses about an order, payment, refund or subscription have as payload."""
        if thing == "refund":
            return self.describe_refund(_REFUND)
        if thing == "subscription":
            return self.describe_subscription(_SUBSCRIPTION)
        return self.describe_order(_ORDER, redirect_url, "payment" if thing == "payment" else "order")

    def find_number(self, payload: Mapping[str, Any]) -> str:
        """Return the number of the order, payment or subscription of a payload."""
        paths = filter(None, (self.names.path("out_trade_no"), self.names.answer.subscription_id))
        return next((str(number) for path in paths if (number := at(payload, path, None))), "")

    def build_notification(self, event: Event, now: datetime) -> str | None:
        """Return the body of a notification; `None` if the service does not send this event.

        See docs/reference/service.md#notifications.
        """
        shape, subject, document = self.names.notification, event.subject, dict[str, Any]()
        if isinstance(subject, Order):
            path, payload = shape.out_trade_no, self.describe_order(subject, "", subject.origin, shape.amounts)
        elif isinstance(subject, Refund):
            path, payload = shape.out_refund_no, self.describe_refund(subject, shape.amounts)
        else:
            path, payload = shape.subscription_id, {**self.describe_subscription(subject), "period": subject.period}
        set_at(payload, path, subject.number)
        set_at(payload, shape.merchant_id or "", MERCHANT_ID)
        _add_missing(payload, shape.must)
        if (tells := shape.tells.get(event.kind)) and at(payload, tells, None) is None:
            thing = subject.origin if isinstance(subject, Order) else event.kind
            set_at(payload, tells, self.names.state(thing, subject.state))
        set_at(document, shape.data, payload)
        if shape.kind:
            name = self.names.event(event.kind, event.name)
            if name is None:
                return None
            set_at(document, shape.kind_path, name)
        for path in (shape.time, shape.event_time):
            set_at(document, path, write_time(now, shape))
        self._add_constants(document, shape.signature if shape.verification == "body" else "")
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)

    def _add_constants(self, document: dict[str, Any], signature: str) -> None:
        """Add the profile's constants to what the signature covers, or to a document without one."""
        if constants := self.names.profile.sandbox.constants:
            holder = table_at(document, signature.rpartition(".")[0])
            holder.update({name: value for name, value in constants.items() if name not in holder})

    def collect_fields(
        self, operation: Operation, fields: Mapping[str, Any], headers: Mapping[str, str], path: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return the fields of a request, wherever they stand (docs/reference/service.md#queries).

        Args:
            operation: The endpoint.
            fields: Those of the body or the query.
            headers: The request's.
            path: The arguments in the path.
        """
        name, arguments = operation.name, self.names.arguments[operation.name]
        texts = {} if operation.has_body else dict(fields)
        texts |= {self.names.name(name, argument): text for argument, text in path.items()}
        if operation.place == "header":
            texts |= {each: headers[each] for each in arguments if each in headers}
        amounts = {each for each in texts.keys() & arguments.keys() if SORTS[arguments[each].name] == "amount"}
        return {**fields, **texts, **{each: read_digits(texts[each]) for each in amounts}}

    def is_meant(self, operation: Operation, fields: Mapping[str, Any]) -> bool:
        """Return whether a request at an address of several operations has what this one's requests have."""
        with suppress(RefusedError):
            check_constants(self.names.constants[operation.name], fields, as_text=not operation.has_body)
            return all(at(fields, name) is not ABSENT for name in self.names.marks(operation.name))
        return False

    def read(self, operation: Operation, fields: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        """Return a request's arguments by our names, checked; unknown fields count for the signature only.

        Args:
            operation: The endpoint.
            fields: All that the request carries.
            headers: The request's, found by names in any case.

        Raises:
            RefusedError: A field is missing or invalid.
        """
        profile, names = self.names.profile, self.names
        if operation.name in profile.merchant:
            self._checked(names.name(operation.name, "merchant_id"), "word", fields)
        if names.has_fields_to_sign(operation.name):
            self._checked(names.name(operation.name, "nonce"), "word", fields)
            self._checked(names.name(operation.name, "sign"), "sign", fields)
        for name, value in profile.headers.items():
            if headers.get(name) != value:
                raise RefusedError("invalid", f"the header {name} must be {value}", field=name)
        check_constants(names.constants[operation.name], fields, as_text=not operation.has_body)
        number, marks = names.required_number(operation.name), names.marks(operation.name)
        arguments = {"out_trade_no": self._checked(number, "identifier", fields)} if number else {}
        for name, argument in names.arguments[operation.name].items():
            value = at(fields, name)
            if value is not ABSENT or name in marks:
                arguments[argument.name] = self._checked(name, SORTS[argument.name], fields)
                check_accepted(profile.accept, argument.name, name, value)
        if is_unsent(profile, operation.name, "currency"):
            arguments["currency"] = profile.accept.currency[0]
        for name in names.demanded(operation.name):
            if name not in fields:
                raise RefusedError("invalid", f"{name} is missing", field=name)
        return arguments

    def fingerprint(self, operation: Operation, fields: Mapping[str, Any]) -> str:
        """Return a text that is equal for requests that differ in nonce, signature and idempotency key only."""
        name, key = self.names.name, self.names.profile.idempotency.field
        fresh = {name(operation.name, "nonce"), name(operation.name, "sign"), key}
        counted = {name: value for name, value in fields.items() if name not in fresh}
        return hashlib.sha256(json.dumps(with_integers(counted), sort_keys=True).encode()).hexdigest()

    def find_numbers(self, operation: Operation, fields: Mapping[str, Any]) -> dict[str, str]:
        """Return the valid numbers by which a request names orders, refunds and subscriptions, by our names."""
        found: dict[str, str] = {}
        for name, argument in self.names.arguments[operation.name].items():
            if SORTS[argument.name] == "identifier" and at(fields, name) is not ABSENT:
                with suppress(RefusedError):
                    found[argument.name] = self._checked(name, "identifier", fields)
        return found

    def _checked(self, name: str, sort: Sort, fields: Mapping[str, Any]) -> Any:
        if (value := at(fields, name)) is ABSENT:
            raise RefusedError("invalid", f"{name} is missing", field=name)
        try:
            return self.checks[sort](value)
        except ValueError as error:
            raise RefusedError("invalid", f"{name} must be {error}", field=name) from None

    def build_success(
        self, operation: Operation, payload: Mapping[str, Any], fields: Mapping[str, Any], request_id: str
    ) -> Outgoing:
        """Return the response to a request that was done.

        Args:
            operation: The endpoint.
            payload: What it is about.
            fields: The request's: what it names is repeated, if the profile gives a path for it.
            request_id: Its number.
        """
        document, data, names = dict[str, Any](), dict(payload), self.names
        for name in COMPARED:
            path, given = getattr(names.answer, name), at(fields, names.name(operation.name, name))
            named = given is not ABSENT and not has_another(names.profile, operation.name, name)
            if path and named and at(data, path, None) is None:
                set_at(data, path, given)
        _add_missing(data, names.answer.must)
        omitted = names.profile.sandbox.omits.get(operation.name, ())
        for path in omitted:
            above, _, last = path.rpartition(".")
            if isinstance(holder := at(data, above), dict):
                holder.pop(last, None)
        set_at(document, names.answer.data, data)
        status = HTTPStatus.NO_CONTENT if "*" in omitted else HTTPStatus.OK
        code = names.answer.ok[0]
        if not names.answer.code_optional:
            _set_result(document, names.done_path, code, names.done_message_path, "done")
        return self._complete(document, status.value, code, request_id)

    def build_refusal(self, refused: RefusedError, operation: Operation | None, request_id: str) -> Outgoing:
        """Return the response to a request that was refused."""
        document: dict[str, Any] = {}
        arguments = self.names.arguments[operation.name] if operation else {}
        names = (name for name, argument in arguments.items() if argument.name == refused.argument)
        if field := refused.field or next(names, ""):
            set_at(document, sibling_path(self.names.message_path, "field"), field)
        name = operation.name if operation else ""
        status = refused.status or STATUSES[refused.why]
        if self.failures_inside and operation and status in INSIDE:
            status = 200
        elif not refused.status:
            status = self.names.status(refused.why, name)
        code, message = self.names.code(refused.why, name), self.names.message(refused, name)
        _set_result(document, self.names.code_path, code, self.names.message_path, message)
        return self._complete(document, status, code, request_id, refused=True)

    def _complete(
        self, document: dict[str, Any], status: int, code: Code | None, request_id: str, *, refused: bool = False
    ) -> Outgoing:
        answer, headers = self.names.answer, dict[str, str]()
        place, _, name = answer.request_id.partition(":")
        if place == "header":
            headers[name] = request_id
        elif at(document, answer.request_id, None) is None:  # else a success has a number of its own there
            set_at(document, answer.request_id, request_id)
        self._add_constants(document, "" if refused and not answer.refusals_signed else answer.signature)
        return Outgoing(status=status, code=code, headers=headers, document=document, refused=refused)


def _set_result(document: dict[str, Any], code_path: str, code: Code | None, message_path: str, message: str) -> None:
    """Set a result code and its message. If they have the same place, only the code stands there."""
    if code is not None:
        set_at(document, code_path, code)
    if code is None or message_path != code_path:
        set_at(document, message_path, message)


def _check_addresses(names: WireNames) -> None:
    """Refuse two operations with one method and path whose requests the sandbox could not tell apart."""
    for operation in names.operations.values():
        for other in names.sharing(operation.name):
            if other == operation:
                break
            if not names.differ(operation.name, other.name):
                given = operation.name if operation.name in names.profile.endpoints else other.name
                both = f"{other.name} and {operation.name} one address, {operation.method} {operation.path}"
                why = f"gives {both}, and the sandbox could not tell their requests apart"
                advice = "give one of them another method or path, or each its own value of a constant"
                raise ConfigurationError(f'endpoints."{given}" {why}: {advice}', field=f"endpoints.{given}")


def _check_codes(names: WireNames) -> None:
    """Refuse a profile without a code for a refusal that the sandbox would send inside HTTP 200."""
    profile = names.profile
    if not (profile.answer.code or profile.answer.message):
        why = "or answer.message must be given, because the sandbox sends refusals inside HTTP 200"
        advice = 'Give one, or set sandbox.failures to "status"'
        raise invalid_setting("answer.code", f"{why}. Else a session reads them as successes. {advice}")
    never = set() if profile.signed else {"bad_signature", "nonce_used"}
    if not (profile.bearer or profile.merchant):
        never.add("unauthenticated")
    needed: list[Why] = [why for why, status in STATUSES.items() if status in INSIDE and why not in never]
    if missing := [f"sandbox.codes.{why}" for why in needed if not _has_code(names, why)]:
        why = "it sends refusals inside HTTP 200, where only a code tells them from a success"
        advice = 'Give your service\'s codes, or set sandbox.failures to "status"'
        needs = f"the sandbox needs {', '.join(missing)}"
        raise ConfigurationError(f"{needs}, because {why}. {advice}", field=missing[0])


def _has_code(names: WireNames, why: Why) -> bool:
    """Return whether a refusal has a code in general, or else in each operation that can give it."""
    writes = {name for name, each in BY_NAME.items() if not each.read} if names.profile.idempotency.used else set[str]()
    able = {"duplicate": {*_NUMBERED, *writes}, "absent": BY_NAME.keys() - _MAKE}.get(why)
    return names.code(why) is not None or (able is not None and all(names.code(why, each) is not None for each in able))


def explain_unplayable(profile: Profile) -> str:
    """Return what a sandbox of a profile needs before it can start; empty if it can."""
    try:
        Dialect(profile)
    except ConfigurationError as error:
        return str(error)
    return ""
