"""The sandbox as its users see it: lifetime, and a door to each part."""

from types import TracebackType
from typing import Any, Final, Self

from payasync.errors import ConfigurationError
from payasync.profile import Profile
from payasync.sandbox.customer import Customer
from payasync.sandbox.given import Given
from payasync.sandbox.keys import new_credentials
from payasync.sandbox.ledger import Ledger
from payasync.sandbox.wiring import Running, start
from payasync.sandbox_profile import PROFILE
from payasync.session import Session


class Sandbox:
    """A local implementation of the whole service, over real HTTP on this machine.

    All that the service's document leaves open is answered by the profile, and where that is open too, by
    the sandbox's own `PROFILE`. Use it with `async with`, or with `start` and `close`.

    Args:
        profile: What the service does; the sandbox speaks it, and checks what it is sent by it.
        port: Where it listens on 127.0.0.1; 0: a free port.
        db: The SQLite database's file, which keeps everything; `:memory:` keeps nothing.
        webhook_url: Where notifications go of what has no `notifyUrl`: endpoint 1, subscriptions, and orders
            and refunds without one.
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
        self.credentials: Final = new_credentials(profile)
        self._port = port
        self._db = db
        self._webhook_url = webhook_url
        self._allow_remote = allow_remote
        self._running: Running | None = None

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
        self._running = await start(
            self.profile,
            self.credentials,
            port=self._port,
            db=self._db,
            webhook_url=self._webhook_url,
            allow_remote=self._allow_remote,
        )
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

    def _started(self, name: str) -> Running:
        if self._running is None:
            raise ConfigurationError(f"the sandbox does not run: {name} is there between start and close")
        return self._running
