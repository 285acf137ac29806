"""The service: orders, refunds and subscriptions with any profile, races, and generated numbers."""

import asyncio
import re
from datetime import UTC, date, datetime
from typing import Any, Final

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
from payasync.wire.response import RefundResponse, SubscriptionResponse
from tests.sandbox.world import SAMPLES, World, order, refund

PLACE, QUERY, CLOSE = (SAMPLES[f"orders.{name}"] for name in ("place", "query", "close"))
RETURN_URL = "https://shop.example/thanks?order=T1"


async def test_authorized_order_is_paid(world: World) -> None:
    """A new order waits for its customer; authorizing pays it (docs/reference/service.md#orders)."""
    placed = await world.pay.send(order(out_trade_no="T1"))
    before = await world.pay.orders.query("T1")
    await world.sandbox.customer.authorize(placed)
    after, status = await world.pay.orders.query("T1"), await world.pay.payments.status("T1")

    assert str(placed.redirect_url).startswith(f"{world.sandbox.url}/gateway/")
    assert ("pending", "pending", "paid", "paid") == (placed.state, before.state, after.state, status.state)
    assert 450 == world.sandbox.ledger.paid("T1")


async def test_payment_with_a_number_of_the_merchants() -> None:
    """If the profile requires the orders' number in `extra` of payments, it names the payment, and only once."""
    profile = evolve(PROFILE, accept=Accept(required={"payments.create": ["outTradeNo"]}))
    async with Sandbox(profile=profile) as sandbox, sandbox.session() as pay:
        made = await pay.payments.create(amount=450, currency="CAD", extra={"outTradeNo": "P1"})
        found = await pay.payments.status("P1")
        with pytest.raises(OutcomeUnknownError, match="the number was used before"):
            await pay.payments.create(amount=450, currency="CAD", extra={"outTradeNo": "P1"})

    assert ("P1", made.payment_id) == (made.data["outTradeNo"], found.payment_id)


async def test_third_decline_fails_the_order(world: World) -> None:
    """After two declines an order stays pending and can be paid; the third fails it and sends the customer back."""
    customer, ledger = world.sandbox.customer, world.sandbox.ledger
    for number in ("T1", "T2"):
        await world.pay.send(order(out_trade_no=number, return_url=RETURN_URL))
    back = [await customer.decline(number) is not None for number in ("T1", "T1", "T2", "T2")]
    before = ledger.order_state("T1"), ledger.order_state("T2")
    back += [await customer.decline("T1") is not None, await customer.authorize("T2") is not None]

    assert ([False] * 4 + [True] * 2, ("pending", "pending")) == (back, before)
    assert ["failed", "paid"] == [(await world.pay.orders.query(number)).state for number in ("T1", "T2")]


async def test_cancelling_redirects_and_the_merchant_closes(world: World) -> None:
    """If the customer cancels, they are sent back, and the order stays pending until the merchant closes it."""
    await world.pay.send(order(out_trade_no="T1", return_url=RETURN_URL))
    back = await world.sandbox.customer.cancel("T1")
    pending = await world.pay.orders.query("T1")
    closed = await world.pay.orders.close("T1")

    assert back is not None
    assert back.startswith(RETURN_URL)
    assert ("pending", "closed") == (pending.state, closed.state)


async def test_closed_again_gives_the_same_answer(world: World) -> None:
    """If a closed order is closed again, the response is the same (docs/reference/service.md#orders)."""
    await world.pay.send(order(out_trade_no="T1"))
    first, second = [await world.tell(CLOSE) for _ in range(2)]

    assert ("done", "closed") == (first.why, first.state("order"))
    assert (first.why, first.state("order")) == (second.why, second.state("order"))


@pytest.mark.parametrize(
    "operation",
    ["orders.query", "orders.close", "payments.status", "refunds.status", "subscriptions.update"],
)
async def test_unknown_number_is_absent(world: World, operation: str) -> None:
    """An unknown number gets 404."""
    told = await world.tell(SAMPLES[operation])

    assert world.refused(404, "absent") == (told.status, told.why)


async def test_payment_is_paid_at_its_page(world: World) -> None:
    """Endpoint 1 makes a payment with a gateway page, and endpoint 6 finds it by its payment number."""
    made = await world.pay.payments.create(amount=1000, currency="USD", description="Invoice 42")
    before = await world.pay.payments.status(str(made.payment_id))
    await world.sandbox.customer.authorize(made)
    after = await world.pay.payments.status(str(made.payment_id))

    assert ("pending", "paid", made.payment_id) == (before.state, after.state, after.payment_id)
    assert (1, 0) == (world.sandbox.ledger.payments(), world.sandbox.ledger.orders())


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


async def given_back(world: World, **changes: Any) -> RefundResponse:
    """Refund a part with payasync's client."""
    return await world.pay.send(refund(**changes))


async def test_refund_of_a_part(world: World) -> None:
    """Endpoint 5 refunds money, and endpoint 7 returns the refund's state (docs/reference/service.md#refunds)."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    made = await given_back(world)
    found = await world.pay.refunds.status("R1")

    assert made.state in {"processing", "succeeded"}
    assert ("succeeded", 200, 1) == (found.state, world.sandbox.ledger.refunded("T1"), world.sandbox.ledger.refunds())


async def test_total_must_be_the_orders(world: World) -> None:
    """If `totalAmt` is not the order's, a refund gets 422 with the field's name (docs/reference/service.md#refunds)."""
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

    assert ["done", "done", "invalid"] == [each.why for each in told]
    assert ("refundAmt", 400) == (told[2].field, world.sandbox.ledger.refunded("T1"))
    assert "50 is left to refund" in str(told[2].document)


async def test_changed_refund_under_the_same_number_is_refused(world: World) -> None:
    """The same refund number with any other field is a duplicate: 409, and nothing more is refunded."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    await given_back(world)
    with pytest.raises(DuplicateError):
        await given_back(world, refund_amt=201)
    told = [await world.tell(refund(**change)) for change in ({"refund_desc": "x"}, {"extra": {"deviceNo": "7"}})]

    assert {(*world.refused(409, "duplicate"), "outRefundNo")} == {(each.status, each.why, each.field) for each in told}
    assert 200 == world.sandbox.ledger.refunded("T1")


async def test_only_paid_orders_are_refunded(world: World) -> None:
    """A refund of a pending order gets 409, and one of an unknown order 404."""
    unknown = await world.tell(refund())
    await world.sandbox.given.pending_order(out_trade_no="T1")
    pending = await world.tell(refund())

    assert (world.refused(404, "absent"), world.refused(409, "wrong_state")) == (
        (unknown.status, unknown.why),
        (pending.status, pending.why),
    )
    assert pending.field is None


async def test_refund_is_processing_until_it_ends(slow_world: World) -> None:
    """A processing refund reserves its amount; it succeeds when the bank settles it."""
    world = slow_world
    await world.sandbox.given.paid_order(out_trade_no="T1")
    made = await given_back(world, refund_amt=400)
    more = await world.tell(refund(out_refund_no="R2", refund_amt=100))
    before = world.sandbox.ledger.refunded("T1")
    await world.sandbox.bank.settle_refund("R1")
    found = await world.pay.refunds.status("R1")

    assert ("processing", "invalid", 0) == (made.state, more.why, before)
    assert ("succeeded", 400) == (found.state, world.sandbox.ledger.refunded("T1"))


async def test_failed_refund_gives_back_nothing(slow_world: World) -> None:
    """The amount of a failed refund can be refunded again, under another number."""
    world = slow_world
    await world.sandbox.given.paid_order(out_trade_no="T1")
    await given_back(world, refund_amt=450)
    await world.sandbox.bank.settle_refund("R1", "failed")
    failed = await world.pay.refunds.status("R1")
    again = await given_back(world, out_refund_no="R2", refund_amt=450)

    assert ("failed", "processing", 0) == (failed.state, again.state, world.sandbox.ledger.refunded("T1"))


def plan(start: date, **changes: Any) -> CreateSubscription:
    """Return a request for a subscription with this start date."""
    sample = SAMPLES["subscriptions.create"]
    assert isinstance(sample, CreateSubscription)
    return evolve(sample, start_date=start, **changes)


async def begun(world: World, **changes: Any) -> SubscriptionResponse:
    """Make a subscription that starts on 31 January, on the day before."""
    await world.sandbox.clock.advance(datetime(2027, 1, 30, tzinfo=UTC) - world.sandbox.clock.now())
    return await world.pay.send(plan(date(2027, 1, 31), **changes))


def billed(world: World, made: SubscriptionResponse) -> list[tuple[str, int]]:
    """Return the days and amounts for which a subscription was billed."""
    charges = world.sandbox.ledger.charges(str(made.subscription_id))
    return [(f"{charge.at:%Y-%m-%d}", charge.amount) for charge in charges]


async def test_subscription_waits_for_its_start(world: World) -> None:
    """Before its start date, a subscription is scheduled and not billed; on that date it is active."""
    made = await begun(world)
    before = billed(world, made)
    await world.sandbox.clock.advance(days=1)

    assert ("scheduled", []) == (made.state, before)
    assert ("active", [("2027-01-31", 900)]) == (
        world.sandbox.ledger.subscription_state(str(made.subscription_id)),
        billed(world, made),
    )


async def test_cancelled_at_once(world: World) -> None:
    """A cancelled subscription is not billed again, and cannot be changed or cancelled."""
    made = await begun(world)
    await world.sandbox.clock.advance(days=1)
    number = str(made.subscription_id)
    cancelled = await world.pay.subscriptions.cancel(number)
    await world.sandbox.clock.advance(days=60)
    told = [
        await world.tell(CancelSubscription(subscription_id=number)),
        await world.tell(UpdateSubscription(subscription_id=number, amount=1)),
    ]

    assert ("cancelled", [("2027-01-31", 900)]) == (cancelled.state, billed(world, made))
    assert [world.refused(409, "wrong_state")] * 2 == [(each.status, each.why) for each in told]


async def test_subscription_that_has_begun_keeps_its_start(world: World) -> None:
    """The start date of a subscription that has begun cannot change: 409, and the field is named."""
    made = await begun(world)
    await world.sandbox.clock.advance(days=1)
    told = await world.tell(UpdateSubscription(subscription_id=str(made.subscription_id), start_date=date(2027, 3, 1)))

    assert (world.refused(409, "wrong_state"), world.wire("start_date")) == ((told.status, told.why), told.field)


async def test_answer_has_the_terms_as_they_were_given(world: World) -> None:
    """A subscription's response has frequency, amount and start date under the names and in the form of the request."""
    request = plan(date(2027, 1, 31))
    sent = world.fields(request)
    told = await world.tell(request, fields=sent)
    names = [world.wire(point) for point in ("frequency", "subscription_amount", "start_date")]

    assert {name: sent[name] for name in names} == {name: told.data[name] for name in names}
    assert at(told.data, (world.profile.answer.subscription_id or ""))


PARTS = 100


@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.long)])
async def test_authorize_against_close_has_one_winner(world: World, rounds: int) -> None:
    """If a customer pays while the merchant closes, one of them wins, and both responses say which."""
    outcomes = list[tuple[object, object, str, int]]()
    for count in range(rounds):
        placed = await world.pay.send(order(out_trade_no=f"T{count}", return_url="https://shop.example/thanks"))
        # Whose task starts first alternates, so that both sides win.
        sides = {"authorize": _authorized(world, str(placed.redirect_url)), "close": _closed(world, f"T{count}")}
        turns = sorted(sides, reverse=count % 2 == 0)
        told = dict(zip(turns, await asyncio.gather(*(sides[side] for side in turns)), strict=True))
        state, paid = world.sandbox.ledger.order_state(f"T{count}"), world.sandbox.ledger.paid(f"T{count}")
        outcomes.append((told["authorize"], told["close"], state, paid))

    assert {(303, "wrong_state", "paid", 450), (409, "done", "closed", 0)} == set(outcomes)


async def _authorized(world: World, page: str) -> int:
    async with world.http.post(page, data={"decision": "authorize"}, allow_redirects=False) as answer:
        return answer.status


async def _closed(world: World, number: str) -> str:
    return (await world.tell(CloseOrder(out_trade_no=number))).why


async def test_concurrent_refunds_never_exceed_what_was_paid(world: World) -> None:
    """Of 100 concurrent refunds of 7, only as many succeed as 450 allows."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    requests = [refund(out_refund_no=f"R{count}", refund_amt=7) for count in range(PARTS)]
    told = await asyncio.gather(*map(world.tell, requests))

    assert ({"done": 64, "invalid": 36}, 448) == (
        {why: [each.why for each in told].count(why) for why in ("done", "invalid")},
        world.sandbox.ledger.refunded("T1"),
    )


async def test_same_refund_at_once_is_one(world: World) -> None:
    """20 concurrent requests for the same refund carry it out once, and all report it as done."""
    await world.sandbox.given.paid_order(out_trade_no="T1")
    told = await asyncio.gather(*(world.tell(refund()) for _ in range(20)))

    assert [("done", told[0].state("refund"))] * 20 == [(each.why, each.state("refund")) for each in told]
    assert (200, 1) == (world.sandbox.ledger.refunded("T1"), world.sandbox.ledger.refunds())


async def test_same_order_at_once_is_one(world: World) -> None:
    """Of 20 orders with one number, one is placed; the others are duplicates: 409."""
    told = await asyncio.gather(*(world.tell(order(out_trade_no="T1")) for _ in range(20)))
    refused = [(each.status, each.why, each.field) for each in told if each.why != "done"]

    assert ([(*world.refused(409, "duplicate"), "outTradeNo")] * 19, 1) == (refused, world.sandbox.ledger.orders())


async def test_same_nonce_at_once_is_used_once(world: World) -> None:
    """Of 20 copies of one request, one is done; the others get 403 (docs/reference/service.md#authentication)."""
    fields = world.fields(PLACE)
    told = await asyncio.gather(*(world.tell(PLACE, fields=fields) for _ in range(20)))
    refused = [(each.status, each.why, each.field) for each in told if each.why != "done"]

    assert ([(*world.refused(403, "nonce_used"), NONCE)] * 19, 1) == (refused, world.sandbox.ledger.orders())


UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
FORMS: Final = [
    *("[0-9]{8,32}", "[1-9][0-9]{11}", "[A-Z0-9]{6,16}", "[a-z0-9]{30,40}", "[a-z][0-9]+", "[0-9a-f]{32}", UUID),
]


@pytest.mark.parametrize(
    ("profile", "form"),
    [
        (PROFILE, "T[0-9]{20}"),
        *((Profile(identifier=form), form) for form in FORMS),
        *(
            (Profile(accept=Accept(length={name: 12})), "T[0-9]{11}")
            for name in ("out_trade_no", "identifier", "subscription_id")
        ),
    ],
)
def test_number_is_of_the_profiles_form(profile: Profile, form: str) -> None:
    """A generated number matches the profile's pattern, and is short enough to be sent back."""
    numbering = Numbering(profile)
    drawn = {numbering.new("T", lambda _number: False) for _ in range(50)}

    assert [] == [number for number in drawn if not re.fullmatch(form, number)]
    assert 50 == len(drawn)


def test_number_that_is_taken_is_not_given_again() -> None:
    """A number in use is not given again."""
    seen = list[str]()

    def taken(number: str) -> bool:
        seen.append(number)
        return len(seen) < 3

    given = Numbering(Profile(identifier="[0-9]{2}")).new("T", taken)

    assert (3, given) == (len(seen), seen[-1])
    assert [] == [number for number in seen if not re.fullmatch("[0-9]{2}", number)]


@pytest.mark.parametrize(("identifier", "all_taken"), [("T[1-9]", True), ("SHOP-[0-9]+", False)])
def test_number_where_none_of_the_profiles_is_found(identifier: str, *, all_taken: bool) -> None:
    """If no free number matches the profile's pattern, the number has the sandbox's own form."""
    given = Numbering(Profile(identifier=identifier)).new("T", lambda _: all_taken)

    assert re.fullmatch("T[0-9]{20}", given)


async def test_merchant_can_send_each_number_back() -> None:
    """Generated numbers of orders, payments and subscriptions are accepted in later requests."""
    profile = evolve(PROFILE, identifier="[0-9]{8,16}")
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        order = await pay.orders.place(total_amt=450, currency="CAD")
        payment = await pay.payments.create(amount=450, currency="CAD")
        subscription = await pay.subscriptions.create(
            frequency="monthly", amount=900, start_date=date(2999, 1, 1), customer={"email": "a@example.com"}
        )
        asked = [
            await pay.orders.query(order["outTradeNo"]),
            await pay.payments.status(str(payment.payment_id)),
            await pay.subscriptions.cancel(str(subscription.subscription_id)),
        ]

    assert ["pending", "pending", "cancelled"] == [answer.state for answer in asked]
