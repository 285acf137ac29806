"""The ten endpoints over HTTP, driven by a client that is not payasync's."""

from typing import Any

import pytest

from payasync.errors import ConfigurationError
from payasync.sandbox import Sandbox
from tests.inside import set_writable, store_of
from tests.sandbox.foreign import PAY, PLACE, QUERY, Foreign

PLAN = {"billingFrequency": "monthly", "amount": 900, "startDate": "2999-01-31", "customer": {"email": "a@example.com"}}


async def test_place_order(foreign: Foreign) -> None:
    """Endpoint 2 answers with the order and the address where its customer authorises it (spec: rule 2)."""
    answer = await foreign.place("T1", subject="Coffee", body="", sceneType="JSAPI")

    assert (200, "SBX_OK", "T1", "SBX_PENDING", 450, "CAD") == (
        *answer.told,
        *(answer.document[name] for name in ("outTradeNo", "status", "totalAmt", "currency")),
    )
    assert answer.document["redirectUrl"].startswith(f"{foreign.sandbox.url}/gateway/")


async def test_create_payment(foreign: Foreign, sandbox: Sandbox) -> None:
    """Endpoint 1 makes a payment with numbers of its own; endpoint 6 knows it by both (spec: rules 1 and 6)."""
    made = await foreign.send(
        "POST", PAY, json={"amount": 1000, "currency": "USD", "description": "Invoice 42"}, headers=foreign.bearer
    )
    found = [
        await foreign.send("GET", "/payment/status", params={"outTradeNo": made.document[name]}, headers=foreign.bearer)
        for name in ("outTradeNo", "paymentId")
    ]

    assert [(200, "SBX_PENDING", 1000, made.document["paymentId"])] * 2 == [
        (one.status, *(one.document[name] for name in ("status", "amount", "paymentId"))) for one in found
    ]
    assert (1, 0) == (sandbox.ledger.payments(), sandbox.ledger.orders())


async def test_refund(foreign: Foreign, sandbox: Sandbox) -> None:
    """Endpoint 5 gives money back, endpoint 7 says so (spec: rules 5 and 6)."""
    number = await sandbox.given.paid_order()
    made = await foreign.refund("R1", 200, out_trade_no=number, refundDesc="cold")
    found = await foreign.send("GET", "/payment/refund/status", params={"outRefundNo": "R1"}, headers=foreign.bearer)

    assert (200, "SBX_SUCCEEDED", 200) == (made.status, made.document["status"], made.document["refundAmt"])
    assert "SBX_SUCCEEDED" == found.document["status"]
    assert (200, 1) == (sandbox.ledger.refunded(number), sandbox.ledger.refunds())


async def test_subscription(foreign: Foreign, sandbox: Sandbox) -> None:
    """Endpoints 8 to 10 create, update and cancel."""
    told = list[Any]()
    made = await foreign.send("POST", "/subscriptions/create", json=PLAN, headers=foreign.bearer)
    number = made.document["subscriptionId"]
    for path, fields in [("update", {"amount": 1000}), ("cancel", {}), ("cancel", {})]:
        answer = await foreign.send(
            "POST", f"/subscriptions/{path}", json={"subscriptionId": number, **fields}, headers=foreign.bearer
        )
        told.append((answer.status, answer.document.get("status"), answer.document.get("amount")))

    assert (200, "SBX_SCHEDULED", 900) == (made.status, made.document["status"], made.document["amount"])
    assert [(200, "SBX_SCHEDULED", 1000), (200, "SBX_CANCELLED", 1000), (409, None, None)] == told
    assert "cancelled" == sandbox.ledger.subscription_state(number)


async def test_every_answer_is_marked(foreign: Foreign, sandbox: Sandbox) -> None:
    """Nobody takes the sandbox for the service: each answer says what it is."""
    answers = [
        await foreign.place("T1"),
        await foreign.post(QUERY, outTradeNo="T2"),
        await foreign.send("GET", "/nowhere"),
        await foreign.send("GET", PLACE),
        await foreign.send("GET", "/gateway/nobody"),
    ]

    assert ["1"] * 5 == [answer.headers["X-Payasync-Sandbox"] for answer in answers]
    assert ["orders.place", "orders.query"] == [call.operation for call in sandbox.ledger.calls()]


async def test_refusals_have_one_shape(foreign: Foreign) -> None:
    """A refusal says code, message, the field at fault, and a number of its own."""
    answer = await foreign.place("T1", 0)

    assert {"code", "message", "field", "requestId"} == set(answer.document)
    assert "application/json" == answer.headers["Content-Type"]


async def test_calls_are_recorded_as_answered(foreign: Foreign, sandbox: Sandbox) -> None:
    """The ledger knows each call with what was answered."""
    await foreign.place("T1")
    await foreign.place("T1")
    await foreign.post(QUERY, outTradeNo="T1")

    assert [(200, "SBX_OK"), (409, "SBX_DUPLICATE")] == [
        (call.status, call.code) for call in sandbox.ledger.calls("orders.place")
    ]
    assert 3 == len(sandbox.ledger.calls())


async def test_database_that_cannot_be_written(foreign: Foreign, sandbox: Sandbox) -> None:
    """If nothing can be written, a request fails in the shape of all refusals, and nothing of it is done."""
    set_writable(store_of(sandbox), writable=False)
    failed = await foreign.place("T1")
    with pytest.raises(ConfigurationError, match="db: the sandbox's database cannot be written"):
        await sandbox.given.paid_order()
    set_writable(store_of(sandbox), writable=True)
    placed = await foreign.place("T1")

    assert [(500, "SBX_BUSY"), (200, "SBX_OK")] == [failed.told, placed.told]
    assert 1 == sandbox.ledger.orders()
