"""One claimed event: it is read, believed or not, compared with what is expected, and handled.

What follows from each step is decided in `trust`, `handlers` and `endings`, without I/O.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from inspect import isawaitable
from traceback import format_tb
from typing import Final

from attrs import evolve, frozen

from payasync.errors import InvalidArgumentError
from payasync.middleware.retry import Pace
from payasync.notifications.calling import within
from payasync.notifications.confirming import confirmed
from payasync.notifications.endings import DONE, Ending, again, bounded, dead, in_short, longest_wait, told, worn_out
from payasync.notifications.handlers import Expect, Handler, takers
from payasync.notifications.inbox import Claim, Inbox
from payasync.notifications.limits import DispatchLimits
from payasync.notifications.marks import mark
from payasync.notifications.notification import Notification
from payasync.notifications.questions import Questions
from payasync.notifications.reading import parse
from payasync.notifications.trust import ASKABLE, difference, foreign, held_as_refund
from payasync.profile import Profile
from payasync.session import Session
from payasync.transport.deadlines import running_task

logger: Final = logging.getLogger("payasync.notifications")

SHUT_DOWN: Final = "cut off by a shutdown"


@frozen(kw_only=True)
class Handling:
    """How events are handled: what all of a receiver's have in common.

    Attributes:
        inbox: Keeps them.
        profile: What the service does.
        merchant_id: Whom they must be for, where they say it.
        session: Asks the service.
        handlers: Those that register later count, too.
        expect: Says what each must tell, where its handler does not.
        limits: How often each may fail, and how long a handler may take.
        pace: Time and chance; its clock counts seconds since 1970.
        questions: When the service may be asked about a hint.
    """

    inbox: Inbox
    profile: Profile
    merchant_id: str
    session: Session | None
    handlers: Sequence[Handler]
    expect: Expect | None
    limits: DispatchLimits
    pace: Pace
    questions: Questions

    async def handle(self, claim: Claim) -> None:
        """Bring a claimed event to its end, or to its next attempt; where the lease is lost, leave it alone."""
        begun, failures = claim.event.attempts, claim.event.failures + 1
        try:
            ending = worn_out(begun, failures - 1) or bounded(await self._ended(claim), failures, self.limits.attempts)
        except asyncio.CancelledError:
            await self.inbox.finish(claim, "pending", SHUT_DOWN)
            raise
        wait = ending.wait
        if ending.state == "pending" and wait is None:
            wait = self.pace.jitter(longest_wait(failures))
        if await self.inbox.finish(claim, ending.state, ending.reason, wait):
            _tell(claim, ending)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.pace.clock(), UTC)

    async def _ended(self, claim: Claim) -> Ending:
        """Return what becomes of an event."""
        notification = self._read(claim)
        if isinstance(notification, Ending):
            return notification
        if held := held_as_refund(notification, self.profile):
            return held
        handlers = takers(self.handlers, notification)
        if isinstance(handlers, Ending):
            return handlers
        believed = await self._believed(notification, claim)
        if isinstance(believed, Ending):
            return believed
        left = [handler for handler in handlers if _done_as(handler, believed) not in claim.event.handled]
        return await self._unexpected(left, believed) or await self._handled(left, believed, claim)

    def _read(self, claim: Claim) -> Notification | Ending:
        """Return a notification as it came out of the inbox."""
        event = claim.event
        try:
            read = parse(
                event.raw,
                event.headers,
                profile=self.profile,
                kind=event.kind,
                received_at=event.received_at,
                max_bytes=len(event.raw),
            )
        except InvalidArgumentError as error:  # another profile took it
            return dead(told(error))
        return evolve(
            read,
            verified=event.verified,
            id=event.id,
            attempt=event.attempts,
            dedup_key=event.key,
            weak=event.weak,
            session=self.session,
        )

    async def _believed(self, notification: Notification, claim: Claim) -> Notification | Ending:
        """Return a notification, confirmed where it is but a hint and there is somebody to ask."""
        if notification.verified or notification.kind not in ASKABLE:
            return notification
        age = (self._now() - notification.received_at).total_seconds()
        return await confirmed(
            notification,
            claim,
            inbox=self.inbox,
            profile=self.profile,
            questions=self.questions,
            attempts=self.limits.attempts,
            age=age,
        )

    async def _unexpected(self, handlers: Iterable[Handler], notification: Notification) -> Ending | None:
        """Return how a notification contradicts what anybody expects."""
        if found := foreign(notification, self.merchant_id, self.profile):
            return found
        asked = (self.expect if handler.expect is None else handler.expect for handler in handlers)
        for expect in {id(each): each for each in asked}.values():  # they need be neither hashable nor true
            if expect is not None and (found := await self._compared(expect, notification)):
                return found
        return None

    async def _handled(self, handlers: Iterable[Handler], notification: Notification, claim: Claim) -> Ending:
        """Have each handler handle it, those behind one that fails, too."""
        failures = list[str]()
        for handler in handlers:
            if failure := await self._failure(handler, notification):
                failures.append(failure)
            elif not await self.inbox.handled(claim, _done_as(handler, notification)):
                break
        return again(in_short("; ".join(failures))) if failures else DONE

    async def _failure(self, handler: Handler, notification: Notification) -> str:
        """Return what a handler failed with; nothing where it did not."""
        try:
            await self._run(handler, notification)
        except (Exception, asyncio.CancelledError) as error:
            if _cut_off(error):
                raise
            _tell_failure(handler.name, error, notification)
            return f"{handler.name}: {told(error)}"
        return ""

    async def _run(self, handler: Handler, notification: Notification) -> None:
        if handler.transaction is None:
            await within(self.limits.handler_timeout, handler.function(notification))
            return
        digits = mark(handler.name, self.merchant_id, notification.dedup_key)
        once = handler.transaction.once(digits, self._now(), partial(handler.function, notification))
        if not await within(self.limits.handler_timeout, once):
            logger.info("%s was not called for event %s: its mark is there", handler.name, notification.id)

    async def _compared(self, expect: Expect, notification: Notification) -> Ending | None:
        try:
            expected: object = expect(notification)
            if isawaitable(expected):
                expected = await within(self.limits.handler_timeout, expected)
            return difference(notification, expected)
        except (Exception, asyncio.CancelledError) as error:
            if _cut_off(error):
                raise
            _tell_failure("expect", error, notification)
            return again(f"expect: {told(error)}")


def _cut_off(error: BaseException) -> bool:
    """Return whether this very task is cancelled, and not merely something that the caller's code waited for."""
    return isinstance(error, asyncio.CancelledError) and bool(running_task().cancelling())


def _done_as(handler: Handler, notification: Notification) -> str:
    """Return the name under which a handler is done; what the service says of a hint may change before a retry."""
    return handler.name if notification.confirmed is None else f"{handler.name} {notification.dedup_key}"


def _tell_failure(who: str, error: BaseException, notification: Notification) -> None:
    """Log where the caller's code failed; what the error says may be of the payload, and stands in the inbox."""
    where = "".join(format_tb(error.__traceback__)).rstrip()
    about = who, notification.id, notification.attempt, type(error).__name__, where
    logger.warning("%s failed with event %s, attempt %s: %s\n%s", *about)


def _tell(claim: Claim, ending: Ending) -> None:
    """Log that somebody must look at an event; the reason, which may hold what it says, stands in the inbox."""
    if ending.state not in {"pending", "done"}:
        event = claim.event
        logger.warning("event %s (%s) is %s: receiver.events() says why", event.id, event.kind, ending.state)
