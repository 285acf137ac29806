"""The sandbox as its users see it: its settings, its parts, and its lifetime."""

import asyncio
from contextlib import AsyncExitStack
from os import PathLike
from typing import Any, Final, Self

from aiohttp import web
from attrs import field, frozen

from payasync.credentials import Credentials, Secret
from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.profile.sandbox_profile import PROFILE
from payasync.sandbox.api import Api
from payasync.sandbox.arguments import check_url
from payasync.sandbox.clock import Clock, ClockSetting, read_clock_rate
from payasync.sandbox.controls import Bank, Customer, Factories, Ledger, Numbers, manual_change
from payasync.sandbox.dialect import Dialect, Failures
from payasync.sandbox.faults.arming import Faults
from payasync.sandbox.faults.injection import FaultInjector
from payasync.sandbox.openapi import MARK
from payasync.sandbox.recording_receiver import RecordingReceiver
from payasync.sandbox.rules import RefundSetting, RepeatedSetting, refund_terms
from payasync.sandbox.server import MAX_BODY, Server, access_logger, check_loop, listen, running_loop, url_of
from payasync.sandbox.service import Service
from payasync.sandbox.signatures import Keys, ServiceSigner, make_keys
from payasync.sandbox.store import MEMORY, Store, read_location
from payasync.sandbox.timeline import RequestRecorder
from payasync.sandbox.web.dashboard import AdminAccess, Dashboard
from payasync.sandbox.web.gateway import Gateway
from payasync.sandbox.webhooks import Deliveries, outgoing_client
from payasync.session import Session
from payasync.settings import invalid_setting
from payasync.transport.pools import SANDBOXES, foreign_loop

SHUTDOWN_SECONDS: Final = 1.0
"""How long a request in flight may take while the sandbox closes."""


@frozen(kw_only=True)
class _Services:
    """What exists between start and close."""

    loop: asyncio.AbstractEventLoop
    url: str
    clock: Clock
    service: Service
    recorder: RequestRecorder
    bank: Bank
    customer: Customer
    ledger: Ledger
    given: Factories
    closing: AsyncExitStack = field(repr=False)


class Sandbox:
    """A local implementation of the whole service, over real HTTP on this machine.

    The profile defines the points that the common interface leaves open, and the sandbox's own `PROFILE` the rest.
    Use it with `async with`, or with `start` and `close`.
    It works only in the event loop in which it was started. `ThreadedSandbox` works with every loop.

    Args:
        profile: What the service does. The sandbox follows it, and checks requests by it. It reads the names in
            `notification.kinds` in the order paid, failed, closed, expired; succeeded, failed; renewed, past due,
            cancelled, started. Notifications of orders that have no name there are not sent.
        host: The address to listen on: 127.0.0.1, another loopback address, `::1`, or `localhost` (127.0.0.1).
        port: The port to listen on; 0: a free one.
        db: The file of the SQLite database, which stores everything; `:memory:` stores nothing.
        webhook_url: Where notifications go that have no `notifyUrl`: those of endpoint 1 and of subscriptions, and
            those of orders and refunds that gave none.
        allow_remote: Also send notifications beyond loopback.
        clock: `"real"`; `"frozen"`, which only `clock.advance` moves; an aware `datetime`, frozen there; or a factor
            such as 60 or `"60x"`: sandbox seconds in a real second.
        refunds: How refunds end: `"succeed"` or `"fail"` immediately, `"by hand"` (`bank.settle_refund`), or with
            success after a `timedelta` of the sandbox's time.
        repeated_refunds: What the same request for a refund returns when it is sent again: `"same"`, the first
            refund, or `"refused"`, a refusal.
        failures: How refusals are sent: `"status"`, by the HTTP status, or `"200"`, by the result code inside HTTP
            200. With `"200"`, only requests that cannot be read have another status (400, 404, 405, 413, 415).
            Left out: as `sandbox.failures` of the profile says.

    Attributes:
        profile: As given.
        faults: Arms faults. If one was armed and never fired, `async with` raises `FaultNeverFiredError` at its end,
            unless another error was raised before.

    Raises:
        ConfigurationError: A setting is invalid, or the profile's algorithm needs a package that is not installed. Or a
            refusal inside HTTP 200 has no code in `sandbox.codes` of the profile.
    """

    def __init__(
        self,
        profile: Profile = PROFILE,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        db: str | PathLike[str] = MEMORY,
        webhook_url: str | None = None,
        allow_remote: bool = False,
        clock: ClockSetting = "real",
        refunds: RefundSetting = "succeed",
        repeated_refunds: RepeatedSetting = "same",
        failures: Failures = "",
    ) -> None:
        if not isinstance(profile, Profile):
            raise invalid_setting("profile", f"must be a Profile, such as Profile.from_file gives, not {profile!r}")
        self.profile: Final = profile
        self._dialect = Dialect(profile, failures)
        self._clock_rate = read_clock_rate(clock)
        self._terms = refund_terms(refunds, repeated_refunds)
        self._db = read_location(db)
        self._keys: Keys | None = make_keys(profile) if self._db == MEMORY else None
        self._host = host
        self._port = port
        self._webhook_url = _checked_webhook(webhook_url)
        self._allow_remote = allow_remote
        self.faults: Final = Faults(profile.http)
        self._running: _Services | None = None

    @property
    def url(self) -> str:
        """The base URL, for a session.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        return self._started("url").url

    @property
    def credentials(self) -> Credentials:
        """The credentials of its one merchant: new ones, or those in the database's file.

        `notification_keys[0]` is the `whsec_…` secret of its notifications. `service_keys` verify the responses and the
        notifications that it signs itself.

        Raises:
            ConfigurationError: They are in a file, and the sandbox has not run yet.
        """
        return self._known_keys().merchant

    @property
    def admin_token(self) -> Secret:
        """Opens the dashboard at `{url}/?token=...` in a browser.

        Scripts send it in the header `Authorization: Bearer ...`.

        Raises:
            ConfigurationError: It is in a file, and the sandbox has not run yet.
        """
        return self._known_keys().admin

    @property
    def clock(self) -> Clock:
        """The sandbox's time: `now`, `advance`.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        return self._started("clock").clock

    @property
    def bank(self) -> Bank:
        """Ends refunds, and makes charges of subscriptions fail.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        return self._started("bank").bank

    @property
    def customer(self) -> Customer:
        """Does what a customer does on the gateway page: `authorize`, `decline`, `cancel`.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        return self._started("customer").customer

    @property
    def ledger(self) -> Ledger:
        """What the service really did.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        return self._started("ledger").ledger

    @property
    def given(self) -> Factories:
        """Starting points for tests, such as a paid order.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        return self._started("given").given

    @property
    def webhook_url(self) -> str | None:
        """Where notifications go if there is no `notifyUrl`; it may be changed at any time.

        Raises:
            ConfigurationError: The new value is not an absolute http or https URL.
        """
        return self._webhook_url

    @webhook_url.setter
    def webhook_url(self, url: str | None) -> None:
        self._webhook_url = _checked_webhook(url)
        if self._running:
            self._running.service.webhook_url = url

    def session(self, **overrides: Any) -> Session:
        """Return a session that is configured for this sandbox.

        Args:
            overrides: Arguments of `Session`, which go before the sandbox's own.

        Raises:
            ConfigurationError: The sandbox does not run, or `Session` refuses an override.
        """
        own: dict[str, Any] = {"credentials": self.credentials, "profile": self.profile}
        return Session(self._started("session").url, **{**own, **overrides})

    def receiver(self) -> RecordingReceiver:
        """Return a server that receives and verifies this sandbox's notifications; use it with `async with`.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        self._started("receiver")
        return RecordingReceiver(self._dialect.names, self._known_keys())

    def timeline(self) -> list[str]:
        """Return the newest requests, changes of state and deliveries as printable lines, oldest first.

        Requests that are still in progress are the last lines, without a time.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        return self._started("timeline").recorder.format_timeline()

    async def settle(self) -> None:
        """Return when all that was due is done: timers have run, and notifications have been attempted.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        await self._started("settle").clock.settle()

    async def resend(self, notification_id: str) -> None:
        """Deliver a notification once more, whatever its state; `settle` waits for it.

        Args:
            notification_id: Its number, as in `ledger.notifications()` and in the header `webhook-id`.

        Raises:
            ConfigurationError: The sandbox does not run.
            InvalidArgumentError: There is no such notification.
        """
        running = self._started("resend")
        with manual_change(running.service.store, notification_id=notification_id):
            running.service.resend(notification_id)

    async def start(self) -> Self:
        """Listen, and deliver due notifications.

        Raises:
            ConfigurationError: The sandbox runs already, its port is in use, or its database cannot be used.
        """
        if self._running:
            self._started("start")
            raise ConfigurationError("the sandbox runs already: close it first")
        async with AsyncExitStack() as stack:
            self._running = await self._open(stack)
        return self

    async def _open(self, stack: AsyncExitStack) -> _Services:
        """Return a sandbox that runs; if something fails, the stack closes all that was opened."""
        listening = listen(self._host, self._port)
        server, url = Server(listening), url_of(listening)
        stack.callback(server.close)
        clock, service = self._open_service(stack)
        keys = self._known_keys()
        store, dialect = service.store, service.dialect
        signer = ServiceSigner(dialect, keys)
        browser, http = outgoing_client(allow_remote=False), outgoing_client(allow_remote=self._allow_remote)
        stack.push_async_callback(browser.close)
        stack.push_async_callback(http.close)
        deliveries = Deliveries(store, clock, self.faults, signer=signer, names=dialect.names, http=http)
        stack.push_async_callback(clock.close)
        clock.start(service.due_actions, deliveries)
        self.faults.serve(server)
        stack.callback(self.faults.serve, None)
        recorder = RequestRecorder(store)
        injector = FaultInjector(self.faults, server=server, deliver=clock.settle)
        api = Api(service, credentials=keys.merchant, recorder=recorder, url=url, signer=signer, faults=injector)
        access = AdminAccess(url, keys.admin)
        dashboard = Dashboard(access, service, recorder, faults=self.faults, clock=clock, rate=self._clock_rate)
        application = web.Application(
            client_max_size=MAX_BODY,
            middlewares=[server.mark_busy, dashboard.check_host, recorder.record_request, api.shape_errors],
        )
        application.add_routes([*api.routes(), *Gateway(service).routes(), *dashboard.routes()])
        application.on_response_prepare.append(_mark)
        application.on_shutdown.append(injector.end)
        serving = server.serve(application, shutdown_timeout=SHUTDOWN_SECONDS, logger=access_logger)
        await stack.enter_async_context(serving)
        numbers = Numbers(dialect.number_paths())
        SANDBOXES[url] = loop = asyncio.get_running_loop()
        stack.callback(SANDBOXES.pop, url, None)
        return _Services(
            loop=loop,
            url=url,
            clock=clock,
            service=service,
            recorder=recorder,
            bank=Bank(service, numbers),
            customer=Customer(browser, store, numbers, url),
            ledger=Ledger(store, numbers),
            given=Factories(service),
            closing=stack.pop_all(),
        )

    def _open_service(self, stack: AsyncExitStack) -> tuple[Clock, Service]:
        store = Store(self._db)
        stack.callback(store.close)
        if self._db != MEMORY:
            self._keys = make_keys(self.profile, store.stored_key)
        clock = Clock(self._clock_rate, store)
        stack.callback(clock.store_time)
        return clock, Service(store, self._dialect, terms=self._terms, webhook_url=self._webhook_url)

    async def close(self) -> None:
        """Stop listening and delivering; closing again does nothing.

        Raises:
            ConfigurationError: It was started in another event loop.
        """
        running = self._running
        if running:
            check_loop(running.loop)
            self._running = None
            await running.closing.aclose()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        await self.close()
        if kind is None:
            self.faults.check()

    def _known_keys(self) -> Keys:
        if self._keys is None:
            raise _not_running("credentials")
        return self._keys

    def _started(self, name: str) -> _Services:
        if self._running is None:
            raise _not_running(name)
        loop = self._running.loop
        if not loop.is_running() and (running_loop() or loop.is_closed()):
            raise foreign_loop()
        return self._running


def _not_running(name: str) -> ConfigurationError:
    return ConfigurationError(f"the sandbox does not run: {name} is there between start and close")


async def _mark(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers[MARK] = "1"


def _checked_webhook(url: str | None) -> str | None:
    try:
        return None if url is None else check_url(url)
    except ValueError as error:
        raise ConfigurationError(f"webhook_url must be {error}, not {url!r}", field="webhook_url") from None
