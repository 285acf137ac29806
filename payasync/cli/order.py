"""`payasync order`: places, queries and closes orders, and waits for their state."""

import click

from payasync.cli.calls import call_command
from payasync.endpoints import ORDER_STATES
from payasync.resources.orders import CloseOrder, PlaceOrder, QueryOrder
from payasync.session import Session
from payasync.wire.response import OrderResponse


@click.group()
def order() -> None:
    """Place, query and close orders; wait until one is paid.

    \b
    Examples:
      payasync order place --total-amt 450 --currency CAD --subject Coffee
      payasync order wait T1 --until paid --timeout 60
    """  # noqa: D301 - click does not wrap a paragraph after this character


@call_command(order, PlaceOrder)
def place() -> None:
    """Place an order, and show the address where the customer pays.

    The number of the order is shown before the order is sent.

    Example:
      payasync order place --total-amt 450 --currency CAD --subject Coffee
    """


@call_command(order, QueryOrder)
def query() -> None:
    """Show the state of the order NUMBER.

    Example:
      payasync order query T1
    """


@call_command(order, CloseOrder)
def close() -> None:
    """Close the order NUMBER, so that it cannot be paid any more.

    Example:
      payasync order close T1
    """


@call_command(
    order,
    QueryOrder,
    click.option("--until", type=click.Choice(ORDER_STATES), required=True, help="The state."),
    click.option("--timeout", type=float, default=60.0, show_default=True, help="The longest wait in seconds."),
)
async def wait(session: Session, request: QueryOrder, *, until: str, timeout: float) -> OrderResponse:
    """Wait until the order NUMBER has the given state.

    If the state does not come in time, the exit code is 1.

    Example:
      payasync order wait T1 --until paid --timeout 60
    """
    return await session.orders.wait(request.out_trade_no, until=until, timeout=timeout, extra=request.extra)
