"""A service that is unlike the sandbox's own profile in every point: the sandbox speaks its words."""

import hashlib
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import aiohttp
import pytest

from payasync import (
    AnswerShape,
    NotificationShape,
    Parameter,
    Profile,
    ResultCodes,
    SortedPairs,
    States,
)
from payasync.endpoints import OPERATIONS
from payasync.sandbox import Sandbox
from tests.sandbox.foreign import Answer, Foreign, Receiver

ORDER_STATES: Final = {"pending": (0,), "paid": ("TRADE_SUCCESS", "TRADE_FINISHED"), "closed": (9,)}
OTHER: Final = Profile(
    signed=[operation.name for operation in OPERATIONS],
    bearer=[],
    merchant=["payments.create", "payments.status"],
    signature=SortedPairs(algorithm="md5", encoding="HEX", key_param="key", append_path=True, nested="omit"),
    fields={
        "return_url": "backTo",
        "frequency": "cycle",
        "start_date": "from",
        "subscription_amount": "price",
        "customer": "who",
        "subscription_id": "agreement",
    },
    formats={"start_date": "%d.%m.%Y"},
    payment_status=Parameter("X-Order", "header"),
    refund_status=Parameter("refundId", "path"),
    answer=AnswerShape(
        data="result.data",
        code="result.head.ret",
        ok=[0],
        message="result.head.text",
        request_id="header:X-Trace",
        payment_id="pay.id",
        payment_status="pay.state",
        redirect_url="go",
        order_status="trade.state",
        refund_status="back.state",
        subscription_id="agreement",
        subscription_status="phase",
    ),
    states=States(
        order=ORDER_STATES,
        payment={"paid": (1,)},
        refund={"succeeded": ("DONE",)},
        subscription={"scheduled": ("LATER",)},
    ),
    codes=ResultCodes(not_executed=("PARAM", "AUTH"), duplicate=(77,), absent=("GONE",), retryable=("AGAIN",)),
    notification=NotificationShape(
        verification="standard-webhooks",
        kind="event.name",
        kinds={"payment": ("trade.paid",)},
        out_trade_no="order.no",
        ack_status=202,
        ack_body="OK",
    ),
)


class Other(Foreign):
    """Speaks to a sandbox in the other service's words."""

    def sealed(self, path: str, fields: Mapping[str, Any], *, merchant: bool = False) -> dict[str, Any]:
        """Return signed fields: MD5 over the sorted texts, the key and the path, in capitals."""
        told: dict[str, Any] = {"nonceStr": f"n{next(COUNT)}", **fields}
        if merchant:
            told["merchantId"] = "SANDBOX"
        text = "&".join(f"{name}={told[name]}" for name in sorted(told) if not isinstance(told[name], dict))
        digest = hashlib.md5(f"{text}&key={self._signing_key}{path}".encode(), usedforsecurity=False).hexdigest()
        return {**told, "sign": digest.upper()}

    async def tell(self, path: str, fields: Mapping[str, Any], *, merchant: bool = False) -> Answer:
        """Send a signed request with a body."""
        return await self.send("POST", path, json=self.sealed(path, fields, merchant=merchant))


COUNT: Final = itertools.count()


@pytest.fixture
async def other(receiver: Receiver, http: aiohttp.ClientSession) -> AsyncIterator[Other]:
    """A client of a sandbox that speaks the other profile."""
    async with Sandbox(OTHER, webhook_url=receiver.url) as sandbox:
        yield Other(sandbox, http)


async def test_order(other: Other) -> None:
    """Envelope, code, message, number of the request and states stand where the profile says."""
    fields = {"outTradeNo": "T1", "totalAmt": 450, "currency": "CAD", "backTo": "https://shop.example/"}
    placed = await other.tell("/payment/unifiedorder", fields)
    back = await other.sandbox.customer.authorize(placed.document["result"]["data"]["go"])
    found = await other.tell("/payment/orderquery", {"outTradeNo": "T1"})

    assert {"ret": 0, "text": "done"} == placed.document["result"]["head"]
    assert {"data", "head"} == set(placed.document["result"])
    assert placed.headers["X-Trace"]
    assert (0, "TRADE_SUCCESS") == tuple(
        answer.document["result"]["data"]["trade"]["state"] for answer in (placed, found)
    )
    assert "https://shop.example/" == back


async def test_identifiers_in_header_and_path(other: Other) -> None:
    """Endpoints 6 and 7 take their identifier where the profile says, and it is signed wherever it stands."""
    number = await other.sandbox.given.paid_order(out_trade_no="T1")
    refund = {"outTradeNo": number, "outRefundNo": "R1", "totalAmt": 450, "refundAmt": 1}
    await other.tell("/payment/refund", refund)
    query = other.sealed("/payment/status", {"X-Order": "T1"}, merchant=True)
    payment = await other.send("GET", "/payment/status", params=query, headers={"X-Order": query.pop("X-Order")})
    query = other.sealed("/payment/refund/status", {"refundId": "R1"})
    rest = query.pop("refundId")
    found = await other.send("GET", f"/payment/refund/status/{rest}", params=query)
    moved = await other.send("GET", "/payment/refund/status/R2", params=query)

    assert 1 == payment.document["result"]["data"]["pay"]["state"]
    assert "DONE" == found.document["result"]["data"]["back"]["state"]
    assert 401 == moved.status


async def test_missing_identifiers(other: Other) -> None:
    """An identifier that is not where it must be is named."""
    answers = [
        await other.send("GET", path, params=other.sealed(path, {}, merchant=True))
        for path in ("/payment/status", "/payment/refund/status")
    ]

    assert [(422, "X-Order"), (422, "refundId")] == [
        (answer.status, answer.document["result"]["head"]["field"]) for answer in answers
    ]


async def test_codes(other: Other) -> None:
    """Refusals have the profile's codes by what they mean; where it lists fewer, the last stands for the rest."""
    fields = {"outTradeNo": "T1", "totalAmt": 450, "currency": "CAD"}
    path = "/payment/unifiedorder"
    signed = other.sealed(path, fields)
    answers = [
        await other.send("POST", path, json=signed),
        await other.send("POST", path, json=signed),
        await other.tell(path, fields),
        await other.tell(path, {**fields, "totalAmt": 0}),
        await other.send("POST", path, json={**signed, "sign": signed["sign"].lower()}),
        await other.tell("/payment/closeorder", {"outTradeNo": "T2"}),
        await other.tell("/v1/payments", {"amount": 1, "currency": "CAD", "merchantId": "M2"}),
    ]

    assert [(200, 0), (403, "AUTH"), (409, 77), (422, "PARAM"), (401, "AUTH"), (404, "GONE"), (403, "AUTH")] == [
        (answer.status, answer.document["result"]["head"]["ret"]) for answer in answers
    ]
    assert [0, "AUTH", 77, "PARAM", "AUTH"] == [call.code for call in other.sandbox.ledger.calls("orders.place")]


async def test_subscription(other: Other) -> None:
    """Subscriptions have the profile's names and its way to write a date."""
    terms = {"cycle": "monthly", "price": 9, "from": "31.01.2999", "who": {"a": "b"}}
    made = await other.tell("/subscriptions/create", terms)
    data = made.document["result"]["data"]
    found = await other.tell("/subscriptions/update", {"agreement": data["agreement"], "price": 10})

    assert ("monthly", 9, "31.01.2999", "LATER") == tuple(data[name] for name in ("cycle", "price", "from", "phase"))
    assert 10 == found.document["result"]["data"]["price"]


async def test_notification(other: Other, receiver: Receiver) -> None:
    """Events have the profile's names, numbers stand where it says, and its answer acknowledges."""
    await other.sandbox.given.paid_order(out_trade_no="T1")
    await other.sandbox.settle()
    told = receiver.received[0].document

    assert ({"name": "trade.paid"}, {"no": "T1"}, "TRADE_SUCCESS") == (
        told["event"],
        told["order"],
        told["trade"]["state"],
    )
    assert [False] == [attempt.acknowledged for attempt in other.sandbox.ledger.deliveries()]


async def test_end_of_an_order_that_has_no_name(other: Other, receiver: Receiver) -> None:
    """A service with a name for paid orders only tells of no other end: not even an order that was closed is `paid`."""
    await other.sandbox.given.pending_order(out_trade_no="T1")
    await other.tell("/payment/closeorder", {"outTradeNo": "T1"})
    await other.sandbox.given.paid_order(out_trade_no="T2")
    await other.sandbox.settle()

    assert [({"name": "trade.paid"}, {"no": "T2"})] == [
        (told.document["event"], told.document["order"]) for told in receiver.received
    ]
