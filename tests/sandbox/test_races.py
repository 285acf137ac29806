"""What happens at once: one winner, and never more back than was paid."""

import asyncio

import pytest

from payasync.sandbox import Sandbox
from tests.sandbox.foreign import CLOSE, QUERY, Foreign

ROUNDS = 200


@pytest.mark.long
async def test_authorise_against_close_has_one_winner(foreign: Foreign, sandbox: Sandbox) -> None:
    """An order is paid or closed, never both, and both sides are told the truth."""
    outcomes = list[tuple[object, ...]]()
    for count in range(ROUNDS):
        number = f"T{count}"
        placed = await foreign.place(number, returnUrl="https://shop.example/thanks")
        page = placed.document["redirectUrl"]
        # Whose task starts first alternates, so that both sides win.
        sides = {"authorise": _authorise(foreign, page), "close": _close(foreign, number)}
        order = sorted(sides, reverse=count % 2 == 0)
        told = dict(zip(order, await asyncio.gather(*(sides[side] for side in order)), strict=True))
        found = await foreign.post(QUERY, outTradeNo=number)
        outcomes.append((told["authorise"], told["close"], found.document["status"], sandbox.ledger.paid(number)))

    assert {(303, 409, "SBX_PAID", 450), (409, 200, "SBX_CLOSED", 0)} == set(outcomes)


async def _authorise(foreign: Foreign, page: str) -> int:
    async with foreign.http.post(page, data={"decision": "authorize"}, allow_redirects=False) as answer:
        return answer.status


async def _close(foreign: Foreign, number: str) -> int:
    return (await foreign.post(CLOSE, outTradeNo=number)).status


@pytest.mark.parametrize("refund_amt", [7, 100, 450])
async def test_concurrent_refunds_never_exceed_what_was_paid(
    foreign: Foreign, sandbox: Sandbox, refund_amt: int
) -> None:
    """Of 100 refunds at once, as many are done as what was paid allows."""
    number = await sandbox.given.paid_order()
    answers = await asyncio.gather(
        *(foreign.refund(f"R{count}", refund_amt, out_trade_no=number) for count in range(100))
    )
    done = [answer.status for answer in answers].count(200)

    assert 450 // refund_amt == done
    assert done * refund_amt == sandbox.ledger.refunded(number)
    assert {200, 409} == {answer.status for answer in answers}


async def test_same_refund_at_once_is_one(foreign: Foreign, sandbox: Sandbox) -> None:
    """The same refund asked for by 20 at once is done once, and all are told so."""
    number = await sandbox.given.paid_order()
    answers = await asyncio.gather(*(foreign.refund("R1", 20, out_trade_no=number) for _ in range(20)))

    assert ({200}, 20, 1) == (
        {answer.status for answer in answers},
        sandbox.ledger.refunded(number),
        sandbox.ledger.refunds(),
    )


async def test_same_order_at_once_is_one(foreign: Foreign, sandbox: Sandbox) -> None:
    """Of 20 orders with one number, one is placed."""
    answers = await asyncio.gather(*(foreign.place("T1") for _ in range(20)))

    assert (1, 1) == ([answer.status for answer in answers].count(200), sandbox.ledger.orders())


async def test_same_nonce_at_once_is_taken_once(foreign: Foreign) -> None:
    """Of 20 copies of one request, one is done."""
    await foreign.place("T1")
    fields = foreign.signed({"outTradeNo": "T1"})
    answers = await asyncio.gather(*(foreign.send("POST", CLOSE, json=fields) for _ in range(20)))

    assert {(200, "SBX_OK"): 1, (403, "SBX_NONCE_USED"): 19} == {
        told: [answer.told for answer in answers].count(told) for told in {answer.told for answer in answers}
    }
