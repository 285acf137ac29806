"""Handlers, and the worker that confirms, compares and handles one claimed event."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from inspect import isawaitable, iscoroutinefunction, signature
from traceback import format_tb
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from attrs import evolve, frozen

from payasync.errors import ConfigurationError, InvalidArgumentError, describe_error
from payasync.middleware.observe import log
from payasync.notifications.handler_transaction import Begin, HandlerTransaction, hash_mark
from payasync.notifications.inbox import Claim, Inbox, InboxEvent
from payasync.notifications.notification import PLURALS, Notification, parse_event, with_facts
from payasync.notifications.sqlite_inbox import SqliteInbox
from payasync.notifications.transitions import (
    CONFIRMABLE,
    Confirmer,
    Transition,
    compare_expected,
    compare_merchant,
    hold_refund,
    hold_several,
    hold_two_kinds,
    limit_failures,
    limit_interruptions,
    longest_wait,
)
from payasync.profile.schema import KINDS
from payasync.session import Session
from payasync.settings import Pace
from payasync.transport.deadlines import running_task

if TYPE_CHECKING:
    from payasync.notifications.receiver import Limits

T = TypeVar("T")

CANCELLATION_SECONDS: Final = 1.0
"""The time in which a handler must end after it was cancelled."""
INTERRUPTED: Final = "interrupted by a shutdown"

logger: Final = logging.getLogger("payasync.notifications")

_uncancellable: Final[set["asyncio.Task[object]"]] = set()
"""Tasks that swallow their cancellation. They are held here, because a loop holds only weak references to tasks."""


async def run_within(seconds: float, called: Awaitable[T]) -> T:
    """Await a call of the user's code in a task of its own, and return its result.

    Args:
        seconds: The time limit. After it, the task is cancelled, and has failed even if it ends well.
        called: The call.

    Raises:
        TimeoutError: The call has not ended in time.
    """
    task = asyncio.create_task(_await(called))
    try:
        await asyncio.wait([task], timeout=seconds)
    except asyncio.CancelledError:
        if not task.cancelling():  # a loop that ends cancels both tasks
            task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            raise
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.wait([task], timeout=CANCELLATION_SECONDS)
    if not task.done():
        _uncancellable.add(task)
        task.add_done_callback(_discard)
        raise TimeoutError(f"not done after {seconds:g} seconds, and cannot be cancelled")
    error = _get_error(task)
    raise TimeoutError(f"not done after {seconds:g} seconds").with_traceback(error.__traceback__ if error else None)


async def _await(called: Awaitable[T]) -> T:
    return await called


def _discard(task: "asyncio.Task[object]") -> None:
    _uncancellable.discard(task)
    _get_error(task)


def _get_error(task: "asyncio.Task[object]") -> BaseException | None:
    """Return the error of a task. Otherwise the loop would log it as never retrieved."""
    try:
        task.result()
    except BaseException as error:  # noqa: BLE001 - it is returned, and not raised
        return error
    return None


Function: TypeAlias = Callable[..., Awaitable[object]]
Expected: TypeAlias = Mapping[str, Any] | None
Expect: TypeAlias = Callable[[Notification], Expected | Awaitable[Expected]]
"""Returns the values that a notification must have, by dotted paths into `trusted`; `None` if it is unexpected.

The paths have the service's names, such as `totalAmt`, and not those of arguments, such as `total_amt`.
"""

ANY: Final = "*"


@frozen(kw_only=True)
class Handler:
    """A function that handles events of a kind.

    Attributes:
        name: Identifies the handler in the inbox.
        kind: `payment`, `refund`, `subscription` or `*`.
        function: Gets the notification, and the connection if there is a transaction.
        transaction: Surrounds each call of the function.
        expect: Replaces the receiver's `expect`.
        unverified: Whether it also gets unsigned events that nothing can confirm.
    """

    name: str
    kind: str
    function: Function
    transaction: HandlerTransaction | None = None
    expect: Expect | None = None
    unverified: bool = False

    def accepts(self, notification: Notification) -> bool:
        """Return whether the handler gets a notification."""
        believable = notification.verified or self.unverified or notification.kind in CONFIRMABLE
        return self.kind in {ANY, notification.kind} and believable

    def done_name(self, notification: Notification) -> str:
        """Return the name to store when the handler is done. A hint may have another confirmed state at its retry."""
        return self.name if notification.confirmed is None else f"{self.name} {notification.dedup_key}"


def build_handler(
    function: Function,
    *,
    kind: str,
    name: str | None = None,
    transaction: Begin | None = None,
    expect: Expect | None = None,
    unverified: bool = False,
) -> Handler:
    """Return a handler that calls a function.

    Raises:
        ConfigurationError: As for `Receiver.on`.
    """
    if kind not in (*KINDS, ANY):
        raise ConfigurationError(f"there is no kind {kind!r}: allowed are {', '.join(KINDS)} and *", field="kind")
    if not isinstance(unverified, bool):
        raise ConfigurationError(f"unverified must be True or False, not {unverified!r}", field="unverified")
    if unverified and kind in CONFIRMABLE:
        why = f"unverified: {PLURALS[kind]} that are not signed are confirmed by a query"
        advice = "Leave unverified out: it is only for subscriptions, which no query confirms"
        raise ConfigurationError(f"{why}. {advice}", field="unverified")
    check_callable("transaction", transaction, 0, "is called without arguments", "be")
    check_expect(expect)
    called = getattr(type(function), "__call__", None)  # noqa: B004 - of an object with such a method
    if not iscoroutinefunction(function) and not iscoroutinefunction(called):
        raise ConfigurationError(f"a handler must be an async def function, not {function!r}", field="handler")
    if not _takes(function, 1 if transaction is None else 2):
        rule = "a handler takes a notification, and with transaction= a connection"
        wrong = f"cannot be called with {'that alone' if transaction is None else 'these two'}"
        raise ConfigurationError(f"{rule}: {_get_name(function)} {wrong}", field="handler")
    if name is not None and (not isinstance(name, str) or name.split() != [name]):
        raise ConfigurationError(f"name must be a word, such as 'credit', not {name!r}", field="name")
    return Handler(
        name=_get_name(function) if name is None else name,
        kind=kind,
        function=function,
        transaction=None if transaction is None else HandlerTransaction(transaction),
        expect=expect,
        unverified=unverified,
    )


def check_expect(expect: Expect | None) -> None:
    """Check that an `expect` function can be called with a notification.

    Raises:
        ConfigurationError: The function cannot be called so.
    """
    check_callable("expect", expect, 1, "takes a notification", "be called with that alone")


def check_callable(name: str, given: object, arguments: int, rule: str, wanted: str) -> None:
    """Check that a function of the user's can be called with a number of arguments.

    Raises:
        ConfigurationError: It cannot be called so.
    """
    if given is None:
        return
    if not callable(given):
        raise ConfigurationError(f"{name} must be a function, not {given!r}", field=name)
    if not _takes(given, arguments):
        raise ConfigurationError(f"{name} {rule}: {_get_name(given)} cannot {wanted}", field=name)


def _takes(function: Callable[..., object], arguments: int) -> bool:
    """Return whether a function can be called with so many arguments; `True` if it has no signature to look at."""
    try:
        signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _get_name(function: Any) -> str:
    """Return a function's name without its module, which changes if the function is moved or run as a program."""
    while isinstance(function, partial):
        function = function.func
    return str((function if hasattr(function, "__qualname__") else type(function)).__qualname__)


def check_distinct(handler: Handler, others: Iterable[Handler]) -> None:
    """Check that a handler has a name of its own among those that may get the same events.

    Raises:
        ConfigurationError: Another handler has the same name.
    """
    for other in others:
        overlapping = ANY in {handler.kind, other.kind} or handler.kind == other.kind
        if handler.name == other.name and (overlapping or handler.function is not other.function):
            why = "an event that one has handled would count as handled by the other"
            advice = "Give one of them another name: on(..., name=...)"
            raise ConfigurationError(f"two handlers are named {handler.name}: {why}. {advice}", field="name")


def select_handlers(handlers: Sequence[Handler], notification: Notification) -> tuple[Handler, ...] | Transition:
    """Return the handlers of a notification, or a transition with the reason why it has no handler."""
    if selected := tuple(handler for handler in handlers if handler.accepts(notification)):
        return selected
    what = PLURALS.get(notification.kind or "", "events of an unknown kind")
    if any(evolve(handler, unverified=True).accepts(notification) for handler in handlers):
        reason = f"nothing can confirm {what} that are not signed; unverified=True accepts them all the same"
        return Transition("parked", reason)
    return Transition("parked", f"no handler for {what}")


@frozen(kw_only=True)
class Worker:
    """Handles claimed events, and stores their next states.

    Attributes:
        inbox: Stores them.
        merchant_id: The merchant that an event must be for, if it names one.
        session: Sends queries.
        handlers: The list of the receiver, which may grow.
        expect: The receiver's `expect`.
        limits: How often an event may fail, and how long a handler may take.
        pace: Clock and jitter. The clock returns seconds since 1970.
        confirmer: Confirms unsigned events.
    """

    inbox: Inbox
    merchant_id: str
    session: Session | None
    handlers: Sequence[Handler]
    expect: Expect | None
    limits: "Limits"
    pace: Pace
    confirmer: Confirmer

    async def handle(self, claim: Claim) -> Transition:
        """Handle a claimed event, and return its next state, which `store` stores."""
        event = claim.event
        try:
            if stopped := limit_interruptions(event.attempts, event.failures):
                return stopped
            return limit_failures(await self._dispatch(claim), event.failures + 1, self.limits.attempts)
        except asyncio.CancelledError:
            await self.inbox.finish(claim, "pending", INTERRUPTED)
            raise

    async def store(self, claim: Claim, transition: Transition) -> None:
        """Store the next state of an event. If the lease is lost by then, nothing is stored."""
        event, wait = claim.event, transition.wait
        if transition.state == "pending" and wait is None:
            wait = self.pace.jitter(longest_wait(event.failures + 1))
        try:
            finished = await self._store_end(claim, transition, wait)
        except asyncio.CancelledError:
            await self._store_end(claim, transition, wait)  # it does nothing if the first one was stored
            raise
        if finished and transition.state not in {"pending", "done"}:
            self._log_stop(event, transition)

    async def _store_end(self, claim: Claim, transition: Transition, wait: float | None) -> bool:
        """Store the mark of the last handler before the next state; return whether the lease was still held."""
        only_waits = transition.wait is not None
        finish = partial(self.inbox.finish, claim, transition.state, transition.reason, wait, failed=not only_waits)
        if not transition.handler:
            return await finish()
        mark = self.inbox.handled(claim, transition.handler)
        if isinstance(self.inbox, SqliteInbox):  # it runs calls in their order, in one commit if possible
            return (await asyncio.gather(mark, finish()))[1]
        await mark
        return await finish()

    @staticmethod
    def _log_stop(event: InboxEvent, transition: Transition) -> None:
        """Log that an event is dead, parked or held. The reason is not logged, because it may quote the event."""
        words = "event %(event_id)s (%(kind)s) is %(state)s"
        if transition.path:
            words += ", because of %(field)s"
        log(
            logger,
            logging.WARNING,
            "notification.stopped",
            f"{words}: receiver.events() says why",
            event_id=event.id,
            kind=event.kind,
            state=transition.state,
            field=transition.path,
        )

    async def _dispatch(self, claim: Claim) -> Transition:
        """Handle an event, and return its next state."""
        event, profile = claim.event, self.confirmer.profile
        try:
            read = parse_event(event, profile, event.kind)
        except InvalidArgumentError as error:
            return Transition("dead", describe_error(error))
        notification = with_facts(
            read, id=event.id, attempt=event.attempts, dedup_key=event.key, weak=event.weak, _session=self.session
        )
        for hold in (hold_several, hold_two_kinds, hold_refund):
            if held := hold(notification, profile):
                return held
        handlers = select_handlers(self.handlers, notification)
        if isinstance(handlers, Transition):
            return handlers
        if not notification.verified and notification.kind in CONFIRMABLE:
            age = self.pace.clock() - notification.received_at.timestamp()
            confirmed = await self.confirmer.confirm(notification, claim, age)
            if isinstance(confirmed, Transition):
                return confirmed
            notification = confirmed
        remaining = [handler for handler in handlers if handler.done_name(notification) not in event.handled]
        held = await self._find_contradiction(remaining, notification)
        return held or await self._call(remaining, notification, claim)

    async def _find_contradiction(self, handlers: Iterable[Handler], notification: Notification) -> Transition | None:
        """Return a transition if a notification contradicts an expectation, or names another merchant."""
        if held := compare_merchant(notification, self.merchant_id, self.confirmer.profile):
            return held
        expectations = (self.expect if handler.expect is None else handler.expect for handler in handlers)
        for expect in {id(each): each for each in expectations}.values():  # by id: they may be unhashable, or empty
            if expect is not None and (unexpected := await self._compare(expect, notification)):
                return unexpected
        return None

    async def _compare(self, expect: Expect, notification: Notification) -> Transition | None:
        try:
            expected: object = expect(notification)
            if isawaitable(expected):
                expected = await run_within(self.limits.handler_timeout, expected)
            return compare_expected(notification, expected, self.confirmer.profile)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the user's code
            return Transition("pending", _note_failure("expect", error, notification))

    async def _call(self, handlers: Sequence[Handler], notification: Notification, claim: Claim) -> Transition:
        """Call each handler, also after one that fails."""
        failures = list[str]()
        for number, handler in enumerate(handlers, start=1):
            try:
                await self._run(handler, notification)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the user's code
                failures.append(_note_failure(handler.name, error, notification))
                continue
            name = handler.done_name(notification)
            if number == len(handlers) and not failures:
                return Transition("done", handler=name)
            if not await self.inbox.handled(claim, name):
                break
        return Transition("pending", "; ".join(failures)) if failures else Transition("done")

    async def _run(self, handler: Handler, notification: Notification) -> None:
        if handler.transaction is None:
            await run_within(self.limits.handler_timeout, handler.function(notification))
            return
        mark = hash_mark(handler.name, self.merchant_id, notification.dedup_key)
        now = datetime.fromtimestamp(self.pace.clock(), UTC)
        once = handler.transaction.run_once(mark, now, partial(handler.function, notification))
        if not await run_within(self.limits.handler_timeout, once):
            words = "%(handler)s was not called for event %(event_id)s: its mark is already stored"
            log(logger, logging.INFO, "handler.not_called", words, handler=handler.name, event_id=notification.id)


def _note_failure(who: str, error: BaseException, notification: Notification) -> str:
    """Log where the user's code failed, and return the reason. The log omits the error's text, which may be private.

    Raises:
        CancelledError: The worker's own task was cancelled, and not only a task of the user's.
    """
    if isinstance(error, asyncio.CancelledError) and running_task().cancelling():
        raise error
    where = "".join(format_tb(error.__traceback__)).rstrip()
    log(
        logger,
        logging.WARNING,
        "handler.failed",
        "%(handler)s failed with event %(event_id)s, attempt %(attempt)s: %(error_type)s\n%(where)s",
        handler=who,
        event_id=notification.id,
        attempt=notification.attempt,
        error_type=type(error).__name__,
        where=where,
    )
    return f"{who}: {describe_error(error)}"
