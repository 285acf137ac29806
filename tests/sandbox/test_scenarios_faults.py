"""Scenarios of a service that fails, with any profile: the client is never misled, and nothing is done twice."""

from datetime import timedelta
from typing import Literal

import pytest

from payasync import RetryPolicy
from payasync.errors import NoAnswerError, OutcomeUnknownError, PayasyncError
from tests.sandbox.test_scenarios_orders import order
from tests.sandbox.test_scenarios_refunds import refund
from tests.sandbox.world import SAMPLES, World

ONCE = RetryPolicy(attempts=1)


@pytest.mark.parametrize("status", [500, 503])
async def test_read_is_asked_again_after_a_failure(world: World, status: int) -> None:
    """A 5xx on a query is passed over: the next attempt has the answer."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    world.sandbox.faults.server_error("orders.query", status=status)
    found = await world.pay.orders.query("T1")

    assert ("paid", 2) == (found.state, found.attempts)


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_payment_without_a_number_is_never_sent_twice(world: World, phase: Literal["before", "after"]) -> None:
    """A 5xx on endpoint 1 leaves the outcome unknown, whether it was done or not."""
    fault = world.sandbox.faults.server_error("payments.create", phase=phase)
    with pytest.raises(OutcomeUnknownError):
        await world.pay.payments.create(amount=1000, currency="USD")

    assert (int(phase == "after"), 1) == (world.sandbox.ledger.payments(), fault.seen)


@pytest.mark.parametrize(("kind", "status"), [("server_error", 503), ("rate_limited", 429)])
async def test_failure_is_told_in_the_profiles_words(world: World, kind: str, status: int) -> None:
    """A 5xx and a 429 have the shape of all refusals, and the profile's code for what may be tried again."""
    world.sandbox.faults.arm(kind)
    told = await world.tell(SAMPLES["orders.query"])

    assert (status, "busy") == (told.status, told.why)


async def test_refund_whose_answer_was_lost_is_found_again(world: World) -> None:
    """Done, and the connection reset: the client asks, and gives back once."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    world.sandbox.faults.reset_after_commit("refunds.create")
    made = await world.pay.send(refund())

    assert ("succeeded", True, 200, 1) == (
        made.state,
        made.recovered,
        world.sandbox.ledger.refunded("T1"),
        world.sandbox.ledger.refunds(),
    )


async def test_order_whose_answer_was_lost_is_found_again(world: World) -> None:
    """Placed, and the answer cut short: the client asks, and there is one order."""
    world.sandbox.faults.truncated_body("orders.place")
    made = await world.pay.send(order(out_trade_no="T1"))

    assert ("pending", True, 1) == (made.state, made.recovered, world.sandbox.ledger.orders())


async def test_too_many_requests(world: World) -> None:
    """A 429 on a query is waited out, as long as it says."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    world.sandbox.faults.rate_limited("orders.query", retry_after=0)
    found = await world.pay.orders.query("T1")

    assert ("paid", 2) == (found.state, found.attempts)


async def test_answer_that_is_no_json_is_no_answer(world: World) -> None:
    """What cannot be read is not believed."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    world.sandbox.faults.malformed_json("orders.query")
    with pytest.raises(NoAnswerError):
        await world.pay.with_options(retry=ONCE).orders.query("T1")


async def test_redelivery_after_a_lost_notification(world: World) -> None:
    """A notification that is lost on the way is delivered at its next time."""
    world.sandbox.faults.notifications.drop()
    await world.sandbox.given.paid_order(out_trade_no="T1")
    await world.sandbox.settle()
    before = len(world.notified())
    await world.sandbox.clock.advance(timedelta(hours=1))

    assert (0, 1) == (before, len(world.notified()))


async def test_error_names_the_call_and_keeps_the_answer(world: World) -> None:
    """What the client raises says which call it was, and holds the code of the service."""
    with pytest.raises(PayasyncError) as raised:
        await world.pay.send(SAMPLES["refunds.create"])

    assert ("refunds.create", "R1") == (raised.value.operation, raised.value.reference)
