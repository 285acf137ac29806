"""`payasync refund`: refunds orders, one or many from a file, and shows the state of refunds."""

import click

from payasync.cli.calls import call_command
from payasync.cli.refund_import import import_
from payasync.resources.refunds import CreateRefund, QueryRefund


@click.group()
def refund() -> None:
    """Refund orders, one or many from a file.

    \b
    Examples:
      payasync refund create --out-trade-no T1 --total-amt 450 --refund-amt 200
      payasync refund status R1 --out-trade-no T1
      payasync refund import refunds.csv --journal pay.db
    """  # noqa: D301 - click does not wrap a paragraph after this character


@call_command(refund, CreateRefund)
def create() -> None:
    """Refund a paid order, in whole or in part.

    The number of the refund is shown before the refund is sent. Use the same number to try it again.

    Example:
      payasync refund create --out-trade-no T1 --total-amt 450 --refund-amt 200
    """


@call_command(refund, QueryRefund)
def status() -> None:
    """Show the state of the refund NUMBER.

    Example:
      payasync refund status R1 --out-trade-no T1
    """


refund.add_command(import_)
