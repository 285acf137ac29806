"""`pay.refunds`: endpoints 5 and 7."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar

from attrs import field, frozen

from payasync.endpoints import CREATE_REFUND, QUERY_REFUND
from payasync.resources.polling import Namespace
from payasync.strict_json import ABSENT, Absent
from payasync.wire.request import Request
from payasync.wire.response import RefundResponse
from payasync.wire.validators import (
    NOTHING,
    validate_amount,
    validate_refund_amount,
    validate_text,
    validate_url,
    validate_word,
)


@frozen(kw_only=True, slots=False, eq=False, repr=False)
class CreateRefund(Request[RefundResponse]):
    """Endpoint 5: refund a paid order, in whole or in part (docs/reference/service.md#refunds).

    Args:
        out_trade_no: The merchant's own number of the order.
        out_refund_no: The merchant's own number of this refund, unique for each.
        total_amt: Total amount of the order: an integer of 1 or more, in the service's unit, such as cents.
        refund_amt: Amount to refund, in the same unit; at most `total_amt`.
        refund_desc: Reason for the refund.
        notify_url: Receives the refund notification.
        extra: Fields that the common interface does not have, by their wire names.

    Raises:
        InvalidArgumentError: A value is invalid; the error names the field and the rule.
    """

    operation = CREATE_REFUND
    answer: ClassVar[type[RefundResponse]] = RefundResponse

    out_trade_no: str = field(validator=validate_word)
    out_refund_no: str = field(validator=validate_word)
    total_amt: int = field(validator=validate_amount)
    refund_amt: int = field(validator=validate_refund_amount)
    refund_desc: str | Absent = field(default=ABSENT, validator=validate_text)
    notify_url: str | Absent = field(default=ABSENT, validator=validate_url)


@frozen(kw_only=True, slots=False, eq=False, repr=False)
class QueryRefund(Request[RefundResponse]):
    """Endpoint 7: query the state of a refund (docs/reference/service.md#refunds).

    Args:
        identifier: Names the refund, as the profile's `[status.refund]` says.
        out_trade_no: The merchant's own number of the order. A response about another order is not believed. The
            number is sent if the profile says that the service wants it.
        extra: Fields that the common interface does not have, by their wire names.

    Raises:
        InvalidArgumentError: A value is invalid; the error names the field and the rule.
    """

    operation = QUERY_REFUND
    answer: ClassVar[type[RefundResponse]] = RefundResponse

    identifier: str = field(validator=validate_word)
    out_trade_no: str | Absent = field(default=ABSENT, validator=validate_word)


class Refunds(Namespace):
    """Refunds of paid orders."""

    def create(
        self,
        *,
        out_trade_no: str,
        out_refund_no: str,
        total_amt: int,
        refund_amt: int,
        refund_desc: str | Absent = ABSENT,
        notify_url: str | Absent = ABSENT,
        extra: Mapping[str, Any] = NOTHING,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> Coroutine[Any, Any, RefundResponse]:
        """Refund a paid order, in whole or in part (docs/reference/service.md#refunds).

        Args:
            out_trade_no: The merchant's own number of the order.
            out_refund_no: The merchant's own number of this refund. Keep it: a refund whose outcome is unknown
                is asked about, and tried again, under the same number.
            total_amt: Total amount of the order: an integer of 1 or more, in the service's unit, such as cents.
            refund_amt: Amount to refund, in the same unit; at most `total_amt`.
            refund_desc: Reason for the refund.
            notify_url: Receives the refund notification.
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
            DuplicateError: The number was used before.
            ServiceError: The service refused the request.
        """
        return self._send(
            lambda: CreateRefund(
                out_trade_no=out_trade_no,
                out_refund_no=out_refund_no,
                total_amt=total_amt,
                refund_amt=refund_amt,
                refund_desc=refund_desc,
                notify_url=notify_url,
                extra=extra,
            ),
            timeout=timeout,
            intent=intent,
            shield=shield,
        )

    def status(
        self,
        identifier: str,
        *,
        out_trade_no: str | Absent = ABSENT,
        extra: Mapping[str, Any] = NOTHING,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, RefundResponse]:
        """Ask for the state of a refund (docs/reference/service.md#refunds).

        Args:
            identifier: Names the refund, as the profile's `[status.refund]` says.
            out_trade_no: The merchant's own number of the order. A response about another order is not believed. The
                number is sent if the profile says that the service wants it.
            extra: Fields that the common interface does not have, by their wire names.
            timeout: Seconds for this call, in place of `Timeouts.total`.

        Raises:
            InvalidArgumentError: A value is invalid; nothing was sent.
            NotConfiguredError: The profile's `refund_status` does not say how the identifier is given.
            ConfigurationError: A key that the request needs is missing; nothing was sent.
            NotSentError: Provably nothing left this machine.
            NoAnswerError: No usable response came.
            InvalidSignatureError: The response is not signed by the service, although the profile says so.
            ServiceError: The service refused the query, or knows no such refund.
        """
        return self._send(
            lambda: QueryRefund(identifier=identifier, out_trade_no=out_trade_no, extra=extra), timeout=timeout
        )

    def wait(
        self,
        identifier: str,
        *,
        until: str | Callable[[RefundResponse], bool],
        timeout: float,
        out_trade_no: str | Absent = ABSENT,
        extra: Mapping[str, Any] = NOTHING,
    ) -> Coroutine[Any, Any, RefundResponse]:
        """Wait until a refund has a state: ask for it until then.

        If a query was not sent, got no usable response, or got a 429, it is repeated after a pause. Any other error
        ends the wait.

        Args:
            identifier: Names the refund, as the profile's `[status.refund]` says.
            until: A state by its name in payasync, such as `"succeeded"`, or a function of the response.
            timeout: Seconds for all queries and pauses together.
            out_trade_no: The merchant's own number of the order. A response about another order is not believed. The
                number is sent if the profile says that the service wants it.
            extra: Fields of each query that the common interface does not have, by their wire names.

        Raises:
            InvalidArgumentError: A value is invalid; nothing was sent.
            NotConfiguredError: The profile's `states` does not list the state `until`.
            WaitTimeoutError: The state did not come in time; `response` is the last response. The text says why the
                last query failed, if it did.
            NotSentError: A query can never be sent, such as with a bad certificate (`permanent`).
            InvalidSignatureError: A response is not signed by the service, although the profile says so.
            ServiceError: The service refused the query, or knows no such refund.
        """
        return self._wait(
            lambda: QueryRefund(identifier=identifier, out_trade_no=out_trade_no, extra=extra), until, timeout
        )
