"""Handlers, and the worker that confirms, compares and handles one leased event."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import isasyncgenfunction, isawaitable, iscoroutinefunction, isgeneratorfunction, signature
from logging import INFO, WARNING, getLogger
from threading import enumerate as living_threads
from traceback import format_tb
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from attrs import evolve, frozen

from payasync.clocks import Pace, running_task, utc_moment
from payasync.errors import ConfigurationError, InvalidArgumentError, StorageError, describe_error
from payasync.evidence.comparison import named_merchants
from payasync.middleware.observe import log
from payasync.notifications.handler_transaction import Begin, HandlerTransaction, hash_mark
from payasync.notifications.inbox import Claim, Inbox, InboxEvent
from payasync.notifications.notification import (
    CONFIRMED,
    HELD,
    HINT,
    OF_ANOTHER,
    PLURALS,
    SIGNED,
    Notification,
    parse_event,
)
from payasync.notifications.sends import Name
from payasync.notifications.transitions import (
    CONFIRMABLE,
    IN_FLIGHT_PAUSE,
    SAME,
    Confirmer,
    Transition,
    compare_expected,
    hint_key,
    hold_another,
    hold_unclear,
    limit_failures,
    limit_interruptions,
    longest_wait,
)
from payasync.notifications.verification import Verification
from payasync.profile.schema import KINDS
from payasync.profile.signed_fields import key_owner
from payasync.session import Session
from payasync.strict_json import NotYet
from payasync.transport.threads import call_in_thread

if sys.version_info >= (3, 14):
    from annotationlib import Format

    # Annotations are not evaluated: type checkers alone may know a name in them.
    signature = partial(signature, annotation_format=Format.STRING)

if TYPE_CHECKING:
    from payasync.notifications.receiver import Limits

T = TypeVar("T")

CANCELLATION_SECONDS: Final = 1.0
"""The time in which a handler should end after it was cancelled."""
INTERRUPTED: Final = "interrupted by a shutdown"

logger: Final = getLogger("payasync.notifications")


class StillRunningError(asyncio.CancelledError):
    """A shutdown waits no longer for a thread, which goes on: its event is left to the lease."""


async def run_in_thread(name: str, seconds: float, work: Callable[[], T], warn: Callable[[], None]) -> T:
    """Call a plain function of the user's in a thread of its own, and return its result, however long it takes.

    Args:
        name: The thread's.
        seconds: The time after which a warning is logged.
        work: Calls the function.
        warn: Logs the warning.

    Raises:
        StillRunningError: The caller was cancelled before the function has ended.
    """
    called = call_in_thread(name, work)
    try:
        await _wait(called, seconds, warn)
    except asyncio.CancelledError:
        if not called.done():
            raise StillRunningError from None
    return called.result().result()


async def run_within(seconds: float, called: Awaitable[T], warn: Callable[[], None]) -> T:
    """Await a call of the user's code in a task of its own, and return its result.

    Args:
        seconds: The time limit. After it, the task is cancelled, and has failed even if it ends well.
        called: The call.
        warn: Logs that a cancelled task does not end. It is awaited all the same: otherwise it could run twice at once.

    Raises:
        TimeoutError: The call has not ended in time.
    """
    loop = asyncio.get_running_loop()
    ended = loop.create_future()  # `asyncio.wait` would take a turn of the loop more, and turns are long under load
    task = asyncio.create_task(_await(called, ended))
    task.add_done_callback(partial(_end, ended))  # for one that is cancelled before it begins
    timer = loop.call_later(seconds, _end, ended)
    is_late = False
    try:
        await ended
        if is_late := not task.done():
            task.cancel()
            await _wait(task, CANCELLATION_SECONDS, warn)
    except asyncio.CancelledError:
        if not task.cancelling():  # a loop that ends cancels both tasks
            task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            raise
    finally:
        timer.cancel()
    if not is_late:
        return task.result()
    late = TimeoutError(f"not done after {seconds:g} seconds")
    try:
        task.result()
    except BaseException as error:  # noqa: BLE001 - where it was matters, for the log
        late = late.with_traceback(error.__traceback__)
    raise late


async def _await(called: Awaitable[T], ended: "asyncio.Future[None]") -> T:
    try:
        return await called
    finally:
        _end(ended)


def _end(ended: "asyncio.Future[None]", _: object = None) -> None:
    if not (ended.done() or ended.get_loop().is_closed()):
        ended.set_result(None)


async def _wait(called: "asyncio.Future[Any]", seconds: float, warn: Callable[[], None]) -> None:
    """Wait until something has ended. Warn if that takes longer than so many seconds."""
    await asyncio.wait([called], timeout=seconds)
    if not called.done():
        warn()
        await asyncio.wait([called])


Function: TypeAlias = Callable[..., object]
Expected: TypeAlias = Mapping[str, Any] | NotYet | None
"""What `expect` returns: the values, `NOT_YET` to be asked again later, or `None` if the notification is unexpected."""
Expect: TypeAlias = Callable[[Notification], Expected | Awaitable[Expected]]
"""Returns the values that a notification must have, by dotted paths into `trusted`.

The paths have the service's names, such as `totalAmt`, and not those of arguments, such as `total_amt`.
"""

IsHeld: TypeAlias = Callable[[], Awaitable[bool]]
"""Returns whether a lease still holds, and extends it if that is not certain."""

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
        plain: Whether it is called in a thread, because it is not `async def`.
    """

    name: str
    kind: str
    function: Function
    plain: bool
    transaction: HandlerTransaction | None = None
    expect: Expect | None = None
    unverified: bool = False

    def accepts(self, notification: Notification) -> bool:
        """Return whether the handler gets a notification."""
        believable = notification.verified or self.unverified or notification.kind in CONFIRMABLE
        return self.kind in {ANY, notification.kind} and believable

    def done_name(self, notification: Notification) -> str:
        """Return the name to store when the handler is done. A retry may be about another state, or another send."""
        key = notification.dedup_key
        has_sends = key.rpartition("#")[2].isdecimal()
        return f"{self.name} {key}" if has_sends or key.startswith(CONFIRMED) else self.name


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
    unwrapped = _unwrap(function)
    called = (unwrapped, getattr(type(unwrapped), "__call__", None))  # noqa: B004 - of an object with such a method
    generates = any(isgeneratorfunction(each) or isasyncgenfunction(each) for each in called)
    if not callable(unwrapped) or isinstance(unwrapped, type) or generates:
        rule = "a handler must be a function without yield, plain or async def"
        raise ConfigurationError(f"{rule}, not {function!r}", field="handler")
    plain = not any(map(iscoroutinefunction, called))
    if not _takes(function, 1 if transaction is None else 2):
        rule = "a handler takes a notification, and with transaction= a connection"
        wrong = f"cannot be called with {'that alone' if transaction is None else 'these two'}"
        raise ConfigurationError(f"{rule}: {_get_name(function)} {wrong}", field="handler")
    name = _get_name(function) if name is None else name
    if not isinstance(name, str) or name.split() != [name]:
        raise ConfigurationError(f"name must be a word, such as 'credit', not {name!r}", field="name")
    return Handler(
        name=name,
        kind=kind,
        function=function,
        plain=plain,
        transaction=None if transaction is None else HandlerTransaction(transaction, plain=plain),
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
    except (TypeError, ValueError) as error:
        return isinstance(error, ValueError)
    return True


def _get_name(function: Any) -> str:
    """Return a function's name without its module, which changes if the function is moved or run as a program."""
    function = _unwrap(function)
    return str((function if hasattr(function, "__qualname__") else type(function)).__qualname__)


def _unwrap(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    return function


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


@frozen
class Worker:
    """Handles leased events, and stores their next states.

    Attributes:
        inbox: Stores them.
        merchant_id: The merchant that an event must be for, if it names one.
        verification: Says whether a signature may be that of another merchant.
        session: Sends queries.
        handlers: The list of the receiver, which may grow.
        expect: The receiver's `expect`.
        limits: How often an event may fail, and how long a handler may take.
        pace: Clock and jitter. The clock returns seconds since 1970.
        confirmer: Confirms unsigned events, and those that may be of an earlier send.
    """

    inbox: Inbox
    merchant_id: str
    verification: Verification
    session: Session | None
    handlers: Sequence[Handler]
    expect: Expect | None
    limits: "Limits"
    pace: Pace
    confirmer: Confirmer

    async def handle(self, claim: Claim, is_held: IsHeld) -> Transition | None:
        """Handle a leased event, and return its next state, which `store` stores; `None` if the lease is lost."""
        event = claim.event
        try:
            if stopped := limit_interruptions(event.attempts, event.failures):
                return stopped
            transition = await self._dispatch(claim, is_held) if await is_held() else None
            return transition and limit_failures(transition, event.failures + 1, self.limits.attempts)
        except StillRunningError:
            raise
        except asyncio.CancelledError:
            await self.inbox.finish(claim, "pending", INTERRUPTED)
            raise

    async def store(self, claim: Claim, transition: Transition) -> bool:
        """Store the next state of an event; return `False`, and store nothing, if the lease is lost by then."""
        event, state, wait = claim.event, transition.state, transition.wait
        if state == "pending" and wait is None:
            wait = self.pace.jitter(longest_wait(event.failures + 1))
        failed, handler = transition.wait is None, transition.handler
        finish = partial(self.inbox.finish, claim, state, transition.reason, wait, failed=failed, handler=handler)
        try:
            finished = await finish()
        except asyncio.CancelledError:
            await finish()  # it does nothing if the first one was stored
            raise
        if finished and state not in {"pending", "done"}:  # the reason is not logged, because it may quote the event
            because = ", because of %(field)s" if transition.path else ""
            text = f"event %(event_id)s (%(kind)s) is %(state)s{because}: receiver.events() says why"
            number, kind, path = event.id, event.kind, transition.path
            log(logger, WARNING, "notification.stopped", text, event_id=number, kind=kind, state=state, field=path)
        return finished

    async def _dispatch(self, claim: Claim, is_held: IsHeld) -> Transition | None:
        """Handle an event, and return its next state."""
        try:
            notification = await self._read(claim)
            if isinstance(notification, Transition):
                return notification
            handlers = select_handlers(self.handlers, notification)
            if isinstance(handlers, Transition):
                return handlers
            if notification.kind in CONFIRMABLE:
                confirmed = await self.confirmer.confirm(notification, claim)
                if isinstance(confirmed, Transition):
                    return confirmed
                notification = confirmed
            before = claim.event
            # A fact that holds the number of sends may be another one since, and another event of it may be leased.
            changed = notification.kind in CONFIRMABLE and "#" in (before.fact or "#")
            if changed or notification.confirmed is not None or notification.dedup_key != before.key:
                claim = await self.inbox.read(claim)
            remaining = await self._find_remaining(handlers, notification, before, claim)
        except StorageError as error:
            return Transition("pending", describe_error(error))
        if isinstance(remaining, Transition):
            return remaining
        return await self._call(remaining, notification, claim, is_held)

    async def _find_remaining(
        self, handlers: Sequence[Handler], notification: Notification, before: InboxEvent, claim: Claim
    ) -> Sequence[Handler] | Transition:
        """Return the handlers that have not got the event's fact, or the next state of the event."""
        is_hint = notification.confirmed is not None
        waiting = [each for each in handlers if each.done_name(notification) not in claim.event.handled]
        known = [each for each in waiting if _is_known(each, before, claim, is_hint=is_hint)]
        if None in claim.known:
            # The waits differ, so that the two do not meet again.
            return Transition("pending", "another event about the same is handled", IN_FLIGHT_PAUSE if is_hint else 1.0)
        remaining = [each for each in waiting if each not in known] if is_hint and known else waiting
        if held := await self._find_contradiction(remaining, notification):
            return held
        if not remaining and known:
            await self.confirmer.release(claim, before, notification, ended=True)
            return Transition("done", SAME)
        record = partial(self.inbox.handled, claim, as_copy=not is_hint)
        recorded = {each.name: await record(each.done_name(notification)) for each in known}
        return [each for each in waiting if recorded.get(each.name) is None]  # `False`: the lease is lost

    async def _read(self, claim: Claim) -> Notification | Transition:
        """Return the notification of an event, or a transition with the reason why it is held or dead."""
        event, profile = claim.event, self.confirmer.profile
        try:
            read = parse_event(event, profile, event.kind, self.session)
        except InvalidArgumentError as error:
            return Transition("held" if event.key.startswith(HELD) else "dead", str(error))
        # The profile or the credentials may have been corrected since it came.
        if event.key.startswith(OF_ANOTHER) and (held := hold_another(read, self.merchant_id, profile)):
            return held
        prefixed = event.key.startswith((HELD, OF_ANOTHER, SIGNED))
        signed = prefixed or event.verified
        # A key that seems to be no longer shared proves no more than before, unless the profile says whose it is.
        was_hint = event.key.startswith((SIGNED, HELD)) and not event.verified
        hint = self.verification.shared or (was_hint and key_owner(profile) != ("merchant", True))
        verified = signed and (not hint or any(named_merchants(profile, read.document)))
        asked = verified and event.key.startswith(CONFIRMED)  # while its key was shared
        # A key of no kind, until the profile knows the name of the event.
        unknown = read.kind != event.kind and event.key.startswith(("webhook:", "weak:", f"{HINT}:"))
        renamed = prefixed or asked or unknown
        factless = verified and event.fact is None and read.kind in CONFIRMABLE and read.state is not None
        if renamed or factless:  # its key and its fact are those that it would have if it came now
            name = await self.confirmer.sends.name(read) if verified else Name(hint_key(read, signed=signed))
            key, fact = name.key if renamed else event.key, name.fact
            if (key != event.key or factless) and not await self.inbox.own(claim, key, fact=fact, verified=verified):
                is_copy = await self.inbox.is_copy(claim, key)
                return Transition("superseded" if is_copy else "held", "another event has its key")
        key, weak = (read.dedup_key, read.weak) if renamed else (event.key, event.weak)
        if (key, weak, verified) != (read.dedup_key, read.weak, read.verified):
            read = evolve(read, dedup_key=key, weak=weak, verified=verified)
        return hold_unclear(read, profile, signed=signed) or read

    async def _find_contradiction(self, handlers: Iterable[Handler], notification: Notification) -> Transition | None:
        """Return a transition if a notification contradicts an expectation, or names another merchant."""
        if held := hold_another(notification, self.merchant_id, self.confirmer.profile):
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
                warn = partial(_warn, "expect", notification)
                expected = await run_within(self.limits.handler_timeout, expected, warn)
            return compare_expected(notification, expected, self.confirmer.profile)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the user's code
            return Transition("pending", _note_failure("expect", error, notification))

    async def _call(
        self, handlers: Sequence[Handler], notification: Notification, claim: Claim, is_held: IsHeld
    ) -> Transition | None:
        """Call each handler, also after one that fails, but none without a lease."""
        failures, event = list[str](), claim.event.fact or notification.dedup_key
        for number, handler in enumerate(handlers, start=1):
            thread = ""
            if handler.plain:
                thread = f"payasync-handler {self.inbox!r} {self.merchant_id} {handler.name} {event}"
                await self._await_earlier(thread, handler, notification)
            if not await is_held():
                return None
            try:
                await self._run(handler, notification, claim, thread)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the user's code
                failures.append(_note_failure(handler.name, error, notification))
                continue
            name = handler.done_name(notification)
            if number == len(handlers) and not failures:
                return Transition("done", handler=name)
            if not await self.inbox.handled(claim, name):
                return Transition("pending", "; ".join(failures), wait=0.0, handler=name)  # for the next lease
        return Transition("pending", "; ".join(failures)) if failures else Transition("done")

    async def _run(self, handler: Handler, notification: Notification, claim: Claim, thread: str) -> None:
        call: Callable[..., Any] = partial(handler.function, notification)
        if handler.transaction is not None:
            confirmed = notification.confirmed is not None  # the service may say its fact in other words next time
            mark = hash_mark(handler.name, self.merchant_id, (confirmed and claim.event.fact) or notification.dedup_key)
            call = partial(handler.transaction.call, mark, utc_moment(self.pace.clock()), call)
        seconds, warn = self.limits.handler_timeout, partial(_warn, handler.name, notification)
        result = await run_in_thread(thread, seconds, call, warn) if handler.plain else call()
        if isawaitable(result):  # also of a plain function that wraps an `async def` one
            result = await run_within(seconds, result, warn)
        if handler.transaction is not None and not result:
            words = "%(handler)s was not called for event %(event_id)s: its mark is already stored"
            log(logger, INFO, "handler.not_called", words, handler=handler.name, event_id=notification.id)

    async def _await_earlier(self, thread: str, handler: Handler, notification: Notification) -> None:
        """Wait for the thread of a call for the same event whose receiver was closed, or whose loop has ended."""
        warn = partial(_warn, handler.name, notification)
        for earlier in [each for each in living_threads() if each.name == thread]:
            await run_in_thread("payasync-handler", self.limits.handler_timeout, earlier.join, warn)


def _is_known(handler: Handler, before: InboxEvent, claim: Claim, *, is_hint: bool) -> bool:
    """Return whether a handler has got the event's fact from another event.

    Of several verified events of one fact, only the first one is the same as what a query confirmed before.

    Args:
        handler: The handler.
        before: The event, as it was when it was leased.
        claim: The lease.
        is_hint: A query has confirmed the event.
    """
    known = [claim.known[name] for name in (handler.name, "") if name in claim.known]  # the name may be a new one
    if not is_hint:
        return known != [] and not any(known)
    # The handlers of an event of an earlier version are known by their names alone, if it was verified then.
    return known != [] or (before.verified and before.fact is None and handler.name in before.handled)


def _warn(who: str, notification: Notification) -> None:
    """Log that a call of the user's code takes long, and cannot be cancelled."""
    words = "%(handler)s has not ended for event %(event_id)s within its time limit. payasync waits for its end"
    log(logger, WARNING, "handler.not_ended", words, handler=who, event_id=notification.id)


def _note_failure(who: str, error: BaseException, notification: Notification) -> str:
    """Log where the user's code failed, and return the reason. The log omits the error's text, which may be private.

    Raises:
        CancelledError: The worker's own task was cancelled, and not only a task of the user's.
    """
    if isinstance(error, asyncio.CancelledError) and running_task().cancelling():
        raise error
    text = "%(handler)s failed with event %(event_id)s, attempt %(attempt)s: %(error_type)s\n%(where)s"
    where, event, nth = "".join(format_tb(error.__traceback__)).rstrip(), notification.id, notification.attempt
    kind = type(error).__name__
    log(logger, WARNING, "handler.failed", text, handler=who, event_id=event, attempt=nth, error_type=kind, where=where)
    return f"{who}: {describe_error(error)}"
