"""Between the sandbox and the wire: requests in and responses out, in the words of a profile."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeGuard, get_args

from attrs import evolve, fields_dict, frozen

from payasync.endpoints import QUERY_PAYMENT, QUERY_REFUND, Operation
from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.profile.sandbox_profile import PROFILE
from payasync.profile.schema import MERCHANT, NONCE, SIGN, AnswerShape, Code, NotificationShape, Parameter
from payasync.profile.signed_fields import COMPARED
from payasync.sandbox.arguments import (
    ARGUMENTS,
    Argument,
    Sort,
    check_constant,
    check_headers,
    check_value,
    checks,
    wire_constants,
)
from payasync.sandbox.model import Arguments, Event, Kind, Order, Refund, RefusedError, Subscription, Why
from payasync.sandbox.signatures import MERCHANT_ID
from payasync.sandbox.store import Numbers, join_path, overlaps, set_at, sibling_path, value_at
from payasync.signing.schemes import SignatureScheme, SortedPairs

_NOT_EXECUTED: Final[tuple[Why, ...]] = ("invalid", "unauthenticated", "bad_signature", "nonce_used", "wrong_state")
"""In the order in which the sandbox's own profile lists its codes of this meaning."""

STATUSES: Final[Mapping[Why, int]] = {
    "invalid": 422,
    "unauthenticated": 401,
    "bad_signature": 401,
    "nonce_used": 403,
    "wrong_state": 409,
    "duplicate": 409,
    "absent": 404,
    "busy": 503,
}
"""The sandbox's own choice (spec: Errors, gaps)."""

_OTHERS: Final[Mapping[Why, str]] = {"duplicate": "duplicate", "absent": "absent", "busy": "retryable"}


_LIKE: Final[Mapping[str, str]] = {"started": "renewed"}
"""Events that a profile with fewer names tells by another one."""


class Vocabulary:
    """Names, values and places of one profile, with no point open.

    Args:
        profile: The service's.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile: Final = profile
        self.answer: Final = _filled(profile.answer)
        self.notification: Final = _complete(profile.notification)
        self.fields: Final[Mapping[str, str]] = {**PROFILE.fields, **_given(profile.fields)}
        self.date_format: Final[str] = profile.formats.get("start_date") or PROFILE.formats["start_date"]

    def parameter(self, operation: Operation) -> Parameter | None:
        """Return how endpoints 6 and 7 take their identifier; `None` for the others."""
        if operation is QUERY_PAYMENT:
            return self.profile.payment_status or PROFILE.payment_status
        if operation is QUERY_REFUND:
            return self.profile.refund_status or PROFILE.refund_status
        return None

    @property
    def title(self) -> str:
        """What people call the profile, and what they must know of it."""
        name = self.profile.name or "unnamed"
        if isinstance(self.signature, SortedPairs):
            return name
        return f"{name}: signatures are made and checked by its own {type(self.signature).__name__}, by nothing else"

    @property
    def signature(self) -> SignatureScheme:
        """The scheme, with the algorithm and the encoding of the sandbox's own where they are open."""
        scheme, own = self.profile.signature or SortedPairs(), PROFILE.signature
        if isinstance(scheme, SortedPairs) and isinstance(own, SortedPairs):
            return evolve(scheme, algorithm=scheme.algorithm or own.algorithm, encoding=scheme.encoding or own.encoding)
        return scheme

    def argument_name(self, operation: Operation, argument: Argument) -> str:
        """Return the wire name of an argument of an operation."""
        parameter = self.parameter(operation)
        return parameter.name if parameter else self.wire_name(argument.name, argument.point)

    def wire_name(self, argument: str, point: str) -> str:
        """Return an argument's wire name: the document's, or where it shows none the profile's."""
        return self.fields[point] if point else camel(argument)

    def state(self, thing: str, state: str) -> Code:
        """Return the service's value for one of our states of an order, payment, refund or subscription."""
        values = getattr(self.profile.states, thing).get(state) or getattr(PROFILE.states, thing)[state]
        value: Code = values[0]
        return value

    def about(self, name: str, thing: str = "") -> str:
        """Return the path at which answers name one of the things that they are compared in; it may be switched off."""
        path: str | None = getattr(self.answer, name)
        return path or ("amount" if (name, thing) == ("total_amt", "payment") else camel(name))

    def code(self, why: Why) -> Code:
        """Return the service's result code for a refusal."""
        if why in _OTHERS:
            return self._codes(_OTHERS[why])[0]
        codes = self._codes("not_executed")
        return codes[min(_NOT_EXECUTED.index(why), len(codes) - 1)]

    def status(self, why: Why) -> int:
        """Return the HTTP status of a refusal; "used before" is told by one that the profile reads so."""
        usual, duplicate = STATUSES[why], self.profile.http.duplicate
        return duplicate[0] if why == "duplicate" and duplicate and usual not in duplicate else usual

    def said(self, refused: RefusedError) -> str:
        """Return the service's message for a refusal: words, or where the profile has codes in messages, its code."""
        answer, meaning = self.profile.answer, _OTHERS.get(refused.why, "not_executed")
        if answer.message and not answer.code and getattr(self.profile.codes, meaning):
            return str(self.code(refused.why))
        # What it is, none but the merchant may read.
        hint = "; the sandbox's dashboard shows the text to sign" if refused.expected else ""
        return f"{refused.message}{hint}"

    def event(self, kind: Kind, name: str) -> str | None:
        """Return the service's name of an event; `None` where it has no such event.

        The profile's names are taken in the order of the sandbox's own, and the last stands for the rest; but of
        orders and payments only what has a name is told: `trade.paid` must not stand for one that has expired.
        """
        own = PROFILE.notification.kinds[kind]
        names = self.notification.kinds.get(kind) or own
        told = f"{kind}.{name}" if len(names) >= len(own) else f"{kind}.{_LIKE.get(name, name)}"
        position = own.index(told)
        if kind == "payment" and position >= len(names):
            return None
        return names[min(position, len(names) - 1)]

    def _codes(self, meaning: str) -> tuple[Code, ...]:
        codes: tuple[Code, ...] = getattr(self.profile.codes, meaning) or getattr(PROFILE.codes, meaning)
        return codes


def camel(name: str) -> str:
    """Return the wire name of an argument that the document shows: `total_amt` is `totalAmt`."""
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def _given(table: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in table.items() if value}


NO_PATHS: Final = frozenset({"ok", "refusals_signed"})
"""Points of an answer that are no paths."""
_ALL_THINGS: Final = frozenset({"order", "payment", "refund", "subscription"})
TELLING: Final[Mapping[str, frozenset[str]]] = {
    "payment_id": frozenset({"order", "payment"}),
    "payment_status": frozenset({"payment"}),
    "redirect_url": frozenset({"order", "payment"}),
    "order_status": frozenset({"order"}),
    "refund_status": frozenset({"refund"}),
    "subscription_id": frozenset({"subscription"}),
    "subscription_status": frozenset({"subscription"}),
    "out_trade_no": frozenset({"order", "payment", "refund"}),
    "out_refund_no": frozenset({"refund"}),
    "total_amt": frozenset({"order", "payment", "refund"}),
    "refund_amt": frozenset({"refund"}),
    "currency": _ALL_THINGS,
    "merchant_id": _ALL_THINGS,
}
"""Of which things an answer's points tell; those that are not named here stand in every answer."""


def place(answer: AnswerShape, point: str) -> str:
    """Return the whole path of a point of an answer; nothing where it stands in none."""
    path: str = getattr(answer, point)
    if not path or path.startswith("header:"):
        return ""
    return join_path(answer.data, path) if point in TELLING else path


def _filled(given: AnswerShape) -> AnswerShape:
    """Return a shape whose open points are filled; an empty `data` means the document, an empty `signature` none.

    A point that would fall onto one that the profile answers stays untold.
    """
    points = [name for name in fields_dict(AnswerShape) if name not in NO_PATHS]
    answered = [name for name in points if getattr(given, name)]
    # A compared point that is open has its wire name.
    unanswered = [name for name in points if name not in answered and name not in COMPARED]
    own: dict[str, Any] = {name: getattr(PROFILE.answer, name) for name in unanswered}
    filled = evolve(given, ok=given.ok or PROFILE.answer.ok, **own)
    untold: dict[str, Any] = {
        name: "" for name in unanswered if any(_collide(filled, name, other) for other in answered)
    }
    return evolve(filled, **untold)


def _collide(answer: AnswerShape, one: str, other: str) -> bool:
    if other == "data":
        return f"{answer.data}.".startswith(f"{place(answer, one)}.")
    together = TELLING.get(one, _ALL_THINGS) & TELLING.get(other, _ALL_THINGS)
    return bool(together) and overlaps(place(answer, one), place(answer, other))


def _complete(given: NotificationShape) -> NotificationShape:
    """Return a shape whose open points are as in the sandbox's own; where its kind is given, empty means absent."""
    if not given.verification:
        own = PROFILE.notification
        return evolve(
            given, **{name: getattr(own, name) for name in fields_dict(NotificationShape) if not getattr(given, name)}
        )
    if given.verification == "body" and not given.signature:
        return evolve(given, signature=join_path(given.data, SIGN))
    return given


class Payloads:
    """Writes orders, payments, refunds, subscriptions and notifications.

    Args:
        words: The profile's.
    """

    def __init__(self, words: Vocabulary) -> None:
        self._words = words

    @property
    def numbers(self) -> Numbers:
        """Finds in answers what is written here."""
        answer = self._words.answer
        inside = {name: self._words.about(name) for name in ("out_trade_no", "out_refund_no")}
        inside |= {name: getattr(answer, name) for name in ("subscription_id", "redirect_url")}
        return Numbers({name: join_path(answer.data, path) for name, path in inside.items() if path})

    def order(self, order: Order, redirect_url: str = "") -> dict[str, Any]:
        """Return an order as endpoints 2 to 4 tell it, with the customer's address where it is new."""
        return self._payable(order, "order", redirect_url)

    def payment(self, order: Order, redirect_url: str = "") -> dict[str, Any]:
        """Return a payment as endpoints 1 and 6 tell it, with the customer's address where it is new."""
        return self._payable(order, "payment", redirect_url)

    def _payable(self, order: Order, thing: str, redirect_url: str) -> dict[str, Any]:
        answer, payload = self._words.answer, dict[str, Any]()
        set_at(payload, answer.payment_id, order.payment_id)
        set_at(payload, getattr(answer, f"{thing}_status"), self._words.state(thing, order.state))
        if redirect_url:
            set_at(payload, answer.redirect_url, redirect_url)
        names = ("out_trade_no", "total_amt", "currency")
        return self._named(payload, thing, **{name: getattr(order, name) for name in names})

    def refund(self, refund: Refund) -> dict[str, Any]:
        """Return a refund as endpoints 5 and 7 tell it."""
        payload: dict[str, Any] = {}
        set_at(payload, self._words.answer.refund_status, self._words.state("refund", refund.state))
        names = ("out_refund_no", "out_trade_no", "total_amt", "refund_amt")
        return self._named(payload, "refund", **{name: getattr(refund, name) for name in names})

    def subscription(self, subscription: Subscription) -> dict[str, Any]:
        """Return a subscription as endpoints 8 to 10 tell it."""
        words = self._words
        payload: dict[str, Any] = {
            words.fields["frequency"]: subscription.frequency,
            words.fields["subscription_amount"]: subscription.amount,
            words.fields["start_date"]: subscription.start_date.strftime(words.date_format),
        }
        set_at(payload, words.answer.subscription_id or "", subscription.subscription_id)
        set_at(payload, words.answer.subscription_status, words.state("subscription", subscription.state))
        return self._named(payload, "subscription")

    def about(self, fields: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return a payload with all that its request names, and that the profile gives a path for.

        Args:
            fields: Of the request, by their wire names.
            payload: Of its answer.
        """
        told = dict(payload)
        for name in COMPARED:
            path = getattr(self._words.answer, name)
            if path and camel(name) in fields and value_at(told, path) is None:
                set_at(told, path, fields[camel(name)])
        return told

    def _named(self, payload: dict[str, Any], thing: str, **values: Any) -> dict[str, Any]:
        """Add to a payload what it is about; what the profile does not compare gives way to what it reads there."""
        answer = self._words.answer
        merchant = {"merchant_id": MERCHANT_ID} if answer.merchant_id else {}
        for name, value in {**values, **merchant}.items():
            path = self._words.about(name, thing)
            if getattr(answer, name) != "" or value_at(payload, path) is None:
                set_at(payload, path, value)
        return payload

    def number(self, payload: Mapping[str, Any]) -> str:
        """Return the number of what a payload tells: an order's, a payment's or a subscription's."""
        paths = (self._words.about("out_trade_no"), self._words.answer.subscription_id or "")
        return next((str(number) for path in paths if (number := value_at(payload, path))), "")

    def notification(self, event: Event, now: datetime) -> str | None:
        """Return the body of a notification (spec: Events, 4); `None` where the service does not tell this event."""
        shape, document = self._words.notification, dict[str, Any]()
        set_at(document, shape.data, self._told(event))
        if shape.kind:
            name = self._words.event(event.kind, event.name)
            if name is None:
                return None
            set_at(document, shape.kind, name)
        if shape.time:
            set_at(document, shape.time, written(now))
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)

    def _told(self, event: Event) -> dict[str, Any]:
        shape, subject = self._words.notification, event.subject
        if isinstance(subject, Order):
            path, number = shape.out_trade_no, subject.out_trade_no
            payload = self.payment(subject) if subject.origin == "payment" else self.order(subject)
        elif isinstance(subject, Refund):
            path, number = shape.out_refund_no, subject.out_refund_no
            payload = self.refund(subject)
        else:
            path, number = shape.subscription_id, subject.subscription_id
            payload = {**self.subscription(subject), "period": subject.period}
        if path:
            set_at(payload, path, number)
        return payload


def written(time: datetime) -> str:
    """Return a time as notifications tell it: in UTC, with milliseconds."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_HEADER: Final = "header:"
_NUMBERS: Final = frozenset({"out_trade_no", "out_refund_no", "identifier", "subscription_id"})

Failures = Literal["", "status", "200"]
"""How refusals are told: by the HTTP status, or inside HTTP 200; empty: as the profile suggests."""

INSIDE: Final = frozenset({401, 403, 404, 409, 422})
"""What a service that answers 200 to all that it has understood says by its result code alone."""


@frozen(kw_only=True)
class Incoming:
    """A request that has been read.

    Attributes:
        operation: What it asks for.
        fields: All it carries, by wire names: what is signed.
        arguments: What counts, by our names, checked.
    """

    operation: Operation
    fields: Mapping[str, Any]
    arguments: Arguments

    @property
    def nonce(self) -> str:
        """The random text of a signed request."""
        return str(self.fields[NONCE])

    @property
    def signature(self) -> str:
        """The signature of a signed request."""
        return str(self.fields[SIGN])

    @property
    def merchant_id(self) -> str:
        """The merchant's number."""
        return str(self.fields[MERCHANT])

    @property
    def fingerprint(self) -> str:
        """Equal for requests that are equal but for nonce and signature."""
        told = {name: value for name, value in self.fields.items() if name not in {NONCE, SIGN}}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


@frozen(kw_only=True)
class Outgoing:
    """An answer before it is sent.

    Attributes:
        status: The HTTP status.
        code: The result code, wherever it stands in the document.
        headers: That belong to the answer.
        document: The JSON.
        refused: The request was not done.
    """

    status: int
    code: Code
    headers: Mapping[str, str]
    document: Mapping[str, Any]
    refused: bool = False


class Dialect:
    """Reads and writes what goes over the wire, as a profile says.

    Args:
        profile: The service's; what it leaves open is as in the sandbox's own.
        failures: How refusals are told. Empty: inside HTTP 200 where the profile has a result code and says
            of no HTTP status that nothing was done (`http.not_executed = []`), else by the status.
    """

    def __init__(self, profile: Profile, failures: Failures = "") -> None:
        self._words: Final = Vocabulary(profile)
        self._inside: Final = (failures or _suggested(profile)) == "200"
        self.payloads: Final = Payloads(self._words)
        self._checks = checks(profile.identifier, self._words.date_format)

    @property
    def words(self) -> Vocabulary:
        """The profile's words, with no point open."""
        return self._words

    @property
    def failures_inside(self) -> bool:
        """Whether refusals are told inside HTTP 200."""
        return self._inside

    @property
    def acknowledged(self) -> NotificationShape:
        """What a notification looks like, and which answer acknowledges it."""
        return self._words.notification

    def place(self, operation: Operation) -> str:
        """Return where an endpoint's identifier stands: `query`, `path`, `header`, or nowhere."""
        parameter = self._words.parameter(operation)
        return parameter.place if parameter else ""

    def located(
        self, operation: Operation, query: Mapping[str, str], headers: Mapping[str, str], rest: str
    ) -> dict[str, Any]:
        """Return the fields of a request without a body (spec: endpoints 6 and 7).

        Args:
            operation: Which.
            query: The query's fields.
            headers: The request's.
            rest: What follows the endpoint's path.
        """
        parameter = self._words.parameter(operation)
        if parameter is None or parameter.place == "query":
            return dict(query)
        found = rest if parameter.place == "path" else headers.get(parameter.name, "")
        return {**query, parameter.name: found} if found else dict(query)

    def read(self, operation: Operation, fields: Mapping[str, Any], headers: Mapping[str, str]) -> Incoming:
        """Return a request whose fields are checked; unknown ones count for the signature only.

        Args:
            operation: What it asks for.
            fields: All that it carries.
            headers: The request's, found by names in any case.

        Raises:
            RefusedError: A field is missing, or it is not what it must be.
        """
        profile = self._words.profile
        for name in self._identity(operation):
            self._checked(name, "sign" if name == SIGN else "word", fields)
        check_headers(profile.headers, headers)
        names = {self._words.argument_name(operation, argument) for argument in ARGUMENTS[operation]}
        for name, value in wire_constants(profile, operation).items():
            # What the caller gives goes before a constant of the same name.
            if name not in names:
                check_constant(name, value, fields, as_text=not operation.has_body)
        arguments = self._arguments(operation, fields)
        return Incoming(operation=operation, fields=fields, arguments=arguments)

    def _arguments(self, operation: Operation, fields: Mapping[str, Any]) -> Arguments:
        accept, taken = self._words.profile.accept, dict[str, Any]()
        demanded = set(accept.required.get(operation.name, ()))
        for argument in ARGUMENTS[operation]:
            name = self._words.argument_name(operation, argument)
            if name in fields or argument.required or argument.name in demanded:
                taken[argument.name] = self._checked(name, argument.sort, fields)
                check_value(accept, argument, name, fields[name])
            demanded.discard(argument.name)
        for name in sorted(demanded - fields.keys()):
            raise RefusedError("invalid", f"{name} is missing", field=name)
        return taken

    def named(self, operation: Operation, fields: Mapping[str, Any]) -> dict[str, str]:
        """Return the numbers by which a request names orders, refunds and subscriptions, by our names for them.

        What is no number is left out.
        """
        found = {
            argument.name: fields.get(self._words.argument_name(operation, argument))
            for argument in ARGUMENTS[operation]
            if argument.name in _NUMBERS
        }
        return {name: number for name, number in found.items() if self._is_number(number)}

    def _is_number(self, value: object) -> TypeGuard[str]:
        try:
            self._checks["identifier"](value)
        except ValueError:
            return False
        return True

    def _identity(self, operation: Operation) -> tuple[str, ...]:
        profile = self._words.profile
        merchant = (MERCHANT,) if operation.name in profile.merchant else ()
        return (*merchant, NONCE, SIGN) if operation.name in profile.signed else merchant

    def _checked(self, name: str, sort: Sort, fields: Mapping[str, Any]) -> Any:
        if name not in fields:
            raise RefusedError("invalid", f"{name} is missing", field=name)
        try:
            return self._checks[sort](fields[name])
        except ValueError as error:
            message = f"{name} must be {error}"
        raise RefusedError("invalid", message, field=name)

    def answer(self, payload: Mapping[str, Any], request_id: str) -> Outgoing:
        """Return the answer to a request that was done."""
        document: dict[str, Any] = {}
        set_at(document, self._words.answer.data, dict(payload))
        return self._complete(document, 200, self._words.answer.ok[0], "done", request_id)

    def refusal(self, refused: RefusedError, operation: Operation | None, request_id: str) -> Outgoing:
        """Return the answer to a request that was not done."""
        document: dict[str, Any] = {}
        if field := refused.field or self._argument_name(operation, refused.argument):
            set_at(document, sibling_path(self._words.answer.message, "field"), field)
        status = refused.status or STATUSES[refused.why]
        if self._inside and operation and status in INSIDE:
            status = 200
        elif not refused.status:
            status = self._words.status(refused.why)
        code, message = self._words.code(refused.why), self._words.said(refused)
        return evolve(self._complete(document, status, code, message, request_id), refused=True)

    def _argument_name(self, operation: Operation | None, name: str) -> str:
        arguments = ARGUMENTS[operation] if operation else ()
        return next(
            (self._words.argument_name(operation, one) for one in arguments if operation and one.name == name), ""
        )

    def _complete(self, document: dict[str, Any], status: int, code: Code, message: str, request_id: str) -> Outgoing:
        answer, headers = self._words.answer, dict[str, str]()
        set_at(document, answer.code, code)
        set_at(document, answer.message, message)
        if answer.request_id.startswith(_HEADER):
            headers[answer.request_id.removeprefix(_HEADER)] = request_id
        else:
            set_at(document, answer.request_id, request_id)
        return Outgoing(status=status, code=code, headers=headers, document=document)


def checked_failures(failures: Failures) -> Failures:
    """Return how refusals are told.

    Raises:
        ConfigurationError: It is no such way.
    """
    if failures not in get_args(Failures):
        raise ConfigurationError(f'failures must be "status" or "200", not {failures!r}', field="failures")
    return failures


def _suggested(profile: Profile) -> Failures:
    return "200" if profile.answer.code and not profile.http.not_executed else "status"
