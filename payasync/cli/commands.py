"""The commands, as click shows them; what each does is in a module of its own."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click

from payasync import __version__, cli
from payasync.cli import (
    demo as demo_story,
)
from payasync.cli import (
    doctor as doctor_looks,
)
from payasync.cli import (
    listen as listener,
)
from payasync.cli import (
    sandbox as sandbox_process,
)
from payasync.cli.demo import Screen
from payasync.cli.doctor import DoctorScreen
from payasync.cli.journal import journal
from payasync.cli.listen import ListenScreen
from payasync.cli.reconcile import reconcile
from payasync.cli.refund import refund
from payasync.cli.sandbox import SandboxScreen
from payasync.cli.signals import INTERRUPTED
from payasync.cli.terminal import complain, in_a_folder
from payasync.cli.verify_notification import EXIT_CODES, LONGEST, Finding, VerificationScreen, examine
from payasync.credentials import Credentials
from payasync.errors import ConfigurationError, PayasyncError
from payasync.notifications.verification import parse_time, verification_of
from payasync.profile.schema import KINDS


class Commands(click.Group):
    """Commands that Ctrl-C ends without a word, with exit code 130, unless they handle it themselves."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            if signal.getsignal(signal.SIGINT) is cli.end:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="payasync")
def payasync() -> None:
    """Pay, refund and subscribe: the client of a payment service, and its sandbox."""


@payasync.command(short_help="Run the whole story on a sandbox of its own.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    callback=in_a_folder,
    help="Also save what is shown as an SVG picture.",
)
def demo(save: Path | None) -> None:
    """Run the whole story on a sandbox of its own: no keys, and no network beyond this machine.

    The exit code is 1 where the sandbox's ledger disagrees with what the calls were told, or a call failed.
    """
    screen = Screen(record=save is not None)
    try:
        holds = asyncio.run(demo_story.run(screen))
    except PayasyncError as error:
        screen.failed(error)
        holds = False
    if save is not None:
        screen.save(save, title="payasync demo")
    sys.exit(0 if holds else 1)


@payasync.command(short_help="Tell what is configured, what is open, and whether the service can be reached.")
@click.option(
    "--profile", metavar="FILE", help="The TOML file of the service; without it, what PAYASYNC_PROFILE names."
)
@click.option("--base-url", metavar="URL", help="The service's address; without it, PAYASYNC_BASE_URL.")
def doctor(profile: str | None, base_url: str | None) -> None:
    """Tell what is configured, which points of the service's document are still open, and whether it can be reached.

    Nothing is sent to the service but the start of a connection. The exit code is 0 if nothing is wrong, even if points
    are open, keys are missing, or others can read a key file. It is 1 if a key is refused or the service cannot be
    reached, and 2 if the profile is invalid.
    """
    screen = DoctorScreen()
    try:
        chosen, source = doctor_looks.profile_named(profile)
    except ConfigurationError as error:
        complain("doctor", error)
        sys.exit(2)
    points = chosen.audit()
    screen.profile(chosen.name, source, points)
    keys = tuple(doctor_looks.credentials(chosen, os.environ))
    screen.findings("Credentials", keys)
    reached = asyncio.run(doctor_looks.connection(base_url or os.environ.get(doctor_looks.BASE_URL)))
    screen.findings("Service", [reached])
    screen.left(doctor_looks.left(points, source, [*keys, reached]))
    sys.exit(1 if "wrong" in {each.verdict for each in (*keys, reached)} else 0)


@payasync.command(short_help="Serve the whole service on this machine.")
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address: it serves nobody else.")
@click.option("--port", default=8402, show_default=True, help="Where it listens; 0: a free port.")
@click.option("--db", default=":memory:", metavar="FILE", help="Keep everything in this file, the keys included.")
@click.option(
    "--profile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Speak the profile of this TOML file; without it, the sandbox's own.",
)
@click.option(
    "--clock", default="real", show_default=True, metavar="PACE", help="real, frozen, or a factor such as 60."
)
@click.option(
    "--refunds",
    default="succeed",
    show_default=True,
    metavar="END",
    help='How they end: succeed or fail at once; "by hand", on the dashboard; or with success after 30s, 5min, 2h, 3d.',
)
@click.option("--webhook-url", metavar="URL", help="Notify this address of what has no notifyUrl.")
@click.option("--quiet", is_flag=True, help="Show no requests, and no notifications.")
@click.option("--json", is_flag=True, help="Show one line of JSON at the start, for scripts, and no more.")
def sandbox(profile: Path | None, *, quiet: bool, json: bool, **settings: Any) -> None:
    """Serve the whole service on this machine, with its gateway page and a dashboard, until Ctrl-C or SIGTERM.

    The exit code is 0 after either, and 2 where it cannot start.
    """
    options = sandbox_process.Options(profile=profile, quiet=quiet or json, settings=settings)
    try:
        asyncio.run(sandbox_process.run(options, SandboxScreen(json=json)))
    except ConfigurationError as error:
        complain("sandbox", error)
        sys.exit(2)


@payasync.command(short_help="Receive notifications on this machine, and show them.")
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address.")
@click.option("--port", default=8403, show_default=True, help="Where it listens; 0: a free port.")
@click.option(
    "--inbox",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=in_a_folder,
    default="payasync-inbox.db",
    show_default=True,
    metavar="FILE",
    help="Keeps what comes: nothing that was acknowledged is lost.",
)
@click.option(
    "--profile", metavar="FILE", help="The TOML file of the service; without it, what PAYASYNC_PROFILE names."
)
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Also write each as a file that verify-notification reads, what is refused included.",
)
@click.option("--json", is_flag=True, help="Show lines of JSON: one at the start, and one for each notification.")
def listen(*, json: bool, **options: Any) -> None:
    """Receive notifications on this machine, and show them, until Ctrl-C or SIGTERM: for development.

    Each is verified as the profile says, kept in the inbox, and answered as your receiver would answer it; none is
    handled, until a Receiver opens the same inbox. The keys are those that `Credentials.from_env` reads. The exit
    code is 0 after either signal, and 2 where it cannot start.
    """
    try:
        asyncio.run(listener.run(listener.Options(**options), ListenScreen(json=json)))
    except PayasyncError as error:
        complain("listen", error)
        sys.exit(2)


def _moment(_context: click.Context, _option: click.Parameter, text: str | None) -> float:
    moment = time.time() if text is None else parse_time(text)
    if moment is None:
        raise click.BadParameter(
            "it must be ISO 8601 with an offset, such as 2027-01-31T00:00:00Z, or seconds since 1970"
        )
    return moment


def _headers(_context: click.Context, _option: click.Parameter, lines: tuple[str, ...]) -> dict[str, str]:
    pairs = [line.partition(":") for line in lines]
    if not all(colon for _, colon, _ in pairs):
        raise click.BadParameter("it must be a name and a value, with a colon between them")
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


@payasync.command("verify-notification", short_help="Tell whether a notification in a file is from the service.")
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
)
@click.option("-H", "--header", "headers", multiple=True, callback=_headers, metavar="NAME:VALUE", help="A header.")
@click.option(
    "--profile", metavar="FILE", help="The TOML file of the service; without it, what PAYASYNC_PROFILE names."
)
@click.option("--kind", type=click.Choice(KINDS), help="What the address that it arrived at is for.")
@click.option("--at", "now", callback=_moment, metavar="TIME", help="Look at it as if it had arrived then.")
def verify_notification(
    files: tuple[str, ...], headers: dict[str, str], profile: str | None, kind: str | None, now: float
) -> None:
    """Tell whether a notification in FILE is from the service; "-" reads standard input.

    FILE holds the body as it was received, or the whole HTTP message. The keys are those that `Credentials.from_env`
    reads. The exit code is 0 where it is genuine, 1 where it is not, and 2 where nobody can tell; of several files,
    the highest.
    """
    try:
        chosen, _ = doctor_looks.verifying_profile(profile)
        verification = verification_of(chosen, Credentials.from_env())
    except PayasyncError as error:
        complain("verify-notification", f"cannot tell: {error}")
        sys.exit(2)
    screen, codes = VerificationScreen(), set[int]()
    for number, name in enumerate(files):
        try:
            with click.open_file(name, "rb") as file:
                finding = examine(file.read(LONGEST + 1), headers, verification, kind=kind, now=now)
        except OSError as error:
            finding = Finding("cannot tell", f"the file cannot be read: {error.strerror}", ())
        if len(files) > 1:
            screen.file(name, first=number == 0)
        screen.found(finding)
        codes.add(EXIT_CODES[finding.verdict])
    sys.exit(max(codes))


payasync.add_command(journal)
payasync.add_command(reconcile)
payasync.add_command(refund)
