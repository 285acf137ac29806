"""`payasync sandbox`: the whole service, in a process of its own."""

import logging
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from payasync.cli.sandbox_screen import SandboxScreen
from payasync.cli.sandbox_welcome import Welcome
from payasync.cli.stopping import stopped_by_signals
from payasync.profile import Profile
from payasync.sandbox import PROFILE, Sandbox

REQUESTS: Final = logging.getLogger("payasync.sandbox")
"""Tells of each request that was answered."""


@frozen(kw_only=True)
class Options:
    """What the command was given.

    Attributes:
        profile: A TOML file; `None`: the sandbox's own profile.
        quiet: Show no requests.
        settings: Arguments of `Sandbox`.
    """

    profile: Path | None
    quiet: bool
    settings: dict[str, Any]


async def run(options: Options, screen: SandboxScreen) -> None:
    """Serve until SIGINT or SIGTERM comes.

    Args:
        options: What the command was given.
        screen: Shows it.

    Raises:
        ConfigurationError: An option is wrong, the port is taken, or the database cannot be used.
    """
    profile = PROFILE if options.profile is None else Profile.from_file(options.profile)
    stop = stopped_by_signals()
    async with Sandbox(profile, **options.settings) as sandbox:
        screen.opened(Welcome.of(sandbox, options.profile, **options.settings))
        watching = None if options.quiet else _Watching(screen)
        await stop.wait()
        if watching:
            watching.end()
        sandbox.faults.clear()  # one that still waits is no failure here: no test armed it
    screen.closed()


class _Watching(logging.Handler):
    """Shows each request, until it ends."""

    def __init__(self, screen: SandboxScreen) -> None:
        super().__init__(logging.INFO)
        self._screen = screen
        REQUESTS.addHandler(self)
        REQUESTS.setLevel(logging.INFO)
        REQUESTS.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Show a request."""
        self._screen.request(record.__dict__["seen"])

    def end(self) -> None:
        """Show no more."""
        REQUESTS.removeHandler(self)
