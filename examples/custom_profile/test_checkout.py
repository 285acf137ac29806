"""The shop's code against the sandbox, which plays Fir over HTTP."""

from pathlib import Path
from typing import Any

import pytest
from checkout import buy, receiver_of, refund

from payasync import ServiceError, Session
from payasync.sandbox import ThreadedSandbox


async def test_customer_pays(
    payasync_session: Session, payasync_customer: Any, payasync_receiver: Any
) -> None:
    """The order is paid, and Fir's notification is as its document shows it."""
    address = await buy(
        payasync_session, "T1", 450, notify_url=payasync_receiver.url
    )
    await payasync_customer.authorize("T1")
    notified = (await payasync_receiver.next()).document["payload"]
    order = await payasync_session.orders.query("T1")

    assert address
    assert (notified["event"], notified["order_no"], notified["order_state"]) == (
        "checkout.changed",
        "T1",
        "CAPTURED",
    )
    assert order.state == "paid"


async def test_paid_order_is_shipped_once(
    payasync_session: Session,
    payasync_customer: Any,
    payasync_receiver: Any,
    tmp_path: Path,
) -> None:
    """A notification that arrives twice ships once, and a forged one is refused."""
    shipped: list[str] = []
    await buy(payasync_session, "T1", 450, notify_url=payasync_receiver.url)
    await payasync_customer.authorize("T1")
    notified = await payasync_receiver.next()
    async with receiver_of(
        payasync_session, tmp_path / "inbox.db", shipped.append
    ) as receiver:
        genuine = [
            await receiver.receive(notified.body.encode(), notified.headers)
            for _ in range(2)
        ]
        forged = await receiver.receive(
            notified.body.replace("T1", "T2").encode(), notified.headers
        )
        await receiver.settle()

    assert [(each.status, each.body) for each in genuine] == [(200, "noted")] * 2
    assert (forged.status, forged.body) == (422, "not ours")
    assert shipped == ["T1"]


async def test_lost_response(
    payasync_sandbox: ThreadedSandbox, payasync_session: Session
) -> None:
    """A refund whose response was lost is made once, and its state is known."""
    order = await payasync_sandbox.given.paid_order(total_amt=450)
    payasync_sandbox.faults.reset_after_commit("refunds.create")
    refunded = await refund(payasync_session, order, 450, 200)

    assert (refunded.state, refunded.recovered) == ("succeeded", True)
    assert payasync_sandbox.ledger.refunded(order) == 200
    assert len(payasync_sandbox.ledger.calls("refunds.create")) == 1


async def test_refund_above_the_payment(
    payasync_sandbox: ThreadedSandbox, payasync_session: Session
) -> None:
    """Fir refuses the refund with its own code, and nothing is refunded."""
    order = await payasync_sandbox.given.paid_order(total_amt=450)
    with pytest.raises(ServiceError) as caught:
        await refund(payasync_session, order, 451, 451)

    assert caught.value.code == "E_AMOUNT"
    assert payasync_sandbox.ledger.refunded(order) == 0
