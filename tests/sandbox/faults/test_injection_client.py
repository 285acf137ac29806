"""Faults with payasync's own client and any profile: the documented outcome, and money moved once."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from payasync import RetryPolicy, Session
from payasync.sandbox import Sandbox
from tests.sandbox.world import SAMPLES, World, refund

FAST: Final = RetryPolicy(base_delay=0.001)
"""Short delays between attempts."""


@pytest.fixture
def sandbox(world: World) -> Sandbox:
    """A sandbox of each profile: faults are the same for all of them."""
    return world.sandbox


@pytest.fixture
async def pay(sandbox: Sandbox) -> AsyncIterator[Session]:
    """A session of the sandbox."""
    async with sandbox.session(retry=FAST) as session:
        yield session


async def test_lost_response_is_recovered(sandbox: Sandbox, pay: Session) -> None:
    """If the response is lost after the commit, a query finds the refund, and it is never made again."""
    await sandbox.given.paid_order(out_trade_no="T1")
    after: Any = {"phase": "after"}
    kinds = {
        "reset_after_commit": {},
        "server_error": after,
        "redirect": {"status": 307, **after},
        "truncated_body": {},
    }
    for number, (kind, options) in enumerate(
        {**kinds, "malformed_json": {}, "huge_body": {}, "gzip_bomb": {}}.items(), 1
    ):
        fault = sandbox.faults.arm(kind, "refunds.create", **options)
        made = await pay.send(refund(out_refund_no=f"R{number}", refund_amt=10))

        assert (True, 2, "succeeded") == (made.recovered, made.attempts, made.state), kind
        assert (1, 10 * number, number) == (fault.fired, sandbox.ledger.refunded("T1"), sandbox.ledger.refunds())


async def test_failure_has_the_profiles_shape(world: World) -> None:
    """A 5xx and a 429 have the shape of all refusals, with the profile's code for what may be retried."""
    for kind, status in (("server_error", 503), ("rate_limited", 429)):
        world.sandbox.faults.arm(kind)

        assert (status, "busy") == (await world.reach(SAMPLES["orders.query"])).reason


async def test_random_resets_are_repeatable() -> None:
    """Under random resets every refund is made once, and the same seed resets the same calls."""

    async def recovered() -> list[bool]:
        async with Sandbox() as service, service.session(retry=FAST) as pay:
            fault = service.faults.reset_after_commit("refunds.create", probability=0.5, seed=20)
            await service.given.paid_order(out_trade_no="T1")
            responses = [await pay.send(refund(out_refund_no=f"R{n}", refund_amt=10)) for n in range(20)]
            assert (200, 20) == (service.ledger.refunded("T1"), service.ledger.refunds())
            assert fault.fired == sum(one.recovered for one in responses)
            return [one.recovered for one in responses]

    first, second = await recovered(), await recovered()

    assert first == second
    assert 2 < sum(first) < 18


async def test_calls_that_are_about_an_order(sandbox: Sandbox, pay: Session) -> None:
    """A call matches an order by its number in a body or a query, by its refund's and by its payment's number."""
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
