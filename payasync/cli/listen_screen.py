"""What a person sees of `payasync listen`: where it is, then one line for each notification."""

import json
from typing import Final

from attrs import asdict, frozen
from rich.console import Console

from payasync.cli.heard import Heard, Verdict
from payasync.cli.terminal import Lines, Part, plain
from payasync.shapes import Kind
from payasync.version import VERSION

_STYLES: Final[dict[Verdict, str]] = {
    "verified": "green",
    "hint": "yellow",
    "refused": "bold red",
    "not kept": "bold red",
}
_MEANT: Final[dict[Kind, str]] = {
    "payment": "orders' notifyUrl",
    "refund": "refunds' notifyUrl",
    "subscription": "webhook endpoint",
}
_MOST: Final = 40
"""Characters of a key that are shown: one that is a hash says nothing to a person."""
_WIDE: Final = 120
"""Columns from which on there is room for the key, which repeats what stands before it."""
_HANG: Final = 20
"""The column where a line goes on below: that of the event."""


@frozen(kw_only=True)
class Opening:
    """What it says of itself at its start.

    Attributes:
        url: Where it listens.
        routed: Only the address says the kind; else the payload does, too.
        inbox: The file that keeps what comes.
        saved: The folder where each is a file, too; empty where there is none.
        profile: The name of the profile.
        source: Where that comes from.
        checks: How notifications are verified, in words; empty where they are not.
        yes: The answer that acknowledges.
        no: The answer that refuses.
    """

    url: str
    routed: bool
    inbox: str
    saved: str
    profile: str
    source: str
    checks: str
    yes: str
    no: str

    @property
    def addresses(self) -> dict[Kind, str]:
        """Where the service is to send notifications, by their kind."""
        return {kind: f"{self.url}/notify/{kind}" for kind in _MEANT}

    @property
    def webhook_url(self) -> str:
        """Where it is to send what has no address of its own."""
        return self.addresses["subscription"] if self.routed else f"{self.url}/notify"

    @property
    def command(self) -> str:
        """The command that has a sandbox tell it; listen with the keys that it prints."""
        return f"payasync sandbox --webhook-url {self.webhook_url}"

    def json(self) -> str:
        """Return all of it as one line."""
        return json.dumps({**asdict(self), "addresses": self.addresses, "webhook_url": self.webhook_url})


class ListenScreen:
    """The terminal, or whatever stands in its place.

    Args:
        json: Show lines of JSON, and no others.
        console: Written to in place of the terminal.
    """

    def __init__(self, *, json: bool = False, console: Console | None = None) -> None:
        self._lines = Lines(console)
        self._json = json

    def opened(self, opening: Opening) -> None:
        """Say where it listens, and what it believes."""
        if self._json:
            self._lines.write(opening.json())
            return
        write = self._lines.write
        write(("payasync listen", "bold"), f" {VERSION}: keeps and shows notifications; none is handled")
        write()
        self._facts(opening)
        write()
        write("  Addresses to give to the service:")
        write()
        self._addresses(opening)
        write()
        write(("  For a try, have the sandbox tell it:", "dim"))
        write()
        write(f"  {opening.command}")
        write()
        write(("  Ctrl-C ends it.", "dim"))
        write()

    def _facts(self, opening: Opening) -> None:
        row = self._lines.row
        row("Profile", f"{opening.profile or 'unnamed'}, {opening.source}", "bold")
        row("Verifies", opening.checks or "nothing: the profile says that they are not signed", "bold")
        if not opening.checks:
            row("", "What comes is a hint, confirmed by nobody: anybody could have sent it", "yellow")
        row("Answers", f"{opening.yes}; {opening.no} to what it refuses", "bold")
        row("Inbox", opening.inbox, "bold")
        if opening.saved:
            row("Saves", f"each as a file in {opening.saved}", "bold")

    def _addresses(self, opening: Opening) -> None:
        told: dict[str, tuple[str, str]] = {f"{kind}s": (opening.addresses[kind], _MEANT[kind]) for kind in _MEANT}
        if not opening.routed:
            told["any of them"] = opening.webhook_url, "payload says which"
        width = max(len(address) for address, _ in told.values())
        for name, (address, meant) in told.items():
            self._lines.write((f"  {name:13}  ", "dim"), (f"{address:{width}}  ", "bold cyan"), meant, hang=17)

    def heard(self, heard: Heard) -> None:
        """Show a notification."""
        if self._json:
            self._lines.write(heard.json())
            return
        key = _in_short(plain(heard.key)) if self._lines.width >= _WIDE else ""
        self._lines.write(
            (f"{heard.at.astimezone():%H:%M:%S}  ", "dim"),
            (f"{heard.verdict:8}  ", _STYLES[heard.verdict]),
            *(_told(heard) if heard.key else (f"{heard.kind or '-':12}  ",)),
            ("again  " if heard.again else "", "cyan"),
            (f"{plain(heard.why)}  " if heard.why else "", "yellow"),
            (key, "dim"),
            hang=_HANG,
        )

    def closed(self) -> None:
        """Say that it has ended."""
        if not self._json:
            self._lines.write()
            self._lines.write("It listens no more; the inbox keeps what came.")


def _told(heard: Heard) -> tuple[Part, ...]:
    return (
        f"{_event(heard):22}  ",
        (f"{plain(heard.reference) or '-':14}  ", "bold"),
        f"{plain(heard.amount):>10}  ",
    )


def _event(heard: Heard) -> str:
    """Return the event, which mostly begins with its kind; else both."""
    if heard.kind and heard.event.startswith(f"{heard.kind}."):
        return plain(heard.event)
    return " ".join(filter(None, (heard.kind, plain(heard.event)))) or "-"


def _in_short(key: str) -> str:
    return key if len(key) <= _MOST else f"{key[: _MOST - 1]}…"
