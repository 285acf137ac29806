"""`payasync refund`: what can be done about refunds from a shell."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import click

from payasync.cli.journal_option import Address, address_given, fail_command
from payasync.cli.refund_import import Options, run
from payasync.cli.refund_import_screen import RefundImportScreen
from payasync.cli.signals import INTERRUPTED
from payasync.cli.terminal import complain, in_a_folder
from payasync.errors import PayasyncError


@click.group(short_help="Refund many orders from a file.")
def refund() -> None:
    """Refund orders."""


def _address(context: click.Context, option: click.Parameter, text: str) -> Address:
    found = address_given(text)
    if found.is_file:
        in_a_folder(context, option, Path(text))
    return found


@refund.command("import", short_help="Send the refunds of a CSV file, each at most once.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--journal",
    "address",
    required=True,
    envvar="PAYASYNC_JOURNAL",
    show_envvar=True,
    callback=_address,
    metavar="FILE|URL",
    help="Knows what was sent: the same one for the same refunds. A file is made where there is none.",
)
@click.option("--keep-going", is_flag=True, help="Leave out bad rows; without it, one stops them all.")
@click.option(
    "--result",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=in_a_folder,
    metavar="FILE",
    help="Write what became of each row, as CSV.",
)
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="At most so many at once.")
@click.option(
    "--profile", metavar="FILE", help="The TOML file of the service; without it, what PAYASYNC_PROFILE names."
)
@click.option("--base-url", metavar="URL", help="The service's address; without it, PAYASYNC_BASE_URL.")
def import_(**given: Any) -> None:
    """Send the refunds of the CSV file FILE, each at most once.

    Its columns are out_trade_no, out_refund_no, total_amt, refund_amt and, where wanted, refund_desc and notify_url;
    amounts are whole numbers in the unit that the service counts in. All rows are checked before the first is sent.

    It may be interrupted at any time, by Ctrl-C or by force: the same command goes on. What the journal knows to be
    done is not sent again; what was in doubt is asked about, as by payasync reconcile, and sent again only where the
    service provably never had it, once in a run; what was refused, or not sent, is tried again. Of that, what was
    declined after the service took it, or was found not to be done, is listed before anything is sent: take out the
    rows that were refunded by other means since. It stops where the service does not take the keys, or answers nobody.
    The keys are those that `Credentials.from_env` reads.

    The exit code is 0 where all were taken; 1 where some were refused, not sent, or left out; 2 where nothing was
    sent, as a row is bad or it cannot begin; 3 where some may have been done, and a person must look; 130 where it was
    interrupted.
    """
    options = Options(**given)
    service = options.base_url or os.environ.get("PAYASYNC_BASE_URL", "")
    screen = RefundImportScreen(options.file, options.address, service=service, result=options.result)
    try:
        code = asyncio.run(run(options, screen))
    except PayasyncError as error:
        fail_command("refund import", error)
    except KeyboardInterrupt:
        complain("refund import", "interrupted; nothing was sent")
        code = INTERRUPTED
    sys.exit(code)
