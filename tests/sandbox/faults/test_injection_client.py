"""Faults with payasync's own client and any profile."""

from tests.sandbox.world import SAMPLES, World, refund


async def test_failure_has_the_profiles_shape(world: World) -> None:
    """A 5xx and a 429 have the shape of all refusals, with the profile's code for what may be retried."""
    for kind, status in (("server_error", 503), ("rate_limited", 429)):
        world.sandbox.faults.arm(kind)

        assert (status, "busy") == (await world.reach(SAMPLES["orders.query"])).reason


async def test_calls_that_are_about_an_order(world: World) -> None:
    """A call matches an order by its number in a body or a query, by its refund's and by its payment's number."""
    sandbox, pay = world.sandbox, world.pay
    order = await sandbox.given.paid_order(out_trade_no="T1")
    paid = await pay.payments.status(order)
    await pay.send(refund())
    mine = sandbox.faults.latency(order=order, seconds=0.001, times=4)
    other = sandbox.faults.latency(order=await sandbox.given.paid_order(), seconds=0.001)
    for ask in (pay.orders.query, pay.payments.status):
        await ask(order)
    await pay.refunds.status("R1")
    await pay.payments.status(str(paid.payment_id))
    other.disarm()

    assert (4, 0) == (mine.fired, other.seen)
