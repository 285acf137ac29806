"""The controls of a test beside the API: factories, the bank, the customer and the ledger."""

from datetime import timedelta
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from payasync.errors import InvalidArgumentError, NoAnswerError
from payasync.journal import SqliteJournal
from payasync.resources.orders import PlaceOrder
from payasync.sandbox import Sandbox
from tests.sandbox.foreign import NOON, Foreign, Receiver
from tests.sandbox.world import SAMPLES, World


async def test_refunds_that_end_immediately(http: aiohttp.ClientSession, receiver: Receiver) -> None:
    """If refunds end immediately, the response has the final state, and a notification is sent as well.

    With `repeated_refunds="refused"`, the same refund request again is a duplicate: 409.
    """
    ends: list[Any] = [("succeed", "succeeded", "SUCCEEDED"), ("fail", "failed", "REFUND_FAILED")]
    for refunds, state, code in ends:
        settings: Any = {"refunds": refunds, "repeated_refunds": "refused", "webhook_url": receiver.url}
        async with Sandbox(**settings) as sandbox:
            number, foreign = await sandbox.given.paid_order(notify_url="http://127.0.0.1:1/"), Foreign(sandbox, http)
            first, again = [await foreign.refund("R1", 100, out_trade_no=number) for _ in range(2)]
            await sandbox.settle()

            assert (f"SBX_{code}", state, 409) == (
                first.document["status"],
                sandbox.ledger.refund_state("R1"),
                again.status,
            )
            assert 1 == sandbox.ledger.refunds()
    assert ["refund.succeeded", "refund.failed"] == [one.document["type"] for one in receiver.received]


async def test_refund_after_a_time(http: aiohttp.ClientSession, tmp_path: Path) -> None:
    """A refund succeeds after its time, also after a restart. If the bank settled it before, it does not change."""
    path = str(tmp_path / "sandbox.db")
    async with Sandbox(refunds=timedelta(days=2), clock=NOON, db=path) as first:
        foreign = Foreign(first, http)
        number = await first.given.paid_order()
        await foreign.refund("R1", 100, out_trade_no=number)
        await foreign.refund("R2", 100, out_trade_no=number)
        await first.bank.settle_refund("R2", "failed")
        early = await first.clock.advance(days=1)
    async with Sandbox(clock="frozen", db=path) as second:
        report = await second.clock.advance(days=1)

        assert ([], ["2027-02-02T12:00:00.000Z  refund succeeded  R1"]) == (list(early), [str(one) for one in report])
        assert ("succeeded", "failed", 100) == (
            second.ledger.refund_state("R1"),
            second.ledger.refund_state("R2"),
            second.ledger.refunded(number),
        )


async def test_bank_refuses(http: aiohttp.ClientSession) -> None:
    """The bank refuses unknown numbers, invalid values and settled refunds, and names the argument."""
    async with Sandbox(refunds="by hand") as sandbox:
        number, foreign, bank = await sandbox.given.paid_order(), Foreign(sandbox, http), sandbox.bank
        for refund in ("R1", "R2"):
            await foreign.refund(refund, 100, out_trade_no=number)
        await bank.settle_refund("R2")
        wrong: list[tuple[Any, tuple[Any, ...], str]] = [
            (bank.settle_refund, ("R9",), "out_refund_no"),
            *((bank.settle_refund, ("R1", state), "state") for state in ("processing", "lost")),
            (bank.settle_refund, ("R2", "failed"), "state"),
            (bank.fail_renewals, ("S9",), "subscription_id"),
            *((bank.fail_renewals, ("S1", times), "times") for times in (-1, True, 10**20)),
        ]
        for act, arguments, field in wrong:
            with pytest.raises(InvalidArgumentError) as refused:
                await act(*arguments)

            assert field == refused.value.field, arguments
        assert ["processing", "succeeded"] == [sandbox.ledger.refund_state(refund) for refund in ("R1", "R2")]


THANKS = "https://shop.example/thanks"


async def test_names_of_an_order(sandbox: Sandbox) -> None:
    """The customer accepts an order's response, its redirect URL or its number, and pays it once."""
    async with sandbox.session() as pay:
        placed = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1", return_url=THANKS)
        named: list[Any] = [placed, await pay.orders.query("T1"), placed.redirect_url, "T1"]

    assert [f"{THANKS}?cancelled=1"] * 4 == [await sandbox.customer.cancel(order) for order in named]
    assert [THANKS, None, None] == [await sandbox.customer.authorize("T1") for _ in range(3)]


async def test_ways_to_name_an_order_after_a_restart(tmp_path: Path) -> None:
    """After a restart on another port, the customer accepts earlier responses, and those that a journal recorded."""
    place = partial(PlaceOrder, total_amt=450, currency="CAD", return_url=THANKS)
    async with (
        Sandbox(db=tmp_path / "sandbox.db") as sandbox,
        SqliteJournal(tmp_path / "pay.db") as journal,
        sandbox.session(journal=journal) as pay,
    ):
        sent = await pay.send(place(out_trade_no="T1"))
        sandbox.faults.reset_after_commit("orders.place")
        recovered = await pay.send(place(out_trade_no="T2"))
        recorded = await pay.send(place(out_trade_no="T2"))
    async with Sandbox(db=tmp_path / "sandbox.db") as sandbox:
        returned = [await sandbox.customer.authorize(order) for order in (sent, recorded)]

    assert recovered.recovered
    assert recorded.redirect_url is None
    assert [THANKS] * 2 == returned


async def test_customer_needs_an_order_of_this_sandbox(sandbox: Sandbox) -> None:
    """The customer refuses a value that names no order of this sandbox, and asks for the number."""
    url = sandbox.url
    others: list[Any] = ["T9", "https://shop.example/gateway/x", f"{url}/gateway/x", f"{url}.example/", "", "\ud800", 5]
    for order in (*others, None):
        with pytest.raises(InvalidArgumentError, match="order must be") as caught:
            await sandbox.customer.authorize(order)  # pyright: ignore[reportArgumentType]

        assert "order" == caught.value.field
        assert str(caught.value).endswith("not None: give the number, such as order.out_trade_no") is (order is None)


async def test_gateway_that_refuses_connections(sandbox: Sandbox) -> None:
    """If the gateway refuses connections, paying raises `NoAnswerError`; after that it works again."""
    number = await sandbox.given.pending_order()
    fault = sandbox.faults.refuse()
    with pytest.raises(NoAnswerError, match="the gateway does not respond: Cannot connect"):
        await sandbox.customer.authorize(number)
    fault.disarm()
    await sandbox.customer.authorize(number)

    assert "paid" == sandbox.ledger.order_state(number)


async def test_responses_name_what_they_are_about(slow_world: World) -> None:
    """With any profile, the ledger and the bank accept a response in place of the number in it."""
    pay, sandbox, ledger = slow_world.pay, slow_world.sandbox, slow_world.sandbox.ledger
    order = await pay.send(SAMPLES["orders.place"])
    await sandbox.customer.authorize(order)
    refund = await pay.send(SAMPLES["refunds.create"])
    before = ledger.refund_state(refund)
    await sandbox.bank.settle_refund(refund)
    made = await pay.send(SAMPLES["subscriptions.create"])
    await sandbox.bank.fail_renewals(made)
    payment = await pay.send(SAMPLES["payments.create"])
    await sandbox.customer.authorize(payment)

    assert ("processing", "succeeded") == (before, ledger.refund_state(refund))
    assert (450, 200, "paid") == (ledger.paid(order), ledger.refunded(order), ledger.order_state(order))
    assert (450, 200) == (ledger.paid(refund), ledger.refunded(refund))
    assert ("scheduled", 900) == (ledger.subscription_state(made), ledger.subscription_amount(made))
    assert [] == ledger.charges(made)
    for name in (payment, str(payment.payment_id)):  # type: ignore[attr-defined] # a payment's
        assert ("paid", 1000, 0) == (ledger.order_state(name), ledger.paid(name), ledger.refunded(name))


NAMED: Final = {
    "out_trade_no": "ledger.paid ledger.refunded ledger.order_state",
    "out_refund_no": "ledger.refund_state bank.settle_refund",
    "subscription_id": "ledger.subscription_state ledger.subscription_amount ledger.charges bank.fail_renewals",
}
"""The methods that take each number."""


async def test_values_that_are_no_number(sandbox: Sandbox) -> None:
    """The ledger and the bank refuse a value that is neither a number nor a response with the number that they need."""
    wrong: list[Any] = [None, 5, b"T1", "", "\ud800", ["T1"], {"outTradeNo": "T1"}]
    async with sandbox.session() as pay:
        order, subscription = [await pay.send(SAMPLES[name]) for name in ("orders.place", "subscriptions.create")]
    for field, method in ((field, method) for field, methods in NAMED.items() for method in methods.split()):
        for value in [*wrong, subscription if field == "out_trade_no" else order]:
            with pytest.raises(InvalidArgumentError, match="a number as a text, or a response") as caught:
                await attrgetter(method)(sandbox)(value)

            assert (field, value) == (caught.value.field, caught.value.value)
            assert str(caught.value).endswith("not None: give the number") is (value is None)
