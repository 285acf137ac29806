"""The controls of a test beside the API: factories, the bank, the customer and the ledger."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
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
from tests.sandbox.foreign import Foreign, Receiver
from tests.sandbox.world import SAMPLES, World

NOON: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("refunds", "state", "code"), [("succeed", "succeeded", "SUCCEEDED"), ("fail", "failed", "REFUND_FAILED")]
)
async def test_refunds_that_end_immediately(
    http: aiohttp.ClientSession, receiver: Receiver, refunds: Any, state: str, code: str
) -> None:
    """If refunds end immediately, the response has the final state, and a notification is sent as well."""
    async with Sandbox(refunds=refunds, webhook_url=receiver.url) as sandbox:
        number = await sandbox.given.paid_order(notify_url="http://127.0.0.1:1/")
        answer = await Foreign(sandbox, http).refund("R1", 100, out_trade_no=number)
        await sandbox.settle()

        assert (f"SBX_{code}", state) == (answer.document["status"], sandbox.ledger.refund_state("R1"))
    assert [f"refund.{state}"] == [one.document["type"] for one in receiver.received]


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


async def test_repeated_refund_can_be_refused(http: aiohttp.ClientSession) -> None:
    """With `repeated_refunds="refused"` the same refund request again is a duplicate: 409."""
    async with Sandbox(repeated_refunds="refused") as sandbox:
        number, foreign = await sandbox.given.paid_order(), Foreign(sandbox, http)
        answers = [await foreign.refund("R1", 100, out_trade_no=number) for _ in range(2)]

        assert [200, 409] == [answer.status for answer in answers]
        assert (100, 1) == (sandbox.ledger.refunded(number), sandbox.ledger.refunds())


@pytest.mark.parametrize(
    ("act", "field"),
    [
        (lambda bank: bank.settle_refund("R9"), "out_refund_no"),
        (lambda bank: bank.settle_refund("R1", "processing"), "state"),
        (lambda bank: bank.settle_refund("R1", "lost"), "state"),
        (lambda bank: bank.settle_refund("R2", "failed"), "state"),
        (lambda bank: bank.fail_renewals("S9"), "subscription_id"),
        (lambda bank: bank.fail_renewals("S1", -1), "times"),
        (lambda bank: bank.fail_renewals("S1", times=True), "times"),
        (lambda bank: bank.fail_renewals("S1", 10**20), "times"),
    ],
)
async def test_bank_refuses(http: aiohttp.ClientSession, act: Callable[[Any], Any], field: str) -> None:
    """The bank refuses unknown numbers, invalid values and settled refunds, and names the argument."""
    async with Sandbox(refunds="by hand") as sandbox:
        number, foreign = await sandbox.given.paid_order(), Foreign(sandbox, http)
        for refund in ("R1", "R2"):
            await foreign.refund(refund, 100, out_trade_no=number)
        await sandbox.bank.settle_refund("R2")
        with pytest.raises(InvalidArgumentError) as refused:
            await act(sandbox.bank)

        assert field == refused.value.field
        assert ["processing", "succeeded"] == [sandbox.ledger.refund_state(refund) for refund in ("R1", "R2")]


async def test_cancelled_subscription_has_no_charges_to_fail() -> None:
    """If a subscription is cancelled, the bank refuses to fail its charges."""
    async with Sandbox(clock=NOON) as sandbox:
        number = await sandbox.given.subscription("daily")
        await sandbox.bank.fail_renewals(number, 3)
        await sandbox.clock.advance(days=3)
        with pytest.raises(InvalidArgumentError, match="the subscription is cancelled") as refused:
            await sandbox.bank.fail_renewals(number)

    assert "subscription_id" == refused.value.field


THANKS = "https://shop.example/thanks"


async def test_ways_to_name_an_order(sandbox: Sandbox) -> None:
    """The customer accepts an order's response, its redirect URL or its number."""
    async with sandbox.session() as pay:
        placed = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1", return_url=THANKS)
        named: list[Any] = [placed, await pay.orders.query("T1"), placed.redirect_url, "T1"]

    assert [f"{THANKS}?cancelled=1"] * 4 == [await sandbox.customer.cancel(order) for order in named]


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


async def test_only_a_pending_order_is_decided(sandbox: Sandbox) -> None:
    """If an order is no longer pending, the customer's decision does nothing and returns no URL."""
    number = await sandbox.given.pending_order(return_url=THANKS)

    assert [THANKS, None, None] == [await sandbox.customer.authorize(number) for _ in range(3)]


@pytest.mark.parametrize(
    "order", ["T9", "https://shop.example/gateway/x", "{url}/gateway/x", "{url}.example/", "", "\ud800", None, 5]
)
async def test_customer_needs_an_order_of_this_sandbox(sandbox: Sandbox, order: Any) -> None:
    """The customer refuses a value that names no order of this sandbox."""
    with pytest.raises(InvalidArgumentError, match="order must be") as caught:
        await sandbox.customer.authorize(order.format(url=sandbox.url) if isinstance(order, str) else order)

    assert "order" == caught.value.field


async def test_gateway_that_refuses_connections(sandbox: Sandbox) -> None:
    """If the gateway refuses connections, paying raises `NoAnswerError`; after that it works again."""
    number = await sandbox.given.pending_order()
    fault = sandbox.faults.refuse()
    with pytest.raises(NoAnswerError, match="the gateway does not respond: Cannot connect"):
        await sandbox.customer.authorize(number)
    fault.disarm()
    await sandbox.customer.authorize(number)

    assert "paid" == sandbox.ledger.order_state(number)


async def test_responses_name_orders_and_refunds(slow_world: World) -> None:
    """With any profile, the ledger and the bank accept the response of an order or refund in place of its number."""
    pay, sandbox = slow_world.pay, slow_world.sandbox
    order = await pay.send(SAMPLES["orders.place"])
    await sandbox.customer.authorize(order)
    refund = await pay.send(SAMPLES["refunds.create"])
    before = sandbox.ledger.refund_state(refund)
    await sandbox.bank.settle_refund(refund)
    ledger = sandbox.ledger

    assert ("processing", "succeeded") == (before, ledger.refund_state(refund))
    assert (450, 200, "paid") == (ledger.paid(order), ledger.refunded(order), ledger.order_state(order))
    assert (450, 200) == (ledger.paid(refund), ledger.refunded(refund))


async def test_responses_name_subscriptions(world: World) -> None:
    """With any profile, the ledger and the bank accept the response of a subscription in place of its number."""
    made, sandbox = await world.pay.send(SAMPLES["subscriptions.create"]), world.sandbox
    await sandbox.bank.fail_renewals(made)
    ledger = sandbox.ledger

    assert ("scheduled", 900, []) == (
        ledger.subscription_state(made),
        ledger.subscription_amount(made),
        ledger.charges(made),
    )


@pytest.mark.parametrize(
    "name",
    [lambda paid: paid, lambda paid: paid.payment_id, lambda paid: paid["outTradeNo"]],
    ids=["answer", "payment", "order"],
)
async def test_payment_is_paid_and_found(sandbox: Sandbox, name: Callable[[Any], Any]) -> None:
    """A payment of endpoint 1 can be named by its response, its payment number or its order number."""
    async with sandbox.session() as pay:
        made = await pay.payments.create(amount=100, currency="USD", description="x")
    await sandbox.customer.authorize(name(made))

    assert ("paid", 100, 0) == (
        sandbox.ledger.order_state(name(made)),
        sandbox.ledger.paid(name(made)),
        sandbox.ledger.refunded(name(made)),
    )


NAMED: Final = {
    "ledger.paid": "out_trade_no",
    "ledger.refunded": "out_trade_no",
    "ledger.order_state": "out_trade_no",
    "ledger.refund_state": "out_refund_no",
    "ledger.subscription_state": "subscription_id",
    "ledger.subscription_amount": "subscription_id",
    "ledger.charges": "subscription_id",
    "bank.settle_refund": "out_refund_no",
    "bank.fail_renewals": "subscription_id",
}


@pytest.mark.parametrize("value", [None, 5, b"T1", "", "\ud800", ["T1"], {"outTradeNo": "T1"}], ids=repr)
async def test_values_that_are_no_number(sandbox: Sandbox, value: object) -> None:
    """The ledger and the bank refuse a value that is neither a number nor a response."""
    for method, field in NAMED.items():
        with pytest.raises(InvalidArgumentError, match="a number as a text, or a response") as caught:
            await attrgetter(method)(sandbox)(value)

        assert (field, value) == (caught.value.field, caught.value.value)
        assert str(caught.value).endswith("not None: give the number") is (value is None)


async def test_no_address_of_an_order(sandbox: Sandbox) -> None:
    """A customer without an order is told to give its number: the profile may name no address, so that it is `None`."""
    with pytest.raises(InvalidArgumentError, match=r"not None: give the number, such as order\.out_trade_no$"):
        await sandbox.customer.authorize(None)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("sample", "method"),
    [
        ("orders.place", "ledger.refund_state"),
        ("orders.place", "ledger.subscription_state"),
        ("subscriptions.create", "ledger.paid"),
    ],
)
async def test_response_about_something_else(sandbox: Sandbox, sample: str, method: str) -> None:
    """The ledger and the bank refuse a response without the number that they need."""
    async with sandbox.session() as pay:
        response = await pay.send(SAMPLES[sample])

    with pytest.raises(InvalidArgumentError, match="a number as a text, or a response"):
        attrgetter(method)(sandbox)(response)
