"""payasync: an asyncio-native client SDK of a payment service.

A `Profile` says what the service does, `Credentials` who the merchant is, and a `Session` how we behave.

Docstrings cite pages of the documentation by their source: `docs/reference/service.md#orders` is
https://payasync.readthedocs.io/en/stable/reference/service.html#orders
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from payasync.credentials import Credentials, Secret
    from payasync.endpoints import OPERATIONS, Operation
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
    from payasync.middleware.observe import Attempted, Event, Retrying, Unknown
    from payasync.profile import (
        Accept,
        AnswerShape,
        Auth,
        Endpoint,
        HttpCodes,
        Idempotency,
        NotificationShape,
        Parameter,
        Profile,
        Recovery,
        ResultCodes,
        SandboxShape,
        SignedHeader,
        States,
    )
    from payasync.resources.orders import CloseOrder, PlaceOrder, QueryOrder
    from payasync.resources.payments import CreatePayment, QueryPayment
    from payasync.resources.refunds import CreateRefund, QueryRefund
    from payasync.resources.subscriptions import CancelSubscription, CreateSubscription, UpdateSubscription
    from payasync.session import Done, Refused, Session
    from payasync.settings import RetryPolicy, Timeouts
    from payasync.signing import SignatureScheme, SortedPairs, Template
    from payasync.strict_json import ABSENT
    from payasync.wire.call import Call, Layer, Reply, Send
    from payasync.wire.request import Request
    from payasync.wire.response import OrderResponse, PaymentResponse, RefundResponse, Response, SubscriptionResponse

__version__ = "0.1.0"
DOCUMENTATION: Final = "https://payasync.readthedocs.io/en/stable/"
"""The address that texts for users name: an installed package has no `docs/`."""

__all__ = [
    "ABSENT",
    "OPERATIONS",
    "Accept",
    "AnswerShape",
    "Attempted",
    "Auth",
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
    "Endpoint",
    "Event",
    "HttpCodes",
    "Idempotency",
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
    "SandboxShape",
    "Secret",
    "Send",
    "ServiceError",
    "Session",
    "SessionClosedError",
    "SignatureScheme",
    "SignedHeader",
    "SortedPairs",
    "States",
    "StorageError",
    "SubscriptionResponse",
    "Template",
    "Timeouts",
    "Unknown",
    "UpdateSubscription",
    "WaitTimeoutError",
    "__version__",
]

_MODULES: Final = (
    "errors strict_json settings credentials endpoints profile signing wire.call wire.request wire.response "
    "middleware.observe resources.payments resources.orders resources.refunds resources.subscriptions session"
)
"""The modules of the public names; `session` is last, because it loads aiohttp."""

if not TYPE_CHECKING:  # a checker would take every name for one that is there

    def __getattr__(name: str) -> Any:
        """Load a public name, or a module of one, at its first use: `import payasync` alone loads nothing."""
        modules = _MODULES.split()
        if name in modules:
            return import_module(f"payasync.{name}")
        for module in modules if name in __all__ else ():
            found = getattr(import_module(f"payasync.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
        raise AttributeError(f"module 'payasync' has no attribute {name!r}", name=name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
