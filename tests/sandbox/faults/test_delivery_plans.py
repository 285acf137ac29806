"""Faults of notifications, with any profile: what arrives, what does not, and when."""

import itertools
import json
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from attrs import evolve
from standardwebhooks import Webhook, WebhookVerificationError

from payasync import CreateRefund, NotificationShape
from payasync.documents import at
from payasync.sandbox import PROFILE, Sandbox
from tests.inside import turns
from tests.sandbox.foreign import Delivered, Receiver
from tests.sandbox.world import World


async def paid(world: World, *numbers: str) -> None:
    """Have orders paid, one after the other, and what is due attempted."""
    for number in numbers:
        await world.sandbox.given.paid_order(out_trade_no=number)
        await world.sandbox.settle()


def refund(out_refund_no: str, out_trade_no: str) -> CreateRefund:
    """Return a request for a refund of 100."""
    return CreateRefund(
        out_trade_no=out_trade_no, out_refund_no=out_refund_no, total_amt=450, refund_amt=100, refund_desc="cold"
    )


def told(world: World) -> list[object]:
    """Return the numbers of the orders that were told, in the order in which they came."""
    return [each.number("out_trade_no") for each in world.notified()]


async def test_drop(world: World) -> None:
    """It does not arrive, and the attempt has failed: it is sent again when its next one is due."""
    fault = world.sandbox.faults.notifications.drop("payment", times=2)
    await paid(world, "T1")
    first = told(world)
    await world.sandbox.clock.advance(seconds=5)
    second = told(world)
    await world.sandbox.clock.advance(minutes=5)

    assert ([], [], ["T1"]) == (first, second, told(world))
    assert [False, False, True] == [each.acknowledged for each in world.sandbox.ledger.deliveries()]
    assert "lost on its way: notification.drop on payment" == world.sandbox.ledger.deliveries()[0].error
    assert 2 == fault.fired


async def test_duplicate(world: World) -> None:
    """It arrives twice, and both are recorded; once it was taken, it is not sent again."""
    world.sandbox.faults.notifications.duplicate()
    await paid(world, "T1")
    await world.sandbox.clock.advance(days=1)

    assert ["T1", "T1"] == told(world)
    assert [True, True] == [each.acknowledged for each in world.sandbox.ledger.deliveries()]


@pytest.mark.parametrize("taken", [1, 2])
async def test_duplicate_of_which_one_is_taken(world: World, taken: int) -> None:
    """It is delivered once the receiver has taken either of the two, and not sent again."""
    count = itertools.count(1)

    async def answer() -> web.Response:
        (world.acknowledge if next(count) == taken else world.refuse)()
        answered, world.receiver.answer = await world.receiver.answer(), answer
        return answered

    world.receiver.answer = answer
    world.sandbox.faults.notifications.duplicate()
    await paid(world, "T1")
    await world.sandbox.clock.advance(days=1)

    assert ["delivered"] == [each.state for each in world.sandbox.ledger.notifications()]
    assert [taken == 1, taken == 2] == [each.acknowledged for each in world.sandbox.ledger.deliveries()]


async def test_reorder(world: World) -> None:
    """The next one overtakes it, and then it comes."""
    world.sandbox.faults.notifications.reorder("payment")
    await paid(world, "T1", "T2", "T3")

    assert ["T2", "T1", "T3"] == told(world)


async def test_reorder_without_another(world: World) -> None:
    """Where nothing comes to overtake it, it waits for its time, and nobody waits for it."""
    world.sandbox.faults.notifications.reorder(order="T1", seconds=10)
    await paid(world, "T1")
    first = told(world)
    await world.sandbox.clock.advance(seconds=9)
    second = told(world)
    await world.sandbox.clock.advance(seconds=1)

    assert ([], [], ["T1"]) == (first, second, told(world))


async def test_delay(world: World) -> None:
    """It is sent late by the sandbox's clock, without an attempt before; others are not held up."""
    fault = world.sandbox.faults.notifications.delay(order="T1", seconds=3600, times=None)
    await paid(world, "T1", "T2")
    await world.sandbox.clock.advance(seconds=3599)
    before = told(world), len(world.sandbox.ledger.deliveries())
    await world.sandbox.clock.advance(seconds=1)

    assert (["T2"], 1) == before
    assert (["T2", "T1"], 1) == (told(world), fault.fired)


async def test_corrupt(world: World) -> None:
    """A character is another than was signed, and the rest as it was; the next notification is right."""
    world.sandbox.faults.notifications.corrupt("payment")
    await paid(world, "T1", "T2")
    bad, good = (each.delivered for each in world.notified())

    assert isinstance(bad.document, dict)
    assert [False, True] == [genuine(world, each) for each in (bad, good)]


def genuine(world: World, delivered: Delivered) -> bool:
    """Return whether a notification is as it was signed."""
    shape, scheme = world.profile.notification, world.profile.signature
    credentials = world.sandbox.credentials
    if shape.verification == "standard-webhooks":
        try:
            Webhook(credentials.notification_keys[0].reveal()).verify(delivered.body, dict(delivered.headers))
        except WebhookVerificationError:
            return False
        return True
    above, _, name = shape.signature.rpartition(".")
    fields = dict(at(delivered.document, above) if above else delivered.document)
    signature = fields.pop(name)
    assert scheme
    return scheme.verify(fields, signature, path="", key=credentials.service_keys[0]) is True


async def test_old_timestamp(world: World) -> None:
    """The time lies back, and is signed with the rest: a receiver that looks at signatures only would take it."""
    fault = world.sandbox.faults.notifications.old_timestamp(seconds=7200)
    await paid(world, "T1")
    (notified,) = world.notified()
    shape = world.profile.notification
    if shape.verification != "standard-webhooks" and not shape.time:
        assert 0 == fault.fired
        fault.disarm()
        return
    written = at(notified.delivered.document, shape.time) if shape.time else ""
    if shape.verification == "standard-webhooks":
        when = datetime.fromtimestamp(int(notified.delivered.headers["webhook-timestamp"]), UTC)
    else:
        when = datetime.fromisoformat(written)
        assert genuine(world, notified.delivered)

    assert 1 == fault.fired
    assert timedelta(hours=1.9) < datetime.now(UTC) - when < timedelta(hours=2.1)


async def test_old_time_of_a_service_that_does_not_sign(receiver: Receiver) -> None:
    """A time in an unsigned body lies back just so; one without a time cannot be old, and the fault is missed."""
    plain = NotificationShape(
        verification="none",
        data="data",
        kind="type",
        kinds={"payment": ("paid",)},
        out_trade_no="outTradeNo",
        time="when",
        ack_status=200,
        ack_body='{"received": true}',
    )
    async with Sandbox(evolve(PROFILE, notification=plain), webhook_url=receiver.url) as sandbox:
        sandbox.faults.notifications.old_timestamp(seconds=86_400)
        await sandbox.given.paid_order()
        await sandbox.settle()
    when = datetime.fromisoformat(json.loads(receiver.received[0].body)["when"])

    assert timedelta(hours=23) < datetime.now(UTC) - when < timedelta(hours=25)


async def test_before_the_answer(world: World) -> None:
    """The notification has been taken by the time at which the call is answered, however long that took."""
    await paid(world, "T1")

    async def slow() -> web.Response:
        await turns(100)
        shape = world.profile.notification
        return web.Response(status=shape.ack_status or 200, text=shape.ack_body or "")

    world.receiver.answer = slow
    world.sandbox.faults.notifications.before_answer("refunds.create")
    await world.pay.send(refund("R1", "T1"))
    at_answer = len(world.sandbox.ledger.deliveries())
    await world.pay.send(refund("R2", "T1"))
    without = len(world.sandbox.ledger.deliveries())
    await world.sandbox.settle()

    assert (2, 2, 3) == (at_answer, without, len(world.sandbox.ledger.deliveries()))


async def test_what_notifications_are_aimed_at(world: World) -> None:
    """By what they are about, and by any number that they tell of: a refund is its order's, too."""
    about = world.sandbox.faults.notifications.drop("refund", order="T1")
    other = world.sandbox.faults.notifications.drop("subscription")
    await paid(world, "T1", "T2")
    await world.pay.send(refund("R2", "T2"))
    await world.sandbox.settle()
    before = about.seen
    await world.pay.send(refund("R1", "T1"))
    await world.sandbox.settle()
    other.disarm()

    assert (0, 1, 0) == (before, about.fired, other.seen)
