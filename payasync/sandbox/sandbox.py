"""The sandbox as its users see it: its parts, their order of ending, and its lifetime."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web
from attrs import field, frozen

from payasync.credentials import Credentials, Secret
from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.profile.sandbox_profile import PROFILE
from payasync.sandbox.api import Admission, Api
from payasync.sandbox.arguments import check_url
from payasync.sandbox.clock import Alarm, ClockSetting, Pace, Timepiece, Timers, pace
from payasync.sandbox.customer import Customer
from payasync.sandbox.database import MEMORY, by_hand, location
from payasync.sandbox.dialect import Dialect, Failures, checked_failures
from payasync.sandbox.factories import Bank, Given
from payasync.sandbox.faults.arming import Faults
from payasync.sandbox.faults.injection import FaultInjector
from payasync.sandbox.ledger import Ledger
from payasync.sandbox.openapi import MARK
from payasync.sandbox.receiver import RecordingReceiver, Verifier
from payasync.sandbox.response_signing import Seal
from payasync.sandbox.rules import RefundSetting, RefundTerms, RepeatedSetting, refund_terms
from payasync.sandbox.scheduler import Agenda, Clock, keep, resumed
from payasync.sandbox.server import MOST_READ, Door, access_logger, listen, turns, url_of
from payasync.sandbox.service import Service
from payasync.sandbox.signatures import Keys, keys_of
from payasync.sandbox.store import Numbering, Store
from payasync.sandbox.timeline import Recorder, Timeline, line
from payasync.sandbox.web.admin import Admin
from payasync.sandbox.web.gateway import Gateway
from payasync.sandbox.web.pages import gateway_path
from payasync.sandbox.webhooks import Acknowledgement, Deliveries, Notifier, Outbox, outgoing_client
from payasync.session import Session

SHUTDOWN_SECONDS: Final = 1.0
"""How long a request under way may take while the sandbox closes."""


@frozen
class Running:
    """What there is between start and close.

    Attributes:
        url: Where it listens.
        agenda: Does what falls due.
        clock: Tells and advances the time.
        bank: Ends refunds, and has charges fail.
        keys: Those of its merchant, and its own.
        customer: Uses the gateway page.
        ledger: Reads what was done.
        given: Makes starting points.
        service: Does what is asked.
        timeline: Tells what happened.
        resend: Sends a notification again, by its number.
        closing: Closes all of it.
    """

    url: str
    agenda: Agenda
    clock: Clock
    bank: Bank
    keys: Keys
    customer: Customer
    ledger: Ledger
    given: Given
    service: Service
    timeline: Timeline
    resend: Callable[[str], None]
    closing: AsyncExitStack = field(repr=False)


@frozen(kw_only=True)
class Settings:
    """What a sandbox is started with.

    Attributes:
        profile: What the service does.
        failures: How refusals are told.
        host: Where to listen: a loopback address.
        port: Where to listen; 0: a free port.
        db: The database's file.
        webhook_url: Where notifications go of what has no address of its own.
        allow_remote: Send notifications beyond loopback, too.
        faults: Those that are armed.
        pace: How the time goes.
        terms: How refunds end.
    """

    profile: Profile
    failures: Failures
    host: str
    port: int
    db: str
    webhook_url: str | None
    allow_remote: bool
    faults: Faults
    pace: Pace
    terms: RefundTerms


@frozen(kw_only=True)
class _Core:
    """The service, with all that it needs, and nothing that listens or sends."""

    keys: Keys
    dialect: Dialect
    seal: Seal
    store: Store
    timepiece: Timepiece
    service: Service


async def start(settings: Settings, keys: Keys | None) -> Running:
    """Return a sandbox that runs; where something fails, all that was opened is closed again.

    Args:
        settings: What it is started with.
        keys: Those of its merchant, and its own; `None`: those that the database keeps.

    Raises:
        ConfigurationError: The host is not this machine, the port is taken, or the database cannot be used.
    """
    async with AsyncExitStack() as stack:
        listening = listen(settings.host, settings.port)
        door = Door(listening)
        stack.callback(door.close)
        url = url_of(listening)
        core = _core(settings, keys, stack)
        agenda = _agenda(settings, core, stack)
        settings.faults.serve(door)
        stack.callback(settings.faults.serve, None)
        clock, timeline = Clock(core.timepiece, agenda), Timeline(core.store)
        injector = FaultInjector(settings.faults.armed_faults, door=door, deliver=agenda.settle)
        admin = Admin(
            url=url,
            keys=core.keys,
            words=core.dialect.words,
            store=core.store,
            timeline=timeline,
            service=core.service,
            faults=settings.faults,
            clock=clock,
            pace=settings.pace,
        )
        await _serve(_application(settings.profile, core, url=url, injector=injector, admin=admin), door, stack)
        numbers, store, service = core.dialect.payloads.numbers, core.store, core.service
        return Running(
            url=url,
            agenda=agenda,
            clock=clock,
            bank=Bank(service, store, numbers),
            keys=core.keys,
            customer=_customer(core, url, stack),
            ledger=Ledger(store, numbers),
            given=Given(service, store, settings.profile.identifier),
            service=service,
            timeline=timeline,
            resend=partial(_resend, service, store),
            closing=stack.pop_all(),
        )


def _core(settings: Settings, keys: Keys | None, stack: AsyncExitStack) -> _Core:
    dialect = Dialect(settings.profile, settings.failures)
    store = Store(settings.db)
    stack.callback(store.close)
    keys = keys or keys_of(settings.profile, store.kept)
    timepiece = resumed(store, settings.pace)
    store.use_clock(timepiece.now)
    stack.callback(keep, store)
    service = Service(
        store,
        now=timepiece.now,
        written=dialect.payloads.notification,
        webhook_url=settings.webhook_url,
        numbering=Numbering(settings.profile),
        terms=settings.terms,
    )
    seal = Seal(dialect.words, keys.service)
    return _Core(keys=keys, dialect=dialect, seal=seal, store=store, timepiece=timepiece, service=service)


def _agenda(settings: Settings, core: _Core, stack: AsyncExitStack) -> Agenda:
    """Return what runs timers and deliveries; what fell due meanwhile is done before anybody asks for it."""
    notifier = Notifier(
        core.keys.merchant.notification_keys[0],
        Acknowledgement.of(core.dialect.acknowledged, settings.profile.notification),
        core.seal,
        allow_remote=settings.allow_remote,
    )
    stack.push_async_callback(notifier.close)
    store, timepiece = core.store, core.timepiece
    alarm = Alarm(store, Timers(store), timepiece, core.service.falling)
    while alarm.run_next(timepiece.now()) is not None:
        pass
    deliveries = Deliveries(store, Outbox(store), notifier, timepiece, settings.faults.armed_faults)
    agenda = Agenda(timepiece, alarm, deliveries, partial(keep, store))
    stack.push_async_callback(agenda.close)
    store.on_commit(agenda.wake)
    return agenda


def _customer(core: _Core, url: str, stack: AsyncExitStack) -> Customer:
    http = outgoing_client(allow_remote=False)
    stack.push_async_callback(http.close)
    return Customer(
        http,
        page_url=lambda number: _page_of(core.store, url, number),
        base=url,
        numbers=core.dialect.payloads.numbers,
    )


def _application(profile: Profile, core: _Core, *, url: str, injector: FaultInjector, admin: Admin) -> web.Application:
    service, store, merchant = core.service, core.store, core.keys.merchant
    api = Api(
        dialect=core.dialect,
        admission=Admission(profile, merchant),
        service=service,
        store=store,
        page_url=lambda order: url + gateway_path(order),
        seal=core.seal,
        faults=injector,
    )
    gateway = Gateway(service=service, store=store, merchant=merchant.merchant_id, unit=profile.amount_unit)
    recorder = Recorder(admin.timeline)
    application = web.Application(middlewares=[admin.check_host, recorder.note, api.shape_errors])
    application.add_routes([*api.routes(), *gateway.routes(), *admin.routes()])
    application.on_response_prepare.append(_mark)
    application.on_shutdown.append(injector.end)
    return application


async def _serve(application: web.Application, door: Door, stack: AsyncExitStack) -> None:
    runner = web.AppRunner(
        application,
        access_log=None,
        auto_decompress=False,
        shutdown_timeout=SHUTDOWN_SECONDS,
        max_line_size=MOST_READ,
        logger=access_logger,
    )
    stack.push_async_callback(turns)
    stack.push_async_callback(runner.cleanup)
    application.middlewares.insert(0, door.note)
    await runner.setup()
    assert runner.server is not None  # noqa: S101 - it was set up
    await door.open(runner.server)
    stack.callback(door.close)
    stack.push_async_callback(_last_accepted, door)


async def _last_accepted(door: Door) -> None:
    # A connection that asyncio accepts in the very turn in which its server closes is left open, with a warning.
    door.rest()
    await turns()


async def _mark(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers[MARK] = "1"


def _resend(service: Service, store: Store, notification_id: str) -> None:
    with by_hand(store, notification_id=notification_id):
        service.telling.resend(notification_id)


def _page_of(store: Store, url: str, number: str) -> str | None:
    order = store.order_named(number)
    return url + gateway_path(order) if order else None


class Sandbox:
    """A local implementation of the whole service, over real HTTP on this machine.

    All that the service's document leaves open is answered by the profile, and where that is open too, by
    the sandbox's own `PROFILE`. Use it with `async with`, or with `start` and `close`.

    Args:
        profile: What the service does; the sandbox speaks it, and checks what it is sent by it. The names of
            `notification.kinds` it takes in the order paid, failed, closed, expired; succeeded, failed; renewed, past
            due, cancelled, started. An end of an order that has no name is not told.
        host: Where it listens: 127.0.0.1, another loopback address, `::1`, or `localhost` (which is 127.0.0.1).
        port: Where it listens; 0: a free port.
        db: The SQLite database's file, which keeps everything; `:memory:` keeps nothing.
        webhook_url: Where notifications go of what has no `notifyUrl`: endpoint 1, subscriptions, and orders
            and refunds without one.
        allow_remote: Send notifications beyond loopback, too.
        clock: `"real"`; `"frozen"`, which moves by `clock.advance` only; an aware `datetime`: frozen there; or a
            factor such as 60 or `"60x"`: so many sandbox seconds in a real one.
        refunds: How they end: `"succeed"` or `"fail"` at once, `"by hand"` (`bank.settle_refund`), or with success
            after a `timedelta` of the sandbox's time.
        repeated_refunds: What the same request for a refund means, sent again: `"same"`, that refund, or
            `"refused"`.
        failures: How refusals are told: `"status"`, by the HTTP status; `"200"`, by the result code inside HTTP 200,
            where only what is no request at all (400, 404, 405, 413, 414, 415) has a status. By itself, the latter
            where the profile has `answer.code` and says `http.not_executed = []`: that no status means anything.

    Attributes:
        profile: As given.
        faults: Has the service fail. One that was armed and never fired makes `async with` raise
            `FaultNeverFiredError` as it ends, unless something else went wrong before.

    Raises:
        ConfigurationError: The profile's algorithm needs a package that is not installed, or a setting is none.
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
        self.profile: Final = _checked_profile(profile)
        self._failures: Failures = checked_failures(failures)
        self._pace = pace(clock)
        self._terms = refund_terms(refunds, repeated_refunds)
        self._db = location(db)
        self._keys: Keys | None = keys_of(profile) if self._db == MEMORY else None
        self._host = host
        self._port = port
        self._webhook_url = _checked_webhook(webhook_url)
        self._allow_remote = allow_remote
        self.faults: Final = Faults(profile.http)
        self._running: Running | None = None

    @property
    def url(self) -> str:
        """Where it listens: the base URL of a session.

        Raises:
            ConfigurationError: It does not run.
        """
        return self._started("url").url

    @property
    def credentials(self) -> Credentials:
        """Those of its one merchant, drawn afresh, or as the database's file has them.

        `notification_keys[0]` is the `whsec_…` secret of its notifications, and `service_keys` verify the answers
        and the notifications that it signs itself.

        Raises:
            ConfigurationError: They stand in a file, and it has not run yet.
        """
        return self._known_keys().merchant

    @property
    def admin_token(self) -> Secret:
        """Opens the dashboard: `{url}/?token=...` in a browser, `Authorization: Bearer ...` for scripts.

        Raises:
            ConfigurationError: It stands in a file, and the sandbox has not run yet.
        """
        return self._known_keys().admin

    @property
    def clock(self) -> Clock:
        """The sandbox's time: `now`, `advance`.

        Raises:
            ConfigurationError: It does not run.
        """
        return self._started("clock").clock

    @property
    def bank(self) -> Bank:
        """Ends refunds by hand, and has charges of subscriptions fail.

        Raises:
            ConfigurationError: It does not run.
        """
        return self._started("bank").bank

    @property
    def customer(self) -> Customer:
        """Does what a customer does on the gateway page: `authorize`, `decline`, `cancel`.

        Raises:
            ConfigurationError: It does not run.
        """
        return self._started("customer").customer

    @property
    def ledger(self) -> Ledger:
        """What the service really did.

        Raises:
            ConfigurationError: It does not run.
        """
        return self._started("ledger").ledger

    @property
    def given(self) -> Given:
        """Starting points for tests, such as a paid order.

        Raises:
            ConfigurationError: It does not run.
        """
        return self._started("given").given

    @property
    def webhook_url(self) -> str | None:
        """Where notifications go of what has no `notifyUrl`; it may be changed at any time.

        Raises:
            ConfigurationError: It is changed to what is no absolute http or https URL.
        """
        return self._webhook_url

    @webhook_url.setter
    def webhook_url(self, url: str | None) -> None:
        self._webhook_url = _checked_webhook(url)
        if self._running:
            self._running.service.telling.webhook_url = url

    def session(self, **overrides: Any) -> Session:
        """Return a session that is configured for this sandbox.

        Args:
            overrides: Arguments of `Session`, in place of or beside the sandbox's own.

        Raises:
            ConfigurationError: The sandbox does not run, or `Session` refuses an override.
        """
        own: dict[str, Any] = {"credentials": self.credentials, "profile": self.profile}
        return Session(self._started("session").url, **{**own, **overrides})

    def receiver(self) -> RecordingReceiver:
        """Return a server that takes and verifies this sandbox's notifications; use it with `async with`.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        self._started("receiver")
        return RecordingReceiver(Verifier(self.profile, self._known_keys()))

    def timeline(self) -> list[str]:
        """Return the newest requests, changes of state and deliveries as lines to be printed, oldest first.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        return [line(entry) for entry in self._started("timeline").timeline.entries()]

    async def settle(self) -> None:
        """Return when all that was due is done: timers have run, and notifications have been attempted.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        await self._started("settle").agenda.settle()

    async def resend(self, notification_id: str) -> None:
        """Have a notification delivered once more, whatever became of it; `settle` waits for that.

        Args:
            notification_id: Its number, as in `ledger.notifications()` and in the header `webhook-id`.

        Raises:
            ConfigurationError: The sandbox does not run.
            InvalidArgumentError: There is no such notification.
        """
        self._started("resend").resend(notification_id)

    async def start(self) -> Self:
        """Listen, and deliver what is due.

        Raises:
            ConfigurationError: It runs already, its port is taken, or its database cannot be used.
        """
        if self._running:
            raise ConfigurationError("the sandbox runs already: close it first")
        settings = Settings(
            profile=self.profile,
            failures=self._failures,
            host=self._host,
            port=self._port,
            db=self._db,
            webhook_url=self._webhook_url,
            allow_remote=self._allow_remote,
            faults=self.faults,
            pace=self._pace,
            terms=self._terms,
        )
        self._running = await start(settings, self._keys if self._db == MEMORY else None)
        return self

    async def close(self) -> None:
        """Stop listening and delivering; closing again does nothing."""
        running, self._running = self._running, None
        if running:
            await running.closing.aclose()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
        if kind is None:
            self.faults.check()

    def _known_keys(self) -> Keys:
        self._keys = self._keys or self._started("credentials").keys
        return self._keys

    def _started(self, name: str) -> Running:
        if self._running is None:
            raise ConfigurationError(f"the sandbox does not run: {name} is there between start and close")
        return self._running


def _checked_profile(profile: object) -> Profile:
    if isinstance(profile, Profile):
        return profile
    raise ConfigurationError(
        f"profile must be a Profile, such as Profile.from_file gives, not {profile!r}", field="profile"
    )


def _checked_webhook(url: str | None) -> str | None:
    try:
        return None if url is None else check_url(url)
    except ValueError as error:
        rule = str(error)
    raise ConfigurationError(f"webhook_url must be {rule}, not {url!r}", field="webhook_url")
