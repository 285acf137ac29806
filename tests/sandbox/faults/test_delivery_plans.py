"""Faults with any profile: which notifications arrive, and when, and which calls a fault meets."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from attrs import evolve

from payasync.sandbox import PROFILE, Sandbox
from payasync.strict_json import at
from tests.inside import turns
from tests.sandbox.foreign import Receiver
from tests.sandbox.world import World, refund


async def paid(world: World, *numbers: str) -> None:
    """Pay orders one after the other, and attempt what is due."""
    for number in numbers:
        await world.sandbox.given.paid_order(out_trade_no=number)
        await world.sandbox.settle()


def delivered_orders(world: World) -> list[object]:
    """Return the numbers of the orders in notifications, in the order of delivery."""
    return [each.about[0] for each in world.notified()]


async def test_drop(world: World) -> None:
    """A dropped attempt has failed: the notification is sent again when its next attempt is due."""
    fault = world.sandbox.faults.notifications.drop("payment", times=2)
    await paid(world, "T1")
    waits = world.profile.sandbox.redelivery
    first = delivered_orders(world)
    await world.sandbox.clock.advance(seconds=waits[0])
    second = delivered_orders(world)
    await world.sandbox.clock.advance(seconds=waits[1])

    assert ([], [], ["T1"]) == (first, second, delivered_orders(world))
    assert [False, False, True] == [each.acknowledged for each in world.sandbox.ledger.deliveries()]
    assert "lost on its way: notification.drop on payment" == world.sandbox.ledger.deliveries()[0].error
    assert 2 == fault.fired


@pytest.mark.parametrize("acknowledged", [{1}, {2}, {1, 2}], ids=str)
async def test_duplicate(world: World, acknowledged: set[int]) -> None:
    """A duplicated notification arrives twice. If either delivery is acknowledged, it is not sent again."""
    count = itertools.count(1)

    async def answer() -> web.Response:
        (world.acknowledge if next(count) in acknowledged else world.refuse)()
        answered, world.receiver.answer = await world.receiver.answer(), answer
        return answered

    world.receiver.answer = answer
    world.sandbox.faults.notifications.duplicate()
    await paid(world, "T1")
    await world.sandbox.clock.advance(days=1)

    assert ["T1", "T1"] == delivered_orders(world)
    assert ["delivered"] == [each.state for each in world.sandbox.ledger.notifications()]
    assert [each in acknowledged for each in (1, 2)] == [
        each.acknowledged for each in world.sandbox.ledger.deliveries()
    ]


async def test_reorder(world: World) -> None:
    """A reordered notification arrives after the next one, or after its seconds if no other follows."""
    world.sandbox.faults.notifications.reorder("payment")
    await paid(world, "T1", "T2", "T3")
    world.sandbox.faults.notifications.reorder(order="T4", seconds=10)
    await paid(world, "T4")
    await world.sandbox.clock.advance(seconds=9)
    before = delivered_orders(world)
    await world.sandbox.clock.advance(seconds=1)

    assert ["T2", "T1", "T3"] == before
    assert [*before, "T4"] == delivered_orders(world)


async def test_delay(world: World) -> None:
    """A delayed notification is sent late by the sandbox's clock, without an earlier attempt. Others are on time."""
    fault = world.sandbox.faults.notifications.delay(order="T1", seconds=3600, times=None)
    await paid(world, "T1", "T2")
    await world.sandbox.clock.advance(seconds=3599)
    before = delivered_orders(world), len(world.sandbox.ledger.deliveries())
    await world.sandbox.clock.advance(seconds=1)

    assert (["T2"], 1) == before
    assert (["T2", "T1"], 1) == (delivered_orders(world), fault.fired)


async def test_old_timestamp(world: World) -> None:
    """A notification with an old timestamp is signed with it, so that only a check of the time refuses it."""
    fault = world.sandbox.faults.notifications.old_timestamp(seconds=7200)
    await paid(world, "T1")
    (notified,) = world.notified()
    shape = world.profile.notification
    if shape.verification != "standard-webhooks" and not shape.time:
        assert 0 == fault.fired
        fault.disarm()
        return
    if shape.verification == "standard-webhooks":
        when = datetime.fromtimestamp(int(notified.delivered.headers["webhook-timestamp"]), UTC)
    else:
        when = datetime.fromisoformat(at(notified.delivered.document, shape.time))
    credentials = world.sandbox.credentials

    assert 1 == fault.fired
    assert (True, False) == tuple(notified.is_genuine(credentials, each) for each in (when, datetime.now(UTC)))
    assert timedelta(hours=1.9) < datetime.now(UTC) - when < timedelta(hours=2.1)


async def test_old_timestamp_of_an_unsigned_body(receiver: Receiver) -> None:
    """In an unsigned body, the timestamp is old, too. Without a time, the fault does not fire."""
    for time in ("sentAt", ""):
        plain = evolve(PROFILE.notification, verification="none", time=time)
        async with Sandbox(evolve(PROFILE, notification=plain), webhook_url=receiver.url) as sandbox:
            fault = sandbox.faults.notifications.old_timestamp(seconds=86_400)
            await sandbox.given.paid_order()
            await sandbox.settle()
            fault.disarm()

            assert bool(time) is bool(fault.fired)
    when = datetime.fromisoformat(receiver.received[0].document["sentAt"])

    assert timedelta(hours=23) < datetime.now(UTC) - when < timedelta(hours=25)


async def test_before_answer(world: World) -> None:
    """With `before_answer`, the notification is acknowledged before the call gets its response."""
    await paid(world, "T1")

    acknowledge = world.receiver.answer

    async def slow() -> web.Response:
        await turns(100)
        return await acknowledge()

    world.receiver.answer = slow
    world.sandbox.faults.notifications.before_answer("refunds.create")
    await world.pay.send(refund())
    at_answer = len(world.sandbox.ledger.deliveries())
    await world.pay.send(refund(out_refund_no="R2"))
    without = len(world.sandbox.ledger.deliveries())
    await world.sandbox.settle()

    assert (2, 2, 3) == (at_answer, without, len(world.sandbox.ledger.deliveries()))


async def test_what_a_notification_matches(world: World) -> None:
    """A notification matches by its kind and by any number in it: a refund's names its order too."""
    about = world.sandbox.faults.notifications.drop("refund", order="T1")
    other = world.sandbox.faults.notifications.drop("subscription")
    await paid(world, "T1", "T2")
    await world.pay.send(refund(out_trade_no="T2", out_refund_no="R2"))
    await world.sandbox.settle()
    before = about.seen
    await world.pay.send(refund())
    await world.sandbox.settle()
    other.disarm()

    assert (0, 1, 0) == (before, about.fired, other.seen)


async def test_calls_that_are_about_an_order(world: World) -> None:
    """A call matches an order by its number in a body or a query, by its refund's and by its payment's number."""
    sandbox, pay = world.sandbox, world.pay
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
