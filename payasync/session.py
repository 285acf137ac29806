"""The session: the namespaces, and their lifetime. What a call goes through is in `wiring`."""

import asyncio
import os
import ssl
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from attrs import evolve

from payasync.calls import Call, Layer, Reply
from payasync.codec import Codec
from payasync.credentials import Credentials, Environment
from payasync.errors import PayasyncError, SessionClosedError
from payasync.events import Event
from payasync.operations import custom
from payasync.profile import Profile
from payasync.requests import NOTHING, Request, invalid
from payasync.resources.orders import Orders
from payasync.resources.payments import Payments
from payasync.resources.refunds import Refunds
from payasync.resources.subscriptions import Subscriptions
from payasync.responses import Response
from payasync.sandbox_profile import PROFILE as SANDBOX
from payasync.settings import RetryPolicy, Timeouts
from payasync.transport import Transport
from payasync.wiring import Setup, transport

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
        middleware: Your own layers, outermost first; each sees every attempt, before it is signed.
        on_event: Called with each `Attempted`, `Retrying` and `Unknown`; it must not block.
        http: An `aiohttp.ClientSession` to use in place of our own pools. It is left open, and belongs to one
            event loop; its proxies and idle connections are its own affair.
        tls: An `ssl.SSLContext` that verifies, for a CA bundle or a client certificate of your own.
        proxy: A proxy's URL, or `"environment"` for the one in the environment.
        max_connections: At most so many connections for writes, and as many for reads.
        max_response_bytes: A longer answer is an unreadable one.

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
        self._wire(setup, way_out, _Flights(), owner=True)

    def _wire(self, setup: Setup, transport: Transport, flights: "_Flights", *, owner: bool) -> None:
        self._setup = setup
        self._transport = transport
        self._flights = flights
        self._owner = owner
        self._closed = False
        self._codec = Codec(setup.profile, setup.credentials)
        self._way = setup.way(transport.send)
        self.payments = Payments(self.send)
        self.orders = Orders(self.send)
        self.refunds = Refunds(self.send)
        self.subscriptions = Subscriptions(self.send)

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
        if "credentials" not in settings:
            settings["credentials"] = Credentials.from_env(read.variables)
        if "profile" not in settings:
            settings["profile"] = _profile(read.optional("PAYASYNC_PROFILE"))
        return cls(settings.pop("base_url", None) or read.required("PAYASYNC_BASE_URL"), **settings)

    async def send(self, request: Request[R], *, timeout: float | None = None) -> R:
        """Send a request object, as the methods of the namespaces do.

        Args:
            request: Such as `CreateRefund(...)`.
            timeout: Seconds for this call, in place of `Timeouts.total`.

        Raises:
            PayasyncError: As the method of the same name says.
        """
        if not isinstance(request, Request):
            raise invalid("request", "a request object, such as CreateRefund(...)", request)
        call = self._codec.call(request)
        answer: R = request.answer.of(call, await self._reply(call, timeout))  # type: ignore[assignment] # its own
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

        Raises:
            PayasyncError: As for any other call.
        """
        operation = custom(method, path, read=read)
        call = self._codec.custom(operation, fields, bearer=bearer, signed=signed)
        return Response.of(call, await self._reply(call, timeout))

    async def _reply(self, call: Call, seconds: float | None) -> Reply:
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

    def with_options(self, *, timeouts: Timeouts | None = None, retry: RetryPolicy | None = None) -> Self:
        """Return a copy with other times or retries, on the same connections; closing it does not close them.

        Raises:
            ConfigurationError: A value of another type.
        """
        timeouts = self._setup.timeouts if timeouts is None else timeouts
        retry = self._setup.retry if retry is None else retry
        return self._copy(evolve(self._setup, timeouts=timeouts, retry=retry))

    def for_merchant(self, credentials: Credentials) -> Self:
        """Return a copy for another merchant, on the same connections; closing it does not close them.

        Raises:
            ConfigurationError: A value of another type.
        """
        return self._copy(evolve(self._setup, credentials=credentials))

    def _copy(self, setup: Setup) -> Self:
        copy = object.__new__(type(self))
        copy._wire(setup, self._transport, self._flights, owner=False)
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
            await self._flights.landed(grace)
        finally:
            await self._transport.aclose()

    async def __aenter__(self) -> Self:
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


class _Flights:
    """The calls in flight of a session and its copies, and whether further ones may start."""

    def __init__(self) -> None:
        self.closed = False
        self._tasks: dict[asyncio.Future[None], asyncio.Task[Any] | None] = {}

    def begin(self) -> "asyncio.Future[None]":
        flight = asyncio.get_running_loop().create_future()
        self._tasks[flight] = asyncio.current_task()
        return flight

    def end(self, flight: "asyncio.Future[None]") -> None:
        del self._tasks[flight]
        flight.set_result(None)

    async def landed(self, grace: float) -> None:
        """Wait for the calls of this loop, but not for those that wait for us in turn."""
        here, me = asyncio.get_running_loop(), asyncio.current_task()
        others = [flight for flight, task in self._tasks.items() if flight.get_loop() is here and task is not me]
        if others and grace > 0:
            await asyncio.wait(others, timeout=grace)


def _profile(given: str | None) -> Profile:
    if given is None:
        return Profile()
    return SANDBOX if given.strip() == "sandbox" else Profile.from_file(given.strip())
