"""The ten endpoints over HTTP, driven by a client that is not payasync's."""

from typing import Any

import pytest

from payasync.sandbox import Sandbox
from tests.inside import set_writable, store_of
from tests.sandbox.foreign import CLOSE, PAY, PLACE, QUERY, REFUND, Foreign

PLAN = {"billingFrequency": "monthly", "amount": 900, "startDate": "2999-01-31", "customer": {"email": "a@example.com"}}


async def test_place_order(foreign: Foreign) -> None:
    """Endpoint 2 answers with the order and the address where its customer authorises it (spec: rule 2)."""
    answer = await foreign.place("T1", subject="Coffee", body="", sceneType="JSAPI")

    assert (200, "SBX_OK", "T1", "SBX_PENDING", 450, "CAD") == (
        *answer.told,
        *(answer.document[name] for name in ("outTradeNo", "status", "totalAmt", "currency")),
    )
    assert answer.document["redirectUrl"].startswith(f"{foreign.sandbox.url}/gateway/")


async def test_order_without_number_gets_one(foreign: Foreign) -> None:
    """Endpoint 2 without `outTradeNo`: the sandbox makes one, by which the order is found."""
    placed = await foreign.post(PLACE, totalAmt=450, currency="CAD")
    found = await foreign.post(QUERY, outTradeNo=placed.document["outTradeNo"])

    assert (200, "SBX_OK") == found.told


async def test_same_number_again(foreign: Foreign, sandbox: Sandbox) -> None:
    """An order's number names one order: the second is a duplicate, whatever it asks for."""
    await foreign.place("T1")
    again = await foreign.place("T1")

    assert ((409, "SBX_DUPLICATE"), "outTradeNo") == (again.told, again.document["field"])
    assert 1 == sandbox.ledger.orders()


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


async def test_query_after_payment(foreign: Foreign, sandbox: Sandbox) -> None:
    """Endpoint 3 gives the current status of the order (spec: rule 3)."""
    await foreign.place("T1")
    await sandbox.customer.authorize("T1")
    answer = await foreign.post(QUERY, outTradeNo="T1")

    assert "SBX_PAID" == answer.document["status"]
    assert (450, "paid") == (sandbox.ledger.paid("T1"), sandbox.ledger.order_state("T1"))


async def test_close_twice(foreign: Foreign) -> None:
    """Closing what is closed gives the same answer again (spec: rule 4)."""
    await foreign.place("T1")
    first, second = [await foreign.post(CLOSE, outTradeNo="T1") for _ in range(2)]
    for answer in (first, second):
        del answer.document["requestId"]

    assert (200, "SBX_CLOSED") == (first.status, first.document["status"])
    assert first.document == second.document


async def test_paid_order_does_not_close(foreign: Foreign, sandbox: Sandbox) -> None:
    """A paid order is refunded, not closed."""
    number = await sandbox.given.paid_order()
    answer = await foreign.post(CLOSE, outTradeNo=number)

    assert ((409, "SBX_WRONG_STATE"), "paid") == (answer.told, sandbox.ledger.order_state(number))


async def test_refund(foreign: Foreign, sandbox: Sandbox) -> None:
    """Endpoint 5 gives money back, endpoint 7 says so (spec: rules 5 and 6)."""
    number = await sandbox.given.paid_order()
    made = await foreign.refund("R1", 200, out_trade_no=number, refundDesc="cold")
    found = await foreign.send("GET", "/payment/refund/status", params={"outRefundNo": "R1"}, headers=foreign.bearer)

    assert (200, "SBX_SUCCEEDED", 200) == (made.status, made.document["status"], made.document["refundAmt"])
    assert "SBX_SUCCEEDED" == found.document["status"]
    assert (200, 1) == (sandbox.ledger.refunded(number), sandbox.ledger.refunds())


async def test_same_refund_again(foreign: Foreign, sandbox: Sandbox) -> None:
    """The same number with the same fields is the same refund, though nonce and signature differ."""
    number = await sandbox.given.paid_order()
    first, again = [await foreign.refund("R1", 300, out_trade_no=number) for _ in range(2)]

    assert ((200, "SBX_OK"), (200, "SBX_OK")) == (first.told, again.told)
    assert 300 == sandbox.ledger.refunded(number)


@pytest.mark.parametrize("change", [{"refund_amt": 101}, {"refundDesc": "x"}, {"unknown": "x"}])
async def test_changed_refund(foreign: Foreign, sandbox: Sandbox, change: dict[str, Any]) -> None:
    """The same number with any other field is another refund, which is refused."""
    number = await sandbox.given.paid_order()
    await foreign.refund("R1", 100, out_trade_no=number)
    again = await foreign.refund("R1", **{"refund_amt": 100, **change}, out_trade_no=number)

    assert ((409, "SBX_DUPLICATE"), 100) == (again.told, sandbox.ledger.refunded(number))


async def test_refund_beyond_what_was_paid(foreign: Foreign, sandbox: Sandbox) -> None:
    """The sum of refunds stays within what was paid."""
    number = await sandbox.given.paid_order()
    answers = [await foreign.refund(f"R{count}", 200, out_trade_no=number) for count in range(3)]

    assert [200, 200, 409] == [answer.status for answer in answers]
    assert ("refundAmt", 400) == (answers[2].document["field"], sandbox.ledger.refunded(number))


async def test_refund_with_another_total(foreign: Foreign, sandbox: Sandbox) -> None:
    """`totalAmt` must be the order's."""
    number = await sandbox.given.paid_order()
    answer = await foreign.refund("R1", 100, out_trade_no=number, total_amt=451)

    assert ((422, "SBX_INVALID"), "totalAmt") == (answer.told, answer.document["field"])


async def test_refund_of_what_is_not_paid(foreign: Foreign, sandbox: Sandbox) -> None:
    """Only a paid order can be refunded."""
    number = await sandbox.given.pending_order()
    answer = await foreign.refund("R1", 100, out_trade_no=number)

    assert ((409, "SBX_WRONG_STATE"), 0) == (answer.told, sandbox.ledger.refunds())


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


async def test_subscription_that_starts_in_the_past_is_active(foreign: Foreign) -> None:
    """From its start date on a subscription is active."""
    made = await foreign.send(
        "POST", "/subscriptions/create", json={**PLAN, "startDate": "2000-01-31"}, headers=foreign.bearer
    )

    assert "SBX_ACTIVE" == made.document["status"]


@pytest.mark.parametrize("path", [QUERY, CLOSE])
async def test_unknown_order(foreign: Foreign, path: str) -> None:
    """What nobody placed is not found."""
    answer = await foreign.post(path, outTradeNo="T1")

    assert (404, "SBX_NOT_FOUND") == answer.told


async def test_unknown_things(foreign: Foreign) -> None:
    """Unknown payments, refunds, subscriptions and refunded orders are not found."""
    refund = await foreign.refund("R1", 1, out_trade_no="T1")
    others = [
        await foreign.send("GET", "/payment/status?outTradeNo=T1", headers=foreign.bearer),
        await foreign.send("GET", "/payment/refund/status?outRefundNo=R1", headers=foreign.bearer),
        await foreign.send("POST", "/subscriptions/cancel", json={"subscriptionId": "S1"}, headers=foreign.bearer),
        await foreign.send("POST", "/subscriptions/update", json={"subscriptionId": "S1"}, headers=foreign.bearer),
    ]

    assert {(404, "SBX_NOT_FOUND")} == {answer.told for answer in (refund, *others)}


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic {}", "{}", "Bearer {} x", "Bearer \xe9"]
)
async def test_bearer(foreign: Foreign, authorization: str | None) -> None:
    """Endpoint 1 is done for who knows the secret key only (spec: Authentication, 2)."""
    key = foreign.bearer["Authorization"].removeprefix("Bearer ")
    headers = {} if authorization is None else {"Authorization": authorization.format(key)}
    answer = await foreign.send("POST", PAY, json={"amount": 1, "currency": "USD"}, headers=headers)

    assert ((401, "SBX_UNAUTHENTICATED"), "Bearer") == (answer.told, answer.headers["WWW-Authenticate"])


async def test_another_merchant(foreign: Foreign) -> None:
    """The merchant's number must be that of the keys."""
    answer = await foreign.place("T1", merchantId="M2")

    assert ((403, "SBX_UNAUTHENTICATED"), "merchantId") == (answer.told, answer.document["field"])


async def test_bad_signature_burns_no_nonce(foreign: Foreign, sandbox: Sandbox) -> None:
    """A signature that is not that of the fields is refused; a stranger cannot use up the merchant's nonces."""
    genuine = foreign.signed({"outTradeNo": "T1", "totalAmt": 450, "currency": "CAD"})
    refused = await foreign.send("POST", PLACE, json={**genuine, "totalAmt": 1})
    taken = await foreign.send("POST", PLACE, json=genuine)

    assert [(401, "SBX_BAD_SIGNATURE"), (200, "SBX_OK")] == [refused.told, taken.told]
    assert (1, "pending") == (sandbox.ledger.orders(), sandbox.ledger.order_state("T1"))


async def test_nonce_is_taken_once(foreign: Foreign) -> None:
    """A request that is sent again as it was is refused (spec: Authentication, 3)."""
    fields = foreign.signed({"outTradeNo": "T1"})
    await foreign.place("T1")
    answers = [await foreign.send("POST", CLOSE, json=fields) for _ in range(2)]

    assert [(200, "SBX_OK"), (403, "SBX_NONCE_USED")] == [answer.told for answer in answers]


async def test_nonce_of_a_refused_request_is_burned(foreign: Foreign, sandbox: Sandbox) -> None:
    """What was refused by state is not done when somebody sends it again after the state has changed."""
    number = await sandbox.given.pending_order()
    fields = foreign.signed({"outTradeNo": number, "outRefundNo": "R1", "totalAmt": 450, "refundAmt": 450})
    before = await foreign.send("POST", REFUND, json=fields)
    await sandbox.customer.authorize(number)
    after = await foreign.send("POST", REFUND, json=fields)

    assert [(409, "SBX_WRONG_STATE"), (403, "SBX_NONCE_USED")] == [before.told, after.told]
    assert 0 == sandbox.ledger.refunded(number)


async def test_unknown_fields_are_signed_and_ignored(foreign: Foreign) -> None:
    """Fields that the document does not show are taken, and their signature counts."""
    fields = foreign.signed({"outTradeNo": "T1", "totalAmt": 450, "currency": "CAD", "deviceNo": "7"})
    changed = await foreign.send("POST", PLACE, json={**fields, "deviceNo": "8"})
    taken = await foreign.send("POST", PLACE, json=fields)

    assert [401, 200] == [changed.status, taken.status]


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


async def test_full_disk_is_busy(foreign: Foreign, sandbox: Sandbox) -> None:
    """Where nothing can be written a request is refused as one that may be sent again, and nothing of it is done."""
    set_writable(store_of(sandbox), writable=False)
    refused, wrong = await foreign.place("T1"), await foreign.place("T2", 0)
    set_writable(store_of(sandbox), writable=True)
    placed = await foreign.place("T1")

    assert [(503, "SBX_BUSY"), (422, "SBX_INVALID"), (200, "SBX_OK")] == [refused.told, wrong.told, placed.told]
    assert 1 == sandbox.ledger.orders()
