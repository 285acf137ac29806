"""What type checkers see of the public names: mypy and pyright check this file, and it runs as a test, too."""

from datetime import date
from typing import assert_type

from payasync import (
    NOT_YET,
    CreateRefund,
    OrderResponse,
    PaymentResponse,
    RefundResponse,
    Response,
    Session,
    SubscriptionResponse,
)
from payasync.notifications import Expected, Notification, Receiver


async def namespaces(pay: Session) -> None:
    """Each method answers with its own kind of response."""
    assert_type(await pay.payments.create(amount=1, currency="USD"), PaymentResponse)
    assert_type(await pay.payments.status("T1"), PaymentResponse)
    assert_type(await pay.orders.place(total_amt=1, currency="CAD"), OrderResponse)
    assert_type(await pay.orders.query("T1"), OrderResponse)
    assert_type(await pay.orders.close("T1"), OrderResponse)
    assert_type(
        await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=2, refund_amt=1), RefundResponse
    )
    assert_type(await pay.refunds.status("R1"), RefundResponse)
    assert_type(
        await pay.subscriptions.create(frequency="monthly", amount=1, start_date=date(2027, 1, 1), customer={}),
        SubscriptionResponse,
    )
    assert_type(await pay.subscriptions.update("S1", amount=2), SubscriptionResponse)
    assert_type(await pay.subscriptions.cancel("S1"), SubscriptionResponse)


async def requests(pay: Session, refund: CreateRefund) -> None:
    """`send` answers with the response of the request's endpoint; `request` with a plain one."""
    assert_type(await pay.send(refund), RefundResponse)
    assert_type(await pay.request("POST", "/payment/bill"), Response)


def answers(order: OrderResponse, refund: RefundResponse) -> None:
    """Accessors by the profile's paths are as the service sent them; `to` gives the class that it was given."""
    assert_type(order.redirect_url, str | None)
    assert_type(order.order_status, str | int | None)
    assert_type(order.state, str | None)
    assert_type(refund.refund_status, str | int | None)
    assert_type(order.to(Session), Session)


async def handlers(receiver: Receiver, it: Notification) -> None:
    """Plain and `async def` functions are handlers; `expect` may return values, `NOT_YET` or `None`."""

    def expect(it: Notification) -> Expected:
        return {"totalAmt": 450} if it.out_trade_no == "T1" else NOT_YET if it.attempt < 5 else None

    async def expect_later(it: Notification) -> Expected:
        return expect(it)

    def plain(it: Notification) -> int:
        return it.attempt

    async def coroutine(it: Notification) -> int:
        return it.attempt

    assert_type(receiver.on("payment", expect=expect)(plain)(it), int)
    assert_type(await receiver.on("refund", expect=expect_later)(coroutine)(it), int)


def wrong(pay: Session) -> None:
    """Calls that a type checker must refuse: an ignore that is not needed is an error."""
    pay.orders.place(total_amt="450", currency="CAD")  # type: ignore[arg-type, unused-coroutine]
    pay.orders.place(currency="CAD")  # type: ignore[call-arg, unused-coroutine]
    pay.refunds.create(out_trade_no="T1", refund_amt=1)  # type: ignore[call-arg, unused-coroutine]
    pay.orders.query(out_trade_no=None)  # type: ignore[arg-type, unused-coroutine]
    pay.payments.create(1, "USD")  # type: ignore[call-arg, unused-coroutine]


def test_the_file_is_typed() -> None:
    """The names that this file is about exist; the rest is for the type checkers."""
    assert all(callable(each) for each in (namespaces, requests, answers, handlers, wrong))
