"""`payasync sandbox`: the whole service, in a process of its own."""

import asyncio
import json
import logging
import re
import shlex
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

import click
from attrs import asdict, frozen
from rich.console import Console

from payasync.cli.options import profile_from
from payasync.cli.signals import stopped_by_signals
from payasync.cli.terminal import Lines, Part, fail
from payasync.errors import ConfigurationError, plain
from payasync.sandbox import Sandbox
from payasync.sandbox.model import Entry
from payasync.sandbox.rules import RefundSetting
from payasync.sandbox.webhooks import Delivery
from payasync.session import SANDBOX_WORD

_UNITS: Final = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}
_REFUNDS: Final = {
    "succeed": "succeed immediately",
    "fail": "fail immediately",
    "by hand": "stay open until you end them, on the dashboard",
}


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address: it serves only this machine.")
@click.option("--port", default=8402, show_default=True, help="The port; 0 picks a free one.")
@click.option("--db", default=":memory:", metavar="FILE", help="Store all data in this file, including the keys.")
@click.option(
    "--profile",
    type=click.Path(),
    default=SANDBOX_WORD,
    metavar="FILE",
    help="The profile to follow, a TOML file. Default: sandbox, the sandbox's own.",
)
@click.option(
    "--clock", default="real", show_default=True, metavar="PACE", help="real, frozen, or a speed factor such as 60."
)
@click.option(
    "--refunds",
    default="succeed",
    show_default=True,
    metavar="END",
    help='How refunds end: succeed, fail, "by hand" (on the dashboard), or a time such as 30s, 5min, 2h, 3d.',
)
@click.option("--webhook-url", metavar="URL", help="Where to send notifications of requests that have no notifyUrl.")
@click.option("--quiet", is_flag=True, help="Do not show requests and notifications.")
@click.option("--json", is_flag=True, help="Print only one line of JSON, at the start, for scripts.")
def sandbox(profile: str, *, quiet: bool, json: bool, **settings: Any) -> None:
    """Run a stand-in for the service on this machine.

    It has the service's gateway page, and a dashboard. It prints the settings with which other commands and your
    program find it.

    \b
    Examples:
      payasync sandbox
      payasync sandbox --db sandbox.db --refunds "by hand" --clock 60

    \b
    Exit codes:
      0    Ctrl-C or SIGTERM stopped it
      2    it cannot start
    """  # noqa: D301 - click does not wrap a paragraph after this character
    try:
        asyncio.run(run(profile, SandboxScreen(json=json), settings, quiet=quiet or json))
    except ConfigurationError as error:
        fail("sandbox", error)


async def run(profile: str, screen: "SandboxScreen", settings: dict[str, Any], *, quiet: bool) -> None:
    """Serve until SIGINT or SIGTERM comes.

    Args:
        profile: A TOML file, or the word `sandbox`: the sandbox's own profile.
        screen: Shows where it is, and what happens.
        settings: Arguments of `Sandbox`; `refunds` is a text, as `refund_setting` takes it.
        quiet: Show no requests, and no notifications.

    Raises:
        ConfigurationError: An option is invalid, the port is taken, or the database cannot be used.
    """
    followed, file = profile_from(profile), None if profile == SANDBOX_WORD else Path(profile)
    arguments: dict[str, Any] = {**settings, "refunds": refund_setting(settings["refunds"])}
    stop = stopped_by_signals()
    log = LogScreen(screen)
    try:
        async with Sandbox(followed, **arguments) as sandbox:
            screen.opened(_describe(sandbox, file, settings))
            if not quiet:
                _LOGGER.addHandler(log)
                _LOGGER.setLevel(logging.INFO)
                _LOGGER.propagate = False
            await stop.wait()
            _LOGGER.removeHandler(log)
            sandbox.faults.clear()  # a fault that still waits is no failure here: no test armed it
    finally:
        _LOGGER.removeHandler(log)
    screen.closed()


def refund_setting(text: str) -> RefundSetting:
    """Return how refunds are to end, from one of the sandbox's own words, or from a time such as `30s`.

    Raises:
        ConfigurationError: It is neither.
    """
    if text in _REFUNDS:
        return cast("RefundSetting", text)
    if time := re.fullmatch(r"([1-9][0-9]{0,4})(s|min|h|d)", text):
        return timedelta(**{_UNITS[time[2]]: int(time[1])})
    rule = 'succeed, fail, "by hand", or a time such as 30s, 5min, 2h or 3d'
    raise ConfigurationError(f"refunds must be {rule}, not {text!r}", field="refunds")


@frozen(kw_only=True)
class SandboxInfo:
    """Where a sandbox is, and how it is used.

    Attributes:
        url: Where it listens.
        dashboard: The dashboard, with the token that opens it.
        admin_token: The same for scripts, as `Authorization: Bearer`.
        openapi: The description of its endpoints.
        profile: The name of its profile.
        clock: Its clock.
        refunds: How refunds end.
        db: Its database; empty if it is in memory.
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


def _describe(sandbox: Sandbox, profile: Path | None, settings: dict[str, Any]) -> SandboxInfo:
    token, db = sandbox.admin_token.reveal(), settings["db"]
    return SandboxInfo(
        url=sandbox.url,
        dashboard=f"{sandbox.url}/?token={token}",
        admin_token=token,
        openapi=f"{sandbox.url}/openapi.json",
        profile=sandbox.profile.name,
        clock=settings["clock"],
        refunds=settings["refunds"],
        db="" if db == ":memory:" else str(Path(db).absolute()),
        environment=environment_of(sandbox, profile),
    )


def environment_of(sandbox: Sandbox, profile: Path | None = None) -> dict[str, str]:
    """Return the variables by which `Session.from_env` finds a sandbox, and its keys.

    Args:
        sandbox: The sandbox, which is running.
        profile: The TOML file of its profile; `None`: the sandbox's own.
    """
    credentials = sandbox.credentials
    variables = {
        "PAYASYNC_BASE_URL": sandbox.url,
        "PAYASYNC_PROFILE": str(profile.absolute()) if profile else "sandbox",
        "PAYASYNC_MERCHANT_ID": credentials.merchant_id,
    }
    for name in ("secret_key", "public_key", "signing_key", "service_keys", "notification_keys"):
        value = getattr(credentials, name)
        keys = value if isinstance(value, tuple) else (value,)
        shared = name == "service_keys" and keys == (credentials.signing_key,)
        if text := "\n".join(key.reveal() for key in keys if key and not shared).strip():
            variables[f"PAYASYNC_{name.upper()}"] = text
    return variables


_COLOURS: Final = {2: "green", 3: "cyan", 4: "yellow", 5: "bold red"}
_HANG: Final = 14
"""The indent of continuation lines: the column of the name."""


class SandboxScreen:
    """What a person or a script sees of the sandbox.

    Args:
        json: Show one line of JSON, and no more.
        console: Written to in place of the terminal.
    """

    def __init__(self, *, json: bool = False, console: Console | None = None) -> None:
        self._lines = Lines(console)
        self._json = json

    def opened(self, info: SandboxInfo) -> None:
        """Say where the sandbox is, and how it is used."""
        write, row = self._lines.write, self._lines.row
        if self._json:
            write(json.dumps(asdict(info)))
            return
        file = info.environment["PAYASYNC_PROFILE"]
        own = file == "sandbox"
        profile = f"{info.profile}, the sandbox's own" if own else f"{info.profile or 'unnamed'}, {file}"
        self._lines.title("sandbox", "a stand-in for the service; no money moves")
        row("Listens", info.url)
        row("Dashboard", info.dashboard)
        row("OpenAPI", info.openapi)
        row("Profile", profile, "bold")
        row("Clock", info.clock, "bold")
        row("Refunds", _REFUNDS.get(info.refunds) or f"succeed after {info.refunds}", "bold")
        row("Database", info.db or "in memory; --db stores it in a file", "bold")
        write()
        self._lines.paragraph("  To use it, paste this where your program, or payasync order place, runs:")
        for name, value in info.environment.items():
            write((f"export {name}={shlex.quote(value)}", "cyan"))
        write()
        self._lines.paragraph(("  Press Ctrl-C to stop.", "dim"))

    def request(self, entry: Entry) -> None:
        """Show a request that had a response, or ended without one."""
        took = "" if entry.milliseconds is None else f"{entry.milliseconds:.1f} ms"
        self._lines.write(
            *_begin(_now(), entry.status),
            f"{plain(entry.name):22}  ",
            (f"{took:>9}  ", "dim"),
            (plain(entry.reference), "bold"),
            (f"  {plain(entry.outcome)} {plain(entry.reason)}" if entry.reason else "", "yellow"),
            (f"  [fault: {entry.fault}]" if entry.fault else "", "magenta"),
            hang=_HANG,
        )

    def notification(self, delivery: Delivery) -> None:
        """Show an attempt to deliver a notification, and what comes next if it was not acknowledged."""
        now, entry = _now(), delivery.entry
        event, reference = f"notify {plain(entry.name)}", (plain(entry.reference), "bold")
        if entry.reason:
            why = "; ".join(filter(None, (plain(entry.reason), _next_attempt(delivery, now))))
            rest: tuple[Part, ...] = (f"{event} ", reference, (f": {why}  ", "yellow"), (plain(delivery.where), "dim"))
        else:
            rest = f"{event:33}  ", reference
        self._lines.write(*_begin(now, entry.status), *rest, hang=_HANG)

    def closed(self) -> None:
        """Say that the sandbox has ended."""
        if not self._json:
            self._lines.write()
            self._lines.write("The sandbox has stopped.")


def _now() -> datetime:
    return datetime.now().astimezone()


def _begin(now: datetime, status: int | None) -> tuple[Part, ...]:
    """Return how a line begins: the time, and the HTTP status."""
    return (f"{now:%H:%M:%S}  ", "dim"), (f"{status or '-':<4}", _COLOURS.get((status or 500) // 100, ""))


def _next_attempt(delivery: Delivery, now: datetime) -> str:
    if delivery.state == "dead":
        return f"given up after {delivery.tries} attempts"
    if delivery.state == "delivered":
        return ""
    if delivery.wait is None:
        return "again when the clock is advanced"
    return f"again at {now + timedelta(seconds=delivery.wait):%H:%M:%S}"


_LOGGER: Final = logging.getLogger("payasync.sandbox")
"""Logs each response, and each attempt to deliver a notification."""


class LogScreen(logging.Handler):
    """Shows requests and notifications from the log."""

    def __init__(self, screen: SandboxScreen) -> None:
        super().__init__(logging.INFO)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Show a request or a notification."""
        facts = record.__dict__
        if "seen" in facts:
            self._screen.request(Entry(**facts["seen"]))
        elif "delivery" in facts:
            self._screen.notification(facts["delivery"])
        elif logging.lastResort:
            logging.lastResort.handle(record)  # a defect of our own, as Python would show it
