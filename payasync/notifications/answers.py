"""What a notification is answered with, by the profile: no I/O here (spec: Events, gaps)."""

from collections.abc import Mapping
from typing import Final, Protocol

from attrs import evolve, field, frozen

from payasync.absent import ABSENT
from payasync.documents import loads
from payasync.errors import ConfigurationError
from payasync.notifications.intake import Headers, Raw
from payasync.profile import not_configured
from payasync.shapes import KINDS, REFUSED, NotificationShape

CONTENT_TOO_LARGE: Final = 413
UNAVAILABLE: Final = 503
RETRY_AFTER: Final = 5
"""Seconds."""
BODY_SECONDS: Final = 10.0
"""The time that a whole body may take to arrive."""
BODILESS: Final = frozenset({204, 205, 304})


@frozen
class Answer:
    """What a notification is answered with.

    Attributes:
        status: The HTTP status.
        body: A text; it may be empty.
        headers: Without those that frame a message.
    """

    status: int
    body: str = ""
    headers: Mapping[str, str] = field(factory=dict)


TOO_SLOW: Final = Answer(408)
"""To a body that did not arrive in time; its connection is closed."""


class Take(Protocol):
    """`Receiver.receive`, as the adapters see it."""

    async def __call__(self, raw: Raw, headers: Headers, kind: str | None = None) -> Answer:
        """Return the answer to a body with its headers."""
        ...


def acknowledgement(shape: NotificationShape) -> Answer:
    """Return the answer to what has been kept.

    Raises:
        NotConfiguredError: The profile does not say which status acknowledges.
        ConfigurationError: It is one that no body goes with.
    """
    if shape.ack_status is None:
        raise not_configured("notification.ack_status", "the HTTP status that acknowledges a notification, such as 200")
    return _answer("ack", shape.ack_status, shape.ack_body)


def refusal(shape: NotificationShape) -> Answer:
    """Return the answer to what is no notification, or not from the service.

    Raises:
        ConfigurationError: Its status is one that no body goes with.
    """
    return _answer("nack", REFUSED if shape.nack_status is None else shape.nack_status, shape.nack_body)


def too_large(shape: NotificationShape) -> Answer:
    """Return the answer to what is too long: the refusal's words, since a service may look at these alone."""
    return _answer("nack", CONTENT_TOO_LARGE, shape.nack_body)


def overloaded(shape: NotificationShape) -> Answer:
    """Return the answer to what could not be kept: the service may send it again."""
    refused = _answer("nack", UNAVAILABLE, shape.nack_body)
    return evolve(refused, headers={**refused.headers, "Retry-After": str(RETRY_AFTER)})


def _answer(which: str, status: int, body: str) -> Answer:
    if body and status in BODILESS:
        raise ConfigurationError(
            f"notification.{which}_body: no body goes with the HTTP status {status}. Change one of the two",
            field=f"notification.{which}_body",
        )
    return Answer(status, body, {"Content-Type": _content_type(body)} if body else {})


def _content_type(body: str) -> str:
    return "text/plain; charset=utf-8" if loads(body.encode()) is ABSENT else "application/json"


def kind_of(path: str) -> str | None:
    """Return the kind that an address is for: its last part, where that names one."""
    last = path.rstrip("/").rpartition("/")[2]
    return last if last in KINDS else None
