"""What the service does: one field for each point that its document leaves open."""

from payasync.profile.profile import Profile
from payasync.profile.schema import (
    Accept,
    AnswerShape,
    HttpCodes,
    NotificationShape,
    Parameter,
    Recovery,
    ResultCodes,
    States,
)

__all__ = [
    "Accept",
    "AnswerShape",
    "HttpCodes",
    "NotificationShape",
    "Parameter",
    "Profile",
    "Recovery",
    "ResultCodes",
    "States",
]
