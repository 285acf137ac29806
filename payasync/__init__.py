"""payasync: an asyncio-native client SDK of a payment service.

A `Profile` says what the service does, `Credentials` who the merchant is, and a `Session` how we behave.
"""

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
from payasync.version import VERSION as __version__

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
