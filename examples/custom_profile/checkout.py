"""What the shop does with the service: the code under test. Nothing in it names Fir or its fields."""

from collections.abc import Callable
from pathlib import Path

from payasync import RefundResponse, Session
from payasync.notifications import Notification, Receiver, SqliteInbox


async def buy(
    pay: Session, order: str, cents: int, *, notify_url: str
) -> str | None:
    """Place an order, and return the address where the customer pays."""
    placed = await pay.orders.place(
        out_trade_no=order,
        total_amt=cents,
        currency="CAD",
        subject=f"Order {order}",
        notify_url=notify_url,
        return_url="https://shop.example/thanks",
    )
    return placed.redirect_url


async def refund(pay: Session, order: str, paid: int, cents: int) -> RefundResponse:
    """Refund a part of an order, once."""
    return await pay.refunds.create(
        out_trade_no=order,
        out_refund_no=f"R-{order}",
        total_amt=paid,
        refund_amt=cents,
    )


def receiver_of(
    pay: Session, inbox: Path, ship: Callable[[str], object]
) -> Receiver:
    """Return a receiver that ships each paid order."""
    receiver = Receiver(inbox=SqliteInbox(inbox), session=pay)

    @receiver.on("payment")
    async def paid(notification: Notification) -> None:
        if notification.state == "paid" and notification.out_trade_no:
            ship(notification.out_trade_no)

    return receiver
