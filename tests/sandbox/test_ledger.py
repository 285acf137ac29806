"""The ledger, the bank and the customer: what a number may be."""

from collections.abc import Callable
from datetime import date
from typing import Any, Final

import pytest

from payasync.errors import InvalidArgumentError
from payasync.sandbox import Sandbox
from tests.sandbox.world import SAMPLES, World

DAY: Final = date(2999, 1, 31)
TERMS: Final[dict[str, Any]] = {"frequency": "monthly", "amount": 900, "start_date": DAY, "customer": {"a": "b"}}


async def test_answers_name_what_they_tell(slow_world: World) -> None:
    """With any profile, an answer says as well as a number which order and which refund is meant."""
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


async def test_answers_name_subscriptions(world: World) -> None:
    """So do answers about subscriptions."""
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
    """What endpoint 1 answers has a gateway page: by the answer, by the payment's number and by the order's."""
    async with sandbox.session() as pay:
        made = await pay.payments.create(amount=100, currency="USD", description="x")
    await sandbox.customer.authorize(name(made))

    assert ("paid", 100, 0) == (
        sandbox.ledger.order_state(name(made)),
        sandbox.ledger.paid(name(made)),
        sandbox.ledger.refunded(name(made)),
    )


async def test_query_names_its_order(sandbox: Sandbox) -> None:
    """An answer without an address names its order all the same."""
    number = await sandbox.given.pending_order()
    async with sandbox.session() as pay:
        await sandbox.customer.authorize(await pay.orders.query(number))

    assert "paid" == sandbox.ledger.order_state(number)


ASKED: Final[list[tuple[str, str]]] = [
    ("paid", "out_trade_no"),
    ("refunded", "out_trade_no"),
    ("order_state", "out_trade_no"),
    ("refund_state", "out_refund_no"),
    ("subscription_state", "subscription_id"),
    ("subscription_amount", "subscription_id"),
    ("charges", "subscription_id"),
]


@pytest.mark.parametrize("value", [None, 5, b"T1", "", "\ud800", ["T1"], {"outTradeNo": "T1"}], ids=repr)
async def test_what_names_nothing(sandbox: Sandbox, value: object) -> None:
    """Anything else is refused by name and rule, and reaches no database."""
    for method, field in ASKED:
        with pytest.raises(InvalidArgumentError, match="a number as a text, or an answer") as caught:
            getattr(sandbox.ledger, method)(value)

        assert (field, value) == (caught.value.field, caught.value.value)


async def test_answer_about_something_else(sandbox: Sandbox) -> None:
    """An answer that tells no such number names nothing."""
    async with sandbox.session() as pay:
        order = await pay.orders.place(total_amt=450, currency="CAD")
        made = await pay.subscriptions.create(**TERMS)

    for ask in (
        lambda: sandbox.ledger.refund_state(order),
        lambda: sandbox.ledger.subscription_state(order),
        lambda: sandbox.ledger.paid(made),
    ):
        with pytest.raises(InvalidArgumentError, match="a number as a text, or an answer"):
            ask()


@pytest.mark.parametrize("value", [None, 5, "", "\ud800"], ids=repr)
async def test_what_the_bank_and_the_customer_refuse(sandbox: Sandbox, value: Any) -> None:
    """They ask for the same, in the same words of our own."""
    for act, field in (
        (sandbox.bank.settle_refund, "out_refund_no"),
        (sandbox.bank.fail_renewals, "subscription_id"),
        (sandbox.customer.authorize, "order"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            await act(value)

        assert field == caught.value.field
