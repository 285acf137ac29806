"""Scenarios of orders and payments: what the rules of the sandbox lead to, with any profile."""

import pytest

from payasync.documents import at
from payasync.errors import DuplicateError, ServiceError
from payasync.resources.orders import PlaceOrder
from tests.sandbox.world import SAMPLES, World

PLACE, QUERY, CLOSE = (SAMPLES[f"orders.{name}"] for name in ("place", "query", "close"))
RETURN_URL = "https://shop.example/thanks?order=T1"


def order(**given: object) -> PlaceOrder:
    """Return a request for an order that any service takes."""
    told: dict[str, object] = {"total_amt": 450, "currency": "CAD", "subject": "Coffee", "scene_type": "JSAPI"}
    return PlaceOrder(**{**told, **given})  # type: ignore[arg-type] # any argument


async def test_new_order_is_pending(world: World) -> None:
    """An order that was placed waits for its customer, at the address in its answer (spec: rule 2)."""
    placed = await world.pay.send(order(out_trade_no="T1"))
    found = await world.pay.orders.query("T1")

    assert ("pending", "pending", "pending") == (placed.state, found.state, world.sandbox.ledger.order_state("T1"))
    assert placed.redirect_url
    assert placed.redirect_url.startswith(f"{world.sandbox.url}/gateway/")


async def test_authorised_order_is_paid(world: World) -> None:
    """Authorising pays: endpoints 3 and 6 say so (spec: rules 3 and 6)."""
    placed = await world.pay.send(order(out_trade_no="T1"))
    await world.sandbox.customer.authorize(placed)
    found, status = await world.pay.orders.query("T1"), await world.pay.payments.status("T1")

    assert ("paid", "paid", 450) == (found.state, status.state, world.sandbox.ledger.paid("T1"))


async def test_third_decline_fails_the_order(world: World) -> None:
    """Declined once and twice an order stays pending; the third time it has failed."""
    await world.pay.send(order(out_trade_no="T1"))
    states = list[str | None]()
    for _ in range(3):
        await world.sandbox.customer.decline("T1")
        states.append((await world.pay.orders.query("T1")).state)

    assert ["pending", "pending", "failed"] == states


async def test_declined_order_can_still_be_paid(world: World) -> None:
    """After a decline the customer tries again, and pays."""
    await world.pay.send(order(out_trade_no="T1"))
    await world.sandbox.customer.decline("T1")
    await world.sandbox.customer.authorize("T1")

    assert 450 == world.sandbox.ledger.paid("T1")


async def test_cancelling_redirects_and_the_merchant_closes(world: World) -> None:
    """Cancelling sends the customer back and changes nothing: the merchant closes the order (spec: rule 4)."""
    await world.pay.send(order(out_trade_no="T1", return_url=RETURN_URL))
    back = await world.sandbox.customer.cancel("T1")
    pending = await world.pay.orders.query("T1")
    closed = await world.pay.orders.close("T1")

    assert back is not None
    assert back.startswith(RETURN_URL)
    assert ("pending", "closed") == (pending.state, closed.state)


async def test_closed_again_gives_the_same_answer(world: World) -> None:
    """Closing what is closed changes nothing, and is no error (spec: rule 4)."""
    await world.pay.send(order(out_trade_no="T1"))
    first, second = [await world.tell(CLOSE) for _ in range(2)]

    assert ("done", "closed") == (first.why, first.state("order"))
    assert (first.why, first.state("order")) == (second.why, second.state("order"))


async def test_failed_order_closes(world: World) -> None:
    """An order that has failed is closed like a pending one."""
    await world.pay.send(order(out_trade_no="T1"))
    for _ in range(3):
        await world.sandbox.customer.decline("T1")

    assert "closed" == (await world.pay.orders.close("T1")).state


async def test_paid_order_does_not_close(world: World) -> None:
    """A paid order is refunded, not closed: 409."""
    await world.pay.send(order(out_trade_no="T1"))
    await world.sandbox.customer.authorize("T1")
    told = await world.tell(CLOSE)

    assert (world.refused(409, "wrong_state"), "paid") == (
        (told.status, told.why),
        world.sandbox.ledger.order_state("T1"),
    )


async def test_order_without_a_number_gets_one(world: World) -> None:
    """Endpoint 2 without `outTradeNo`: the sandbox makes one and returns it, and it names the order."""
    placed = await world.pay.send(order())
    number = at(placed.data, world.profile.answer.out_trade_no or "outTradeNo")
    found = await world.pay.orders.query(number)

    assert ("pending", 1) == (found.state, world.sandbox.ledger.orders())


async def test_number_names_one_order(world: World) -> None:
    """The same number again is a duplicate: 409, and the client says so."""
    await world.pay.send(order(out_trade_no="T1"))
    with pytest.raises(DuplicateError):
        await world.pay.send(order(out_trade_no="T1"))
    told = await world.tell(PLACE)

    assert (world.refused(409, "duplicate"), "outTradeNo", 1) == (
        (told.status, told.why),
        told.field,
        world.sandbox.ledger.orders(),
    )


async def test_unknown_order_is_absent(world: World) -> None:
    """What nobody placed is not found: 404."""
    told = [await world.tell(SAMPLES[name]) for name in ("orders.query", "orders.close", "payments.status")]
    with pytest.raises(ServiceError):
        await world.pay.orders.query("T1")

    assert [world.refused(404, "absent")] * 3 == [(each.status, each.why) for each in told]


async def test_payment_has_numbers_of_its_own(world: World) -> None:
    """Endpoint 1 makes a payment that endpoint 6 knows by the payment's own number (spec: rules 1 and 6)."""
    made = await world.pay.payments.create(amount=1000, currency="USD", description="Invoice 42")
    found = await world.pay.payments.status(str(made.payment_id))

    assert ("pending", made.payment_id) == (found.state, found.payment_id)
    assert (1, 0) == (world.sandbox.ledger.payments(), world.sandbox.ledger.orders())


async def test_payment_is_paid_at_its_page(world: World) -> None:
    """A payment of endpoint 1 has a gateway page, too."""
    made = await world.tell(SAMPLES["payments.create"])
    await world.sandbox.customer.authorize(at(made.data, world.profile.answer.redirect_url))
    found = await world.pay.payments.status(at(made.data, world.profile.answer.payment_id))

    assert "paid" == found.state


async def test_pending_order_expires_after_30_minutes(world: World) -> None:
    """A minute before it can still be paid, afterwards not; the merchant may close it."""
    for number in ("T1", "T2"):
        await world.pay.send(order(out_trade_no=number))
    await world.sandbox.clock.advance(minutes=29)
    await world.sandbox.customer.authorize("T1")
    await world.sandbox.clock.advance(minutes=1)
    states = [(await world.pay.orders.query(number)).state for number in ("T1", "T2")]
    await world.sandbox.customer.authorize("T2")
    closed = await world.pay.orders.close("T2")

    assert (["paid", "expired"], 0, "closed") == (states, world.sandbox.ledger.paid("T2"), closed.state)
