from typing import Any, Final

import pytest

from payasync.errors import InvalidArgumentError
from payasync.resources.refunds import CreateRefund, QueryRefund, Refunds
from payasync.responses import RefundResponse
from tests.building import BARE, Sent

DEMANDED: Final[dict[str, Any]] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}


async def test_create() -> None:
    """`refunds.create` is endpoint 5: its arguments become the request, and the answer is a refund's."""
    sent = Sent()
    given: dict[str, Any] = {
        **DEMANDED,
        "refund_desc": "cold",
        "notify_url": "https://shop.example/notify",
        "extra": {"deviceNo": "7"},
    }
    answer = await Refunds(sent, BARE).create(**given, timeout=5)

    assert [(CreateRefund(**given), 5)] == sent.requests
    assert RefundResponse is type(answer)


async def test_create_with_what_the_document_demands() -> None:
    """Two numbers and two amounts are enough; nothing else is sent."""
    sent = Sent()
    await Refunds(sent, BARE).create(**DEMANDED)

    assert [(CreateRefund(**DEMANDED), None)] == sent.requests


async def test_status() -> None:
    """`refunds.status` is endpoint 7."""
    sent = Sent()
    answer = await Refunds(sent, BARE).status("R1")
    await Refunds(sent, BARE).status("R2", extra={"a": 1}, timeout=0.5)

    assert [(QueryRefund(identifier="R1"), None), (QueryRefund(identifier="R2", extra={"a": 1}), 0.5)] == sent.requests
    assert RefundResponse is type(answer)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("out_trade_no", None),
        ("out_refund_no", ""),
        ("total_amt", 450.0),
        ("refund_amt", 0),
        ("refund_desc", None),
        ("notify_url", "ftp://shop.example"),
        ("extra", "a=1"),
    ],
)
async def test_bad_value_is_not_sent(field: str, value: object) -> None:
    """A bad value is refused before any I/O."""
    sent = Sent()
    given: dict[str, Any] = {**DEMANDED, field: value}
    with pytest.raises(InvalidArgumentError) as caught:
        await Refunds(sent, BARE).create(**given)

    assert field == caught.value.field
    assert [] == sent.requests


@pytest.mark.parametrize("name", DEMANDED)
async def test_nothing_demanded_may_be_left_out(name: str) -> None:
    """Without its two numbers and two amounts a refund has no meaning."""
    sent = Sent()
    with pytest.raises(TypeError, match=name):
        await Refunds(sent, BARE).create(**{key: value for key, value in DEMANDED.items() if key != name})

    assert [] == sent.requests


@pytest.mark.parametrize(("intent", "shield"), [(None, False), ("invoice-42", True)])
async def test_writes_pass_on_what_they_are_for(intent: str | None, *, shield: bool) -> None:
    """`intent` and `shield` are the session's to heed: every write passes them on."""
    sent = Sent()
    namespace = Refunds(sent, BARE)
    await namespace.create(**DEMANDED, intent=intent, shield=shield)
    await namespace.status("R1")

    assert [(intent, shield), (None, False)] == sent.options
