"""Scenarios of refunds: what the rules of the sandbox lead to, with any profile."""

from typing import Any

import pytest
from attrs import evolve

from payasync.errors import DuplicateError, ServiceError
from payasync.resources.refunds import CreateRefund
from payasync.wire.response import RefundResponse
from tests.sandbox.world import SAMPLES, World


def refund(**changes: Any) -> CreateRefund:
    """Return a request for a refund of T1 that any service takes."""
    sample = SAMPLES["refunds.create"]
    assert isinstance(sample, CreateRefund)
    return evolve(sample, **changes)


async def given_back(world: World, **changes: Any) -> RefundResponse:
    """Have a refund made by the client."""
    return await world.pay.send(refund(**changes))


async def test_refund_of_a_part(world: World) -> None:
    """Endpoint 5 gives money back, and endpoint 7 tells what became of it (spec: rules 5 and 6)."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    made = await given_back(world)
    found = await world.pay.refunds.status("R1")

    assert made.state in {"processing", "succeeded"}
    assert ("succeeded", 200, 1) == (found.state, world.sandbox.ledger.refunded("T1"), world.sandbox.ledger.refunds())


async def test_total_must_be_the_orders(world: World) -> None:
    """`totalAmt` is that of the original order (spec: Refund request): 422, and the field is named."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    told = await world.tell(refund(total_amt=451))

    assert (world.refused(422, "invalid"), "totalAmt", 0) == (
        (told.status, told.why),
        told.field,
        world.sandbox.ledger.refunds(),
    )


async def test_sum_of_refunds_stays_within_what_was_paid(world: World) -> None:
    """Refunds of 200, 200 and 200 of 450: the third is refused, with its field."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    told = [await world.tell(refund(out_refund_no=f"R{count}")) for count in range(3)]

    assert ["done", "done", "wrong_state"] == [each.why for each in told]
    assert ("refundAmt", 400) == (told[2].field, world.sandbox.ledger.refunded("T1"))
    assert "50 is left to refund" in str(told[2].document)


async def test_all_of_it_can_go_back(world: World) -> None:
    """A refund of all that was paid is within what was paid."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    await given_back(world, refund_amt=450)

    assert 450 == world.sandbox.ledger.refunded("T1")


async def test_same_refund_again_is_the_same_refund(world: World) -> None:
    """The same number with the same fields is done once, and answered as the first was."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    first, second = [await given_back(world, refund_amt=300) for _ in range(2)]

    assert (first.state, 300, 1) == (second.state, world.sandbox.ledger.refunded("T1"), world.sandbox.ledger.refunds())


async def test_changed_refund_under_the_same_number_is_refused(world: World) -> None:
    """The same number with any other field is a duplicate: 409, and nothing more goes back."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    await given_back(world)
    with pytest.raises(DuplicateError):
        await given_back(world, refund_amt=201)
    told = [await world.tell(refund(**change)) for change in ({"refund_desc": "x"}, {"extra": {"deviceNo": "7"}})]

    assert {(*world.refused(409, "duplicate"), "outRefundNo")} == {(each.status, each.why, each.field) for each in told}
    assert 200 == world.sandbox.ledger.refunded("T1")


async def test_only_paid_orders_are_refunded(world: World) -> None:
    """A pending order has nothing to give back: 409; an unknown one is absent: 404."""
    unknown = await world.tell(refund())
    await world.sandbox.given.pending_order(out_trade_no="T1")
    pending = await world.tell(refund())

    assert (world.refused(404, "absent"), world.refused(409, "wrong_state")) == (
        (unknown.status, unknown.why),
        (pending.status, pending.why),
    )
    assert pending.field is None


async def test_unknown_refund_is_absent(world: World) -> None:
    """What nobody asked for is not found: 404."""
    told = await world.tell(SAMPLES["refunds.status"])
    with pytest.raises(ServiceError):
        await world.pay.refunds.status("R1")

    assert world.refused(404, "absent") == (told.status, told.why)


async def test_refund_is_processing_until_it_ends(slow_world: World) -> None:
    """A refund that is processing has set its amount aside; it succeeds when the bank says so."""
    world = slow_world
    await world.sandbox.given.paid_order(out_trade_no="T1")
    made = await given_back(world, refund_amt=400)
    more = await world.tell(refund(out_refund_no="R2", refund_amt=100))
    before = world.sandbox.ledger.refunded("T1")
    await world.sandbox.bank.settle_refund("R1")
    found = await world.pay.refunds.status("R1")

    assert ("processing", "wrong_state", 0) == (made.state, more.why, before)
    assert ("succeeded", 400) == (found.state, world.sandbox.ledger.refunded("T1"))


async def test_failed_refund_gives_back_nothing(slow_world: World) -> None:
    """What a failed refund had set aside can be refunded again, under another number."""
    world = slow_world
    await world.sandbox.given.paid_order(out_trade_no="T1")
    await given_back(world, refund_amt=450)
    await world.sandbox.bank.settle_refund("R1", "failed")
    failed = await world.pay.refunds.status("R1")
    again = await given_back(world, out_refund_no="R2", refund_amt=450)

    assert ("failed", "processing", 0) == (failed.state, again.state, world.sandbox.ledger.refunded("T1"))
