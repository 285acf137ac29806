"""What arrives: verified, kept durably, and only then acknowledged."""

import logging
import re
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Protocol

from attrs import Attribute, evolve, field, frozen

from payasync.documents import ABSENT, loads
from payasync.errors import ConfigurationError, InvalidArgumentError, InvalidSignatureError
from payasync.notifications.inbox import Added, Inbox, Received
from payasync.notifications.notification import Headers, Notification, Raw, body_of
from payasync.notifications.trust import hint_key
from payasync.notifications.verification import Verification
from payasync.profile.profile import not_configured
from payasync.profile.schema import KINDS, REFUSED, NotificationShape
from payasync.settings import Pace, is_number

_LONGEST: Final = timedelta(days=36_500)


def _wrong(attribute: "Attribute[Any]", rule: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"{attribute.name} must be {rule}, not {value!r}", field=attribute.name)


def _count(_: object, attribute: "Attribute[Any]", value: object) -> None:
    if type(value) is not int or not 1 <= value <= sys.maxsize:
        raise _wrong(attribute, "an integer of 1 or more", value)


def _seconds(_: object, attribute: "Attribute[Any]", value: Any) -> None:
    if not is_number(value) or not 0 < value <= _LONGEST.total_seconds():
        raise _wrong(attribute, "a number of seconds above 0", value)


def _time(_: object, attribute: "Attribute[Any]", value: object) -> None:
    if not isinstance(value, timedelta) or not timedelta(0) < value <= _LONGEST:
        raise _wrong(attribute, "a timedelta above 0, such as timedelta(days=30)", value)


@frozen(kw_only=True)
class ReceptionLimits:
    """How much a receiver takes.

    Args:
        max_bytes: The greatest length of a body.
        max_waiting: So many notifications wait for the disk at once; further ones are to come again.

    Raises:
        ConfigurationError: A value of another type, or below what makes sense.
    """

    max_bytes: int = field(validator=_count)
    max_waiting: int = field(validator=_count)


@frozen(kw_only=True)
class DispatchLimits:
    """How a receiver handles what it has taken.

    Args:
        attempts: How often an event may fail before it is dead.
        concurrency: So many events are handled at once.
        handler_timeout: Seconds after which a handler has failed.
        lease: Seconds for which an event is claimed; it is extended while its handlers run.
        retention: How long what is done is kept, so that it is known when it comes again.

    Raises:
        ConfigurationError: A value of another type, or below what makes sense.
    """

    attempts: int = field(validator=_count)
    concurrency: int = field(validator=_count)
    handler_timeout: float = field(validator=_seconds)
    lease: float = field(validator=_seconds)
    retention: timedelta = field(validator=_time)


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


logger: Final = logging.getLogger("payasync.notifications")

MOST_WAITING: Final = 16 << 20
"""Bytes of bodies that wait for the disk at once, however few they are; of one alone, any length."""

_NUMBERS: Final = re.compile(r"\d+")


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
        self,
        verification: Verification,
        inbox: Inbox,
        limits: ReceptionLimits,
        pace: Pace,
        *,
        kept: Callable[[], None],
    ) -> None:
        shape = verification.profile.notification
        self._yes: Final = acknowledgement(shape)
        self._no: Final = refusal(shape)
        self._too_large: Final = too_large(shape)
        self._overloaded: Final = overloaded(shape)
        self._verification: Final = verification
        self._inbox: Final = inbox
        self._limits: Final = limits
        self._clock: Final = pace.clock
        self._tell: Final = kept
        self._storing = 0
        self._waiting = 0
        self._warned = False
        self._refused_for: Final = set[str]()
        self.closed = False

    async def receive(self, raw: Raw, headers: Headers, kind: str | None) -> Answer:
        """Return the answer to a notification, after it is on the disk."""
        found = self._judged(raw, headers, kind)
        if isinstance(found, Arrival):
            return found.answer
        keeping = self._kept(self._received(found))
        del found  # much was made of its bytes, and nothing but these waits for the disk
        return (await keeping).answer

    async def arrival(self, raw: Raw, headers: Headers, kind: str | None) -> "Arrival":
        """Return what became of a notification, after it is on the disk."""
        found = self._judged(raw, headers, kind)
        if isinstance(found, Arrival):
            return found
        return evolve(await self._kept(self._received(found)), notification=found)

    def _received(self, notification: Notification) -> Received:
        return received(notification, timed=self._verification.timed)

    def _judged(self, raw: Raw, headers: Headers, kind: str | None) -> "Notification | Arrival":
        """Return a notification that is not to be refused, or its refusal."""
        body = body_of(raw, sys.maxsize)
        if len(body) > self._limits.max_bytes:
            self._tell_refusal(f"its body is longer than max_bytes, {self._limits.max_bytes}")
            return Arrival(self._too_large)
        try:
            return self._verification.notification(
                body, headers, now=self._clock(), kind=kind, max_bytes=self._limits.max_bytes
            )
        except (InvalidSignatureError, InvalidArgumentError) as error:
            self._tell_refusal(in_words(error))
            return Arrival(self._no, error=error)

    def _tell_refusal(self, why: str) -> None:
        """Log why a notification is refused, each reason once as a warning: anybody may send anything, and often."""
        reason = _NUMBERS.sub("", why)
        logger.log(logging.INFO if reason in self._refused_for else logging.WARNING, "refused a notification: %s", why)
        self._refused_for.add(reason)

    async def _kept(self, keep: Received) -> "Arrival":
        if self.closed or self._full(len(keep.raw)):
            return Arrival(self._overloaded)
        self._warn_of_weak(keep)
        self._storing += 1
        self._waiting += len(keep.raw)
        try:
            added = await self._inbox.add(keep)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was kept, and it must come again
            logger.warning("a notification could not be kept: %s", type(error).__name__)
            return Arrival(self._overloaded, error=error)
        finally:
            self._storing -= 1
            self._waiting -= len(keep.raw)
        if added is Added.CONFLICT:
            logger.warning("a notification has the key of another, and is quarantined: receiver.events() says which")
        elif not self.closed:
            self._tell()
        return Arrival(self._yes, added=added)

    def _full(self, more: int) -> bool:
        """Return whether too much waits for the disk to take so many bytes more."""
        waiting = self._storing > 0
        return self._storing >= self._limits.max_waiting or (waiting and self._waiting + more > MOST_WAITING)

    def _warn_of_weak(self, keep: Received) -> None:
        """Log once that events are known by no more than their words: a redelivery in others is handled again."""
        if keep.verified and keep.weak and keep.kind and not self._warned:
            self._warned = True
            logger.warning(
                "an event about a %s is known by the hash of its body alone: told again in other words, it is handled "
                "again, and two that say the same are taken for one. Put the paths that identify it into "
                "notification.id.%s",
                keep.kind,
                keep.kind,
            )


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


def in_words(error: InvalidSignatureError | InvalidArgumentError) -> str:
    """Return what is wrong with a notification; it holds nothing of what was received."""
    return f"{error.field} {error.reason}" if isinstance(error, InvalidSignatureError) else str(error)


def key_of(notification: Notification) -> str:
    """Return the key under which a notification is kept."""
    return notification.dedup_key if notification.verified else hint_key(notification)


def received(notification: Notification, *, timed: bool) -> Received:
    """Return what is kept of a notification; one that nobody signed is known by its words, whatever it claims.

    Args:
        notification: Not refused.
        timed: If it is verified, a signed time bounds how late it can come again.
    """
    return Received(
        key=key_of(notification),
        digest=notification.digest,
        weak=notification.weak or not notification.verified,
        kind=notification.kind,
        event=notification.event,
        verified=notification.verified,
        lasting=notification.verified and not timed,
        raw=notification.raw,
        headers=dict(notification.headers),
        received_at=notification.received_at,
    )
