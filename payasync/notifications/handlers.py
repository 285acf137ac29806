"""Who handles what, and one claimed event: read, believed or not, compared with what is expected, handled."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from inspect import isawaitable, iscoroutinefunction, signature
from traceback import format_tb
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from attrs import evolve, frozen

from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.notifications.inbox import Claim, Inbox
from payasync.notifications.ingest import DispatchLimits
from payasync.notifications.notification import PLURALS, Notification
from payasync.notifications.reading import parse
from payasync.notifications.transactions import Begin, Transactions, mark
from payasync.notifications.trust import (
    ASKABLE,
    DONE,
    Ending,
    Questions,
    again,
    bounded,
    confirmed,
    dead,
    difference,
    foreign,
    held_as_refund,
    in_short,
    longest_wait,
    parked,
    told,
    worn_out,
)
from payasync.profile.profile import Profile
from payasync.profile.schema import KINDS
from payasync.session import Session
from payasync.settings import Pace
from payasync.transport.deadlines import running_task

T = TypeVar("T")

LANDING: Final = 1.0
"""Seconds that it has to end after it was cancelled."""

_left: Final[set["asyncio.Task[object]"]] = set()
"""What swallows its cancellation; a loop holds on to no task by itself."""


async def within(seconds: float, called: Awaitable[T]) -> T:
    """Return what the caller's code does, in a task of its own.

    Args:
        seconds: After these it is cancelled, and has failed, whether it ends or not.
        called: What it was called to do.

    Raises:
        TimeoutError: It was not done in time.
    """
    task = asyncio.create_task(_awaited(called))
    try:
        await asyncio.wait([task], timeout=seconds)
    except asyncio.CancelledError:
        if not task.cancelling():  # a loop that ends cancels both
            task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            raise
    if not task.done():
        await _end(task, seconds)
    return task.result()


async def _awaited(called: Awaitable[T]) -> T:
    return await called


async def _end(task: "asyncio.Task[object]", seconds: float) -> NoReturn:
    """Cancel what is late, and say where it was."""
    task.cancel()
    await asyncio.wait([task], timeout=LANDING)
    if not task.done():
        _left.add(task)
        task.add_done_callback(_gone)
        raise TimeoutError(f"not done after {seconds:g} seconds, and cannot be cancelled")
    error = _error(task)
    raise TimeoutError(f"not done after {seconds:g} seconds").with_traceback(error.__traceback__ if error else None)


def _gone(task: "asyncio.Task[object]") -> None:
    _left.discard(task)
    _error(task)


def _error(task: "asyncio.Task[object]") -> BaseException | None:
    """Return what a task ended with; a loop complains of errors that nobody asks for."""
    try:
        task.result()
    except BaseException as error:  # noqa: BLE001 - it is told, and not raised
        return error
    return None


Function: TypeAlias = Callable[..., Awaitable[object]]
Expected: TypeAlias = Mapping[str, Any] | None
Expect: TypeAlias = Callable[[Notification], Expected | Awaitable[Expected]]
"""Says what a notification must tell, by dotted paths into what is trusted of it; `None`: nobody expects it."""

ANY: Final = "*"


@frozen(kw_only=True)
class Handler:
    """A function that handles events of a kind.

    Attributes:
        name: Under which it is remembered that it is done with an event.
        kind: `payment`, `refund`, `subscription` or `*`.
        function: Gets the notification, and the transaction's connection where it has one.
        transaction: The caller's, around each call of the function.
        expect: In place of the receiver's.
        unverified: It takes what nobody can confirm.
    """

    name: str
    kind: str
    function: Function
    transaction: Transactions | None = None
    expect: Expect | None = None
    unverified: bool = False

    def takes(self, notification: Notification) -> bool:
        """Return whether a notification is for it."""
        believable = notification.verified or self.unverified or notification.kind in ASKABLE
        return self.kind in {ANY, notification.kind} and believable

    def meets(self, other: "Handler") -> bool:
        """Return whether another could not be told from it, where both have handled one event."""
        overlapping = ANY in {self.kind, other.kind} or self.kind == other.kind
        return self.name == other.name and (overlapping or self.function is not other.function)


def handler_of(
    function: Function,
    *,
    kind: str,
    name: str | None = None,
    transaction: Begin | None = None,
    expect: Expect | None = None,
    unverified: bool = False,
) -> Handler:
    """Return the handler that a function is.

    Raises:
        ConfigurationError: There is no such kind, it is no coroutine function or takes other arguments, or its name
            is none.
    """
    check_kind(kind, unverified=unverified)
    check_callable("transaction", transaction)
    if transaction is not None and not _takes(transaction, 0):
        raise ConfigurationError(
            f"transaction is called without arguments: {_name(transaction)} cannot be", field="transaction"
        )
    check_expect(expect)
    called = getattr(type(function), "__call__", None)  # noqa: B004 - of an object with such a method
    if not iscoroutinefunction(function) and not iscoroutinefunction(called):
        raise ConfigurationError(f"a handler must be an async def function, not {function!r}", field="handler")
    if not _takes(function, 1 if transaction is None else 2):
        raise ConfigurationError(
            "a handler takes a notification, and with transaction= a connection: "
            f"{_name(function)} cannot be called with {'that alone' if transaction is None else 'these two'}",
            field="handler",
        )
    return Handler(
        name=_name(function) if name is None else _checked(name),
        kind=kind,
        function=function,
        transaction=None if transaction is None else Transactions(transaction),
        expect=expect,
        unverified=unverified,
    )


def check_kind(kind: object, *, unverified: object) -> None:
    """Refuse a kind that there is not, and to take unconfirmed what can be confirmed.

    Raises:
        ConfigurationError: It says what is allowed.
    """
    if kind not in (*KINDS, ANY):
        raise ConfigurationError(f"there is no kind {kind!r}: allowed are {', '.join(KINDS)} and *", field="kind")
    if not isinstance(unverified, bool):
        raise ConfigurationError(f"unverified must be True or False, not {unverified!r}", field="unverified")
    if unverified and kind in ASKABLE:
        raise ConfigurationError(
            f"unverified: {PLURALS[str(kind)]} are confirmed by asking the service, where they are not signed. "
            "Leave it out; it is for subscriptions, which no query tells of",
            field="unverified",
        )


def check_callable(name: str, given: object) -> None:
    """Refuse what cannot be called.

    Raises:
        ConfigurationError: It names the argument.
    """
    if given is not None and not callable(given):
        raise ConfigurationError(f"{name} must be a function, not {given!r}", field=name)


def check_expect(expect: Expect | None) -> None:
    """Refuse what cannot say of a notification what is expected.

    Raises:
        ConfigurationError: It cannot be called with one.
    """
    check_callable("expect", expect)
    if expect is not None and not _takes(expect, 1):
        raise ConfigurationError(
            f"expect takes a notification: {_name(expect)} cannot be called with that alone", field="expect"
        )


def _takes(function: Callable[..., object], arguments: int) -> bool:
    """Return whether a function can be called with so many arguments; one that does not say which it takes can."""
    try:
        signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _name(function: Any) -> str:
    """Return a function's name, without its module: that is another where it is moved, or run as a program."""
    named = function
    while isinstance(named, partial):
        named = named.func
    named = named if hasattr(named, "__qualname__") else type(named)
    return str(named.__qualname__)


def _checked(name: object) -> str:
    if not isinstance(name, str) or name.split() != [name]:
        raise ConfigurationError(f"name must be a word, such as 'credit', not {name!r}", field="name")
    return name


def check_new(handler: Handler, others: Iterable[Handler]) -> None:
    """Refuse a handler that could not be told from another.

    Raises:
        ConfigurationError: Another of its name may get the same events.
    """
    if any(handler.meets(other) for other in others):
        raise ConfigurationError(
            f"two handlers are named {handler.name}: what one has done would count as done by the other. "
            "Give one another name: on(..., name=...)",
            field="name",
        )


def takers(handlers: Iterable[Handler], notification: Notification) -> tuple[Handler, ...] | Ending:
    """Return the handlers of a notification, or why there is none."""
    given = tuple(handlers)
    if taking := tuple(handler for handler in given if handler.takes(notification)):
        return taking
    what = PLURALS.get(notification.kind or "", "events of an unknown kind")
    if any(evolve(handler, unverified=True).takes(notification) for handler in given):
        return parked(f"nothing can confirm {what} that are not signed; unverified=True takes them all the same")
    return parked(f"no handler for {what}")


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
