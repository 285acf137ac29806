"""The receiver: what arrives is verified, kept durably, acknowledged, and then dispatched from where it is kept."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from payasync.credentials import Credentials
from payasync.errors import ConfigurationError
from payasync.middleware.retry import Pace
from payasync.notifications.answers import Answer
from payasync.notifications.asgi import Application
from payasync.notifications.handlers import Expect, Function, Handler, check_callable, check_new, handler_of
from payasync.notifications.handling import Handling
from payasync.notifications.inbox import Inbox
from payasync.notifications.intake import Headers, Raw
from payasync.notifications.lifetime import Lifetime
from payasync.notifications.limits import Limits
from payasync.notifications.reception import Reception
from payasync.notifications.transactions import Begin
from payasync.notifications.verifying import Verifier, verification_of
from payasync.profile import Profile
from payasync.session import Session

if TYPE_CHECKING:
    from aiohttp import web

F = TypeVar("F", bound=Function)

WALL: Final = Pace(clock=time.time)
"""Time since 1970, as the inbox has it."""


_TYPES: Final = {
    "profile": "a payasync.Profile",
    "credentials": "payasync.Credentials",
    "inbox": "an Inbox, such as SqliteInbox(path)",
}


class Receiver(Lifetime):
    """Takes notifications, and has each handled at least once, however often it comes (spec: Events).

    What is acknowledged is on the disk, and is dispatched from there: by this process, or by the next one. What is
    not signed is confirmed with the service before a handler sees it. Use it with `async with`, or call `aclose`
    at the end; it begins to dispatch when it is entered, or when it receives something. Register handlers before.

    Args:
        profile: What the service does; it says how notifications are verified and acknowledged.
        credentials: Its keys verify; notifications that name another merchant are quarantined.
        inbox: Keeps them, such as `SqliteInbox("inbox.db")`; the receiver closes it.
        session: Asks the service; it is left open. Needed where notifications are not signed.
        expect: Says of a notification what it must tell: a mapping of dotted paths into `notification.trusted` to
            values, such as `{"totalAmt": 450, "currency": "CAD"}`, or `None` where nobody expects it. What differs is
            quarantined. Plain, or `async def`.
        verifier: Verifies in the profile's place: gets body and headers; only `True` from it is true.
        attempts: How often an event is tried, with growing waits, before it is dead.
        concurrency: So many events are handled at once.
        lease: Seconds for which an event is claimed; it is extended while its handlers run.
        max_bytes: The greatest length of a body.
        max_waiting: So many notifications wait for the disk at once; further ones are answered 503.
        retention: How long what is done is kept, so that it is known when it comes again: longer than the service's
            longest redelivery. What was confirmed is kept for ever: anybody could tell of it again.
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
        profile: Profile,
        credentials: Credentials,
        inbox: Inbox,
        session: Session | None = None,
        expect: Expect | None = None,
        verifier: Verifier | None = None,
        attempts: int = 8,
        concurrency: int = 10,
        lease: float = 60.0,
        max_bytes: int = 1 << 20,
        max_waiting: int = 1000,
        retention: timedelta = timedelta(days=30),
        pace: Pace = WALL,
    ) -> None:
        self._limits = Limits(
            attempts=attempts,
            concurrency=concurrency,
            lease=lease,
            max_bytes=max_bytes,
            max_waiting=max_waiting,
            retention=retention,
        )
        _check_types(profile, credentials, inbox)
        verification = verification_of(profile, credentials, verifier)
        _check_session(session, needed=not verification.proves)
        check_callable("expect", expect)
        self._inbox = inbox
        self._pace = pace
        self._handlers: Final[list[Handler]] = []
        self._handling = Handling(
            inbox=inbox,
            profile=profile,
            merchant_id=credentials.merchant_id,
            session=session,
            handlers=self._handlers,
            expect=expect,
            attempts=attempts,
            pace=pace,
        )
        self._reception = Reception(verification, inbox, self._limits, pace, kept=self._wake)
        self.asgi: Final = Application(self.receive, max_bytes, self.__aenter__, self.aclose)

    def on(
        self,
        kind: str,
        *,
        transaction: Begin | None = None,
        expect: Expect | None = None,
        unverified: bool = False,
    ) -> Callable[[F], F]:
        """Register the function below as a handler: an `async def` of the notification.

        It may be called more than once for one event, where it fails or the process ends; with `transaction`, its
        effect is nevertheless committed once.

        Args:
            kind: `payment`, `refund`, `subscription`, or `*` for all.
            transaction: Begins a transaction of your own: returns a context manager, plain or async, that gives its
                connection. The handler gets it as its second argument, and what it does there is committed
                together with the mark that it is done.
            expect: In place of the receiver's.
            unverified: It takes what is not signed and nobody can confirm: events of subscriptions.

        Raises:
            ConfigurationError: There is no such kind, it is no coroutine function, or another has its name.
        """

        def register(function: F) -> F:
            handler = handler_of(function, kind=kind, transaction=transaction, expect=expect, unverified=unverified)
            check_new(handler, self._handlers)
            self._handlers.append(handler)
            return function

        return register

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
        from payasync.notifications.aiohttp_adapter import answered  # noqa: PLC0415 - who serves by ASGI needs it not

        return await answered(self.receive, request, kind=kind, max_bytes=self._limits.max_bytes)


def _check_types(profile: object, credentials: object, inbox: object) -> None:
    for name, value, right in (
        ("profile", profile, isinstance(profile, Profile)),
        ("credentials", credentials, isinstance(credentials, Credentials)),
        ("inbox", inbox, hasattr(inbox, "claim")),
    ):
        if not right:
            raise ConfigurationError(
                f"{name} must be {_TYPES[name]}, not a value of type {type(value).__name__}", field=name
            )


def _check_session(session: object, *, needed: bool) -> None:
    if session is None and needed:
        raise ConfigurationError(
            "session is missing: the profile says that notifications are not signed, so each must be confirmed with "
            "the service. Give Receiver(session=...)",
            field="session",
        )
    if session is not None and not isinstance(session, Session):
        raise ConfigurationError(f"session must be a payasync.Session, not {session!r}", field="session")
