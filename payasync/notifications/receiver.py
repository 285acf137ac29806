"""The receiver: what arrives is verified, kept durably, acknowledged, and then dispatched from where it is kept."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from attrs import evolve

from payasync.credentials import Credentials
from payasync.errors import ConfigurationError, InvalidArgumentError, SessionClosedError, frameless_async
from payasync.notifications.dispatcher import Dispatcher
from payasync.notifications.inbox import REPLAYABLE, Inbox, InboxEvent, State
from payasync.notifications.ingest import Answer, Application, Ingest, Limits, answer_aiohttp, build_received
from payasync.notifications.notification import MAX_BYTES, Headers, Notification, Raw, parse
from payasync.notifications.transactions import Begin, prove_all
from payasync.notifications.transitions import ATTEMPTS, Confirmer, QueryLimiter, draw_upper_half, hold_refund
from payasync.notifications.verification import Verifier, verification_of
from payasync.notifications.worker import Expect, Function, Handler, Worker, build_handler, check_distinct, check_expect
from payasync.profile.profile import Profile
from payasync.profile.schema import KINDS, Kind
from payasync.session import Session
from payasync.settings import Pace, is_number
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
    """Return profile and credentials: as given, else as the session has them.

    Raises:
        ConfigurationError: One is missing, or of another type.
    """
    if session is not None:
        _check_type("session", session, right=isinstance(session, Session))
        profile = session.profile if profile is None else profile
        credentials = session.credentials if credentials is None else credentials
    if profile is None or credentials is None:
        name = "credentials" if profile else "profile"
        raise ConfigurationError(
            f"{name} is missing: give Receiver(session=...), whose profile and credentials are taken, or both of them",
            field=name,
        )
    _check_type("profile", profile, right=isinstance(profile, Profile))
    _check_type("credentials", credentials, right=isinstance(credentials, Credentials))
    return profile, credentials


def _check_type(name: str, value: object, *, right: bool) -> None:
    if not right:
        what = f"the class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"
        raise ConfigurationError(f"{name} must be {_TYPES[name]}, not {what}", field=name)


F = TypeVar("F", bound=Function)

WALL: Final = Pace(clock=time.time, jitter=draw_upper_half)
"""Time since 1970, as the inbox has it."""
REPLAYED_TOGETHER: Final = 100
"""Events that are read together; each may be as long as a body."""


class Receiver:
    """Takes notifications, and has each handled at least once, however often it comes (docs/service.md#notifications).

    What is acknowledged is on the disk, and is dispatched from there: by this process, or by the next one. What is
    not signed is confirmed with the service before a handler sees it. Use it with `async with`, or call `aclose`
    at the end; it begins to dispatch when it is entered, or when it receives something. Register handlers before.

    Args:
        inbox: Keeps them, such as `SqliteInbox("inbox.db")`; the receiver closes it.
        session: Asks the service; it is left open. Needed where notifications are not signed.
        profile: What the service does; it says how notifications are verified and acknowledged. Left out: the
            session's.
        credentials: Their keys verify; notifications that name another merchant are quarantined. Left out: the
            session's.
        expect: Says of a notification what it must tell: a mapping of dotted paths into `notification.trusted` to
            values, such as `{"totalAmt": 450, "currency": "CAD"}`, or `None` where nobody expects it. What differs is
            quarantined. Plain, or `async def`.
        verifier: Verifies in the profile's place: gets body and headers; only `True` from it is true.
        attempts: How often an event may fail, with growing waits, before it is dead: by default for three days.
        concurrency: So many events are handled at once.
        handler_timeout: Seconds after which a handler is cancelled, and has failed.
        lease: Seconds for which an event is claimed; it is extended while its handlers run.
        max_bytes: The greatest length of a body.
        max_waiting: So many notifications wait for the disk at once; further ones are answered 503.
        retention: How long what is done is kept, so that it is known when it comes again: longer than the service's
            longest redelivery. The key of what was confirmed, or verified without a signed time, is kept for ever:
            it could come again at any time. A verified event that ended otherwise is kept until somebody replays it.
        pace: Time and chance, for tests; its clock counts seconds since 1970, as the inbox's does.

    Attributes:
        asgi: An ASGI application: `app.mount("/notify", receiver.asgi)`. The last part of the path says the kind,
            where it names one; so does `partial(receiver.asgi, kind="payment")`. Served by itself, it begins and
            ends with its server.

    Raises:
        NotConfiguredError: The profile does not say how notifications are verified or acknowledged.
        ConfigurationError: A setting that is wrong, or that would not be safe.
    """

    def __init__(
        self,
        *,
        inbox: Inbox,
        session: Session | None = None,
        profile: Profile | None = None,
        credentials: Credentials | None = None,
        expect: Expect | None = None,
        verifier: Verifier | None = None,
        attempts: int = ATTEMPTS,
        concurrency: int = 10,
        handler_timeout: float = 300.0,
        lease: float = 60.0,
        max_bytes: int = MAX_BYTES,
        max_waiting: int = 1000,
        retention: timedelta = timedelta(days=30),
        pace: Pace = WALL,
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
            raise ConfigurationError(
                "session is missing: the profile says that notifications are not signed, so each must be confirmed "
                "with the service. Give Receiver(session=...)",
                field="session",
            )
        check_expect(expect)
        self._inbox: Final = inbox
        self._profile: Final = verification.profile
        self._pace: Final = pace
        self._handlers: Final[list[Handler]] = []
        self._worker: Final = Worker(
            inbox=inbox,
            merchant_id=credentials.merchant_id,
            session=session,
            handlers=self._handlers,
            expect=expect,
            handler_timeout=handler_timeout,
            pace=pace,
            confirmer=Confirmer(inbox, verification.profile, attempts, QueryLimiter(pace.clock)),
        )
        self._current: Dispatcher | None = None
        self._ingest: Final = Ingest(verification, inbox, self._limits, pace, notify=lambda: self._dispatcher().wake())
        self.asgi: Final = Application(self.receive, max_bytes, self.__aenter__, self.aclose)

    def on(
        self,
        kind: str,
        *,
        name: str | None = None,
        transaction: Begin | None = None,
        expect: Expect | None = None,
        unverified: bool = False,
    ) -> Callable[[F], F]:
        """Register the function below as a handler: an `async def` of the notification.

        It may be called more than once for one event, where it fails or the process ends; with `transaction`, its
        effect is nevertheless committed once.

        Args:
            kind: `payment`, `refund`, `subscription`, or `*` for all.
            name: Under which it is remembered what the function has done; left out: the function's own, without its
                module. Give the old one where you rename the function: else what it has done may be done again.
            transaction: Begins a transaction of your own: returns a context manager, plain or async, that gives its
                connection. The handler gets it as its second argument, and what it does there is committed
                together with the mark that it is done. That it commits, and undoes on an error, is proven as the
                receiver is entered, or before the first event.
            expect: In place of the receiver's.
            unverified: It takes what is not signed and nobody can confirm: events of subscriptions.

        Raises:
            ConfigurationError: There is no such kind, it is no coroutine function or takes other arguments, or its
                name is another's, or none.
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
        """Take a notification, and return what to answer; it is acknowledged after it is on the disk.

        Args:
            raw: The body's bytes, as they were received.
            headers: A mapping, or pairs; names in any case.
            kind: `payment`, `refund` or `subscription`, where the address that it arrived at says so.

        Raises:
            InvalidArgumentError: `raw` is not bytes.
        """
        return await self._ingest.receive(raw, headers, kind)

    async def aiohttp_handler(self, request: "web.Request", kind: str | None = None) -> "web.StreamResponse":
        """Take a notification from aiohttp: `router.add_post("/notify/{kind}", receiver.aiohttp_handler)`.

        Args:
            request: aiohttp's.
            kind: Left out: `{kind}` of the route, else the last part of the path, where that names one.
        """
        return await answer_aiohttp(self.receive, request, kind=kind, max_bytes=self._limits.max_bytes)

    async def settle(self) -> None:
        """Return when nothing is due any more, and nothing is being handled; what is to be retried later may wait.

        Raises:
            StorageError: The inbox cannot be read now.
            SessionClosedError: The receiver is closed.
        """
        await self._dispatcher().settle()

    async def events(self, state: State | None = None, *, limit: int = 100, after: int = 0) -> list[InboxEvent]:
        """List events, oldest first.

        Args:
            state: `pending`, `leased`, `done`, `dead`, `parked` or `quarantined`; left out: all.
            limit: So many at most.
            after: Only those with a higher number.
        """
        return await self._inbox.events(state, limit=limit, after=after)

    async def replay(self, event_id: int, *, kind: Kind | None = None) -> bool:
        """Dispatch a dead, parked or quarantined event again.

        Handlers that are done with it are not called again.

        Args:
            event_id: Its number, as `events` tells it.
            kind: `payment`, `refund` or `subscription`, of an event that came without one; `refund` also of one that
                came as a payment and names a refund.

        Returns:
            Whether it is; not where it is done, or on its way, or there is none of that number; nor where it has
            come again with that kind.

        Raises:
            InvalidArgumentError: That is no number or no kind, or the event is of another kind.
        """
        if not isinstance(event_id, int):
            rule = "the number of an event, as events() tells it"
            raise InvalidArgumentError(f"event_id must be {rule}, not {event_id!r}", field="event_id", rule=rule)
        if kind is None:
            replayed = await self._inbox.replay(event_id)
        else:
            replayed = await self._replay_as(event_id, kind)
        self._wake_current()
        return replayed

    async def _replay_as(self, event_id: int, kind: Kind) -> bool:
        """Replay an event of a kind that a person says; it has the key that a redelivery would have."""
        if kind not in KINDS:
            raise invalid_argument("kind", f"one of {', '.join(KINDS)}", kind)
        found = await self._inbox.events(limit=1, after=max(event_id - 1, 0))
        if not found or found[0].id != event_id or not found[0].raw:  # of a forgotten event, only the key is there
            return False
        event = found[0]
        if event.kind == kind:
            return await self._inbox.replay(event_id)
        if event.kind is not None and not (
            kind == "refund" and hold_refund(self._read(event, event.kind), self._profile)
        ):
            raise invalid_argument("kind", f"{event.kind}, which the event is of", kind)
        told = evolve(self._read(event, kind), verified=event.verified, received_at=event.received_at)
        return await self._inbox.replay(event_id, build_received(told, timed=False))

    def _read(self, event: InboxEvent, kind: str) -> Notification:
        return parse(event.raw, event.headers, profile=self._profile, kind=kind, max_bytes=len(event.raw))

    async def replay_all(self, state: State) -> int:
        """Dispatch all events of a state again, as `replay` does each; return how many these were.

        Args:
            state: `dead`, `parked` or `quarantined`.

        Raises:
            InvalidArgumentError: It is none of these.
        """
        if state not in REPLAYABLE:
            raise invalid_argument("state", f"one of {', '.join(sorted(REPLAYABLE))}", state)
        replayed, last = 0, 0
        while found := await self._inbox.events(state, limit=REPLAYED_TOGETHER, after=last):
            last = found[-1].id
            replayed += sum(await asyncio.gather(*(self._inbox.replay(each.id) for each in found)))
        self._wake_current()
        return replayed

    async def aclose(self, grace: float = 5.0) -> None:
        """Take and dispatch nothing more; what is cut off is due again at once. A second time does nothing.

        Args:
            grace: Seconds to wait for handlers that run, before they are cancelled.

        Raises:
            InvalidArgumentError: The grace is no number of seconds, 0 or more; the receiver is left open.
        """
        if not is_number(grace) or not grace >= 0:
            raise invalid_argument("grace", "a number of seconds, 0 or more", grace)
        if self._ingest.closed:
            return
        self._ingest.closed = True
        try:
            if self._current is not None and self._current.at_home:
                await self._current.aclose(grace)
        finally:
            await self._inbox.aclose()

    def _dispatcher(self) -> Dispatcher:
        """Return what dispatches in the running loop; it begins now, if it has not.

        Raises:
            SessionClosedError: The receiver is closed.
        """
        if self._ingest.closed:
            raise SessionClosedError("the receiver is closed: make another")
        if self._current is None or not self._current.at_home:
            self._current = Dispatcher(self._inbox, self._worker.handle, self._limits, self._pace)
        return self._current

    def _wake_current(self) -> None:
        """Dispatch what is due now, but only if this process dispatches: a script that replays leaves it to others."""
        if self._current is not None and self._current.at_home:
            self._current.wake()

    async def __aenter__(self) -> Self:
        if self._ingest.closed:
            raise SessionClosedError("the receiver is closed: make another")
        try:
            await self._inbox.next_due()  # a file that is none of ours says so now
            await prove_all(each.transaction for each in self._handlers if each.transaction)
        except BaseException:
            await self.aclose()
            raise
        self._dispatcher().wake()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
