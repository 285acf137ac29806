"""The session: the namespaces, and their lifetime. What a call goes through is in `wiring`."""

import asyncio
import os
import ssl
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from attrs import evolve

from payasync.calls import Call, Layer, Reply
from payasync.codec import Codec
from payasync.credentials import Credentials, Environment
from payasync.errors import ConfigurationError, PayasyncError, SessionClosedError
from payasync.events import Event
from payasync.flights import Flights
from payasync.middleware.quota import Quota
from payasync.operations import custom
from payasync.profile import Profile
from payasync.recovery import about, question
from payasync.requests import NOTHING, Request, invalid, word
from payasync.resources.orders import Orders
from payasync.resources.payments import Payments
from payasync.resources.refunds import Refunds
from payasync.resources.subscriptions import Subscriptions
from payasync.responses import Response
from payasync.settings import RetryPolicy, Timeouts
from payasync.wiring import Setup, from_environment, transport

if TYPE_CHECKING:
    import aiohttp

R = TypeVar("R", bound=Response)


class Session:
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
        journal: There is none yet: only `None`.
        http: An `aiohttp.ClientSession` to use in place of our own pools. It is left open, and belongs to one
            event loop; its proxies and idle connections are its own affair.
        tls: An `ssl.SSLContext` that verifies, for a CA bundle or a client certificate of your own.
        proxy: A proxy's URL, or `"environment"` for the one in the environment.
        max_connections: At most so many connections for writes, and as many for reads.
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
        journal: None = None,
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
        )
        way_out = transport(
            base_url,
            profile,
            http=http,
            tls=tls,
            proxy=proxy,
            max_connections=max_connections,
            max_response_bytes=max_response_bytes,
        )
        if journal is not None:
            raise ConfigurationError("journal must be None: this version keeps none", field="journal")
        self._flights = Flights()
        self._transport = way_out
        self._owner = True
        self._wire(setup, Codec(profile, credentials), Quota(retry.quota))

    def _wire(self, setup: Setup, codec: Codec, quota: Quota) -> None:
        self._setup = setup
        self._codec = codec
        self._quota = quota
        self._closed = False
        self._way = setup.way(quota, partial(question, codec), self._transport.send)
        self.payments = Payments(self.send, setup.profile)
        self.orders = Orders(self.send, setup.profile)
        self.refunds = Refunds(self.send, setup.profile)
        self.subscriptions = Subscriptions(self.send, setup.profile)

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

    async def send(
        self,
        request: Request[R],
        *,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> R:
        """Send a request object, as the methods of the namespaces do.

        Args:
            request: Such as `CreateRefund(...)`.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of what a write is for; it travels with the call, and not on the wire.
            shield: Let the call go on to its end where its caller is cancelled; `aclose(grace=)` waits for it.

        Raises:
            PayasyncError: As the method of the same name says.
        """
        if not isinstance(request, Request) or not hasattr(request, "operation"):
            raise invalid("request", "a request object, such as CreateRefund(...)", request)
        call = self._codec.call(request)
        reply = await self._reply(call, timeout, intent=intent, shield=shield)
        answer: R = request.answer.of(call, reply)  # type: ignore[assignment] # its own
        return answer

    async def request(
        self,
        method: str,
        path: str,
        *,
        fields: Mapping[str, Any] = NOTHING,
        bearer: bool = False,
        signed: bool = False,
        read: bool = False,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> Response:
        """Call an endpoint that the document does not show, through the same middleware.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: Below the base URL, such as `/payment/bill`.
            fields: By their wire names: in a JSON body, or for GET and DELETE in the query.
            bearer: Send `Authorization: Bearer`.
            signed: Add `nonceStr` and `sign`.
            read: Asking again changes nothing. Without it the call is a write that nothing names, and is never
                sent twice.
            timeout: Seconds for this call, in place of `Timeouts.total`.
            intent: Your own name of what a write is for; it travels with the call, and not on the wire.
            shield: Let the call go on to its end where its caller is cancelled.

        Raises:
            PayasyncError: As for any other call.
        """
        operation = custom(method, path, read=read)
        for name, flag in (("bearer", bearer), ("signed", signed), ("read", read)):
            if not isinstance(flag, bool):
                raise invalid(name, "True or False", flag, operation)
        call = self._codec.custom(operation, fields, bearer=bearer, signed=signed)
        return Response.of(call, await self._reply(call, timeout, intent=intent, shield=shield))

    async def _reply(self, call: Call, seconds: float | None, *, intent: str | None, shield: bool) -> Reply:
        if intent is not None:
            call = evolve(call, intent=word("intent", intent, call.operation))
        reply = self._flown(call, seconds)
        return await (self._flights.shielded(reply) if shield else reply)

    async def _flown(self, call: Call, seconds: float | None) -> Reply:
        try:
            if self._closed or self._flights.closed:
                raise SessionClosedError("the session is closed: make another")
            timeouts = self._setup.times(seconds)
        except PayasyncError as error:
            error.add(operation=call.operation.name, reference=call.reference)
            raise
        call = evolve(call, timeouts=timeouts, deadline=asyncio.get_running_loop().time() + timeouts.total)
        flight = self._flights.begin()
        try:
            return await self._way(call)
        finally:
            self._flights.end(flight)

    async def reconcile(self, error: PayasyncError, *, timeout: float | None = None) -> Response:
        """Ask the service what became of a write that ended without a recognised answer.

        Args:
            error: The `OutcomeUnknownError` of an order or a refund that has a number of the merchant's.
            timeout: Seconds for this call, in place of `Timeouts.total`.

        Raises:
            OutcomeUnknownError: The error itself, where nothing names what it was about.
            NotConfiguredError: The profile does not say how to ask.
            NoAnswerError: No usable answer came: ask again later.
            ServiceError: The service refused the query, or knows no such number.
        """
        return await self.send(about(error), timeout=timeout)

    def with_options(self, *, timeouts: Timeouts | None = None, retry: RetryPolicy | None = None) -> Self:
        """Return a copy with other times or retries, on the same connections; closing it does not close them.

        Raises:
            ConfigurationError: A value of another type.
        """
        setup = evolve(
            self._setup,
            timeouts=self._setup.timeouts if timeouts is None else timeouts,
            retry=self._setup.retry if retry is None else retry,
        )
        same = setup.retry.quota == self._setup.retry.quota
        return self._copy(setup, self._codec, self._quota if same else Quota(setup.retry.quota))

    def for_merchant(self, credentials: Credentials) -> Self:
        """Return a copy for another merchant, on the same connections; closing it does not close them.

        Raises:
            ConfigurationError: A value of another type.
        """
        setup = evolve(self._setup, credentials=credentials)
        return self._copy(setup, self._codec.for_merchant(credentials), self._quota)

    def _copy(self, setup: Setup, codec: Codec, quota: Quota) -> Self:
        copy = object.__new__(type(self))
        copy._flights, copy._transport, copy._owner = self._flights, self._transport, False
        copy._wire(setup, codec, quota)
        return copy

    async def aclose(self, grace: float = 0) -> None:
        """Close the session, and the connections if they are its own.

        Args:
            grace: Seconds to let calls in flight come to their end; those left after it are cut off.
        """
        self._closed = True
        if not self._owner:
            return
        self._flights.closed = True
        try:
            await self._flights.drain(grace)
        finally:
            await self._transport.aclose()

    async def __aenter__(self) -> Self:
        if self._closed or self._flights.closed:
            raise SessionClosedError("the session is closed: make another")
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
