"""payasync: an asyncio-native client SDK of a payment service.

A `Profile` says what the service does, `Credentials` who the merchant is, and a `Session` how we behave.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from payasync.version import VERSION as __version__

if TYPE_CHECKING:
    from payasync.absent import ABSENT
    from payasync.bulk import Done, Refused
    from payasync.calls import Call, Layer, Reply, Send
    from payasync.credentials import Credentials
    from payasync.errors import (
        AuthenticationError,
        ConfigurationError,
        DuplicateError,
        IntentConflictError,
        InvalidArgumentError,
        InvalidSignatureError,
        NoAnswerError,
        NoAnswerTimeoutError,
        NotConfiguredError,
        NotSentError,
        NotSentTimeoutError,
        OutcomeUnknownError,
        PayasyncError,
        RateLimitedError,
        ServiceError,
        SessionClosedError,
        StorageError,
        WaitTimeoutError,
    )
    from payasync.events import Attempted, Event, Retrying, Unknown
    from payasync.operations import OPERATIONS, Operation
    from payasync.profile import Profile
    from payasync.requests import Request
    from payasync.resources.orders import CloseOrder, PlaceOrder, QueryOrder
    from payasync.resources.payments import CreatePayment, QueryPayment
    from payasync.resources.refunds import CreateRefund, QueryRefund
    from payasync.resources.subscriptions import CancelSubscription, CreateSubscription, UpdateSubscription
    from payasync.responses import OrderResponse, PaymentResponse, RefundResponse, Response, SubscriptionResponse
    from payasync.secret import Secret
    from payasync.session import Session
    from payasync.settings import RetryPolicy, Timeouts
    from payasync.shapes import (
        Accept,
        AnswerShape,
        HttpCodes,
        NotificationShape,
        Parameter,
        Recovery,
        ResultCodes,
        States,
    )
    from payasync.signing import SignatureScheme, SortedPairs

__all__ = [
    "ABSENT",
    "OPERATIONS",
    "Accept",
    "AnswerShape",
    "Attempted",
    "AuthenticationError",
    "Call",
    "CancelSubscription",
    "CloseOrder",
    "ConfigurationError",
    "CreatePayment",
    "CreateRefund",
    "CreateSubscription",
    "Credentials",
    "Done",
    "DuplicateError",
    "Event",
    "HttpCodes",
    "IntentConflictError",
    "InvalidArgumentError",
    "InvalidSignatureError",
    "Layer",
    "NoAnswerError",
    "NoAnswerTimeoutError",
    "NotConfiguredError",
    "NotSentError",
    "NotSentTimeoutError",
    "NotificationShape",
    "Operation",
    "OrderResponse",
    "OutcomeUnknownError",
    "Parameter",
    "PayasyncError",
    "PaymentResponse",
    "PlaceOrder",
    "Profile",
    "QueryOrder",
    "QueryPayment",
    "QueryRefund",
    "RateLimitedError",
    "Recovery",
    "RefundResponse",
    "Refused",
    "Reply",
    "Request",
    "Response",
    "ResultCodes",
    "RetryPolicy",
    "Retrying",
    "Secret",
    "Send",
    "ServiceError",
    "Session",
    "SessionClosedError",
    "SignatureScheme",
    "SortedPairs",
    "States",
    "StorageError",
    "SubscriptionResponse",
    "Timeouts",
    "Unknown",
    "UpdateSubscription",
    "WaitTimeoutError",
    "__version__",
]

_NAMES: Final = {
    "absent": "ABSENT",
    "bulk": "Done Refused",
    "calls": "Call Layer Reply Send",
    "credentials": "Credentials",
    "errors": (
        "AuthenticationError ConfigurationError DuplicateError IntentConflictError InvalidArgumentError "
        "InvalidSignatureError NoAnswerError NoAnswerTimeoutError NotConfiguredError NotSentError "
        "NotSentTimeoutError OutcomeUnknownError PayasyncError RateLimitedError ServiceError "
        "SessionClosedError StorageError WaitTimeoutError"
    ),
    "events": "Attempted Event Retrying Unknown",
    "operations": "OPERATIONS Operation",
    "profile": "Profile",
    "requests": "Request",
    "resources.orders": "CloseOrder PlaceOrder QueryOrder",
    "resources.payments": "CreatePayment QueryPayment",
    "resources.refunds": "CreateRefund QueryRefund",
    "resources.subscriptions": "CancelSubscription CreateSubscription UpdateSubscription",
    "responses": "OrderResponse PaymentResponse RefundResponse Response SubscriptionResponse",
    "secret": "Secret",
    "session": "Session",
    "settings": "RetryPolicy Timeouts",
    "shapes": "Accept AnswerShape HttpCodes NotificationShape Parameter Recovery ResultCodes States",
    "signing": "SignatureScheme SortedPairs",
}
"""Which module each public name is in."""

if not TYPE_CHECKING:  # a checker would take every name for one that is there

    def __getattr__(name: str) -> Any:
        """Load a public name, or a module of one, at its first use: `import payasync` alone loads nothing."""
        if name in _NAMES:
            return import_module(f"payasync.{name}")
        for module, names in _NAMES.items():
            if name in names.split():
                found = getattr(import_module(f"payasync.{module}"), name)
                globals()[name] = found
                return found
        raise AttributeError(f"module 'payasync' has no attribute {name!r}", name=name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
