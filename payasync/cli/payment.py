"""`payasync payment`: creates payments, and shows their state."""

import click

from payasync.cli.calls import call_command
from payasync.resources.payments import CreatePayment, QueryPayment
from payasync.session import Session
from payasync.wire.response import PaymentResponse


@click.group()
def payment() -> None:
    """Create payments, and show their state.

    \b
    Examples:
      payasync payment create --amount 1000 --currency USD --description Shoes
      payasync payment status T1
    """  # noqa: D301 - click does not wrap a paragraph after this character


@call_command(payment, CreatePayment)
async def create(session: Session, request: CreatePayment, intent: str | None = None) -> PaymentResponse:
    """Create a payment that has no number of yours.

    With --journal and --intent, the payment is sent only once, even if you repeat the command.

    Example:
      payasync payment create --amount 1000 --currency USD --description Shoes
    """
    return await session.send(request, intent=intent)


@call_command(payment, QueryPayment)
async def status(session: Session, request: QueryPayment) -> PaymentResponse:
    """Show the state of the payment NUMBER.

    NUMBER is what the service expects in this query, such as an order's number.

    Example:
      payasync payment status T1
    """
    return await session.send(request)
