"""Notifications: their content, signatures, allowed addresses, and redelivery."""

import asyncio
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import pytest
from aiohttp import web
from attrs import evolve

from payasync.errors import InvalidArgumentError
from payasync.profile.schema import NotificationShape
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.dialect import WireNames
from payasync.sandbox.model import Entry
from payasync.sandbox.webhooks import (
    MAX_CONCURRENT,
    MAX_STORED,
    Delivery,
    explain_refusal,
)
from payasync.strict_json import at
from tests.foreign.certificates import server_tls
from tests.inside import Time, turns, until
from tests.sandbox.foreign import NOON, Receiver, as_coroutine
from tests.sandbox.world import SAMPLES, World, refund


async def test_each_change_is_notified_once(world: World) -> None:
    """Each end of an order, a refund or a subscription is notified once, in order; a refused request is not."""
    sandbox, pay = world.sandbox, world.pay
    for number in ("T1", "T2", "T3", "T4"):
        await sandbox.given.pending_order(out_trade_no=number)
    await sandbox.customer.authorize("T1")
    for _ in range(2):
        await pay.send(refund())
        await world.reach(refund(out_refund_no="R2", total_amt=451))
        await pay.orders.close("T2")
    for _ in range(3):
        await sandbox.customer.decline("T3")
    await sandbox.settle()
    await sandbox.clock.advance(seconds=world.profile.sandbox.order_expiry)
    made = await world.reach(SAMPLES["subscriptions.create"])
    number = at(made.data, world.profile.answer.subscription_id or "")
    await pay.subscriptions.cancel(number)
    await sandbox.settle()

    assert [
        ("T1", "paid"),
        ("R1", "succeeded"),
        ("T2", "closed"),
        ("T3", "failed"),
        ("T4", "expired"),
        (number, "cancelled"),
    ] == [each.about for each in world.notified()]


async def test_notifications_stay_on_this_machine(receiver: Receiver) -> None:
    """A notification to another machine is not sent, unless `allow_remote` is set; the connection is checked.

    Without an address there is no notification, and `settle` does not wait for one.
    """
    port = receiver.url.split(":")[2].partition("/")[0]
    hosts = ("192.0.2.1", "0.0.0.0", "[2001:db8::1]", "[::ffff:192.0.2.1]", "localhost")  # noqa: S104 - tried
    async with Sandbox() as sandbox, Sandbox(allow_remote=True) as remote:
        await sandbox.given.paid_order()
        await sandbox.settle()
        assert [] == sandbox.ledger.deliveries()
        for host in hosts:
            await sandbox.given.paid_order(notify_url=f"http://{host}:{port}/notify")
            await sandbox.settle()
        *others, local = sandbox.ledger.deliveries()
        await remote.given.paid_order(notify_url=f"http://0.0.0.0:{port}/notify")
        await remote.settle()
        acknowledged = [each.acknowledged for each in (local, *remote.ledger.deliveries())]

    assert [(None, False)] * 4 == [(each.status, each.acknowledged) for each in others]
    assert {True} == {"is not on this machine" in each.error for each in others}
    assert ([True, True], 2) == (acknowledged, len(receiver.received))


async def test_response_that_does_not_acknowledge(sandbox: Sandbox, receiver: Receiver) -> None:
    """If a response does not acknowledge, the attempt has its error and its beginning. Redirects are not followed."""
    for answer, words in (
        (web.Response(status=302, headers={"Location": "/notify"}), "answered 302"),
        (web.Response(text="x" * 100_000), "answered a body that does not acknowledge"),
    ):
        receiver.answer = as_coroutine(lambda answer=answer: answer)  # type: ignore[misc] # of this turn
        await sandbox.given.paid_order(notify_url=receiver.url)
        await sandbox.settle()
        attempt = sandbox.ledger.deliveries()[-1]

        assert (False, True) == (attempt.acknowledged, words in attempt.error)
        assert len(attempt.answer) <= MAX_STORED
    assert 2 == len(receiver.received)


def test_only_the_profiles_response_acknowledges() -> None:
    """A status or body that the profile names must match. By default, any 2xx or the sandbox's own body counts."""
    own, open_points = PROFILE.notification, NotificationShape()
    named = NotificationShape(verification="standard-webhooks", ack_body="ok")
    received, untrue = own.ack_body, '{"received": false}'
    usual = [(200, received), (202, received), (204, "")]
    answers = [(200, received), (200, "ok"), (202, received), (202, "ok"), (204, ""), (200, untrue)]
    for shape, accepted in (
        (own, usual),
        (open_points, usual),
        (named, [(200, "ok"), (202, "ok")]),
        (evolve(named, ack_body=""), answers),
        (evolve(named, ack_status=200), [(200, "ok")]),
    ):
        names = WireNames(evolve(PROFILE, notification=shape))
        every = [*answers, (302, received), (500, "ok")]

        assert accepted == [each for each in every if not explain_refusal(names, *each)]


LIFE: Final = timedelta(hours=18)
"""Longer than all redeliveries of one notification take."""
REFUSED: Final = as_coroutine(lambda: web.Response(status=503, text="try later"))


async def test_dead_letter(receiver: Receiver, tmp_path: Path) -> None:
    """Redeliveries follow after 5 s, 5 and 30 min, 2, 5 and 10 h, or the profile's waits. Then a notification is dead.

    A resend begins again. After a restart, redeliveries come at their time, and attempts are counted on.
    """
    receiver.answer = REFUSED
    path, waits = tmp_path / "sandbox.db", (5, 300, 1800, 7200, 18_000, 36_000)
    async with Sandbox(clock=NOON, db=path) as first:
        await first.given.paid_order(notify_url=receiver.url)
        await first.clock.advance(seconds=5)
    async with Sandbox(clock="frozen", db=path) as sandbox:
        await sandbox.settle()
        counts = [len(receiver.received)]
        for days in (LIFE, timedelta(days=365)):
            await sandbox.clock.advance(days)
            counts.append(len(receiver.received))
        times = [one.at for one in sandbox.ledger.deliveries()]
        (dead,) = sandbox.ledger.notifications()
        await sandbox.resend(dead.notification_id)
        await sandbox.clock.advance(LIFE)
        with pytest.raises(InvalidArgumentError, match="notification_id: 'msg_1' is refused") as refused:
            await sandbox.resend("msg_1")

        assert ["try later"] * 14 == [one.answer for one in sandbox.ledger.deliveries()]
    assert [2, 7, 7] == counts
    assert list(waits) == [(then - before).total_seconds() for before, then in pairwise(times)]
    assert ("dead", 7, "notification_id") == (dead.state, dead.tries, refused.value.field)
    for own in ([], [7], [7, 0.5, 86_400]):
        profile = evolve(PROFILE, sandbox=evolve(PROFILE.sandbox, redelivery=own))
        async with Sandbox(profile, webhook_url=receiver.url, clock="frozen") as sandbox:
            await sandbox.given.paid_order()
            await sandbox.settle()
            await sandbox.clock.advance(days=30)
            times = [each.at for each in sandbox.ledger.deliveries()]

            assert ["dead"] == [each.state for each in sandbox.ledger.notifications()]
        assert own == [(then - before).total_seconds() for before, then in pairwise(times)]


async def test_resend_during_an_attempt(frozen: Sandbox, receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """If a notification is resent during an attempt, one more attempt follows, and the log says that it is due."""
    caplog.set_level(logging.INFO, "payasync.sandbox")
    held = receiver.hold()
    await frozen.given.paid_order()
    await held.asked.wait()
    await frozen.resend(frozen.ledger.notifications()[0].notification_id)
    held.released.set()
    await frozen.settle()

    assert [("waiting", 0.0), ("delivered", None)] == [(one.state, one.wait) for one in logged(caplog)]
    assert [200, 200] == [one.status for one in frozen.ledger.deliveries()]


async def test_slow_receiver_holds_up_nobody(frozen: Sandbox, receiver: Receiver) -> None:
    """A slow address delays no other address, and keeps the order of its own notifications."""
    slow = Receiver()
    await slow.start()
    held = slow.hold()
    for count in range(3):
        await frozen.given.paid_order(out_trade_no=f"S{count}", notify_url=slow.url)
        await frozen.given.paid_order(out_trade_no=f"T{count}")
    async with asyncio.timeout(20):
        await until(lambda: len(receiver.received) == 3)
    await turns(50)
    early = len(slow.received)
    held.released.set()
    await frozen.settle()
    await slow.close()

    assert 1 == early
    assert ["S0", "S1", "S2"] == [one.document["data"]["outTradeNo"] for one in slow.received]


async def test_deliveries_at_once_are_bounded(frozen: Sandbox, receiver: Receiver) -> None:
    """The number of concurrent deliveries is limited, and every notification is delivered in the end."""
    held = receiver.hold()
    for count in range(MAX_CONCURRENT * 2):
        await frozen.given.paid_order(notify_url=f"{receiver.url}?{count}")
    await until(lambda: len(receiver.received) >= MAX_CONCURRENT)
    await turns(500)
    at_once = len(receiver.received)
    held.released.set()
    await frozen.settle()

    assert (MAX_CONCURRENT, MAX_CONCURRENT * 2) == (at_once, len(receiver.received))


async def test_notification_that_cannot_be_signed(receiver: Receiver) -> None:
    """If signing a notification fails, the attempt has the error, and the next attempt is due."""
    shape = evolve(PROFILE.notification, verification="body", signature="sign")
    raising = Mock(sign=Mock(side_effect=KeyError("boom")), verify=Mock(return_value=True))
    profile = evolve(PROFILE, signature=raising, notification=shape)
    async with Sandbox(profile, clock="frozen", webhook_url=receiver.url) as sandbox:
        await sandbox.given.paid_order()
        await sandbox.settle()
        await sandbox.clock.advance(seconds=5)

        assert ["KeyError: 'boom'"] * 2 == [one.error for one in sandbox.ledger.deliveries()]
        assert ["waiting"] == [one.state for one in sandbox.ledger.notifications()]


def logged(caplog: pytest.LogCaptureFixture) -> list[Delivery]:
    """Return the logged deliveries."""
    return [record.__dict__["delivery"] for record in caplog.records if "delivery" in record.__dict__]


@pytest.mark.parametrize("clock", ["real", NOON])
async def test_each_attempt_is_logged(
    caplog: pytest.LogCaptureFixture, receiver: Receiver, clock: datetime | str
) -> None:
    """The log has each attempt's event, number, outcome and wait, but no password, query, body or signature."""
    caplog.set_level(logging.INFO, "payasync.sandbox")
    async with Sandbox(clock=clock) as sandbox:
        for number, url in (("T1", receiver.url), ("T2", "http://me:canary@127.0.0.1:1/?canary")):
            await sandbox.given.paid_order(out_trade_no=number, notify_url=url)
            await sandbox.settle()
    delivered, refused = logged(caplog)
    (received,) = receiver.received
    text = caplog.text + repr([delivered, refused])
    entry = Entry(kind="delivery", name="payment.paid", reference="T1", status=200, outcome="acknowledged")

    assert (entry, "delivered", None) == (delivered.entry, delivered.state, delivered.wait)
    assert ("T2", None, "connection refused") == (refused.entry.reference, refused.entry.status, refused.entry.reason)
    assert ("waiting", 1) == (refused.state, refused.tries)
    # A frozen clock has no real time until the next attempt.
    assert refused.wait is None if clock == NOON else 0 < (refused.wait or 0) <= 5
    assert "delivery payment.paid T2 -> no response: connection refused" in text
    assert not [each for each in ("canary", "SBX_PAID", received.headers["webhook-signature"][3:]) if each in text]


async def test_failed_attempt_says_why(sandbox: Sandbox) -> None:
    """If an attempt gets no response, it records the reason."""
    reasons = {
        "http://127.0.0.1:1/": "connection refused",
        "http://localhost:1/": "connection refused",
        f"http://{'a' * 70}.example/": "the address cannot be used",
    }
    # Serves HTTPS with a certificate that this machine does not trust.
    async with await asyncio.start_server(
        lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=server_tls()
    ) as server:
        reasons[f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"] = "its certificate cannot be trusted"
        for url in reasons:
            await sandbox.given.paid_order(notify_url=url)
            await sandbox.settle()

    assert [*reasons.values()] == [each.error for each in sandbox.ledger.deliveries()]


async def test_slow_receiver_times_out(frozen: Sandbox, receiver: Receiver) -> None:
    """If the receiver does not respond within 5 seconds, the attempt has failed."""
    held, time = receiver.hold(), Time()
    await frozen.given.paid_order()
    await held.asked.wait()
    await time.pass_by(6)
    await frozen.settle()
    held.released.set()

    assert ["no response within 5 seconds"] == [each.error for each in frozen.ledger.deliveries()]


async def test_redelivered_until_it_is_acknowledged(world: World) -> None:
    """After two refusals the third attempt is the last; attempts differ only in the profile's volatile fields.

    Each is signed as the profile says, and contains no secret of the merchant.
    """
    credentials, waits = world.sandbox.credentials, world.profile.sandbox.redelivery
    world.refuse()
    await world.sandbox.given.paid_order(out_trade_no="T1")
    await world.sandbox.settle()
    await world.sandbox.clock.advance(seconds=waits[0])
    world.acknowledge()
    await world.sandbox.clock.advance(seconds=waits[1])
    await world.sandbox.clock.advance(days=2)
    attempts = world.sandbox.ledger.deliveries()
    first, *others = (dict(leaves(each.delivered.document)) for each in world.notified())
    shape = world.profile.notification
    nonce = ".".join([*shape.signature.split(".")[:-1], "nonceStr"])
    keys = [credentials.secret_key, credentials.signing_key, *credentials.notification_keys]
    whole = "".join(each.delivered.body + json.dumps(dict(each.delivered.headers)) for each in world.notified())

    assert [False, False, True] == [each.acknowledged for each in attempts]
    assert 1 == len({each.notification_id for each in attempts})
    assert {True} == {each.is_genuine(credentials, datetime.now(UTC)) for each in world.notified()}
    assert [] == [key for key in keys if key and key.reveal() in whole]
    for other in others:
        assert first.keys() == other.keys()
        assert {path for path in first if first[path] != other[path]} <= {nonce, shape.signature, *shape.volatile}
        assert (shape.verification == "body") == (first.get(nonce) != other.get(nonce))


def leaves(document: Any, above: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values of a document, each with its path."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
