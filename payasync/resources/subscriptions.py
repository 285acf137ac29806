"""`pay.subscriptions`: endpoints 8, 9 and 10."""

from collections.abc import Coroutine, Mapping
from datetime import date
from typing import Any, ClassVar, TypeVar

from attrs import field, frozen

from payasync.endpoints import CANCEL_SUBSCRIPTION, CREATE_SUBSCRIPTION, UPDATE_SUBSCRIPTION
from payasync.errors import frameless
from payasync.resources.polling import Namespace
from payasync.strict_json import ABSENT, Absent
from payasync.wire.request import Request
from payasync.wire.response import SubscriptionResponse
from payasync.wire.validators import (
    NOTHING,
    copy_object,
    validate_amount,
    validate_customer,
    validate_date,
    validate_word,
)

T = TypeVar("T")


def _frameless_init(kind: type[T]) -> type[T]:
    """Decorate a class whose constructor is given a customer's details."""
    kind.__init__ = frameless(kind.__init__)  # type: ignore[method-assign]
    return kind


@_frameless_init
@frozen(kw_only=True, slots=False, eq=False, repr=False)
class CreateSubscription(Request[SubscriptionResponse]):
    """Endpoint 8: create a subscription (docs/reference/service.md#subscriptions).

    The profile gives all wire names.

    Args:
        frequency: How often the customer is billed, in the service's words.
        amount: The amount of each billing: an integer of 1 or more, in the service's unit, such as cents.
        start_date: The first day. A datetime with a zone is sent in UTC or with its zone, or is refused.
        customer: Details, as a mapping of JSON values, or the text by which the service knows the customer.
        extra: Fields that the common interface does not have, by their wire names.

    Raises:
        InvalidArgumentError: A value is invalid; the error names the field and the rule.
    """

    operation = CREATE_SUBSCRIPTION
    answer: ClassVar[type[SubscriptionResponse]] = SubscriptionResponse

    frequency: str = field(validator=validate_word)
    amount: int = field(validator=validate_amount)
    start_date: date = field(validator=validate_date)
    customer: Mapping[str, Any] | str = field(converter=copy_object, validator=validate_customer, repr=False)


@_frameless_init
@frozen(kw_only=True, slots=False, eq=False, repr=False)
class UpdateSubscription(Request[SubscriptionResponse]):
    """Endpoint 9: change a subscription (docs/reference/service.md#subscriptions).

    Omitted arguments stay as they are.

    Args:
        subscription_id: The service's number of the subscription.
        frequency: How often the customer is billed, in the service's words.
        amount: The amount of each billing: an integer of 1 or more, in the service's unit, such as cents.
        start_date: The first day. A datetime with a zone is sent in UTC or with its zone, or is refused.
        customer: Details, as a mapping of JSON values, or the text by which the service knows the customer.
        extra: Fields that the common interface does not have, by their wire names.

    Raises:
        InvalidArgumentError: A value is invalid; the error names the field and the rule.
    """

    operation = UPDATE_SUBSCRIPTION
    answer: ClassVar[type[SubscriptionResponse]] = SubscriptionResponse

    subscription_id: str = field(validator=validate_word)
    frequency: str | Absent = field(default=ABSENT, validator=validate_word)
    amount: int | Absent = field(default=ABSENT, validator=validate_amount)
    start_date: date | Absent = field(default=ABSENT, validator=validate_date)
    customer: Mapping[str, Any] | str | Absent = field(
        default=ABSENT, converter=copy_object, validator=validate_customer, repr=False
    )


@frozen(kw_only=True, slots=False, eq=False, repr=False)
class CancelSubscription(Request[SubscriptionResponse]):
    """Endpoint 10: cancel a subscription (docs/reference/service.md#subscriptions).

    Args:
        subscription_id: The service's number of the subscription.
        extra: Fields that the common interface does not have, by their wire names.

    Raises:
        InvalidArgumentError: A value is invalid; the error names the field and the rule.
    """

    operation = CANCEL_SUBSCRIPTION
    answer: ClassVar[type[SubscriptionResponse]] = SubscriptionResponse

    subscription_id: str = field(validator=validate_word)


class Subscriptions(Namespace):
    """Subscriptions. These writes have no number of yours: without an idempotency key, none is sent twice."""

    def create(
        self,
        *,
        frequency: str,
        amount: int,
        start_date: date,
        customer: Mapping[str, Any] | str,
        extra: Mapping[str, Any] = NOTHING,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> Coroutine[Any, Any, SubscriptionResponse]:
        """Create a subscription (docs/reference/service.md#subscriptions).

        Args:
            frequency: How often the customer is billed, in the service's words.
            amount: The amount of each billing: an integer of 1 or more, in the service's unit, such as cents.
            start_date: The first day; the profile's `formats` says how it is written.
            customer: Details, as a mapping of JSON values, or the text by which the service knows the customer.
            extra: Fields that the common interface does not have, by their wire names.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of this write: its key in the session's journal. The name is not sent.
            shield: Let the call finish even if its caller is cancelled.

        Raises:
            InvalidArgumentError: A value is invalid; nothing was sent.
            NotConfiguredError: The profile lacks one of the wire names, or the date's format.
            ConfigurationError: A key that the request needs is missing; nothing was sent.
            NotSentError: Provably nothing left this machine.
            IntentConflictError: The journal has another request under this `intent`; nothing was sent.
            StorageError: The journal cannot record the write; nothing was sent.
            OutcomeUnknownError: The write may have been done.
            ServiceError: The service refused the request.
        """
        return self._send(
            lambda: CreateSubscription(
                frequency=frequency, amount=amount, start_date=start_date, customer=customer, extra=extra
            ),
            timeout=timeout,
            intent=intent,
            shield=shield,
        )

    def update(
        self,
        subscription_id: str,
        *,
        frequency: str | Absent = ABSENT,
        amount: int | Absent = ABSENT,
        start_date: date | Absent = ABSENT,
        customer: Mapping[str, Any] | str | Absent = ABSENT,
        extra: Mapping[str, Any] = NOTHING,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> Coroutine[Any, Any, SubscriptionResponse]:
        """Change a subscription (docs/reference/service.md#subscriptions); omitted arguments stay as they are.

        Args:
            subscription_id: The service's number of the subscription.
            frequency: How often the customer is billed, in the service's words.
            amount: The amount of each billing: an integer of 1 or more, in the service's unit, such as cents.
            start_date: The first day. A datetime with a zone is sent in UTC or with its zone, or is refused.
            customer: Details, as a mapping of JSON values, or the text by which the service knows the customer.
            extra: Fields that the common interface does not have, by their wire names.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of this write: its key in the session's journal. The name is not sent.
            shield: Let the call finish even if its caller is cancelled.

        Raises:
            InvalidArgumentError: A value is invalid; nothing was sent.
            NotConfiguredError: The profile lacks one of the wire names, or the date's format.
            ConfigurationError: A key that the request needs is missing; nothing was sent.
            NotSentError: Provably nothing left this machine.
            IntentConflictError: The journal has another request under this `intent`; nothing was sent.
            StorageError: The journal cannot record the write; nothing was sent.
            OutcomeUnknownError: The write may have been done.
            ServiceError: The service refused the request.
        """
        return self._send(
            lambda: UpdateSubscription(
                subscription_id=subscription_id,
                frequency=frequency,
                amount=amount,
                start_date=start_date,
                customer=customer,
                extra=extra,
            ),
            timeout=timeout,
            intent=intent,
            shield=shield,
        )

    def cancel(
        self,
        subscription_id: str,
        *,
        extra: Mapping[str, Any] = NOTHING,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> Coroutine[Any, Any, SubscriptionResponse]:
        """Cancel a subscription (docs/reference/service.md#subscriptions).

        Args:
            subscription_id: The service's number of the subscription.
            extra: Fields that the common interface does not have, by their wire names.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of this write: its key in the session's journal. The name is not sent.
            shield: Let the call finish even if its caller is cancelled.

        Raises:
            InvalidArgumentError: A value is invalid; nothing was sent.
            NotConfiguredError: The profile lacks the wire name of the subscription's number.
            ConfigurationError: A key that the request needs is missing; nothing was sent.
            NotSentError: Provably nothing left this machine.
            IntentConflictError: The journal has another request under this `intent`; nothing was sent.
            StorageError: The journal cannot record the write; nothing was sent.
            OutcomeUnknownError: The write may have been done.
            ServiceError: The service refused the request.
        """
        return self._send(
            lambda: CancelSubscription(subscription_id=subscription_id, extra=extra),
            timeout=timeout,
            intent=intent,
            shield=shield,
        )
