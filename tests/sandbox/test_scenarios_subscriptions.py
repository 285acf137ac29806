"""Scenarios of subscriptions: what the rules of the sandbox lead to, with any profile."""

from datetime import UTC, date, datetime
from typing import Any

import pytest
from attrs import evolve

from payasync.documents import at
from payasync.errors import ServiceError
from payasync.resources.subscriptions import CancelSubscription, CreateSubscription, UpdateSubscription
from payasync.wire.response import SubscriptionResponse
from tests.sandbox.world import SAMPLES, World


def plan(start: date, **changes: Any) -> CreateSubscription:
    """Return a request for a subscription from a day on."""
    sample = SAMPLES["subscriptions.create"]
    assert isinstance(sample, CreateSubscription)
    return evolve(sample, start_date=start, **changes)


async def begun(world: World, **changes: Any) -> SubscriptionResponse:
    """Have the client make a subscription that starts on a 31 January, on the day before."""
    await world.sandbox.clock.advance(datetime(2027, 1, 30, tzinfo=UTC) - world.sandbox.clock.now())
    return await world.pay.send(plan(date(2027, 1, 31), **changes))


def billed(world: World, made: SubscriptionResponse) -> list[tuple[str, int]]:
    """Return the days on which a subscription was billed, each with how much."""
    charges = world.sandbox.ledger.charges(str(made.subscription_id))
    return [(f"{charge.at:%Y-%m-%d}", charge.amount) for charge in charges]


async def test_subscription_waits_for_its_start(world: World) -> None:
    """Before its start date a subscription is scheduled, and nothing is billed; on it, it is active."""
    made = await begun(world)
    before = billed(world, made)
    await world.sandbox.clock.advance(days=1)

    assert ("scheduled", []) == (made.state, before)
    assert ("active", [("2027-01-31", 900)]) == (
        world.sandbox.ledger.subscription_state(str(made.subscription_id)),
        billed(world, made),
    )


async def test_cancelled_at_once(world: World) -> None:
    """A cancelled subscription is billed no more, and cannot be changed or cancelled again (spec: endpoint 10)."""
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


async def test_failed_charge_makes_it_past_due(world: World) -> None:
    """A charge that fails leaves the subscription past due; the next one that succeeds makes it active again."""
    made = await begun(world)
    number = str(made.subscription_id)
    await world.sandbox.clock.advance(days=1)
    await world.sandbox.bank.fail_renewals(number)
    states = list[str]()
    for _ in range(2):
        await world.sandbox.clock.advance(days=31)
        states.append(world.sandbox.ledger.subscription_state(number))

    assert ["past_due", "active"] == states


async def test_subscription_that_has_begun_keeps_its_start(world: World) -> None:
    """Once it has begun, its start date cannot change: 409, and the field is named."""
    made = await begun(world)
    await world.sandbox.clock.advance(days=1)
    told = await world.tell(UpdateSubscription(subscription_id=str(made.subscription_id), start_date=date(2027, 3, 1)))

    assert (world.refused(409, "wrong_state"), world.wire("start_date")) == ((told.status, told.why), told.field)


async def test_answer_has_the_terms_as_they_were_given(world: World) -> None:
    """Frequency, amount and start date come back under the names, and in the form, in which they were sent."""
    request = plan(date(2027, 1, 31))
    sent = world.fields(request)
    told = await world.tell(request, fields=sent)
    names = [world.wire(point) for point in ("frequency", "subscription_amount", "start_date")]

    assert {name: sent[name] for name in names} == {name: told.data[name] for name in names}
    assert at(told.data, (world.profile.answer.subscription_id or ""))


async def test_unknown_subscription_is_absent(world: World) -> None:
    """What nobody made is not found: 404."""
    told = [await world.tell(SAMPLES[f"subscriptions.{name}"]) for name in ("update", "cancel")]
    with pytest.raises(ServiceError):
        await world.pay.subscriptions.cancel("S1")

    assert [world.refused(404, "absent")] * 2 == [(each.status, each.why) for each in told]
