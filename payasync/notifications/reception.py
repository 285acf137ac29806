"""What arrives: verified, kept durably, and only then acknowledged."""

import logging
import sys
from collections.abc import Callable
from typing import Final

from attrs import frozen

from payasync.errors import InvalidArgumentError, InvalidSignatureError
from payasync.middleware.retry import Pace
from payasync.notifications.answers import OVERLOADED, TOO_LARGE, Answer, acknowledgement, refusal
from payasync.notifications.inbox import Added, Inbox, Received
from payasync.notifications.intake import Headers, Raw, body_of
from payasync.notifications.limits import Limits
from payasync.notifications.notification import Notification
from payasync.notifications.trust import hint_key
from payasync.notifications.verifying import Verification

logger: Final = logging.getLogger("payasync.notifications")


class Reception:
    """Answers notifications.

    Args:
        verification: Says which are from the service.
        inbox: Keeps them.
        limits: How long one may be, and how many wait for the disk.
        pace: Its clock counts seconds since 1970.
        kept: Called when there is something to dispatch: what comes again may have been left by a process that ended.

    Raises:
        NotConfiguredError: The profile does not say how notifications are acknowledged.
        ConfigurationError: Its answers contradict HTTP.
    """

    def __init__(
        self, verification: Verification, inbox: Inbox, limits: Limits, pace: Pace, *, kept: Callable[[], None]
    ) -> None:
        self._yes: Final = acknowledgement(verification.profile.notification)
        self._no: Final = refusal(verification.profile.notification)
        self._verification: Final = verification
        self._inbox: Final = inbox
        self._limits: Final = limits
        self._clock: Final = pace.clock
        self._tell: Final = kept
        self._storing = 0
        self.closed = False

    async def receive(self, raw: Raw, headers: Headers, kind: str | None) -> Answer:
        """Return the answer to a notification, after it is on the disk."""
        return (await self.arrival(raw, headers, kind)).answer

    async def arrival(self, raw: Raw, headers: Headers, kind: str | None) -> "Arrival":
        """Return what became of a notification, after it is on the disk."""
        body = body_of(raw, sys.maxsize)
        if len(body) > self._limits.max_bytes:
            return Arrival(TOO_LARGE)
        try:
            notification = self._verification.notification(
                body, headers, now=self._clock(), kind=kind, max_bytes=self._limits.max_bytes
            )
        except (InvalidSignatureError, InvalidArgumentError) as error:
            logger.info("refused a notification: %s, of %s", type(error).__name__, error.field)
            return Arrival(self._no, error=error)
        if self.closed or self._storing >= self._limits.max_waiting:
            return Arrival(OVERLOADED, notification)
        return await self._kept(notification)

    async def _kept(self, notification: Notification) -> "Arrival":
        self._storing += 1
        try:
            added = await self._inbox.add(received(notification))
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was kept, and it must come again
            logger.warning("a notification could not be kept: %s", type(error).__name__)
            return Arrival(OVERLOADED, notification, error=error)
        finally:
            self._storing -= 1
        if added is Added.CONFLICT:
            logger.warning("a notification has the key of another, and is quarantined: receiver.events() says which")
        elif not self.closed:
            self._tell()
        return Arrival(self._yes, notification, added)


@frozen
class Arrival:
    """What became of what arrived.

    Attributes:
        answer: What it is answered with.
        notification: It, where it could be read, and its signature did not speak against it.
        added: What the inbox said, where it was kept.
        error: What was wrong with it, or with the inbox.
    """

    answer: Answer
    notification: Notification | None = None
    added: Added | None = None
    error: Exception | None = None


def received(notification: Notification) -> Received:
    """Return what is kept of a notification; one that nobody signed is known by its words, whatever it claims."""
    return Received(
        key=notification.dedup_key if notification.verified else hint_key(notification),
        digest=notification.digest,
        weak=notification.weak or not notification.verified,
        kind=notification.kind,
        event=notification.event,
        verified=notification.verified,
        raw=notification.raw,
        headers=dict(notification.headers),
        received_at=notification.received_at,
    )
