"""The parts of a sandbox that runs: what each is given, and in which order they end."""

import socket
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final

from aiohttp import web
from attrs import field, frozen

from payasync.credentials import Credentials
from payasync.errors import ConfigurationError
from payasync.profile import Profile
from payasync.sandbox import pages
from payasync.sandbox.admission import Admission
from payasync.sandbox.api import Api
from payasync.sandbox.customer import Customer
from payasync.sandbox.dialect import Dialect
from payasync.sandbox.gateway import Gateway
from payasync.sandbox.given import Given
from payasync.sandbox.ledger import Ledger
from payasync.sandbox.notifier import Acknowledgement, Notifier, outgoing_client
from payasync.sandbox.service import Service
from payasync.sandbox.store import Store

HOST: Final = "127.0.0.1"
MARK: Final = "X-Payasync-Sandbox"
SHUTDOWN_SECONDS: Final = 1.0
"""How long a request under way may take while the sandbox closes."""


@frozen
class Running:
    """What there is between start and close.

    Attributes:
        url: Where it listens.
        notifier: Delivers notifications.
        customer: Uses the gateway page.
        ledger: Reads what was done.
        given: Makes starting points.
        closing: Closes all of it.
    """

    url: str
    notifier: Notifier
    customer: Customer
    ledger: Ledger
    given: Given
    closing: AsyncExitStack = field(repr=False)


async def start(
    profile: Profile, credentials: Credentials, *, port: int, db: str, webhook_url: str | None, allow_remote: bool
) -> Running:
    """Return a sandbox that runs; where something fails, all that was opened is closed again.

    Args:
        profile: What the service does.
        credentials: Those of its merchant.
        port: Where to listen; 0: a free port.
        db: The database's file.
        webhook_url: Where notifications go of what has no address of its own.
        allow_remote: Send notifications beyond loopback, too.

    Raises:
        ConfigurationError: The port is taken, or the database cannot be used.
    """
    dialect = Dialect(profile)
    async with AsyncExitStack() as stack:
        listening = _listening(port)
        stack.callback(listening.close)
        url = f"http://{HOST}:{listening.getsockname()[1]}"
        store = Store(db)
        stack.callback(store.close)
        notifier = Notifier(
            store,
            credentials.notification_keys[0],
            Acknowledgement.of(dialect.acknowledged),
            allow_remote=allow_remote,
        )
        stack.push_async_callback(notifier.close)
        store.on_commit(notifier.wake)
        http = outgoing_client(allow_remote=False)
        stack.push_async_callback(http.close)
        service = Service(
            store, now=lambda: datetime.now(UTC), written=dialect.payloads.notification, webhook_url=webhook_url
        )
        application = _application(profile, credentials, dialect=dialect, service=service, store=store, url=url)
        await _serve(application, listening, stack)
        customer = Customer(http, page_url=lambda number: _page_of(store, url, number), base=url)
        return Running(url, notifier, customer, Ledger(store), Given(service, store), stack.pop_all())


def _application(
    profile: Profile, credentials: Credentials, *, dialect: Dialect, service: Service, store: Store, url: str
) -> web.Application:
    api = Api(
        dialect=dialect,
        admission=Admission(profile, credentials),
        service=service,
        store=store,
        page_url=lambda order: url + pages.address(order),
    )
    gateway = Gateway(service=service, store=store, merchant=credentials.merchant_id, unit=profile.amount_unit)
    application = web.Application(middlewares=[api.shape_errors])
    application.add_routes([*api.routes(), *gateway.routes()])
    application.on_response_prepare.append(_mark)
    return application


async def _serve(application: web.Application, listening: socket.socket, stack: AsyncExitStack) -> None:
    runner = web.AppRunner(application, access_log=None, auto_decompress=False, shutdown_timeout=SHUTDOWN_SECONDS)
    stack.push_async_callback(runner.cleanup)
    await runner.setup()
    await web.SockSite(runner, listening).start()


async def _mark(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers[MARK] = "1"


def _page_of(store: Store, url: str, out_trade_no: str) -> str | None:
    order = store.order(out_trade_no)
    return url + pages.address(order) if order else None


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except (OSError, OverflowError) as error:
        why = str(error)
    raise ConfigurationError(f"port: cannot listen on {HOST}:{port}: {why}", field="port")
