"""The service: orders, refunds and subscriptions with any profile, races, and generated numbers."""

import asyncio
import re
from collections import Counter
from datetime import UTC, date, datetime
from typing import Any, Final, cast

import pytest
from attrs import evolve

from payasync import Profile
from payasync.errors import DuplicateError, OutcomeUnknownError
from payasync.profile.schema import Accept
from payasync.profile.wire_names import NONCE
from payasync.resources.orders import CloseOrder
from payasync.resources.subscriptions import CancelSubscription, CreateSubscription, UpdateSubscription
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.service import Numbering
from payasync.strict_json import at
from tests.sandbox.world import SAMPLES, World, order, refund


async def test_authorized_order_is_paid(world: World) -> None:
    """A new order or payment waits for its customer; authorizing pays it (docs/reference/service.md#orders).

    Endpoint 6 finds both, a payment by its own number.
    """
    sandbox, pay = world.sandbox, world.pay
    placed, made = await pay.send(order(out_trade_no="T1")), await pay.payments.create(amount=1000, currency="USD")
    states = list[str | None]()
    for _ in range(2):
        status = await pay.payments.status(str(made.payment_id))
        assert made.payment_id == status.payment_id
        states += [(await pay.orders.query("T1")).state, (await pay.payments.status("T1")).state, status.state]
        for each in (placed, made):
            await sandbox.customer.authorize(each)

    assert str(placed.redirect_url).startswith(f"{sandbox.url}/gateway/")
    assert ("pending", [*["pending"] * 3, *["paid"] * 3]) == (placed.state, states)
    assert (450, 1, 1) == (sandbox.ledger.paid("T1"), sandbox.ledger.payments(), sandbox.ledger.orders())


async def test_payment_with_a_number_of_the_merchants() -> None:
    """If the profile requires the orders' number in `extra` of payments, it names the payment, and only once."""
    profile = evolve(PROFILE, accept=Accept(required={"payments.create": ["outTradeNo"]}))
    async with Sandbox(profile=profile) as sandbox, sandbox.session() as pay:
        made = await pay.payments.create(amount=450, currency="CAD", extra={"outTradeNo": "P1"})
        found = await pay.payments.status("P1")
        with pytest.raises(OutcomeUnknownError, match="the number was used before"):
            await pay.payments.create(amount=450, currency="CAD", extra={"outTradeNo": "P1"})

    assert ("P1", made.payment_id) == (made.data["outTradeNo"], found.payment_id)


async def test_customer_leaves_the_page(world: World) -> None:
    """The third decline fails an order. A cancelled order stays pending, until the merchant closes it, also twice.

    Both lead the customer back.
    """
    customer = world.sandbox.customer
    for number in ("T1", "T2", "T3"):
        await world.sandbox.given.pending_order(out_trade_no=number, return_url="https://shop.example/")
    back = [await customer.decline(number) is not None for number in ("T1", "T1", "T2", "T2", "T1")]
    back += [await customer.authorize("T2") is not None, await customer.cancel("T3") is not None]
    states = [(await world.pay.orders.query(number)).state for number in ("T1", "T2", "T3")]
    closed = [await world.reach(CloseOrder(out_trade_no="T3")) for _ in range(2)]

    assert ([False] * 4 + [True] * 3, ["failed", "paid", "pending"]) == (back, states)
    assert [("done", "closed")] * 2 == [(each.why, each.state("order")) for each in closed]


async def test_pending_order_expires(world: World) -> None:
    """A pending order can be paid until the profile's expiry: 30 minutes, if it says nothing. Then it may be closed."""
    expiry = world.profile.sandbox.order_expiry
    for number in ("T1", "T2"):
        await world.pay.send(order(out_trade_no=number))
    await world.sandbox.clock.advance(seconds=expiry - 60)
    await world.sandbox.customer.authorize("T1")
    await world.sandbox.clock.advance(minutes=1)
    states = [(await world.pay.orders.query(number)).state for number in ("T1", "T2")]
    await world.sandbox.customer.authorize("T2")
    closed = await world.pay.orders.close("T2")

    assert (["paid", "expired"], 0, "closed") == (states, world.sandbox.ledger.paid("T2"), closed.state)


async def test_refunds_of_an_order(world: World) -> None:
    """A refund needs a paid order, its `totalAmt`, a new number or the same fields, and no more than is left.

    See docs/reference/service.md#refunds.
    """
    await world.sandbox.given.pending_order(out_trade_no="T1")
    pending = await world.reach(refund())
    await world.sandbox.customer.authorize("T1")
    made = await world.pay.send(refund())
    with pytest.raises(DuplicateError):
        await world.pay.send(refund(refund_amt=201))
    changes: tuple[dict[str, Any], ...] = ({"refund_desc": "x"}, {"extra": {"deviceNo": "7"}})
    changed = [await world.reach(refund(**change)) for change in changes]
    total = await world.reach(refund(out_refund_no="R2", total_amt=451))
    others = [await world.reach(refund(out_refund_no=f"R{number}")) for number in (2, 3)]
    found = await world.pay.refunds.status("R1")

    assert (world.refused(409, "wrong_state"), None) == (pending.reason, pending.field)
    assert {(world.refused(409, "duplicate"), "outRefundNo")} == {(each.reason, each.field) for each in changed}
    assert (world.refused(422, "invalid"), "totalAmt") == (total.reason, total.field)
    assert (["done", "invalid"], "refundAmt") == ([each.why for each in others], others[1].field)
    assert "50 is left to refund" in str(others[1].document)
    assert made.state in {"processing", "succeeded"}
    assert ("succeeded", 400, 2) == (
        found.state,
        world.sandbox.ledger.refunded("T1"),
        world.sandbox.ledger.refunds(),
    )


async def test_refund_is_processing_until_it_ends(slow_world: World) -> None:
    """A processing refund reserves its amount, until the bank settles it. If it fails, the amount is free again."""
    world, amounts = slow_world, (400, 100, 450)
    await world.sandbox.given.paid_order(out_trade_no="T1")
    first, more = [await world.reach(refund(out_refund_no=f"R{part}", refund_amt=part)) for part in amounts[:2]]
    before = world.sandbox.ledger.refunded("T1")
    await world.sandbox.bank.settle_refund("R400", "failed")
    again = await world.reach(refund(out_refund_no="R450", refund_amt=450))
    await world.sandbox.bank.settle_refund("R450")
    states = [(await world.pay.refunds.status(number)).state for number in ("R400", "R450")]

    assert (["processing", "processing"], "invalid", 0) == (
        [each.state("refund") for each in (first, again)],
        more.why,
        before,
    )
    assert (["failed", "succeeded"], 450) == (states, world.sandbox.ledger.refunded("T1"))


async def test_life_of_a_subscription(world: World) -> None:
    """A subscription is billed from its start date on, which cannot change then, until it is cancelled.

    Its response has frequency, amount and start date under the names and in the form of the request.
    """
    await world.sandbox.clock.advance(datetime(2027, 1, 30, tzinfo=UTC) - world.sandbox.clock.now())
    request = evolve(cast("CreateSubscription", SAMPLES["subscriptions.create"]), start_date=date(2027, 1, 31))
    sent = world.fields(request)
    made = await world.reach(request, fields=sent)
    number = str(at(made.data, world.profile.answer.subscription_id or ""))
    names = [world.wire(point) for point in ("frequency", "subscription_amount", "start_date")]
    ledger, before = world.sandbox.ledger, world.sandbox.ledger.charges(number)
    await world.sandbox.clock.advance(days=1)
    active = ledger.subscription_state(number)
    late = await world.reach(UpdateSubscription(subscription_id=number, start_date=date(2027, 3, 1)))
    cancelled = await world.pay.subscriptions.cancel(number)
    await world.sandbox.clock.advance(days=60)
    ends: list[Any] = [CancelSubscription(subscription_id=number), UpdateSubscription(subscription_id=number, amount=1)]
    refused = [(await world.reach(each)).reason for each in ends]

    assert {name: sent[name] for name in names} == {name: made.data[name] for name in names}
    assert ("scheduled", [], "active", "cancelled") == (made.state("subscription"), before, active, cancelled.state)
    assert [("2027-01-31", 900)] == [(f"{each.at:%Y-%m-%d}", each.amount) for each in ledger.charges(number)]
    assert (world.refused(409, "wrong_state"), world.wire("start_date")) == (late.reason, late.field)
    assert [world.refused(409, "wrong_state")] * 2 == refused


@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.long)])
async def test_authorize_against_close_has_one_winner(world: World, rounds: int) -> None:
    """If a customer pays while the merchant closes, one of them wins, and both responses say which."""

    async def authorize(page: object) -> int:
        async with world.http.post(str(page), data={"decision": "authorize"}, allow_redirects=False) as response:
            return response.status

    outcomes = list[tuple[object, object, str, int]]()
    for count in range(rounds):
        number = f"T{count}"
        placed = await world.pay.send(order(out_trade_no=number, return_url="https://shop.example/thanks"))
        sides: list[Any] = [authorize(placed.redirect_url), world.reach(CloseOrder(out_trade_no=number))]
        # The task that starts first alternates, so that both sides win.
        step = 1 if count % 2 else -1
        paid, closed = (await asyncio.gather(*sides[::step]))[::step]
        ledger = world.sandbox.ledger
        outcomes.append((paid, closed.why, ledger.order_state(number), ledger.paid(number)))

    assert {(303, "wrong_state", "paid", 450), (409, "done", "closed", 0)} == set(outcomes)


async def test_concurrent_refunds_never_exceed_what_was_paid(world: World) -> None:
    """Of 100 concurrent refunds of 7, only as many succeed as 450 allows."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    requests = [refund(out_refund_no=f"R{count}", refund_amt=7) for count in range(100)]
    responses = await asyncio.gather(*map(world.reach, requests))

    assert ({"done": 64, "invalid": 36}, 448) == (
        Counter(each.why for each in responses),
        world.sandbox.ledger.refunded("T1"),
    )


async def test_same_request_at_once_is_done_once(world: World) -> None:
    """Of 20 concurrent requests, one is done. All report the same refund, and other numbers and nonces are refused.

    See docs/reference/service.md#authentication.
    """
    await world.sandbox.given.paid_order(out_trade_no="T1")
    refunds = await asyncio.gather(*(world.reach(refund()) for _ in range(20)))
    orders = await asyncio.gather(*(world.reach(order(out_trade_no="T2")) for _ in range(20)))
    copied = order(out_trade_no="T3")
    fields = world.fields(copied)
    copies = await asyncio.gather(*(world.reach(copied, fields=fields) for _ in range(20)))

    assert [("done", refunds[0].state("refund"))] * 20 == [(each.why, each.state("refund")) for each in refunds]
    assert (200, 1) == (world.sandbox.ledger.refunded("T1"), world.sandbox.ledger.refunds())
    for responses, refused, field in (
        (orders, world.refused(409, "duplicate"), "outTradeNo"),
        (copies, world.refused(403, "nonce_used"), NONCE),
    ):
        assert [(refused, field)] * 19 == [(each.reason, each.field) for each in responses if each.why != "done"]
    assert 3 == world.sandbox.ledger.orders()


UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"


def test_number_is_of_the_profiles_form() -> None:
    """A generated number matches the profile's pattern, and is short enough to be sent back."""
    forms = ("[0-9]{8,32}", "[1-9][0-9]{11}", "[A-Z0-9]{6,16}", "[a-z0-9]{30,40}", "[a-z][0-9]+", "[0-9a-f]{32}", UUID)
    short = (Accept(length={name: 12}) for name in ("out_trade_no", "identifier", "subscription_id"))
    for profile, form in (
        (PROFILE, "T[0-9]{20}"),
        *((Profile(identifier=form), form) for form in forms),
        *((Profile(accept=accept), "T[0-9]{11}") for accept in short),
    ):
        drawn = {Numbering(profile).new("T", lambda _number: False) for _ in range(50)}

        assert [] == [number for number in drawn if not re.fullmatch(form, number)]
        assert 50 == len(drawn)


def test_number_where_none_of_the_profiles_is_free() -> None:
    """A number in use is not given again; if none that matches is free, a number has the sandbox's own form."""
    used = {str(number) for number in range(10, 99)}
    for identifier, is_used, form in (
        ("[1-9][0-9]", used.__contains__, "99|T[0-9]{20}"),
        ("T[1-9]", lambda _: True, "T[0-9]{20}"),
        ("SHOP-[0-9]+", lambda _: False, "T[0-9]{20}"),
    ):
        assert re.fullmatch(form, Numbering(Profile(identifier=identifier)).new("T", is_used))
