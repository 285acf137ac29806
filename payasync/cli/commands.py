"""The commands, as click shows them; what each does is in a module of its own."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from payasync.cli import demo as demo_story
from payasync.cli import sandbox as sandbox_process
from payasync.cli.sandbox_screen import SandboxScreen
from payasync.cli.show import Screen
from payasync.errors import ConfigurationError, PayasyncError
from payasync.version import VERSION


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="payasync")
def payasync() -> None:
    """Pay, refund and subscribe: the client of a payment service, and its sandbox."""


def _in_a_folder(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {str(path.parent)!r}: make it first")
    return path


@payasync.command(short_help="Run the whole story on a sandbox of its own.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    callback=_in_a_folder,
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
@click.option("--webhook-url", metavar="URL", help="Notify this address of what has no notifyUrl.")
@click.option("--quiet", is_flag=True, help="Show no requests.")
@click.option("--json", is_flag=True, help="Show one line of JSON at the start, for scripts, and no more.")
def sandbox(profile: Path | None, *, quiet: bool, json: bool, **settings: Any) -> None:
    """Serve the whole service on this machine, with its gateway page and a dashboard, until Ctrl-C or SIGTERM.

    The exit code is 0 after either, and 2 where it cannot start.
    """
    options = sandbox_process.Options(profile=profile, quiet=quiet or json, settings=settings)
    try:
        asyncio.run(sandbox_process.run(options, SandboxScreen(json=json)))
    except ConfigurationError as error:
        click.echo(f"payasync sandbox: {' '.join(str(error).split())}", err=True)
        sys.exit(2)
