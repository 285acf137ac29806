"""`payasync sandbox`: the whole service, in a process of its own."""

import json
import logging
import re
import shlex
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from attrs import asdict, frozen
from rich.console import Console

from payasync import __version__
from payasync.cli.signals import stopped_by_signals
from payasync.cli.terminal import Lines, Part, plain
from payasync.credentials import Credentials
from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.model import Entry
from payasync.sandbox.rules import RefundSetting
from payasync.sandbox.webhooks import Delivery

if TYPE_CHECKING:
    from payasync.credentials import Secret

MEMORY: Final = ":memory:"


@frozen(kw_only=True)
class Welcome:
    """Where a sandbox is, and how it is used.

    Attributes:
        url: Where it listens.
        dashboard: The dashboard, with the token that opens it.
        admin_token: The same for scripts, as `Authorization: Bearer`.
        openapi: The description of its endpoints.
        profile: The name of the profile in force.
        clock: Its clock.
        refunds: How refunds end.
        db: Its database; empty where it keeps nothing.
        environment: The variables by which `Session.from_env` finds it.
    """

    url: str
    dashboard: str
    admin_token: str
    openapi: str
    profile: str
    clock: str
    refunds: str
    db: str
    environment: dict[str, str]

    @classmethod
    def of(
        cls, sandbox: Sandbox, profile: Path | None, *, clock: str, db: str, refunds: str = "succeed", **_others: Any
    ) -> Self:
        """Return what a sandbox that runs says.

        Args:
            sandbox: It.
            profile: The TOML file that it was given.
            clock: Its clock.
            db: Its database.
            refunds: How refunds end.
        """
        token = sandbox.admin_token.reveal()
        return cls(
            url=sandbox.url,
            dashboard=f"{sandbox.url}/?token={token}",
            admin_token=token,
            openapi=f"{sandbox.url}/openapi.json",
            profile=sandbox.profile.name,
            clock=clock,
            refunds=refunds,
            db="" if db == MEMORY else str(Path(db).absolute()),
            environment={
                "PAYASYNC_BASE_URL": sandbox.url,
                "PAYASYNC_PROFILE": str(profile.absolute()) if profile else "sandbox",
                **_keys(sandbox.credentials),
            },
        )

    def lines(self) -> list[str]:
        """Return the environment as lines for a shell."""
        return [f"export {name}={shlex.quote(value)}" for name, value in self.environment.items()]

    def json(self) -> str:
        """Return all of it as one line."""
        return json.dumps(asdict(self))


def _keys(credentials: Credentials) -> dict[str, str]:
    shared = credentials.service_keys == (credentials.signing_key,)
    held: dict[str, tuple[Secret | None, ...]] = {
        "SECRET_KEY": (credentials.secret_key,),
        "PUBLIC_KEY": (credentials.public_key,),
        "SIGNING_KEY": (credentials.signing_key,),
        "SERVICE_KEYS": () if shared else credentials.service_keys,
        "NOTIFICATION_KEYS": credentials.notification_keys,
    }
    texts = {name: "\n".join(key.reveal() for key in keys if key) for name, keys in held.items()}
    return {
        "PAYASYNC_MERCHANT_ID": credentials.merchant_id,
        **{f"PAYASYNC_{name}": text.strip() for name, text in texts.items() if text},
    }


_COLOURS: Final = {2: "green", 3: "cyan", 4: "yellow", 5: "bold red"}
_REFUNDS: Final = {
    "succeed": "succeed at once",
    "fail": "fail at once",
    "by hand": "stay open until you end them, on the dashboard",
}
_HANG: Final = 14
"""The column where a line goes on below: that of the name."""


class SandboxScreen:
    """The terminal, or whatever stands in its place: plain lines then, each written at once.

    Args:
        json: Show one line of JSON, and no more.
        console: Written to in place of the terminal.
    """

    def __init__(self, *, json: bool = False, console: Console | None = None) -> None:
        self._lines = Lines(console)
        self._json = json

    def opened(self, welcome: Welcome) -> None:
        """Say where the sandbox is, and how it is used."""
        if self._json:
            self._lines.write(welcome.json())
            return
        self._lines.write(("payasync sandbox", "bold"), f" {__version__}: a stand-in for the service; no money moves")
        self._lines.write()
        self._lines.row("Listens", welcome.url)
        self._lines.row("Dashboard", welcome.dashboard)
        self._lines.row("OpenAPI", welcome.openapi)
        self._lines.row("Profile", _profile(welcome), "bold")
        self._lines.row("Clock", welcome.clock, "bold")
        self._lines.row("Refunds", _REFUNDS.get(welcome.refunds) or f"succeed after {welcome.refunds}", "bold")
        self._lines.row("Database", welcome.db or "in memory; --db keeps it in a file", "bold")
        self._lines.write()
        self._lines.write("  To use it, paste this where your program runs; Session.from_env() reads it:")
        self._lines.write()
        for line in welcome.lines():
            self._lines.write((line, "cyan"))
        self._lines.write()
        self._lines.write(("  Ctrl-C ends it.", "dim"))
        self._lines.write()

    def request(self, entry: Entry) -> None:
        """Show a request that was answered, or ended without an answer."""
        took = "" if entry.milliseconds is None else f"{entry.milliseconds:.1f} ms"
        self._lines.write(
            *_began(_now(), entry.status),
            f"{plain(entry.name):22}  ",
            (f"{took:>9}  ", "dim"),
            (plain(entry.reference), "bold"),
            *_remarks(entry),
            hang=_HANG,
        )

    def notification(self, delivery: Delivery) -> None:
        """Show an attempt to deliver a notification, and what comes next where it was not acknowledged."""
        now = _now()
        event, reference = f"notify {plain(delivery.event)}", (plain(delivery.reference), "bold")
        if delivery.error:
            why = "; ".join(filter(None, (plain(delivery.error), _next(delivery, now))))
            rest: tuple[Part, ...] = (f"{event} ", reference, (f": {why}  ", "yellow"), (plain(delivery.where), "dim"))
        else:
            rest = f"{event:33}  ", reference
        self._lines.write(*_began(now, delivery.status), *rest, hang=_HANG)

    def closed(self) -> None:
        """Say that it has ended."""
        if not self._json:
            self._lines.write()
            self._lines.write("The sandbox has stopped.")


def _profile(welcome: Welcome) -> str:
    file = welcome.environment["PAYASYNC_PROFILE"]
    return f"{welcome.profile}, the sandbox's own" if file == "sandbox" else f"{welcome.profile or 'unnamed'}, {file}"


def _now() -> datetime:
    return datetime.now().astimezone()


def _began(now: datetime, status: int | None) -> tuple[Part, ...]:
    """Return how a line begins: when, and the HTTP status."""
    return (f"{now:%H:%M:%S}  ", "dim"), (f"{status or '-':<4}", _COLOURS.get((status or 500) // 100, ""))


def _next(delivery: Delivery, now: datetime) -> str:
    if delivery.state == "dead":
        return f"given up after {delivery.tries} attempts"
    if delivery.state == "delivered":
        return ""
    if delivery.wait is None:
        return "again when the clock is advanced"
    return f"again at {now + timedelta(seconds=delivery.wait):%H:%M:%S}"


def _remarks(entry: Entry) -> tuple[Part, ...]:
    why = f"  {plain(entry.outcome)} {plain(entry.reason)}" if entry.reason else ""
    return (why, "yellow"), (f"  [fault: {entry.fault}]" if entry.fault else "", "magenta")


NEWS: Final = logging.getLogger("payasync.sandbox")
"""Tells of each request that was answered, and of each notification that was attempted."""

_TIME: Final = re.compile(r"([1-9][0-9]{0,4})(s|min|h|d)")
_UNITS: Final = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}
_WORDS: Final[dict[str, RefundSetting]] = {"succeed": "succeed", "fail": "fail", "by hand": "by hand"}


@frozen(kw_only=True)
class Options:
    """What the command was given.

    Attributes:
        profile: A TOML file; `None`: the sandbox's own profile.
        quiet: Show no requests, and no notifications.
        settings: Arguments of `Sandbox`; `refunds` is a text, as `refund_setting` takes it.
    """

    profile: Path | None
    quiet: bool
    settings: dict[str, Any]


def refund_setting(text: str) -> RefundSetting:
    """Return how refunds are to end, from one of the sandbox's own words, or from a time such as `30s`.

    Raises:
        ConfigurationError: It is neither.
    """
    if setting := _WORDS.get(text):
        return setting
    if time := _TIME.fullmatch(text):
        return timedelta(**{_UNITS[time[2]]: int(time[1])})
    rule = 'succeed, fail, "by hand", or a time such as 30s, 5min, 2h or 3d'
    raise ConfigurationError(f"refunds must be {rule}, not {text!r}", field="refunds")


async def run(options: Options, screen: SandboxScreen) -> None:
    """Serve until SIGINT or SIGTERM comes.

    Args:
        options: What the command was given.
        screen: Shows it.

    Raises:
        ConfigurationError: An option is wrong, the port is taken, or the database cannot be used.
    """
    profile = PROFILE if options.profile is None else Profile.from_file(options.profile)
    settings: dict[str, Any] = {**options.settings, "refunds": refund_setting(options.settings["refunds"])}
    stop = stopped_by_signals()
    watching = Watching(screen)
    try:
        if not options.quiet:
            watching.begin()
        async with Sandbox(profile, **settings) as sandbox:
            screen.opened(Welcome.of(sandbox, options.profile, **options.settings))
            watching.show()
            await stop.wait()
            watching.end()
            sandbox.faults.clear()  # one that still waits is no failure here: no test armed it
    finally:
        watching.end()
    screen.closed()


class Watching(logging.Handler):
    """Shows requests and notifications; what a database has due at the start, once there is something above it."""

    def __init__(self, screen: SandboxScreen) -> None:
        super().__init__(logging.INFO)
        self._screen = screen
        self._early: list[logging.LogRecord] | None = []

    def begin(self) -> None:
        """Take note of what happens."""
        NEWS.addHandler(self)
        NEWS.setLevel(logging.INFO)
        NEWS.propagate = False

    def show(self) -> None:
        """Show what has happened, and from now on each thing as it happens."""
        early, self._early = self._early or [], None
        for record in early:
            self.emit(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a request or a notification."""
        told = record.__dict__
        if self._early is not None:
            self._early.append(record)
        elif "seen" in told:
            self._screen.request(told["seen"])
        elif "delivery" in told:
            self._screen.notification(told["delivery"])
        elif logging.lastResort:
            logging.lastResort.handle(record)  # a defect of our own, as Python would show it

    def end(self) -> None:
        """Show no more."""
        NEWS.removeHandler(self)
