"""The commands, as click shows them; what each does is in a module of its own."""

import asyncio
import sys
from pathlib import Path

import click

from payasync.cli import demo as demo_story
from payasync.cli.show import Screen
from payasync.errors import PayasyncError
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
