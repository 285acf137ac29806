"""The parts of a sandbox that runs: what each is given, and in which order they end."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from aiohttp import web
from attrs import field, frozen

from payasync.profile import Profile
from payasync.sandbox import pages, receiving
from payasync.sandbox.admission import Admission
from payasync.sandbox.agenda import Agenda
from payasync.sandbox.api import Api
from payasync.sandbox.bank import Bank
from payasync.sandbox.by_hand import by_hand
from payasync.sandbox.clock import Clock
from payasync.sandbox.customer import Customer
from payasync.sandbox.dashboard_wiring import Shown
from payasync.sandbox.deliveries import Deliveries
from payasync.sandbox.dialect import Dialect, Failures
from payasync.sandbox.door import Door
from payasync.sandbox.faults.arming import Faults
from payasync.sandbox.faults.wire import Wire
from payasync.sandbox.gateway import Gateway
from payasync.sandbox.given import Given
from payasync.sandbox.keeping import keep, resumed
from payasync.sandbox.keys import Keys, keys_of
from payasync.sandbox.ledger import Ledger
from payasync.sandbox.listening import listen, turns, url_of
from payasync.sandbox.notifier import Acknowledgement, Notifier, outgoing_client
from payasync.sandbox.numbers import Numbering
from payasync.sandbox.openapi import MARK
from payasync.sandbox.outbox import Outbox
from payasync.sandbox.pace import Pace
from payasync.sandbox.recorder import Recorder
from payasync.sandbox.seal import Seal
from payasync.sandbox.service import Service
from payasync.sandbox.store import Store
from payasync.sandbox.terms import RefundTerms
from payasync.sandbox.timeline import Timeline
from payasync.sandbox.timepiece import Timepiece
from payasync.sandbox.timers import Alarm, Timers

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
        wire = Wire(settings.faults.armoury, door=door, told=agenda.settle)
        shown = Shown(
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
        await _serve(_application(settings.profile, core, url=url, wire=wire, shown=shown), door, stack)
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
    deliveries = Deliveries(store, Outbox(store), notifier, timepiece, settings.faults.armoury)
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


def _application(profile: Profile, core: _Core, *, url: str, wire: Wire, shown: Shown) -> web.Application:
    service, store, merchant = core.service, core.store, core.keys.merchant
    api = Api(
        dialect=core.dialect,
        admission=Admission(profile, merchant),
        service=service,
        store=store,
        page_url=lambda order: url + pages.address(order),
        seal=core.seal,
        wire=wire,
    )
    gateway = Gateway(service=service, store=store, merchant=merchant.merchant_id, unit=profile.amount_unit)
    admin, recorder = shown.admin(), Recorder(shown.timeline)
    application = web.Application(middlewares=[admin.check_host, recorder.note, api.shape_errors])
    application.add_routes([*api.routes(), *gateway.routes(), *admin.routes()])
    application.on_response_prepare.append(_mark)
    application.on_shutdown.append(wire.end)
    return application


async def _serve(application: web.Application, door: Door, stack: AsyncExitStack) -> None:
    runner = web.AppRunner(
        application,
        access_log=None,
        auto_decompress=False,
        shutdown_timeout=SHUTDOWN_SECONDS,
        max_line_size=receiving.MOST_READ,
        logger=receiving.logger,
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
    return url + pages.address(order) if order else None
