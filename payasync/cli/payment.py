"""`payasync payment`: creates payments, and shows their state."""

import click

from payasync.cli.calls import call_command
from payasync.resources.payments import CreatePayment, QueryPayment


@click.group()
def payment() -> None:
    """Create payments, and show their state.

    \b
    Examples:
      payasync payment create --amount 1000 --currency USD --description Shoes
      payasync payment status T1
    """  # noqa: D301 - click does not wrap a paragraph after this character


@call_command(payment, CreatePayment)
def create() -> None:
    """Create a payment that has no number of yours.

    With --journal and --intent, the payment is sent only once, even if you repeat the command.

    Example:
      payasync payment create --amount 1000 --currency USD --description Shoes
    """


@call_command(payment, QueryPayment)
def status() -> None:
    """Show the state of the payment NUMBER.

    NUMBER is what the service expects in this query, such as an order's number.

    Example:
      payasync payment status T1
    """
