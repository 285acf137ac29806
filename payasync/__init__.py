"""payasync: an asyncio-native client SDK of a payment service.

A `Profile` says what the service does, `Credentials` who the merchant is, and a `Session` how we behave.

Docstrings cite pages of the documentation by their source: `docs/reference/service.md#orders` is
https://payasync.readthedocs.io/en/stable/reference/service.html#orders
"""

import sys
from collections.abc import Callable
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
    from payasync.strict_json import ABSENT, NOT_YET
    from payasync.wire.call import Call, Layer, Reply, Send
    from payasync.wire.request import Request
    from payasync.wire.response import OrderResponse, PaymentResponse, RefundResponse, Response, SubscriptionResponse


def load_at_first_use(package: str, modules: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package whose import loads none of its modules (PEP 562).

    The modules are searched in their order for a public name. A module that loads others stands behind them.

    Args:
        package: Its name. Its `__all__` lists the public names.
        modules: The modules of the public names, with spaces between them.
    """
    own, known = vars(sys.modules[package]), modules.split()

    def load(name: str) -> Any:
        if name in known:
            return import_module(f"{package}.{name}")
        for module in known if name in own["__all__"] else ():
            found = getattr(import_module(f"{package}.{module}"), name, None)
            if found is not None:
                own[name] = found
                return found
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)

    return load, lambda: sorted({*own, *own["__all__"]})


__version__ = "0.1.0"
DOCUMENTATION: Final = "https://payasync.readthedocs.io/en/stable/"
"""The address that texts for users name: an installed package has no `docs/`."""

__all__ = [
    "ABSENT",
    "NOT_YET",
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

if not TYPE_CHECKING:  # a checker would take every name for one that is there
    # `session` is last, because it loads aiohttp.
    __getattr__, __dir__ = load_at_first_use(
        __name__,
        "errors strict_json settings credentials endpoints profile signing wire.call wire.request wire.response "
        "middleware.observe resources.payments resources.orders resources.refunds resources.subscriptions session",
    )
