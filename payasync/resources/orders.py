"""`pay.orders`: endpoints 2, 3 and 4."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar

from attrs import field, frozen

from payasync.endpoints import CLOSE_ORDER, PLACE_ORDER, QUERY_ORDER
from payasync.resources.polling import Namespace
from payasync.strict_json import ABSENT, Absent
from payasync.wire.request import Request
from payasync.wire.response import OrderResponse
from payasync.wire.validators import NOTHING, validate_amount, validate_text, validate_url, validate_word


@frozen(kw_only=True, slots=False, eq=False, repr=False)
class PlaceOrder(Request[OrderResponse]):
    """Endpoint 2: place an order (docs/reference/service.md#orders).

    Args:
        total_amt: An integer of 1 or more, in the service's unit, such as cents.
        currency: The currency code, such as `"CAD"`.
        subject: Short title.
        body: Longer description.
        notify_url: Receives the payment notification.
        scene_type: Payment scene; the common interface names `"JSAPI"`.
        return_url: Where the customer returns to; the profile gives its wire name.
        out_trade_no: The merchant's own number, sent only if given; with it payasync can ask about the order.
        extra: Fields that the common interface does not have, by their wire names.

    Raises:
        InvalidArgumentError: A value is invalid; the error names the field and the rule.
    """

    operation = PLACE_ORDER
    answer: ClassVar[type[OrderResponse]] = OrderResponse

    total_amt: int = field(validator=validate_amount)
    currency: str = field(validator=validate_word)
    subject: str | Absent = field(default=ABSENT, validator=validate_text)
    body: str | Absent = field(default=ABSENT, validator=validate_text)
    notify_url: str | Absent = field(default=ABSENT, validator=validate_url)
    scene_type: str | Absent = field(default=ABSENT, validator=validate_word)
    return_url: str | Absent = field(default=ABSENT, validator=validate_url)
    out_trade_no: str | Absent = field(default=ABSENT, validator=validate_word)


@frozen(kw_only=True, slots=False, eq=False, repr=False)
class QueryOrder(Request[OrderResponse]):
    """Endpoint 3: query the state of an order (docs/reference/service.md#orders).

    Args:
        out_trade_no: The merchant's own number of the order.
        extra: Fields that the common interface does not have, by their wire names.

    Raises:
        InvalidArgumentError: A value is invalid; the error names the field and the rule.
    """

    operation = QUERY_ORDER
    answer: ClassVar[type[OrderResponse]] = OrderResponse

    out_trade_no: str = field(validator=validate_word)


@frozen(kw_only=True, slots=False, eq=False, repr=False)
class CloseOrder(Request[OrderResponse]):
    """Endpoint 4: close an order (docs/reference/service.md#orders).

    Args:
        out_trade_no: The merchant's own number of the order.
        extra: Fields that the common interface does not have, by their wire names.

    Raises:
        InvalidArgumentError: A value is invalid; the error names the field and the rule.
    """

    operation = CLOSE_ORDER
    answer: ClassVar[type[OrderResponse]] = OrderResponse

    out_trade_no: str = field(validator=validate_word)


class Orders(Namespace):
    """Orders that the customer authorizes at the gateway."""

    def place(
        self,
        *,
        total_amt: int,
        currency: str,
        subject: str | Absent = ABSENT,
        body: str | Absent = ABSENT,
        notify_url: str | Absent = ABSENT,
        scene_type: str | Absent = ABSENT,
        return_url: str | Absent = ABSENT,
        out_trade_no: str | Absent = ABSENT,
        extra: Mapping[str, Any] = NOTHING,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> Coroutine[Any, Any, OrderResponse]:
        """Place an order (docs/reference/service.md#orders); the customer goes to `redirect_url` of the response.

        If the response was lost, payasync queries the order and returns that response: `recovered` is true. It usually
        has no address, so close the order, and place one under a new number
        (docs/reference/errors.md#orders-without-an-address).

        Args:
            total_amt: An integer of 1 or more, in the service's unit, such as cents.
            currency: The currency code, such as `"CAD"`.
            subject: Short title.
            body: Longer description.
            notify_url: Receives the payment notification.
            scene_type: Payment scene; the common interface names `"JSAPI"`.
            return_url: Where the customer returns to.
            out_trade_no: The merchant's own number. Give it: without it payasync cannot ask about a lost response.
            extra: Fields that the common interface does not have, by their wire names.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of this write: its key in the session's journal. The name is not sent.
            shield: Let the call finish even if its caller is cancelled.

        Raises:
            InvalidArgumentError: A value is invalid; nothing was sent.
            NotConfiguredError: The profile does not say how to sign, or the return URL's wire name.
            ConfigurationError: A key that the request needs is missing; nothing was sent.
            NotSentError: Provably nothing left this machine.
            IntentConflictError: The journal has another request under this number or `intent`; nothing was sent.
            StorageError: The journal cannot record the write; nothing was sent.
            OutcomeUnknownError: The write may have been done.
            DuplicateError: The number was used before.
            ServiceError: The service refused the request.
        """
        return self._send(
            lambda: PlaceOrder(
                total_amt=total_amt,
                currency=currency,
                subject=subject,
                body=body,
                notify_url=notify_url,
                scene_type=scene_type,
                return_url=return_url,
                out_trade_no=out_trade_no,
                extra=extra,
            ),
            timeout=timeout,
            intent=intent,
            shield=shield,
        )

    def query(
        self, out_trade_no: str, *, extra: Mapping[str, Any] = NOTHING, timeout: float | None = None
    ) -> Coroutine[Any, Any, OrderResponse]:
        """Ask for the state of an order (docs/reference/service.md#orders).

        This is endpoint 3, and takes your own number. `Payments.status` is endpoint 6, and takes the identifier that
        the profile's `[status.payment]` says.

        Args:
            out_trade_no: The merchant's own number of the order.
            extra: Fields that the common interface does not have, by their wire names.
            timeout: Seconds for this call, in place of `Timeouts.total`.

        Raises:
            InvalidArgumentError: A value is invalid; nothing was sent.
            NotConfiguredError: The profile does not say how to sign.
            ConfigurationError: A key that the request needs is missing; nothing was sent.
            NotSentError: Provably nothing left this machine.
            NoAnswerError: No usable response came.
            InvalidSignatureError: The response is not signed by the service, although the profile says so.
            ServiceError: The service refused the query, or knows no such order.
        """
        return self._send(lambda: QueryOrder(out_trade_no=out_trade_no, extra=extra), timeout=timeout)

    def close(
        self,
        out_trade_no: str,
        *,
        extra: Mapping[str, Any] = NOTHING,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> Coroutine[Any, Any, OrderResponse]:
        """Close an order that nobody has paid (docs/reference/service.md#orders).

        Args:
            out_trade_no: The merchant's own number of the order.
            extra: Fields that the common interface does not have, by their wire names.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of this write: its key in the session's journal. The name is not sent.
            shield: Let the call finish even if its caller is cancelled.

        Raises:
            InvalidArgumentError: A value is invalid; nothing was sent.
            NotConfiguredError: The profile does not say how to sign.
            ConfigurationError: A key that the request needs is missing; nothing was sent.
            NotSentError: Provably nothing left this machine.
            IntentConflictError: The journal has another request under this number or `intent`; nothing was sent.
            StorageError: The journal cannot record the write; nothing was sent.
            OutcomeUnknownError: The write may have been done.
            DuplicateError: The service said that the number was used before.
            ServiceError: The service refused the request, for example because the order is paid.
        """
        return self._send(
            lambda: CloseOrder(out_trade_no=out_trade_no, extra=extra), timeout=timeout, intent=intent, shield=shield
        )

    def wait(
        self,
        out_trade_no: str,
        *,
        until: str | Callable[[OrderResponse], bool],
        timeout: float,
        extra: Mapping[str, Any] = NOTHING,
    ) -> Coroutine[Any, Any, OrderResponse]:
        """Wait until an order has a state: ask for it until then.

        If a query was not sent, got no usable response, or got a 429, it is repeated after a pause. Any other error
        ends the wait.

        Args:
            out_trade_no: The merchant's own number of the order.
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
            ServiceError: The service refused the query, or knows no such order.
        """
        return self._wait(lambda: QueryOrder(out_trade_no=out_trade_no, extra=extra), until, timeout)
