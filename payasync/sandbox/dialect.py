"""Between the sandbox and the wire: requests in and answers out, in the words of a profile.

Nothing else in the sandbox knows a wire name, a code or the place where something stands.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from attrs import frozen

from payasync.operations import Operation
from payasync.profile import MERCHANT, NONCE, SIGN, Profile
from payasync.sandbox.arguments import ARGUMENTS, Argument
from payasync.sandbox.checks import checks
from payasync.sandbox.paths import beside, put
from payasync.sandbox.values import Arguments, Event, Order, Refund, RefusedError, Subscription, Why
from payasync.sandbox.vocabulary import Vocabulary, camel
from payasync.shapes import Code

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

_HEADER: Final = "header:"


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
    """

    status: int
    code: Code
    headers: Mapping[str, str]
    document: Mapping[str, Any]


class Dialect:
    """Reads and writes what goes over the wire, as a profile says.

    Args:
        profile: The service's; what it leaves open is as in the sandbox's own.
    """

    def __init__(self, profile: Profile) -> None:
        self._words = Vocabulary(profile)
        self._checks = checks(profile.identifier, self._words.date_format)

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

    def read(self, operation: Operation, fields: Mapping[str, Any]) -> Incoming:
        """Return a request whose fields are checked; unknown ones count for the signature only.

        Raises:
            RefusedError: A field is missing, or it is not what it must be.
        """
        for name in self._identity(operation):
            self._checked(name, "word", fields)
        arguments = {
            argument.name: self._checked(name, argument.sort, fields)
            for argument in ARGUMENTS[operation]
            if (name := self._name(operation, argument)) in fields or argument.required
        }
        return Incoming(operation=operation, fields=fields, arguments=arguments)

    def _identity(self, operation: Operation) -> tuple[str, ...]:
        profile = self._words.profile
        merchant = (MERCHANT,) if operation.name in profile.merchant else ()
        return (*merchant, NONCE, SIGN) if operation.name in profile.signed else merchant

    def _checked(self, name: str, sort: Any, fields: Mapping[str, Any]) -> Any:
        if name not in fields:
            raise RefusedError("invalid", f"{name} is missing", field=name)
        try:
            return self._checks[sort](fields[name])  # type: ignore[index]
        except ValueError as error:
            message = f"{name} must be {error}"
        raise RefusedError("invalid", message, field=name)

    def _name(self, operation: Operation, argument: Argument) -> str:
        parameter = self._words.parameter(operation)
        return parameter.name if parameter else self._words.wire_name(argument.name, argument.point)

    def answer(self, payload: Mapping[str, Any], request_id: str) -> Outgoing:
        """Return the answer to a request that was done."""
        answer, document = self._words.answer, dict[str, Any]()
        if answer.data:
            put(document, answer.data, dict(payload))
        else:
            document.update(payload)
        return self._sealed(document, 200, answer.ok[0], "done", request_id)

    def refusal(self, refused: RefusedError, operation: Operation | None, request_id: str) -> Outgoing:
        """Return the answer to a request that was not done."""
        document: dict[str, Any] = {}
        if field := refused.field or self._argument_name(operation, refused.argument):
            put(document, beside(self._words.answer.message, "field"), field)
        status = refused.status or STATUSES[refused.why]
        return self._sealed(document, status, self._words.code(refused.why), refused.message, request_id)

    def _argument_name(self, operation: Operation | None, name: str) -> str:
        arguments = ARGUMENTS[operation] if operation else ()
        return next((self._name(operation, one) for one in arguments if operation and one.name == name), "")

    def _sealed(
        self, document: dict[str, Any], status: int, code: Code, message: str, request_id: str
    ) -> Outgoing:
        answer, headers = self._words.answer, dict[str, str]()
        put(document, answer.code, code)
        put(document, answer.message, message)
        if answer.request_id.startswith(_HEADER):
            headers[answer.request_id.removeprefix(_HEADER)] = request_id
        else:
            put(document, answer.request_id, request_id)
        return Outgoing(status=status, code=code, headers=headers, document=document)

    def order(self, order: Order, redirect_url: str = "") -> dict[str, Any]:
        """Return an order as endpoints 2 to 4 tell it, with the customer's address where it is new."""
        answer = self._words.answer
        payload = {camel("out_trade_no"): order.out_trade_no, camel("total_amt"): order.total_amt}
        return self._payable(payload, order, answer.order_status, self._words.state("order", order.state), redirect_url)

    def payment(self, order: Order, redirect_url: str = "") -> dict[str, Any]:
        """Return a payment as endpoints 1 and 6 tell it, with the customer's address where it is new."""
        answer = self._words.answer
        payload = {camel("out_trade_no"): order.out_trade_no, "amount": order.total_amt}
        return self._payable(
            payload, order, answer.payment_status, self._words.state("payment", order.state), redirect_url
        )

    def _payable(
        self, payload: dict[str, Any], order: Order, status_path: str, state: Code, redirect_url: str
    ) -> dict[str, Any]:
        payload["currency"] = order.currency
        put(payload, self._words.answer.payment_id, order.payment_id)
        put(payload, status_path, state)
        if redirect_url:
            put(payload, self._words.answer.redirect_url, redirect_url)
        return payload

    def refund(self, refund: Refund) -> dict[str, Any]:
        """Return a refund as endpoints 5 and 7 tell it."""
        payload = {
            camel(name): getattr(refund, name) for name in ("out_refund_no", "out_trade_no", "total_amt", "refund_amt")
        }
        put(payload, self._words.answer.refund_status, self._words.state("refund", refund.state))
        return payload

    def subscription(self, subscription: Subscription) -> dict[str, Any]:
        """Return a subscription as endpoints 8 to 10 tell it."""
        words = self._words
        payload: dict[str, Any] = {
            words.fields["frequency"]: subscription.frequency,
            words.fields["subscription_amount"]: subscription.amount,
            words.fields["start_date"]: subscription.start_date.strftime(words.date_format),
        }
        put(payload, words.answer.subscription_id, subscription.subscription_id)
        put(payload, words.answer.subscription_status, words.state("subscription", subscription.state))
        return payload

    def notification(self, event: Event, now: datetime) -> str:
        """Return the body of a notification (spec: Events, 4)."""
        shape, document = self._words.notification, dict[str, Any]()
        put(document, shape.data, self._told(event))
        put(document, shape.kind, self._words.event(event.kind, event.name))
        put(document, shape.time, now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"))
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)

    def _told(self, event: Event) -> dict[str, Any]:
        shape, subject = self._words.notification, event.subject
        if isinstance(subject, Order):
            payload = self.payment(subject) if subject.origin == "payment" else self.order(subject)
            put(payload, shape.out_trade_no, subject.out_trade_no)
        elif isinstance(subject, Refund):
            payload = self.refund(subject)
            put(payload, shape.out_refund_no, subject.out_refund_no)
        else:
            payload = {**self.subscription(subject), "period": subject.period}
            put(payload, shape.subscription_id, subject.subscription_id)
        return payload
