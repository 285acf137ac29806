"""The sandbox as its users see it: lifetime, and a door to each part."""

from os import PathLike
from types import TracebackType
from typing import Any, Final, Self

from payasync.credentials import Credentials
from payasync.errors import ConfigurationError
from payasync.profile import Profile
from payasync.sandbox import checks
from payasync.sandbox.bank import Bank
from payasync.sandbox.clock import Clock
from payasync.sandbox.customer import Customer
from payasync.sandbox.database import MEMORY, location
from payasync.sandbox.dialect import Failures, checked_failures
from payasync.sandbox.faults.arming import Faults
from payasync.sandbox.given import Given
from payasync.sandbox.keys import Keys, keys_of
from payasync.sandbox.ledger import Ledger
from payasync.sandbox.pace import ClockSetting, pace
from payasync.sandbox.receiver import RecordingReceiver, Verifier
from payasync.sandbox.terms import RefundSetting, RepeatedSetting, refund_terms
from payasync.sandbox.timeline import line
from payasync.sandbox.wiring import Running, Settings, start
from payasync.sandbox_profile import PROFILE
from payasync.secret import Secret
from payasync.session import Session


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
        return None if url is None else checks.url(url)
    except ValueError as error:
        rule = str(error)
    raise ConfigurationError(f"webhook_url must be {rule}, not {url!r}", field="webhook_url")
