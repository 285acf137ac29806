"""The customer: what `sandbox.customer` does at the gateway."""

import pytest

from payasync.errors import InvalidArgumentError, NoAnswerError
from payasync.sandbox import Sandbox
from tests.sandbox.foreign import Foreign

THANKS = "https://shop.example/thanks"


class Placed:
    """An answer, as a client gives it."""

    def __init__(self, redirect_url: str | None) -> None:
        self.redirect_url = redirect_url


async def test_three_ways_to_name_an_order(foreign: Foreign, sandbox: Sandbox) -> None:
    """An answer, its address and the order's number mean the same order."""
    url = (await foreign.place("T1", returnUrl=THANKS)).document["redirectUrl"]

    assert [f"{THANKS}?cancelled=1"] * 3 == [await sandbox.customer.cancel(way) for way in (Placed(url), url, "T1")]


async def test_decline_stays_until_it_fails(sandbox: Sandbox) -> None:
    """Two declines keep the customer at the gateway; the third sends them back."""
    number = await sandbox.given.pending_order(return_url=THANKS)

    assert [None, None, THANKS] == [await sandbox.customer.decline(number) for _ in range(3)]
    assert "failed" == sandbox.ledger.order_state(number)


@pytest.mark.parametrize(
    "order", ["T9", "https://shop.example/gateway/x", "{url}/gateway/x", "{url}.example/", Placed(None)]
)
async def test_what_names_no_order(sandbox: Sandbox, order: str | Placed) -> None:
    """A customer goes to no page but those of this sandbox, and says so."""
    with pytest.raises(InvalidArgumentError, match="order must be"):
        await sandbox.customer.authorize(order.format(url=sandbox.url) if isinstance(order, str) else order)


async def test_gateway_that_refuses_connections(sandbox: Sandbox) -> None:
    """Where nobody listens, the customer cannot pay, and is told so in our words; later they can."""
    number = await sandbox.given.pending_order()
    fault = sandbox.faults.refuse()
    with pytest.raises(NoAnswerError, match="the gateway does not answer: Cannot connect"):
        await sandbox.customer.authorize(number)
    fault.disarm()
    await sandbox.customer.authorize(number)

    assert "paid" == sandbox.ledger.order_state(number)
