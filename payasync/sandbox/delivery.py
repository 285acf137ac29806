"""What people are told of an attempt to deliver a notification, as it ends."""

from typing import Final, Self
from urllib.parse import urlsplit

from attrs import frozen

from payasync.sandbox.outbox import Attempt, Notification, NotificationState
from payasync.sandbox.timeline import Entry

MOST: Final = 80
"""Characters of an address that are told."""


@frozen(kw_only=True)
class Delivery:
    """An attempt that has ended; without what was sent.

    Attributes:
        event: What is told, such as `payment.paid`.
        reference: The number of the order, refund or subscription.
        status: The HTTP status of the answer, or `None` where none came.
        where: Its address, in short.
        error: Why it was not acknowledged; empty where it was.
        state: What has become of the notification.
        tries: How often it was attempted.
        wait: Seconds until the next attempt, in wall time; `None` where there is none, or the sandbox's time stands.
    """

    event: str
    reference: str
    status: int | None
    where: str
    error: str
    state: NotificationState
    tries: int
    wait: float | None

    @classmethod
    def of(cls, attempt: Attempt, notification: Notification, wait: float | None) -> Self:
        """Return what is told of an attempt.

        Args:
            attempt: It.
            notification: As it is now.
            wait: Seconds until its next attempt.
        """
        return cls(
            event=notification.event,
            reference=notification.reference,
            status=attempt.status,
            where=address(attempt.url),
            error=attempt.error,
            state=notification.state,
            tries=notification.tries,
            wait=wait,
        )

    @property
    def entry(self) -> Entry:
        """The same as in the timeline."""
        outcome = "" if self.status is None else "not acknowledged" if self.error else "acknowledged"
        return Entry(
            kind="delivery",
            name=self.event,
            reference=self.reference,
            status=self.status,
            outcome=outcome,
            reason=self.error,
        )


def address(url: str) -> str:
    """Return where a notification goes, in short, and without a password or a query, which may open something."""
    parts = urlsplit(url)
    text = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{'?…' if parts.query else ''}"
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"
