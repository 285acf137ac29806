"""Ingestion: a notification is verified, stored durably, and only then acknowledged."""

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Literal, TypeAlias

from attrs import evolve, field, frozen
from multidict import CIMultiDict

from payasync.errors import InvalidArgumentError, InvalidSignatureError, clean
from payasync.evidence.comparison import find_another, named_merchants
from payasync.middleware.observe import log
from payasync.notifications.inbox import Added, Inbox, Received
from payasync.notifications.notification import MAX_BYTES, WEBHOOK_ID, Headers, Notification, Raw, copy_body, webhook_id
from payasync.notifications.sends import Name, Sends
from payasync.notifications.transitions import hint_key
from payasync.notifications.verification import Verification
from payasync.profile.profile import Profile
from payasync.settings import invalid_setting, not_configured
from payasync.strict_json import ABSENT, loads, loads_leniently

MAX_WAITING: Final = 4000
"""Notifications that wait for the disk. Hints may fill half of the places."""
MAX_WAITING_BYTES: Final = 16 << 20
"""Bytes of all bodies that wait for the disk; a single body may be longer. Hints may fill half of them."""

CONTENT_TOO_LARGE: Final = 413
UNAVAILABLE: Final = 503
RETRY_AFTER: Final = 5
"""Seconds."""
Refusal: TypeAlias = Literal["invalid", "signature", "too_large"]
"""Why a notification is refused. Only the log says more, because a metric needs few values."""
OTHER_BODY: Final = "an earlier notification with this key had another body"
"""Why a notification is held as `Added.CONFLICT`."""
BODILESS: Final = frozenset({204, 205, 304})

MAX_REASON: Final = 400
"""Characters of a logged reason. At most half of them can be a name from the refused body."""
_DETAIL: Final = re.compile(r"\d+|: .*")
"""What differs between the reasons of one class: numbers, and the words after a colon, which may name a field."""

logger: Final = logging.getLogger("payasync.notifications")


@frozen
class Answer:
    """The response to a notification.

    Attributes:
        status: The HTTP status.
        body: A text; it may be empty.
        headers: Without those that frame a message.
    """

    status: int
    body: str = ""
    headers: Mapping[str, str] = field(factory=dict)


@frozen
class IngestResult:
    """The result of ingesting a notification.

    Attributes:
        answer: The response to it.
        received: The stored notification, unless it was refused.
        added: What the inbox did with it, if it was stored.
        error: Why it was refused or not stored.
    """

    answer: Answer
    received: Received | None = None
    added: Added | None = None
    error: Exception | None = None


class Ingest:
    """Verifies notifications, stores them, and chooses the response.

    Attributes:
        acknowledgement: The response to a notification that was stored.
        refusal: The response to an invalid one. It has the profile's body, because a service may only look at that.
        closed: Set when nothing may be stored any more.

    Args:
        verification: Says which notifications are genuine.
        inbox: Stores them.
        clock: Returns seconds since 1970.
        on_stored: Called after each acknowledged notification that can be dispatched. A duplicate counts, because the
            process that stored the first one may have ended.
        on_refused: Called with the reason of each refusal. What it raises is logged.
        max_bytes: The greatest length of a body.
        max_waiting: The most notifications that wait for the disk.
        sends: Counts the sends of writes. Default: each counts as sent once.

    Raises:
        NotConfiguredError: The profile does not say which status acknowledges a notification.
        ConfigurationError: The profile gives a body to a status that has none.
    """

    def __init__(
        self,
        verification: Verification,
        inbox: Inbox,
        *,
        clock: Callable[[], float],
        on_stored: Callable[[], None],
        on_refused: Callable[[Refusal], object] | None = None,
        max_bytes: int = MAX_BYTES,
        max_waiting: int = MAX_WAITING,
        sends: Sends | None = None,
    ) -> None:
        shape = verification.profile.notification
        if shape.ack_status is None:
            what = "the HTTP status that acknowledges a notification, such as 200"
            raise not_configured("notification.ack_status", what)
        self.acknowledgement: Final = _build_answer("ack", shape.ack_status, shape.ack_body)
        self.refusal: Final = _build_answer("nack", shape.refusal_status, shape.nack_body)
        self.closed = False
        self._too_large: Final = evolve(self.refusal, status=CONTENT_TOO_LARGE)
        retry = {**self.refusal.headers, "Retry-After": str(RETRY_AFTER)}
        self._unavailable: Final = evolve(self.refusal, status=UNAVAILABLE, headers=retry)
        self._verification: Final = verification
        self._inbox: Final = inbox
        self._clock: Final = clock
        self._on_stored: Final = on_stored
        self._on_refused: Final = on_refused
        self._max_bytes: Final = max_bytes
        self._max_waiting: Final = max_waiting
        self._sends: Final = sends or Sends(verification.profile)
        self._waiting = 0
        self._waiting_bytes = 0
        self._warned_of: Final = set[str]()

    async def ingest(self, raw: Raw, headers: Headers, kind: str | None) -> IngestResult:
        """Return the response to a notification, after it is on the disk.

        Raises:
            InvalidArgumentError: `raw` is not bytes.
        """
        body, limit, verification = copy_body(raw), self._max_bytes, self._verification
        if len(body) > limit:
            self._report_refusal("too_large", f"its body is longer than max_bytes, {limit}")
            return IngestResult(self._too_large)
        try:
            found, held, late = verification.examine(body, headers, now=self._clock(), kind=kind, max_bytes=limit)
        except (InvalidSignatureError, InvalidArgumentError) as error:
            self._report_refusal("signature" if isinstance(error, InvalidSignatureError) else "invalid", explain(error))
            return IngestResult(self.refusal, error=error)
        why = explain(held) if held else ""
        # With a key of all merchants, a hint of another one may be confirmed as the same at any time.
        timed = verification.timed and not verification.shared
        build = partial(build_received, found, verification.profile, signed=verification.proves, held=why)
        try:
            name = await self._sends.name(found) if found.verified else None
        except Exception as error:  # noqa: BLE001 - whatever it is, it must come again
            return self._not_stored(error, build(timed=timed))
        received = build(name, timed=timed)
        del found, build  # they are many times as large as the body, and the disk may be slow
        stored = await self._store(received)
        if not late or stored.added is None:
            return stored
        # A new one has been logged as held.
        self._report_refusal("signature", why if stored.added is Added.AGAIN else "")
        return evolve(stored, answer=self.refusal, error=held)

    def _report_refusal(self, refusal: Refusal, why: str) -> None:
        """Log why a notification is refused, the first of each class of reasons as a warning: anybody may send many.

        An empty reason is only counted.
        """
        if reason := clean(why, MAX_REASON):
            level = self._level(f"{refusal} {_DETAIL.sub('', reason)}")
            log(logger, level, "notification.refused", "refused a notification: %(reason)s", reason=reason)
        try:
            if self._on_refused is not None:
                self._on_refused(refusal)
        except Exception as error:  # noqa: BLE001 - the user's code
            words, name = "on_refused raised; the notification is refused", type(error).__name__
            log(logger, logging.ERROR, "on_refused_failed", words, error_type=name, exc_info=error)

    def _level(self, kind: str) -> int:
        """Return the level of a record that anybody can cause: only the first of its kind is a warning."""
        level = logging.INFO if kind in self._warned_of else logging.WARNING
        self._warned_of.add(kind)
        return level

    async def _store(self, received: Received) -> IngestResult:
        size, share = len(received.raw), 1 if received.verified else 2  # anybody can send hints
        too_many = self._waiting >= -(-self._max_waiting // share)
        if self.closed or too_many or (self._waiting and self._waiting_bytes + size > MAX_WAITING_BYTES // share):
            return IngestResult(self._unavailable, received)
        self._warn_of_weak_key(received)
        self._waiting += 1
        self._waiting_bytes += size
        try:
            added = await self._inbox.add(received)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was stored, and it must come again
            return self._not_stored(error, received)
        finally:
            self._waiting -= 1
            self._waiting_bytes -= size
        if added in {Added.CONFLICT, Added.HELD}:
            words = (
                'held a genuine notification: %(reason)s. See receiver.events("held"), or payasync journal with --inbox'
            )
            others = self._may_be_of_another(received)
            level = self._level(received.key.partition(":")[0]) if others else logging.WARNING
            reason = clean(received.held, MAX_REASON) or OTHER_BODY
            log(logger, level, "notification.held", words, kind=received.kind, reason=reason)
        elif not self.closed:
            self._on_stored()
        return IngestResult(self.acknowledgement, received, added)

    def _may_be_of_another(self, received: Received) -> bool:
        """Return whether what is signed names another merchant, or names none although all merchants share the key."""
        verification, document = self._verification, loads_leniently(received.raw)
        named = list(named_merchants(verification.profile, document))
        another = find_another(named, verification.credentials.merchant_id)
        return another is not None or (verification.shared and not named)

    def _not_stored(self, error: Exception, received: Received) -> IngestResult:
        words, name = "a notification could not be stored: %(error_type)s", type(error).__name__
        log(logger, logging.WARNING, "notification.not_stored", words, error_type=name)
        return IngestResult(self._unavailable, received, error=error)

    def _warn_of_weak_key(self, received: Received) -> None:
        """Log once that events are identified by their bodies alone."""
        if received.verified and received.weak and received.kind and not (received.held or "weak" in self._warned_of):
            self._warned_of.add("weak")
            words = (
                "an event about a %(kind)s is identified by the hash of its body alone: if the service sends it again "
                "with other values, it is handled again, and two events with equal bodies count as one. Put the paths "
                "that identify it into notification.id.%(kind)s"
            )
            log(logger, logging.WARNING, "notification.weak_key", words, kind=received.kind)


def explain(error: Exception) -> str:
    """Return why a notification is refused or held. A genuine one may be held because of the same errors."""
    return f"{error.field} {error.reason}" if isinstance(error, InvalidSignatureError) else str(error)


def _build_answer(which: str, status: int, body: str) -> Answer:
    if not body:
        return Answer(status)
    if status in BODILESS:
        rule = f"must be empty: no body goes with the HTTP status {status}. Change one of the two"
        raise invalid_setting(f"notification.{which}_body", rule)
    is_json = loads(body.encode()) is not ABSENT
    return Answer(status, body, {"Content-Type": "application/json" if is_json else "text/plain; charset=utf-8"})


_STORED: Final = ("kind", "event", "verified", "digest", "raw", "received_at", "event_time")
"""The attributes of a notification that are stored as they are."""


def build_received(
    notification: Notification,
    profile: Profile,
    name: Name | None = None,
    *,
    timed: bool,
    signed: bool = False,
    held: str = "",
) -> Received:
    """Return the notification to store.

    Args:
        notification: Verified, or a hint. A hint is identified by its body, whatever key it claims.
        profile: The profile of the service.
        name: What distinguishes it, if it is verified. Default: its key alone.
        timed: Whether its signature covers the time when it was sent, so that it cannot come again much later.
        signed: Whether it is genuine, also if it is a hint because it may be another merchant's.
        held: Why it is held from the start; empty: it is dispatched.
    """
    headers = notification.headers
    if profile.notification.header and (number := webhook_id(profile.notification, headers)):
        headers = CIMultiDict(headers)
        headers[WEBHOOK_ID] = number  # in place of one that nobody has signed
    known = notification.verified or held
    name = name or Name(notification.dedup_key if known else hint_key(notification, signed=signed))
    verified, stored = notification.verified, {each: getattr(notification, each) for each in _STORED}
    weak, lasting = notification.weak or not verified, verified and not timed
    return Received(**name._asdict(), **stored, weak=weak, lasting=lasting, held=held, headers=dict(headers))
