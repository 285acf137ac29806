"""The parts of a sandbox that runs: what each is given, and in which order they end."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from aiohttp import web
from attrs import field, frozen

from payasync.credentials import Credentials
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
from payasync.sandbox.listening import listen, url_of
from payasync.sandbox.notifier import Acknowledgement, Notifier, outgoing_client
from payasync.sandbox.openapi import MARK
from payasync.sandbox.outbox import Outbox
from payasync.sandbox.pace import Pace
from payasync.sandbox.recorder import Recorder
from payasync.sandbox.seal import Seal
from payasync.sandbox.service import Service
from payasync.sandbox.store import Store
from payasync.sandbox.terms import RefundTerms
from payasync.sandbox.timeline import Timeline
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


async def start(
    profile: Profile,
    keys: Keys | None,
    *,
    failures: Failures,
    host: str,
    port: int,
    db: str,
    webhook_url: str | None,
    allow_remote: bool,
    faults: Faults,
    pace: Pace,
    terms: RefundTerms,
) -> Running:
    """Return a sandbox that runs; where something fails, all that was opened is closed again.

    Args:
        profile: What the service does.
        keys: Those of its merchant, and its own; `None`: those that the database keeps.
        failures: How refusals are told.
        host: Where to listen: a loopback address.
        port: Where to listen; 0: a free port.
        db: The database's file.
        webhook_url: Where notifications go of what has no address of its own.
        allow_remote: Send notifications beyond loopback, too.
        faults: Those that are armed.
        pace: How the time goes.
        terms: How refunds end.

    Raises:
        ConfigurationError: The host is not this machine, the port is taken, or the database cannot be used.
    """
    dialect = Dialect(profile, failures)
    async with AsyncExitStack() as stack:
        listening = listen(host, port)
        door = Door(listening)
        stack.callback(door.close)
        url = url_of(listening)
        store = Store(db)
        stack.callback(store.close)
        keys = keys or keys_of(profile, store.kept)
        credentials = keys.merchant
        seal = Seal(dialect.words, keys.service)
        timepiece = resumed(store, pace)
        store.use_clock(timepiece.now)
        stack.callback(keep, store)
        notifier = Notifier(
            credentials.notification_keys[0],
            Acknowledgement.of(dialect.acknowledged, profile.notification),
            seal,
            allow_remote=allow_remote,
        )
        stack.push_async_callback(notifier.close)
        http = outgoing_client(allow_remote=False)
        stack.push_async_callback(http.close)
        service = Service(
            store,
            now=timepiece.now,
            written=dialect.payloads.notification,
            webhook_url=webhook_url,
            terms=terms,
        )
        alarm = Alarm(store, Timers(store), timepiece, service.falling)
        # What fell due meanwhile is done before anybody asks for it.
        while alarm.run_next(timepiece.now()) is not None:
            pass
        deliveries = Deliveries(store, Outbox(store), notifier, timepiece.now, faults.armoury)
        agenda = Agenda(timepiece, alarm, deliveries, partial(keep, store))
        stack.push_async_callback(agenda.close)
        store.on_commit(agenda.wake)
        wire = Wire(faults.armoury, door=door, told=agenda.settle)
        faults.serve(door)
        stack.callback(faults.serve, None)
        clock, timeline = Clock(timepiece, agenda), Timeline(store)
        shown = Shown(
            url=url,
            keys=keys,
            words=dialect.words,
            store=store,
            timeline=timeline,
            service=service,
            faults=faults,
            clock=clock,
            pace=pace,
        )
        application = _application(
            profile,
            credentials,
            dialect=dialect,
            seal=seal,
            service=service,
            store=store,
            url=url,
            wire=wire,
            shown=shown,
        )
        await _serve(application, door, stack)
        customer = Customer(
            http, page_url=lambda number: _page_of(store, url, number), base=url, numbers=dialect.payloads.numbers
        )
        return Running(
            url=url,
            agenda=agenda,
            clock=clock,
            bank=Bank(service, store, dialect.payloads.numbers),
            keys=keys,
            customer=customer,
            ledger=Ledger(store, dialect.payloads.numbers),
            given=Given(service, store, profile.identifier),
            service=service,
            timeline=timeline,
            resend=lambda number: _resend(service, store, number),
            closing=stack.pop_all(),
        )


def _application(
    profile: Profile,
    credentials: Credentials,
    *,
    dialect: Dialect,
    seal: Seal,
    service: Service,
    store: Store,
    url: str,
    wire: Wire,
    shown: Shown,
) -> web.Application:
    api = Api(
        dialect=dialect,
        admission=Admission(profile, credentials),
        service=service,
        store=store,
        page_url=lambda order: url + pages.address(order),
        seal=seal,
        wire=wire,
    )
    gateway = Gateway(service=service, store=store, merchant=credentials.merchant_id, unit=profile.amount_unit)
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
    stack.push_async_callback(_turns)
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
    await _turns()


async def _turns() -> None:
    """Let the loop finish what it has begun: a connection that it has just accepted, or is closing."""
    for _ in range(3):
        await asyncio.sleep(0)


async def _mark(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers[MARK] = "1"


def _resend(service: Service, store: Store, notification_id: str) -> None:
    with by_hand(store, notification_id=notification_id):
        service.telling.resend(notification_id)


def _page_of(store: Store, url: str, number: str) -> str | None:
    order = store.order_named(number)
    return url + pages.address(order) if order else None
