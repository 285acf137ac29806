"""Notifications: what is told, how it is signed, where it may go."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web
from attrs import evolve

from payasync.profile.schema import NotificationShape
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.dialect import Vocabulary
from payasync.sandbox.webhooks import Acknowledgement, loopback_socket
from tests.sandbox.foreign import CLOSE, Foreign, Receiver, acknowledged, as_coroutine

PLAN: Final = {"billingFrequency": "monthly", "amount": 9, "startDate": "2000-01-31", "customer": {"a": "b"}}


async def test_payment_is_told(foreign: Foreign, sandbox: Sandbox, receiver: Receiver) -> None:
    """After authorisation the merchant's server is told, at the order's own address (spec: Events, 1)."""
    await foreign.place("T1", notifyUrl=receiver.url)
    await sandbox.customer.authorize("T1")
    await sandbox.settle()
    told = receiver.received[0].document

    assert ("payment.paid", "T1", "SBX_PAID", 450, "CAD") == (
        told["type"],
        *(told["data"][name] for name in ("outTradeNo", "status", "totalAmt", "currency")),
    )
    assert told["timestamp"].endswith("Z")
    assert [(200, "", True)] == [(one.status, one.error, one.acknowledged) for one in sandbox.ledger.deliveries()]


async def test_signature_by_hand(sandbox: Sandbox, receiver: Receiver) -> None:
    """`v1` is the HMAC-SHA256 of number, time and body under the key behind `whsec_`."""
    await sandbox.given.paid_order(notify_url=receiver.url)
    await sandbox.settle()
    (delivered,) = receiver.received
    key = base64.b64decode(sandbox.credentials.notification_keys[0].reveal().removeprefix("whsec_"))
    text = f"{delivered.headers['webhook-id']}.{delivered.headers['webhook-timestamp']}.{delivered.body}"
    expected = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()

    assert f"v1,{expected}" == delivered.headers["webhook-signature"]


async def test_events_are_told_in_order(foreign: Foreign, sandbox: Sandbox, receiver: Receiver) -> None:
    """Each change that matters is told once, in the order in which it was done."""
    await foreign.place("T1")
    await sandbox.customer.authorize("T1")
    await foreign.refund("R1", 100, out_trade_no="T1")
    await foreign.refund("R1", 100, out_trade_no="T1")
    await foreign.place("T2")
    await foreign.post(CLOSE, outTradeNo="T2")
    await foreign.post(CLOSE, outTradeNo="T2")
    await foreign.place("T3")
    for _ in range(3):
        await sandbox.customer.decline("T3")
    made = await foreign.send("POST", "/subscriptions/create", json=PLAN, headers=foreign.bearer)
    told = {"subscriptionId": made.document["subscriptionId"]}
    await foreign.send("POST", "/subscriptions/cancel", json=told, headers=foreign.bearer)
    await sandbox.settle()

    assert ["payment.paid", "refund.succeeded", "payment.closed", "payment.failed", "subscription.cancelled"] == [
        one.document["type"] for one in receiver.received
    ]
    assert ("R1", "T1", "SBX_SUCCEEDED", 100) == tuple(
        receiver.received[1].document["data"][name] for name in ("outRefundNo", "outTradeNo", "status", "refundAmt")
    )
    assert (told["subscriptionId"], 1, "SBX_CANCELLED") == tuple(
        receiver.received[-1].document["data"][name] for name in ("subscriptionId", "period", "status")
    )
    assert 5 == len({one.headers["webhook-id"] for one in receiver.received})


async def test_without_address_nothing_is_told() -> None:
    """No address, no notification, and nothing to wait for."""
    async with Sandbox() as sandbox:
        await sandbox.given.paid_order()
        await sandbox.settle()

        assert [] == sandbox.ledger.deliveries()


@pytest.mark.parametrize(
    "url",
    [
        "http://192.0.2.1/notify",
        "http://0.0.0.0:{port}/notify",
        "http://[2001:db8::1]/notify",
        "http://[::ffff:192.0.2.1]/notify",
    ],
)
async def test_notifications_stay_on_this_machine(sandbox: Sandbox, receiver: Receiver, url: str) -> None:
    """No request leaves the machine: the address is looked at where the connection is made."""
    port = receiver.url.split(":")[2].partition("/")[0]
    await sandbox.given.paid_order(notify_url=url.format(port=port))
    await sandbox.settle()
    (attempt,) = sandbox.ledger.deliveries()

    assert (None, False) == (attempt.status, attempt.acknowledged)
    assert "is not on this machine" in attempt.error
    assert [] == receiver.received


def test_socket_for_another_machine_is_not_made() -> None:
    """What a name was resolved to is checked, and not the name."""
    with pytest.raises(OSError, match="not on this machine"):
        loopback_socket((2, 1, 6, "", ("192.0.2.1", 80)))


async def test_names_of_this_machine_are_reached(sandbox: Sandbox, receiver: Receiver) -> None:
    """A name that means a loopback address is one."""
    await sandbox.given.paid_order(notify_url=receiver.url.replace("127.0.0.1", "localhost"))
    await sandbox.settle()

    assert 1 == len(receiver.received)


async def test_remote_addresses_can_be_allowed(receiver: Receiver) -> None:
    """`allow_remote` lifts the bound: any address is tried."""
    async with Sandbox(allow_remote=True) as sandbox:
        await sandbox.given.paid_order(notify_url=receiver.url.replace("127.0.0.1", "0.0.0.0"))  # noqa: S104 - tried
        await sandbox.settle()

        assert [True] == [one.acknowledged for one in sandbox.ledger.deliveries()]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: web.Response(status=302, headers={"Location": "/notify"}), "answered 302"),
        (lambda: web.Response(status=500), "answered 500"),
        (lambda: web.Response(status=299, text="ok"), "answered a body that does not acknowledge"),
        (lambda: web.Response(text="ok"), "answered a body that does not acknowledge"),
        (lambda: web.Response(text="x" * 100_000), "answered a body that does not acknowledge"),
        (lambda: web.json_response({"received": False}), "answered a body that does not acknowledge"),
    ],
)
async def test_only_the_profiles_answer_acknowledges(
    sandbox: Sandbox, receiver: Receiver, answer: Callable[[], web.Response], words: str
) -> None:
    """Any 2xx with the profile's body, and nothing else; redirects are not followed; every attempt is recorded."""
    receiver.answer = as_coroutine(answer)
    await sandbox.given.paid_order(notify_url=receiver.url)
    await sandbox.settle()
    (attempt,) = sandbox.ledger.deliveries()

    assert (False, True, 1) == (attempt.acknowledged, words in attempt.error, len(receiver.received))


async def test_receiver_may_ask_the_sandbox(foreign: Foreign, sandbox: Sandbox, receiver: Receiver) -> None:
    """`settle` waits for what a receiver causes, too: the change that it makes is told before `settle` returns."""
    await foreign.place("T1")
    await foreign.place("T2")

    async def close_the_other() -> web.Response:
        await foreign.post(CLOSE, outTradeNo="T2")
        receiver.answer = as_coroutine(acknowledged)
        return acknowledged()

    receiver.answer = close_the_other
    await sandbox.customer.authorize("T1")
    await sandbox.settle()

    assert ["payment.paid", "payment.closed"] == [one.document["type"] for one in receiver.received]


async def test_due_notifications_survive(tmp_path: Path, receiver: Receiver) -> None:
    """What was not delivered when the sandbox ended is delivered when it starts again."""
    path, asked, answered = str(tmp_path / "sandbox.db"), asyncio.Event(), asyncio.Event()

    async def hang() -> web.Response:
        asked.set()
        await answered.wait()
        return acknowledged()

    receiver.answer = hang
    async with Sandbox(db=path) as first:
        await first.given.paid_order(notify_url=receiver.url, out_trade_no="T1")
        await asked.wait()
    answered.set()
    async with Sandbox(db=path) as second:
        await second.settle()
        attempts = second.ledger.deliveries()

    assert [True] == [attempt.acknowledged for attempt in attempts]
    assert 1 == len({one.headers["webhook-id"] for one in receiver.received})
    assert 2 == len(receiver.received)


OWN: Final = PROFILE.notification
OPEN: Final = NotificationShape()
BODY: Final = NotificationShape(verification="standard-webhooks", ack_body="ok")
ANY: Final = NotificationShape(verification="standard-webhooks")
EXACT: Final = evolve(BODY, ack_status=200)


@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        (OWN, [(200, OWN.ack_body), (202, OWN.ack_body), (204, "")]),
        (OPEN, [(200, OWN.ack_body), (202, OWN.ack_body), (204, "")]),
        (BODY, [(200, "ok"), (202, "ok")]),
        (ANY, [(200, OWN.ack_body), (200, "ok"), (202, OWN.ack_body), (202, "ok"), (204, "")]),
        (EXACT, [(200, "ok")]),
    ],
    ids=["own", "open", "body", "any", "exact"],
)
def test_what_acknowledges_by_a_profile(shape: NotificationShape, taken: list[tuple[int, str]]) -> None:
    """A status and a body that a profile names count exactly; what it leaves open is as generous as ours."""
    filled = Vocabulary(evolve(PROFILE, notification=shape)).notification
    acknowledgement = Acknowledgement.of(filled, shape)
    answers = [(status, body) for status in (200, 202) for body in (OWN.ack_body, "ok")]

    assert taken == [each for each in [*answers, (204, ""), (500, "ok")] if not acknowledgement.missing(*each)]
