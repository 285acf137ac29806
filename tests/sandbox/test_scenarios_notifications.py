"""Scenarios of notifications: what the merchant's server is told, with any profile."""

import json
from collections.abc import Iterator
from typing import Any

from standardwebhooks import Webhook

from payasync.documents import at
from payasync.sandbox.webhooks import REDELIVERIES
from tests.sandbox.test_scenarios_refunds import refund
from tests.sandbox.world import SAMPLES, Notified, World


async def paid(world: World, **given: Any) -> list[Notified]:
    """Have an order paid, and return what was told of it."""
    await world.sandbox.given.paid_order(out_trade_no="T1", **given)
    await world.sandbox.settle()
    return world.notified()


async def test_payment_is_told(world: World) -> None:
    """After authorisation the merchant's server is told, with the number and the state (spec: Events, 1)."""
    (told,) = await paid(world)
    kinds = world.profile.notification.kinds["payment"]

    assert ("T1", "paid") == (told.number("out_trade_no"), told.state("order"))
    assert told.event in ({kinds[0]} if world.profile.notification.kind else {None})


async def test_notifications_go_to_the_address_of_the_order(world: World) -> None:
    """`notifyUrl` goes before the account's own address (spec: Events, 1)."""
    await paid(world, notify_url=f"{world.receiver.url}?order=T1")

    assert [f"{world.receiver.url}?order=T1"] == [each.url for each in world.sandbox.ledger.deliveries()]


async def test_refund_is_told(world: World) -> None:
    """The end of a refund is told, with its number (spec: Events, 2)."""
    await paid(world)
    await world.pay.send(refund())
    await world.sandbox.settle()
    told = world.notified()[-1]

    assert ("R1", "succeeded") == (told.number("out_refund_no"), told.state("refund"))


async def test_subscription_is_told(world: World) -> None:
    """Cancelling is told to the account's address, with the subscription's number (spec: Events, 3)."""
    made = await world.tell(SAMPLES["subscriptions.create"])
    number = at(made.data, (world.profile.answer.subscription_id or ""))
    await world.pay.subscriptions.cancel(number)
    await world.sandbox.settle()
    told = world.notified()[-1]

    assert (number, "cancelled") == (told.number("subscription_id"), told.state("subscription"))


async def test_every_end_of_an_order_is_told(world: World) -> None:
    """Failed, closed and expired orders are told like paid ones."""
    for number in ("T1", "T2", "T3"):
        await world.sandbox.given.pending_order(out_trade_no=number)
    for _ in range(3):
        await world.sandbox.customer.decline("T1")
    await world.pay.orders.close("T2")
    await world.sandbox.clock.advance(minutes=30)

    assert {"T1": "failed", "T2": "closed", "T3": "expired"} == {
        told.number("out_trade_no"): told.state("order") for told in world.notified()
    }


async def test_notification_is_genuine(world: World) -> None:
    """Signed in its headers, `standardwebhooks` verifies it; signed in its body, the service's key does."""
    (told,) = await paid(world)
    shape, credentials = world.profile.notification, world.sandbox.credentials
    if shape.verification == "standard-webhooks":
        verifier = Webhook(credentials.notification_keys[0].reveal())
        assert told.delivered.document == verifier.verify(told.delivered.body, dict(told.delivered.headers))
        return
    above, _, name = shape.signature.rpartition(".")
    fields = dict(at(told.delivered.document, above))
    signature, scheme = fields.pop(name), world.profile.signature

    assert scheme
    assert scheme.verify(fields, signature, path="", key=credentials.service_keys[0])
    assert not scheme.verify({**fields, "more": "x"}, signature, path="", key=credentials.service_keys[0])


async def test_right_status_with_another_body_does_not_acknowledge(world: World) -> None:
    """A receiver that only says 200 has not understood: it is told again."""
    world.refuse()
    shape = world.profile.notification
    world.answer(shape.ack_status or 200, "something else")
    await paid(world)

    assert [False] == [each.acknowledged for each in world.sandbox.ledger.deliveries()]


async def test_redelivered_until_it_is_acknowledged(world: World) -> None:
    """Refused twice, taken the third time: three attempts, of one notification, and then no more."""
    world.refuse()
    await paid(world)
    await world.sandbox.clock.advance(REDELIVERIES[0])
    world.acknowledge()
    await world.sandbox.clock.advance(REDELIVERIES[1])
    await world.sandbox.clock.advance(days=2)
    attempts = world.sandbox.ledger.deliveries()

    assert [False, False, True] == [each.acknowledged for each in attempts]
    assert 1 == len({each.notification_id for each in attempts})


async def test_redelivery_differs_in_what_is_volatile_only(world: World) -> None:
    """A redelivery tells the same; what the profile calls volatile is fresh, and the signature fits it."""
    world.refuse()
    await paid(world)
    await world.sandbox.clock.advance(REDELIVERIES[0])
    first, second = (dict(leaves(told.delivered.document)) for told in world.notified())
    shape = world.profile.notification
    nonce = ".".join([*shape.signature.split(".")[:-1], "nonceStr"])
    volatile = {nonce, shape.signature, *shape.volatile}

    assert {path for path in first if first[path] != second[path]} <= volatile
    assert first.keys() == second.keys()
    assert (shape.verification == "body") == (first.get(nonce) != second.get(nonce))


def leaves(document: Any, above: str = "") -> Iterator[tuple[str, object]]:
    """Yield what stands in a document, each with its path."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


async def test_nothing_is_told_of_what_was_refused(world: World) -> None:
    """A refund that was refused leaves no notification behind."""
    await paid(world)
    await world.tell(refund(total_amt=451))
    await world.sandbox.settle()

    assert 1 == len(world.sandbox.ledger.notifications())


async def test_notification_holds_no_key(world: World) -> None:
    """No secret of the merchant stands in a notification."""
    (told,) = await paid(world)
    credentials = world.sandbox.credentials
    keys = [credentials.secret_key, credentials.signing_key, *credentials.notification_keys]
    whole = told.delivered.body + json.dumps(dict(told.delivered.headers))

    assert [] == [key for key in keys if key and key.reveal() in whole]
