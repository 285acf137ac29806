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


payment.add_command(
    call_command(
        "payment create",
        CreatePayment,
        """Create a payment that has no number of yours.

        With --journal and --intent, the payment is sent only once, even if you repeat the command.

        \b
        Example:
          payasync payment create --amount 1000 --currency USD --description Shoes
        """,
    )
)
payment.add_command(
    call_command(
        "payment status",
        QueryPayment,
        """Show the state of the payment NUMBER.

        NUMBER is what the service expects in this query, such as an order's number.

        \b
        Example:
          payasync payment status T1
        """,
    )
)
