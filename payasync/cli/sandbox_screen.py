"""What a person sees of `payasync sandbox`: where it is, then one line for each request."""

import os
import sys
from datetime import datetime
from typing import Final

from rich.console import Console
from rich.text import Text

from payasync.cli.sandbox_welcome import Welcome
from payasync.sandbox.timeline import Entry
from payasync.version import VERSION

Part = str | tuple[str, str]

_COLOURS: Final = {2: "green", 3: "cyan", 4: "yellow", 5: "bold red"}


class SandboxScreen:
    """The terminal, or whatever stands in its place: plain lines then, each written at once.

    Args:
        json: Show one line of JSON, and no more.
        console: Written to in place of the terminal.
    """

    def __init__(self, *, json: bool = False, console: Console | None = None) -> None:
        self._console = console or _Terminal(highlight=False)
        self._json = json

    def opened(self, welcome: Welcome) -> None:
        """Say where the sandbox is, and how it is used."""
        if self._json:
            self._write(welcome.json())
            return
        self._write(("payasync sandbox", "bold"), f" {VERSION}: a stand-in for the service; no money moves")
        self._write()
        self._write(*_row("Listens", welcome.url))
        self._write(*_row("Dashboard", welcome.dashboard))
        self._write(*_row("OpenAPI", welcome.openapi))
        self._write(*_row("Profile", _profile(welcome), "bold"))
        self._write(*_row("Clock", welcome.clock, "bold"))
        self._write(*_row("Database", welcome.db or "in memory; --db keeps it in a file", "bold"))
        self._write()
        self._write("  To use it, paste this where your program runs; Session.from_env() reads it:")
        self._write()
        for line in welcome.lines():
            self._write((line, "cyan"))
        self._write()
        self._write(("  Ctrl-C ends it.", "dim"))
        self._write()

    def request(self, entry: Entry) -> None:
        """Show a request that was answered, or ended without an answer."""
        status = "-" if entry.status is None else str(entry.status)
        took = "" if entry.milliseconds is None else f"{entry.milliseconds:.1f} ms"
        self._write(
            (f"{datetime.now().astimezone():%H:%M:%S}  ", "dim"),
            (f"{status:4}", _COLOURS.get((entry.status or 500) // 100, "")),
            f"{_plain(entry.name):22}  ",
            (f"{took:>9}  ", "dim"),
            (_plain(entry.reference), "bold"),
            *_remarks(entry),
        )

    def closed(self) -> None:
        """Say that it has ended."""
        if not self._json:
            self._write()
            self._write("The sandbox has stopped.")

    def _write(self, *parts: Part) -> None:
        text = Text.assemble(*parts)
        if self._console.options.ascii_only:
            text.plain = "".join(letter if letter.isascii() else "?" for letter in text.plain)
        try:
            self._console.print(text, soft_wrap=True)
        except OSError:
            self._console.on_broken_pipe()


class _Terminal(Console):
    """Where nobody reads any more, or the disk is full, it writes nothing, and the sandbox goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # Python would complain at its end that it cannot write what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _row(name: str, value: str, style: str = "bold cyan") -> tuple[Part, ...]:
    return (f"  {name:11}", "dim"), (value, style)


def _profile(welcome: Welcome) -> str:
    file = welcome.environment["PAYASYNC_PROFILE"]
    return f"{welcome.profile}, the sandbox's own" if file == "sandbox" else f"{welcome.profile or 'unnamed'}, {file}"


def _remarks(entry: Entry) -> tuple[Part, ...]:
    why = f"  {_plain(entry.outcome)} {_plain(entry.reason)}" if entry.reason else ""
    return (why, "yellow"), (f"  [fault: {entry.fault}]" if entry.fault else "", "magenta")


def _plain(text: str) -> str:
    """Return a text as it may be shown: a request may hold what a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in text)
