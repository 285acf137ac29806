"""Scenarios of what happens at once, with any profile: one winner, and never more back than was paid."""

import asyncio

import pytest

from payasync.resources.orders import CloseOrder
from tests.sandbox.test_scenarios_orders import order
from tests.sandbox.test_scenarios_refunds import refund
from tests.sandbox.world import SAMPLES, World

PARTS = 100


@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.long)])
async def test_authorise_against_close_has_one_winner(world: World, rounds: int) -> None:
    """Of many orders each is paid or closed, never both, and both sides are told the truth."""
    outcomes = list[tuple[object, object, str, int]]()
    for count in range(rounds):
        placed = await world.pay.send(order(out_trade_no=f"T{count}", return_url="https://shop.example/thanks"))
        # Whose task starts first alternates, so that both sides win.
        sides = {"authorise": _authorised(world, str(placed.redirect_url)), "close": _closed(world, f"T{count}")}
        turns = sorted(sides, reverse=count % 2 == 0)
        told = dict(zip(turns, await asyncio.gather(*(sides[side] for side in turns)), strict=True))
        state, paid = world.sandbox.ledger.order_state(f"T{count}"), world.sandbox.ledger.paid(f"T{count}")
        outcomes.append((told["authorise"], told["close"], state, paid))

    assert {(303, "wrong_state", "paid", 450), (409, "done", "closed", 0)} == set(outcomes)


async def _authorised(world: World, page: str) -> int:
    async with world.http.post(page, data={"decision": "authorize"}, allow_redirects=False) as answer:
        return answer.status


async def _closed(world: World, number: str) -> str:
    return (await world.tell(CloseOrder(out_trade_no=number))).why


async def test_concurrent_refunds_never_exceed_what_was_paid(world: World) -> None:
    """Of 100 refunds of 7 at once, as many are done as 450 allows."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    requests = [refund(out_refund_no=f"R{count}", refund_amt=7) for count in range(PARTS)]
    told = await asyncio.gather(*map(world.tell, requests))

    assert ({"done": 64, "wrong_state": 36}, 448) == (
        {why: [each.why for each in told].count(why) for why in ("done", "wrong_state")},
        world.sandbox.ledger.refunded("T1"),
    )


async def test_same_refund_at_once_is_one(world: World) -> None:
    """The same refund asked for by 20 at once is done once, and all are told so."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    told = await asyncio.gather(*(world.tell(refund()) for _ in range(20)))

    assert ({"done"}, 200, 1) == (
        {each.why for each in told},
        world.sandbox.ledger.refunded("T1"),
        world.sandbox.ledger.refunds(),
    )


async def test_same_order_at_once_is_one(world: World) -> None:
    """Of 20 orders with one number, one is placed."""
    told = await asyncio.gather(*(world.tell(order(out_trade_no="T1")) for _ in range(20)))

    assert (["done"] + ["duplicate"] * 19, 1) == (sorted(each.why for each in told), world.sandbox.ledger.orders())


async def test_same_nonce_at_once_is_taken_once(world: World) -> None:
    """Of 20 copies of one request, one is done."""
    place = SAMPLES["orders.place"]
    fields = world.fields(place)
    told = [each.why for each in await asyncio.gather(*(world.tell(place, fields=fields) for _ in range(20)))]

    assert (1, 19) == (told.count("done"), told.count("nonce_used"))
