"""`pay.payments`: endpoints 1 and 6."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar

from attrs import field, frozen

from payasync.endpoints import CREATE_PAYMENT, QUERY_PAYMENT
from payasync.resources.polling import Namespace
from payasync.strict_json import ABSENT, Absent
from payasync.wire.request import Request
from payasync.wire.response import PaymentResponse
from payasync.wire.validators import NOTHING, validate_amount, validate_text, validate_word


@frozen(kw_only=True, slots=False, eq=False, repr=False)
class CreatePayment(Request[PaymentResponse]):
    """Endpoint 1: create a payment (docs/reference/service.md#payments).

    Args:
        amount: An integer of 1 or more, in the service's unit, such as cents.
        currency: The currency code, such as `"USD"`.
        description: Free text.
        extra: Fields that the common interface does not have, by their wire names.

    Raises:
        InvalidArgumentError: A value is invalid; the error names the field and the rule.
    """

    operation = CREATE_PAYMENT
    answer: ClassVar[type[PaymentResponse]] = PaymentResponse

    amount: int = field(validator=validate_amount)
    currency: str = field(validator=validate_word)
    description: str | Absent = field(default=ABSENT, validator=validate_text)


@frozen(kw_only=True, slots=False, eq=False, repr=False)
class QueryPayment(Request[PaymentResponse]):
    """Endpoint 6: query the state of a payment (docs/reference/service.md#payments).

    Args:
        identifier: Names the payment, as the profile's `[status.payment]` says.
        extra: Fields that the common interface does not have, by their wire names.

    Raises:
        InvalidArgumentError: A value is invalid; the error names the field and the rule.
    """

    operation = QUERY_PAYMENT
    answer: ClassVar[type[PaymentResponse]] = PaymentResponse

    identifier: str = field(validator=validate_word)


class Payments(Namespace):
    """Payments of endpoint 1, and the state of any payment."""

    def create(
        self,
        *,
        amount: int,
        currency: str,
        description: str | Absent = ABSENT,
        extra: Mapping[str, Any] = NOTHING,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> Coroutine[Any, Any, PaymentResponse]:
        """Create a payment (docs/reference/service.md#payments).

        A payment has no number of yours, so after a lost response it is sent again only under an idempotency key.

        Args:
            amount: An integer of 1 or more, in the service's unit, such as cents.
            currency: The currency code, such as `"USD"`.
            description: Free text.
            extra: Fields that the common interface does not have, by their wire names.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of this write: its key in the session's journal. The name is not sent.
            shield: Let the call finish even if its caller is cancelled.

        Raises:
            InvalidArgumentError: A value is invalid; nothing was sent.
            ConfigurationError: A key that the request needs is missing; nothing was sent.
            NotSentError: Provably nothing left this machine.
            IntentConflictError: The journal has another request under this `intent`; nothing was sent.
            StorageError: The journal cannot record the write; nothing was sent.
            OutcomeUnknownError: The write may have been done.
            ServiceError: The service refused the request.
        """
        return self._send(
            lambda: CreatePayment(amount=amount, currency=currency, description=description, extra=extra),
            timeout=timeout,
            intent=intent,
            shield=shield,
        )

    def status(
        self, identifier: str, *, extra: Mapping[str, Any] = NOTHING, timeout: float | None = None
    ) -> Coroutine[Any, Any, PaymentResponse]:
        """Ask for the state of a payment, such as when the customer comes back (docs/reference/service.md#payments).

        This is endpoint 6, and takes the identifier that the profile's `[status.payment]` says. `Orders.query` is
        endpoint 3, and takes your own number of an order.

        Args:
            identifier: Names the payment, as the profile's `[status.payment]` says.
            extra: Fields that the common interface does not have, by their wire names.
            timeout: Seconds for this call, in place of `Timeouts.total`.

        Raises:
            InvalidArgumentError: A value is invalid; nothing was sent.
            NotConfiguredError: The profile's `payment_status` does not say how the identifier is given.
            ConfigurationError: A key that the request needs is missing; nothing was sent.
            NotSentError: Provably nothing left this machine.
            NoAnswerError: No usable response came.
            InvalidSignatureError: The response is not signed by the service, although the profile says so.
            ServiceError: The service refused the query, or knows no such payment.
        """
        return self._send(lambda: QueryPayment(identifier=identifier, extra=extra), timeout=timeout)

    def wait(
        self,
        identifier: str,
        *,
        until: str | Callable[[PaymentResponse], bool],
        timeout: float,
        extra: Mapping[str, Any] = NOTHING,
    ) -> Coroutine[Any, Any, PaymentResponse]:
        """Wait until a payment has a state: ask for it until then.

        If a query was not sent, got no usable response, or got a 429, it is repeated after a pause. Any other error
        ends the wait.

        Args:
            identifier: Names the payment, as the profile's `[status.payment]` says.
            until: A state by its name in payasync, such as `"paid"`, or a function of the response.
            timeout: Seconds for all queries and pauses together.
            extra: Fields of each query that the common interface does not have, by their wire names.

        Raises:
            InvalidArgumentError: A value is invalid; nothing was sent.
            NotConfiguredError: The profile's `states` does not list the state `until`.
            WaitTimeoutError: The state did not come in time; `response` is the last response. The text says why the
                last query failed, if it did.
            NotSentError: A query can never be sent, such as with a bad certificate (`permanent`).
            InvalidSignatureError: A response is not signed by the service, although the profile says so.
            ServiceError: The service refused the query, or knows no such payment.
        """
        return self._wait(lambda: QueryPayment(identifier=identifier, extra=extra), until, timeout)
