"""The sandbox's lifetime, and the wiring of its parts."""

import socket
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

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
from payasync.sandbox.keys import new_credentials
from payasync.sandbox.ledger import Ledger
from payasync.sandbox.notifier import Acknowledgement, Notifier, outgoing_client
from payasync.sandbox.service import Service
from payasync.sandbox.store import Store
from payasync.sandbox.values import Order
from payasync.sandbox.vocabulary import Vocabulary
from payasync.sandbox_profile import PROFILE
from payasync.session import Session

HOST: Final = "127.0.0.1"
MARK: Final = "X-Payasync-Sandbox"
SHUTDOWN_SECONDS: Final = 1.0
"""How long a request under way may take while the sandbox closes."""


@frozen
class _Running:
    """What there is between start and close."""

    url: str
    notifier: Notifier
    customer: Customer
    ledger: Ledger
    given: Given
    closing: AsyncExitStack = field(repr=False)


class Sandbox:
    """A local implementation of the whole service, over real HTTP on this machine.

    All that the service's document leaves open is answered by the profile, and where that is open too, by
    the sandbox's own `PROFILE`. Use it with `async with`, or with `start` and `close`.

    Args:
        profile: What the service does; the sandbox speaks it, and checks what it is sent by it.
        port: Where it listens on 127.0.0.1; 0: a free port.
        db: The SQLite database's file, which keeps everything; `:memory:` keeps nothing.
        webhook_url: Where notifications go of what has no `notifyUrl`: endpoint 1, subscriptions, and orders
            without one.
        allow_remote: Send notifications beyond loopback, too.

    Attributes:
        profile: As given.
        credentials: Those of its one merchant, drawn afresh; `notification_keys[0]` is the `whsec_…` secret
            of its notifications.

    Raises:
        ConfigurationError: The profile's algorithm needs a package that is not installed.
    """

    def __init__(
        self,
        profile: Profile = PROFILE,
        *,
        port: int = 0,
        db: str = ":memory:",
        webhook_url: str | None = None,
        allow_remote: bool = False,
    ) -> None:
        self.profile: Final = profile
        self.credentials: Final[Credentials] = new_credentials(profile)
        self._port = port
        self._db = db
        self._webhook_url = webhook_url
        self._allow_remote = allow_remote
        self._running: _Running | None = None

    @property
    def url(self) -> str:
        """Where it listens: the base URL of a session.

        Raises:
            ConfigurationError: It does not run.
        """
        return self._started("url").url

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

    def session(self, **overrides: Any) -> Session:
        """Return a session that is configured for this sandbox.

        Args:
            overrides: Arguments of `Session`, in place of or beside the sandbox's own.

        Raises:
            ConfigurationError: The sandbox does not run, or `Session` refuses an override.
        """
        own: dict[str, Any] = {"credentials": self.credentials, "profile": self.profile}
        return Session(self._started("session").url, **{**own, **overrides})

    async def settle(self) -> None:
        """Return when every notification that is due has been attempted.

        Raises:
            ConfigurationError: The sandbox does not run.
        """
        await self._started("settle").notifier.settle()

    async def start(self) -> Self:
        """Listen, and deliver what is due.

        Raises:
            ConfigurationError: It runs already, its port is taken, or its database cannot be used.
        """
        if self._running:
            raise ConfigurationError("the sandbox runs already: close it first")
        async with AsyncExitStack() as stack:
            self._running = await self._start(stack)
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

    def _started(self, name: str) -> _Running:
        if self._running is None:
            raise ConfigurationError(f"the sandbox does not run: {name} is there between start and close")
        return self._running

    async def _start(self, stack: AsyncExitStack) -> _Running:
        """Return a sandbox that runs; what was opened is closed again where something fails."""
        listening = _listening(self._port)
        stack.callback(listening.close)
        url = f"http://{HOST}:{listening.getsockname()[1]}"
        store = Store(self._db)
        stack.callback(store.close)
        notifier = self._notifier(store)
        stack.push_async_callback(notifier.close)
        http = outgoing_client(allow_remote=False)
        stack.push_async_callback(http.close)
        service = self._service(store)
        runner = web.AppRunner(
            self._application(service, store, url),
            access_log=None,
            auto_decompress=False,
            shutdown_timeout=SHUTDOWN_SECONDS,
        )
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        return _Running(
            url,
            notifier,
            Customer(http, page_url=lambda number: _page_of(store, url, number), base=url),
            Ledger(store),
            Given(service, store),
            stack.pop_all(),
        )

    def _notifier(self, store: Store) -> Notifier:
        notifier = Notifier(
            store,
            self.credentials.notification_keys[0],
            Acknowledgement.of(Vocabulary(self.profile).notification),
            allow_remote=self._allow_remote,
        )
        store.on_commit(notifier.wake)
        return notifier

    def _service(self, store: Store) -> Service:
        return Service(
            store,
            now=lambda: datetime.now(UTC),
            written=Dialect(self.profile).payloads.notification,
            webhook_url=self._webhook_url,
        )

    def _application(self, service: Service, store: Store, url: str) -> web.Application:
        api = Api(
            dialect=Dialect(self.profile),
            admission=Admission(self.profile, self.credentials),
            service=service,
            store=store,
            page_url=lambda order: url + pages.address(order),
        )
        gateway = Gateway(
            service=service, store=store, merchant=self.credentials.merchant_id, unit=self.profile.amount_unit
        )
        application = web.Application(middlewares=[api.shape_errors])
        application.add_routes([*api.routes(), *gateway.routes()])
        application.on_response_prepare.append(_mark)
        return application


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
