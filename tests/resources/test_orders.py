from typing import Any

import pytest

from payasync.errors import InvalidArgumentError
from payasync.resources.orders import CloseOrder, Orders, PlaceOrder, QueryOrder
from payasync.responses import OrderResponse
from tests.building import BARE, Sent


async def test_place() -> None:
    """`orders.place` is endpoint 2: its arguments become the request, and the answer is an order's."""
    sent = Sent()
    given: dict[str, Any] = {
        "subject": "Coffee",
        "body": "Large coffee",
        "total_amt": 450,
        "currency": "CAD",
        "notify_url": "https://shop.example/notify",
        "scene_type": "JSAPI",
        "return_url": "https://shop.example/thanks",
        "out_trade_no": "T1",
        "extra": {"deviceNo": "7"},
    }
    answer = await Orders(sent, BARE).place(**given, timeout=5)

    assert [(PlaceOrder(**given), 5)] == sent.requests
    assert OrderResponse is type(answer)


async def test_place_with_what_the_document_demands() -> None:
    """Amount and currency are enough; nothing else is sent."""
    sent = Sent()
    await Orders(sent, BARE).place(total_amt=1, currency="CAD")

    assert [(PlaceOrder(total_amt=1, currency="CAD"), None)] == sent.requests


async def test_query() -> None:
    """`orders.query` is endpoint 3."""
    sent = Sent()
    answer = await Orders(sent, BARE).query("T1")
    await Orders(sent, BARE).query("T2", extra={"a": 1}, timeout=0.5)

    assert [
        (QueryOrder(out_trade_no="T1"), None),
        (QueryOrder(out_trade_no="T2", extra={"a": 1}), 0.5),
    ] == sent.requests
    assert OrderResponse is type(answer)


async def test_close() -> None:
    """`orders.close` is endpoint 4."""
    sent = Sent()
    answer = await Orders(sent, BARE).close("T1")
    await Orders(sent, BARE).close("T2", extra={"a": 1}, timeout=0.5)

    assert [
        (CloseOrder(out_trade_no="T1"), None),
        (CloseOrder(out_trade_no="T2", extra={"a": 1}), 0.5),
    ] == sent.requests
    assert OrderResponse is type(answer)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("total_amt", "450"),
        ("currency", ""),
        ("subject", None),
        ("body", None),
        ("notify_url", "/notify"),
        ("scene_type", ""),
        ("return_url", None),
        ("out_trade_no", None),
        ("extra", []),
    ],
)
async def test_bad_value_is_not_sent(field: str, value: object) -> None:
    """A bad value is refused before any I/O; `None` is not the same as leaving it out."""
    sent = Sent()
    given: dict[str, Any] = {"total_amt": 450, "currency": "CAD", field: value}
    with pytest.raises(InvalidArgumentError) as caught:
        await Orders(sent, BARE).place(**given)

    assert field == caught.value.field
    assert [] == sent.requests


@pytest.mark.parametrize("number", ["", None, 1])
async def test_bad_number_is_not_sent(number: Any) -> None:
    """What names no order can neither be asked about nor closed."""
    sent = Sent()
    for method in (Orders(sent, BARE).query, Orders(sent, BARE).close):
        with pytest.raises(InvalidArgumentError, match="out_trade_no must be"):
            await method(number)

    assert [] == sent.requests


@pytest.mark.parametrize(("intent", "shield"), [(None, False), ("invoice-42", True)])
async def test_writes_pass_on_what_they_are_for(intent: str | None, *, shield: bool) -> None:
    """`intent` and `shield` are the session's to heed: every write passes them on."""
    sent = Sent()
    namespace = Orders(sent, BARE)
    await namespace.place(total_amt=1, currency="CAD", intent=intent, shield=shield)
    await namespace.close("T1", intent=intent, shield=shield)
    await namespace.query("T1")

    assert [(intent, shield), (intent, shield), (None, False)] == sent.options
