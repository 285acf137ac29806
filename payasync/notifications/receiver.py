"""The receiver: what arrives is verified, kept durably, acknowledged, and then dispatched from where it is kept."""

import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from payasync.credentials import Credentials
from payasync.errors import ConfigurationError, frameless_async
from payasync.notifications.adapters import Application
from payasync.notifications.dispatcher import Lifetime, Replaying
from payasync.notifications.handlers import Expect, Function, Handler, Handling, check_expect, check_new, handler_of
from payasync.notifications.inbox import Inbox, InboxEvent, State
from payasync.notifications.ingest import Answer, DispatchLimits, Reception, ReceptionLimits
from payasync.notifications.notification import MAX_BYTES, Headers, Raw
from payasync.notifications.transactions import Begin, prove_all
from payasync.notifications.trust import ATTEMPTS, Questions, upper_half
from payasync.notifications.verification import Verifier, verification_of
from payasync.profile.profile import Profile
from payasync.profile.schema import Kind
from payasync.session import Session
from payasync.settings import Pace, is_number
from payasync.wire.request import invalid

if TYPE_CHECKING:
    from aiohttp import web

_TYPES: Final = {
    "profile": "a payasync.Profile, such as Profile.from_file(path) gives",
    "credentials": "payasync.Credentials",
    "inbox": "an Inbox, such as SqliteInbox(path)",
    "session": "a payasync.Session",
}


def service_of(
    session: Session | None, profile: Profile | None, credentials: Credentials | None
) -> tuple[Profile, Credentials]:
    """Return what the service does and who the merchant is: as given, else as the session has it.

    Raises:
        ConfigurationError: One is missing, or of another type.
    """
    if session is not None:
        check("session", session, right=isinstance(session, Session))
        profile = session.profile if profile is None else profile
        credentials = session.credentials if credentials is None else credentials
    if profile is None or credentials is None:
        name = "credentials" if profile else "profile"
        raise ConfigurationError(
            f"{name} is missing: give Receiver(session=...), whose profile and credentials are taken, or both of them",
            field=name,
        )
    check("profile", profile, right=isinstance(profile, Profile))
    check("credentials", credentials, right=isinstance(credentials, Credentials))
    return profile, credentials


def check(name: str, value: object, *, right: bool) -> None:
    """Refuse what is of another type.

    Raises:
        ConfigurationError: It names the argument.
    """
    if not right:
        what = f"the class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"
        raise ConfigurationError(f"{name} must be {_TYPES[name]}, not {what}", field=name)


def check_session(session: Session | None, *, needed: bool) -> None:
    """Refuse to have nobody to ask, where that is needed.

    Raises:
        ConfigurationError: It says why it is.
    """
    if session is None and needed:
        raise ConfigurationError(
            "session is missing: the profile says that notifications are not signed, so each must be confirmed with "
            "the service. Give Receiver(session=...)",
            field="session",
        )


F = TypeVar("F", bound=Function)

WALL: Final = Pace(clock=time.time, jitter=upper_half)
"""Time since 1970, as the inbox has it."""


class Receiver:
    """Takes notifications, and has each handled at least once, however often it comes (spec: Events).

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
        self._limits: Final = ReceptionLimits(max_bytes=max_bytes, max_waiting=max_waiting)
        limits = DispatchLimits(
            attempts=attempts,
            concurrency=concurrency,
            handler_timeout=handler_timeout,
            lease=lease,
            retention=retention,
        )
        check("inbox", inbox, right=hasattr(inbox, "claim") and not isinstance(inbox, type))
        profile, credentials = service_of(session, profile, credentials)
        verification = verification_of(profile, credentials, verifier)
        check_session(session, needed=not verification.proves)
        check_expect(expect)
        self._inbox: Final = inbox
        self._handlers: Final[list[Handler]] = []
        handling = Handling(
            inbox=inbox,
            profile=verification.profile,
            merchant_id=credentials.merchant_id,
            session=session,
            handlers=self._handlers,
            expect=expect,
            limits=limits,
            pace=pace,
            questions=Questions(pace.clock),
        )
        self._replaying: Final = Replaying(inbox, verification.profile)
        self._lifetime: Final = Lifetime(inbox, handling.handle, limits, pace)
        self._reception: Final = Reception(verification, inbox, self._limits, pace, kept=self._wake)
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
            handler = handler_of(
                function, kind=kind, name=name, transaction=transaction, expect=expect, unverified=unverified
            )
            check_new(handler, self._handlers)
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
        return await self._reception.receive(raw, headers, kind)

    async def aiohttp_handler(self, request: "web.Request", kind: str | None = None) -> "web.StreamResponse":
        """Take a notification from aiohttp: `router.add_post("/notify/{kind}", receiver.aiohttp_handler)`.

        Args:
            request: aiohttp's.
            kind: Left out: `{kind}` of the route, else the last part of the path, where that names one.
        """
        from payasync.notifications.adapters import answered  # noqa: PLC0415 - who serves by ASGI needs it not

        return await answered(self.receive, request, kind=kind, max_bytes=self._limits.max_bytes)

    async def settle(self) -> None:
        """Return when nothing is due any more, and nothing is being handled; what is to be retried later may wait.

        Raises:
            StorageError: The inbox cannot be read now.
            SessionClosedError: The receiver is closed.
        """
        await self._lifetime.dispatching().settle()

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
        replayed = await self._replaying.one(event_id, kind)
        self._lifetime.wake()
        return replayed

    async def replay_all(self, state: State) -> int:
        """Dispatch all events of a state again, as `replay` does each; return how many these were.

        Args:
            state: `dead`, `parked` or `quarantined`.

        Raises:
            InvalidArgumentError: It is none of these.
        """
        replayed = await self._replaying.all(state)
        self._lifetime.wake()
        return replayed

    async def aclose(self, grace: float = 5.0) -> None:
        """Take and dispatch nothing more; what is cut off is due again at once. A second time does nothing.

        Args:
            grace: Seconds to wait for handlers that run, before they are cancelled.

        Raises:
            InvalidArgumentError: The grace is no number of seconds, 0 or more; the receiver is left open.
        """
        if not is_number(grace) or not grace >= 0:
            raise invalid("grace", "a number of seconds, 0 or more", grace)
        self._reception.closed = True
        await self._lifetime.aclose(grace)

    def _wake(self) -> None:
        self._lifetime.dispatching().wake()

    async def __aenter__(self) -> Self:
        self._lifetime.check_open()
        try:
            await self._inbox.next_due()  # a file that is none of ours says so now
            await prove_all(each.transaction for each in self._handlers if each.transaction)
        except BaseException:
            await self.aclose()
            raise
        self._wake()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
