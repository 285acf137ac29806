"""The session: the namespaces, and their lifetime. What a call goes through is in `wiring`."""

import logging
import os
import ssl
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from attrs import evolve

from payasync.calls import Layer
from payasync.codec import Codec
from payasync.credentials import Credentials, Environment
from payasync.events import Event
from payasync.flights import Flights
from payasync.keys import short_keys
from payasync.middleware.quota import Quota
from payasync.middleware.retry import Pace
from payasync.profile import Profile
from payasync.recovery import question
from payasync.requests import invalid
from payasync.resources.orders import Orders
from payasync.resources.payments import Payments
from payasync.resources.refunds import Refunds
from payasync.resources.subscriptions import Subscriptions
from payasync.sender import Sender
from payasync.settings import RetryPolicy, Timeouts
from payasync.wiring import Recording, Setup, from_environment, service, transport

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger("payasync")


class Session(Sender):
    """One merchant's way to one service; constructing it opens nothing.

    Use it with `async with`, or call `aclose` at the end. It may be used in one event loop after another, and in
    forked children: connections are never shared between them.

    Args:
        base_url: The address under which all endpoints are (spec: Endpoints); a path in it is kept. https, or
            http on loopback.
        credentials: Who the merchant is.
        profile: What the service does.
        timeouts: In seconds.
        retry: How often and how patiently a call is tried.
        middleware: Your own layers, outermost first, each an `async def layer(call, send)` that returns what
            `await send(call)` returns; it sees every attempt, before that is signed.
        on_event: Called with each `Attempted`, `Retrying` and `Unknown`; it must not block.
        journal: Keeps each write, durably, before its first byte leaves, such as `SqliteJournal("pay.db")` of
            `payasync.journal`; one that cannot is a `StorageError`, and nothing is sent. Under the same number or
            `intent` nothing is done twice, and another request is an `IntentConflictError`. It is left open, and
            others may use it, too.
        http: An `aiohttp.ClientSession` that lends its connector and its trace configs, and nothing else: no
            headers, cookies, middlewares, credentials, proxy or TLS settings. It is left open, and belongs to one
            event loop. Its connector decides how many connections there are and how long they stay idle. A write
            may therefore reuse a connection that the service is closing.
        tls: An `ssl.SSLContext` that verifies, for a CA bundle or a client certificate of your own. It is checked
            again for each new connection, also with `http`: verification cannot be switched off.
        proxy: A proxy's URL, or `"environment"` for the one in the environment. With `http`, its connector must
            support proxies, as aiohttp's `TCPConnector` does.
        max_connections: The most connections for writes, and as many for reads. Further calls wait for a free one
            until `Timeouts.total` is over. With `http`, the limit of its connector counts instead.
        max_response_bytes: A longer answer is an unreadable one.

    Attributes:
        payments: `create` and `status`: endpoints 1 and 6.
        orders: `place`, `query` and `close`: endpoints 2, 3 and 4.
        refunds: `create` and `status`: endpoints 5 and 7.
        subscriptions: `create`, `update` and `cancel`: endpoints 8, 9 and 10.

    Raises:
        ConfigurationError: A setting that is wrong, or that would not be safe.
    """

    def __init__(
        self,
        base_url: str,
        *,
        credentials: Credentials,
        profile: Profile,
        timeouts: Timeouts = Timeouts(),
        retry: RetryPolicy = RetryPolicy(),
        middleware: Iterable[Layer] = (),
        on_event: Callable[[Event], None] | None = None,
        journal: Recording | None = None,
        http: "aiohttp.ClientSession | None" = None,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        max_connections: int = 100,
        max_response_bytes: int = 1 << 20,
    ) -> None:
        setup = Setup(
            credentials=credentials,
            profile=profile,
            timeouts=timeouts,
            retry=retry,
            middleware=middleware,
            on_event=on_event,
            journal=journal,
        )
        _warn_of_short_keys(setup)
        way_out = transport(
            base_url,
            profile,
            http=http,
            tls=tls,
            proxy=proxy,
            max_connections=max_connections,
            max_response_bytes=max_response_bytes,
        )
        self._flights = Flights()
        self._transport = way_out
        self._owner = True
        self._wire(setup, Codec(profile, credentials), Quota(retry.quota))

    def _wire(self, setup: Setup, codec: Codec, quota: Quota) -> None:
        self._setup = setup
        self._codec = codec
        self._quota = quota
        self._closed = False
        pace = Pace(sleep=self._flights.pause)
        self._way = setup.way(quota, partial(question, codec), pace, self._transport)
        self.payments = Payments(self._send, setup.profile)
        self.orders = Orders(self._send, setup.profile)
        self.refunds = Refunds(self._send, setup.profile)
        self.subscriptions = Subscriptions(self._send, setup.profile)

    @property
    def credentials(self) -> Credentials:
        """Who the merchant is; every key in them is a `Secret`."""
        return self._setup.credentials

    @property
    def merchant_id(self) -> str:
        """The merchant's number."""
        return self._setup.credentials.merchant_id

    @property
    def service(self) -> str:
        """By what a journal tells this service from others: its base URL; all sandboxes are one."""
        return service(self._setup.profile, self._transport.base)

    @property
    def profile(self) -> Profile:
        """What the service does."""
        return self._setup.profile

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **settings: Any) -> Self:
        """Make a session from the environment, read now.

        `PAYASYNC_BASE_URL`, `PAYASYNC_PROFILE` (the path of a TOML file, or `sandbox`; without it only what the
        document itself states is known), and what `Credentials.from_env` reads; each may be given with `_FILE`
        behind its name, as the path of a file that holds the value.

        Args:
            environ: Read in place of `os.environ`.
            settings: Any other argument of `Session`; one that is given here is not read.

        Raises:
            ConfigurationError: A variable is missing, empty or wrong.
        """
        read = Environment(os.environ if environ is None else environ)
        del environ  # a traceback may show what is local: from here on only masked values are
        return cls(**from_environment(read, settings))

    def with_options(
        self,
        *,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        journal: Recording | None = None,
    ) -> Self:
        """Return a copy with other times or retries, or another journal; closing it does not close the connections.

        Raises:
            ConfigurationError: A value of another type.
        """
        setup = evolve(
            self._setup,
            timeouts=self._setup.timeouts if timeouts is None else timeouts,
            retry=self._setup.retry if retry is None else retry,
            journal=self._setup.journal if journal is None else journal,
        )
        same = setup.retry.quota == self._setup.retry.quota
        return self._copy(setup, self._codec, self._quota if same else Quota(setup.retry.quota))

    def for_merchant(self, credentials: Credentials) -> Self:
        """Return a copy for another merchant, on the same connections; closing it does not close them.

        Raises:
            ConfigurationError: A value of another type, or a key that cannot sign or verify.
        """
        setup = evolve(self._setup, credentials=credentials)
        _warn_of_short_keys(setup)
        return self._copy(setup, self._codec.for_merchant(credentials), self._quota)

    def _copy(self, setup: Setup, codec: Codec, quota: Quota) -> Self:
        copy = object.__new__(type(self))
        copy._flights, copy._transport, copy._owner = self._flights, self._transport, False
        copy._wire(setup, codec, quota)
        return copy

    async def aclose(self, grace: float = 0) -> None:
        """Close the session, and the connections if they are its own.

        Args:
            grace: Seconds to let calls in flight come to their end; those left after it are cut off, and raise
                what is known of them.

        Raises:
            InvalidArgumentError: The grace is no number of seconds, 0 or more; the session is left open.
        """
        if isinstance(grace, bool) or not isinstance(grace, int | float) or not grace >= 0:
            raise invalid("grace", "a number of seconds, 0 or more", grace)
        self._closed = True
        if not self._owner:
            return
        self._flights.closed = True
        try:
            await self._flights.drain(grace)
        finally:
            self._flights.cut()
            await self._transport.aclose()
            await self._flights.land()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        if not hasattr(self, "_way"):
            return "<Session, not made yet>"  # as a traceback shows it, of settings that were refused
        state = "closed" if self._closed or self._flights.closed else "open"
        return f"<Session {self._transport.base!r} for {self._setup.credentials.merchant_id!r}, {state}>"


def _warn_of_short_keys(setup: Setup) -> None:
    for warning in short_keys(setup.profile, setup.credentials):
        logger.warning("%s", warning)
