"""What a person sees of `payasync sandbox`: where it is, then one line for each request and each notification."""

from datetime import datetime, timedelta
from typing import Final

from rich.console import Console

from payasync.cli.sandbox_welcome import Welcome
from payasync.cli.terminal import Lines, Part, plain
from payasync.sandbox.delivery import Delivery
from payasync.sandbox.timeline import Entry
from payasync.version import VERSION

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
        self._lines.write(("payasync sandbox", "bold"), f" {VERSION}: a stand-in for the service; no money moves")
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
