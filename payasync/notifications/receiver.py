"""The receiver: it verifies notifications, stores them, acknowledges them, and then calls handlers."""

import asyncio
import logging
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Self, TypeVar

from attrs import field, frozen

from payasync.clocks import Pace, wall_time
from payasync.credentials import Credentials
from payasync.errors import InvalidArgumentError, SessionClosedError, frameless_async
from payasync.middleware.observe import log
from payasync.notifications.dispatcher import Dispatcher
from payasync.notifications.handler_transaction import Begin, check_all
from payasync.notifications.inbox import REPLAYABLE, Inbox, InboxEvent, StateName, state_of_name
from payasync.notifications.ingest import MAX_WAITING, Answer, Ingest, Refusal, build_received, logger
from payasync.notifications.notification import HINT, MAX_BYTES, Headers, Raw, parse_event
from payasync.notifications.sends import Sends
from payasync.notifications.transitions import ATTEMPTS, Confirmer, QueryLimiter, draw_upper_half, hold_refund
from payasync.notifications.verification import Verifier, verification_of
from payasync.notifications.web_adapters import AsgiApplication, answer_aiohttp
from payasync.notifications.worker import (
    Expect,
    Function,
    Handler,
    Worker,
    build_handler,
    check_callable,
    check_distinct,
    check_expect,
)
from payasync.profile.profile import Profile
from payasync.profile.schema import KINDS, Kind
from payasync.profile.signed_fields import key_owner
from payasync.session import Session
from payasync.settings import check_function, check_types, invalid_setting, is_number, must_be
from payasync.wire.validators import invalid_argument

if TYPE_CHECKING:
    from aiohttp import web

_TYPES: Final = {
    "profile": "a payasync.Profile, such as Profile.from_file(path) gives",
    "credentials": "payasync.Credentials",
    "inbox": "an Inbox, such as SqliteInbox(path)",
    "session": "a payasync.Session",
}


def _choose_service(
    session: Session | None, profile: Profile | None, credentials: Credentials | None
) -> tuple[Profile, Credentials]:
    """Return profile and credentials, by default those of the session.

    Raises:
        ConfigurationError: One is missing, or has another type, or they name two merchants.
    """
    if session is not None:
        _check_type("session", session, right=isinstance(session, Session))
        profile = session.profile if profile is None else profile
        credentials = session.credentials if credentials is None else credentials
    if profile is None or credentials is None:
        name = "credentials" if profile else "profile"
        raise invalid_setting(name, "is missing: give Receiver(session=...), which has both, or give both of them")
    _check_type("profile", profile, right=isinstance(profile, Profile))
    _check_type("credentials", credentials, right=isinstance(credentials, Credentials))
    if session is not None and session.merchant_id != credentials.merchant_id:
        raise invalid_setting("credentials", "name another merchant than the session: give both of one merchant")
    return profile, credentials


def _check_type(name: str, value: object, *, right: bool) -> None:
    if not right:
        what = f"the class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"
        raise invalid_setting(name, f"must be {_TYPES[name]}, not {what}")


_LONGEST: Final = timedelta(days=36_500)
_a_count: Final = must_be("an integer of 1 or more", lambda value: type(value) is int and 1 <= value <= sys.maxsize)
_seconds: Final = must_be(
    "a number of seconds above 0", lambda value: is_number(value) and 0 < value <= _LONGEST.total_seconds()
)
_a_timedelta: Final = must_be(
    "a timedelta above 0, such as timedelta(days=30)",
    lambda value: isinstance(value, timedelta) and timedelta(0) < value <= _LONGEST,
)


@frozen(kw_only=True, field_transformer=check_types(""))
class Limits:
    """The limits of a receiver, as `Receiver` describes them.

    Raises:
        ConfigurationError: A value has the wrong type, or is out of range.
    """

    max_bytes: int = field(validator=_a_count)
    max_waiting: int = field(validator=_a_count)
    attempts: int = field(validator=_a_count)
    concurrency: int = field(validator=_a_count)
    handler_timeout: float = field(validator=_seconds)
    lease: float = field(validator=_seconds)
    retention: timedelta = field(validator=_a_timedelta)


F = TypeVar("F", bound=Function)

DEFAULT_PACE: Final = Pace(clock=wall_time, jitter=draw_upper_half)
"""Its clock returns seconds since 1970, as the inbox's does."""
SHARED: Final = (
    "the key that verifies notifications is taken for that of all merchants: a notification whose signed part does not "
    'name yours is only a hint. If the key is yours alone, set signature.service_key = "merchant"; else "shared"'
)
REPLAY_PAGE: Final = 100
"""Events that are read at a time; each may be as long as a body."""


class Receiver:
    """Receives notifications, and has each event handled at least once (docs/reference/service.md#notifications).

    A notification is stored on the disk before it is acknowledged. This process or the next one dispatches it from
    there. An unsigned notification is confirmed with the service before a handler gets it.

    Register handlers first, then use the receiver with `async with`, or call `aclose()` at the end. It begins to
    dispatch when it is entered, or when it receives something.

    Args:
        inbox: Stores notifications, such as `SqliteInbox("inbox.db")`. The receiver closes it.
        session: Queries the service; required if notifications are not signed. Its journal, if it has one, shows which
            events may be about an earlier send of a number. The receiver does not close the session.
        profile: Says how notifications are verified and acknowledged. Default: the session's.
        credentials: Hold the keys that verify. Events that name another merchant are held. Default: the
            session's.
        expect: A plain or `async def` function that returns the values that a notification must have. The keys are
            dotted paths into `notification.trusted`, with the service's names: `{"totalAmt": 450, "currency": "CAD"}`.
            `None` means that the event is unexpected. An unexpected event, or one that differs, is held.
            `payasync.NOT_YET` means that you do not know yet: it counts as a failure, and you are asked again later.
        on_refused: A plain function that must not block, such as `OpenTelemetry.on_refused`. It gets the reason of each
            refusal: `signature`, `invalid` or `too_large`.
        verifier: Verifies in place of the profile. It gets body and headers, and must return `True`.
        attempts: How often an event may fail, with growing waits, before it is dead. Default: 100, about three days.
        concurrency: The most events that are handled concurrently.
        handler_timeout: Seconds after which an `async def` handler is cancelled, and has failed. A plain function
            cannot be cancelled: a warning is logged, and the receiver waits for its end.
        lease: Seconds for which an event is leased. The lease is extended while its handlers run.
        max_bytes: The greatest length of a body, in bytes.
        max_waiting: The most notifications that wait for the disk; further ones get status 503. Hints get half of it.
        retention: How long finished events are stored to recognise duplicates. It must exceed the service's longest
            redelivery. Keys of events that were confirmed, or verified without a signed time, are never deleted.
            Verified events that did not succeed are stored until you replay them.
        pace: Clock, sleep and jitter, for tests. Its clock returns seconds since 1970.

    Attributes:
        asgi: An ASGI application: `app.mount("/notify", receiver.asgi)`. The last part of the path may name the kind,
            or use `partial(receiver.asgi, kind="payment")`. Served alone, it starts and stops with its server.

    Raises:
        NotConfiguredError: The profile does not say how notifications are verified or acknowledged.
        ConfigurationError: A setting is invalid or unsafe.
    """

    def __init__(
        self,
        *,
        inbox: Inbox,
        session: Session | None = None,
        profile: Profile | None = None,
        credentials: Credentials | None = None,
        expect: Expect | None = None,
        on_refused: Callable[[Refusal], object] | None = None,
        verifier: Verifier | None = None,
        attempts: int = ATTEMPTS,
        concurrency: int = 10,
        handler_timeout: float = 300.0,
        lease: float = 60.0,
        max_bytes: int = MAX_BYTES,
        max_waiting: int = MAX_WAITING,
        retention: timedelta = timedelta(days=30),
        pace: Pace = DEFAULT_PACE,
    ) -> None:
        self._limits: Final = Limits(
            max_bytes=max_bytes,
            max_waiting=max_waiting,
            attempts=attempts,
            concurrency=concurrency,
            handler_timeout=handler_timeout,
            lease=lease,
            retention=retention,
        )
        _check_type("inbox", inbox, right=hasattr(inbox, "claim") and not isinstance(inbox, type))
        profile, credentials = _choose_service(session, profile, credentials)
        verification = verification_of(profile, credentials, verifier)
        if session is None and not verification.proves:
            why = "is missing: the profile says that notifications are not signed, so each must be confirmed by a query"
            raise invalid_setting("session", f"{why}. Give Receiver(session=...)")
        check_expect(expect)
        if on_refused is not None:
            check_function("on_refused", on_refused)
        check_callable("on_refused", on_refused, 1, "takes a reason", "be called with that alone")
        self._inbox: Final = inbox
        self._verification: Final = verification
        self._pace: Final = pace
        self._handlers: Final[list[Handler]] = []
        merchant_id, journal = credentials.merchant_id, session.journal if session else None
        self._sends: Final = Sends(verification.profile, merchant_id, journal)
        limiter = QueryLimiter(pace.clock, max(concurrency // 2, 1))
        confirmer = Confirmer(inbox, verification.profile, limiter, self._sends, pace.clock)
        self._worker: Final = Worker(
            inbox, merchant_id, verification, session, self._handlers, expect, self._limits, pace, confirmer
        )
        self._current: Dispatcher | None = None
        self._ingest: Final = Ingest(
            verification,
            inbox,
            clock=pace.clock,
            on_stored=lambda: self._dispatcher().wake(),
            on_refused=on_refused,
            max_bytes=max_bytes,
            max_waiting=max_waiting,
            sends=self._sends,
        )
        self.asgi: Final = AsgiApplication(self, max_bytes)
        verification.begin()  # last: nothing fails after it
        if verification.shared and not key_owner(profile)[1]:
            log(logger, logging.WARNING, "notification.key_assumed_shared", SHARED)

    def on(
        self,
        kind: str,
        *,
        name: str | None = None,
        transaction: Begin | None = None,
        expect: Expect | None = None,
        unverified: bool = False,
    ) -> Callable[[F], F]:
        """Register the decorated function as a handler: plain or `async def`, and takes the notification.

        A plain function is called in a thread of its own. It may block, and is not started again before it has ended.
        It may be called more than once for one event, if it fails or the process ends. With `transaction`, its effect
        is still committed only once.

        Args:
            kind: `payment`, `refund`, `subscription`, or `*` for all.
            name: Identifies the handler in the inbox. Default: the function's name, without its module. If you rename
                the function, pass its old name; otherwise it may handle old events again.
            transaction: Begins a transaction of your own. It returns a context manager, plain or async, that gives a
                connection. The handler gets the connection as its second argument, and its effect is committed
                together with a mark. The receiver checks first that the transaction commits, and rolls back on errors.
            expect: Replaces the receiver's `expect`.
            unverified: Whether it also gets unsigned subscription events, which nothing can confirm.

        Raises:
            ConfigurationError: The kind is unknown, or the function has a `yield` or takes other arguments. Or its
                name is invalid or used by another handler.
        """

        def register(function: F) -> F:
            handler = build_handler(
                function, kind=kind, name=name, transaction=transaction, expect=expect, unverified=unverified
            )
            check_distinct(handler, self._handlers)
            self._handlers.append(handler)
            return function

        return register

    @frameless_async
    async def receive(self, raw: Raw, headers: Headers, kind: str | None = None) -> Answer:
        """Receive a notification, and return the response to send. A notification is stored before it is acknowledged.

        Args:
            raw: The body's bytes, as they were received.
            headers: A mapping, or pairs; names in any case.
            kind: `payment`, `refund` or `subscription`, if the address at which it arrived says so.

        Raises:
            InvalidArgumentError: `raw` is not bytes.
        """
        return (await self._ingest.ingest(raw, headers, kind)).answer

    async def aiohttp_handler(self, request: "web.Request", kind: str | None = None) -> "web.StreamResponse":
        """Receive a notification from aiohttp: `router.add_post("/notify/{kind}", receiver.aiohttp_handler)`.

        Args:
            request: The aiohttp request.
            kind: Default: `{kind}` of the route, or else the last part of the path, if it names a kind.
        """
        return await answer_aiohttp(self.receive, request, kind=kind, max_bytes=self._limits.max_bytes)

    async def settle(self) -> None:
        """Wait until no event is due or being handled; events that are retried later may remain.

        Raises:
            StorageError: The inbox cannot be read.
            SessionClosedError: The receiver is closed.
        """
        await self._dispatcher().settle()

    async def events(self, state: StateName | None = None, *, limit: int = 100, after: int = 0) -> list[InboxEvent]:
        """List events, oldest first.

        Args:
            state: `pending`, `leased`, `done`, `dead`, `parked`, `held` or `superseded`. Default: all.
            limit: The most events that are returned.
            after: Return only events with a higher number.
        """
        return await self._inbox.events(state, limit=limit, after=after)

    async def replay(self, event_id: int, *, kind: Kind | None = None) -> bool:
        """Dispatch a dead, parked or held event again.

        Handlers that have handled it are not called again.

        Args:
            event_id: The event's number, from `events()`.
            kind: `payment`, `refund` or `subscription`, for an event without a kind. `refund` also for an event that
                came as a payment, but names a refund.

        Returns:
            Whether the event is due again. It can be held again: look at its state later. `False` if it is done, in
            progress, or does not exist, if another event of its key is in progress, or if it came again with that kind.

        Raises:
            InvalidArgumentError: The number or the kind is invalid, or the event has another kind.
            StorageError: The inbox or the journal cannot be read or written.
        """
        if not isinstance(event_id, int):
            rule = "the number of an event, from events()"
            raise InvalidArgumentError(f"event_id must be {rule}, not {event_id!r}", field="event_id", rule=rule)
        replayed = await (self._inbox.replay(event_id) if kind is None else self._replay_as(event_id, kind))
        self._wake_current()
        return replayed

    async def _replay_as(self, event_id: int, kind: Kind) -> bool:
        """Replay an event with another kind. Its key becomes the one that a redelivery would have."""
        if kind not in KINDS:
            raise invalid_argument("kind", f"one of {', '.join(KINDS)}", kind)
        found = await self._inbox.events(limit=1, after=max(event_id - 1, 0))
        if not found or found[0].id != event_id or not found[0].raw:  # of an old event, only the key may be left
            return False
        event, profile = found[0], self._verification.profile
        if event.kind == kind:
            return await self._inbox.replay(event_id)
        if event.kind is not None and not (
            kind == "refund" and hold_refund(parse_event(event, profile, event.kind), profile)
        ):
            raise invalid_argument("kind", f"{event.kind}, which the event is of", kind)
        read = parse_event(event, profile, kind)
        name = await self._sends.name(read) if read.verified else None
        signed = not event.key.startswith(HINT)
        return await self._inbox.replay(event_id, build_received(read, profile, name, timed=False, signed=signed))

    async def replay_all(self, state: StateName) -> int:
        """Replay all events of a state; return how many were replayed.

        Of several events with one key, it replays one, and none if an event of that key is in progress or done.

        Args:
            state: `dead`, `parked` or `held`.

        Raises:
            InvalidArgumentError: The state is none of these.
        """
        named = state_of_name(state)
        if named not in REPLAYABLE:
            raise invalid_argument("state", f"one of {', '.join(sorted(REPLAYABLE))}", state)
        replayed, last = 0, 0
        while found := await self._inbox.events(named, limit=REPLAY_PAGE, after=last):
            last = found[-1].id
            replayed += sum(await asyncio.gather(*(self._inbox.replay(each.id, unless_done=True) for each in found)))
        self._wake_current()
        return replayed

    async def aclose(self, grace: float = 5.0) -> None:
        """Stop receiving and dispatching. Interrupted events are due again immediately. A second call does nothing.

        A plain function cannot be interrupted. If it still runs, its event is due again when the lease ends.

        Args:
            grace: Seconds to wait for running handlers before they are cancelled.

        Raises:
            InvalidArgumentError: `grace` is not a number of seconds of 0 or more; the receiver stays open.
        """
        if not is_number(grace) or not grace >= 0:
            raise invalid_argument("grace", "a number of seconds, 0 or more", grace)
        if self._ingest.closed:
            return
        self._ingest.closed = True
        self._verification.end()
        try:
            if self._current is not None and self._current.runs_in_this_loop:
                await self._current.aclose(grace)
        finally:
            await self._inbox.aclose()

    def _dispatcher(self) -> Dispatcher:
        """Return the dispatcher of the running loop, and start one if necessary.

        Raises:
            SessionClosedError: The receiver is closed.
        """
        if self._ingest.closed:
            raise SessionClosedError("the receiver is closed. Make a new one")
        if self._current is None or not self._current.runs_in_this_loop:
            self._current = Dispatcher(self._inbox, self._worker, self._limits, self._pace)
        return self._current

    def _wake_current(self) -> None:
        """Dispatch due events, but only if this process dispatches: a script that replays leaves them to others."""
        if self._current is not None and self._current.runs_in_this_loop:
            self._current.wake()

    async def __aenter__(self) -> Self:
        if self._ingest.closed:
            raise SessionClosedError("the receiver is closed. Make a new one")
        try:
            await self._inbox.next_due()  # a file that is not an inbox is refused here
            await check_all(each.transaction for each in self._handlers if each.transaction)
        except BaseException:
            await self.aclose()
            raise
        self._dispatcher().wake()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()
