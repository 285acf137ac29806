"""`payasync sandbox`: the whole service, in a process of its own."""

import logging
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from payasync.cli.sandbox_screen import SandboxScreen
from payasync.cli.sandbox_welcome import Welcome
from payasync.cli.stopping import stopped_by_signals
from payasync.errors import ConfigurationError
from payasync.profile import Profile
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.terms import RefundSetting

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
