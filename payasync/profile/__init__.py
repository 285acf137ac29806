"""`Profile` and its parts: the answers to the points that the common interface leaves open."""

from payasync.profile.profile import Profile
from payasync.profile.schema import (
    Accept,
    AnswerShape,
    Auth,
    Endpoint,
    HttpCodes,
    Idempotency,
    NotificationShape,
    Parameter,
    Recovery,
    ResultCodes,
    SandboxShape,
    SignedHeader,
    States,
)

__all__ = [
    "Accept",
    "AnswerShape",
    "Auth",
    "Endpoint",
    "HttpCodes",
    "Idempotency",
    "NotificationShape",
    "Parameter",
    "Profile",
    "Recovery",
    "ResultCodes",
    "SandboxShape",
    "SignedHeader",
    "States",
]
