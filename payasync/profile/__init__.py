"""`Profile` and its parts: the answers to the points that the common interface leaves open."""

from typing import TYPE_CHECKING

from payasync import load_at_first_use

if TYPE_CHECKING:
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

if not TYPE_CHECKING:  # a checker would take every name for one that is there
    __getattr__, __dir__ = load_at_first_use(__name__, "schema profile")
