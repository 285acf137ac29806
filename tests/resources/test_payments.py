from typing import Any

import pytest

from payasync.errors import InvalidArgumentError
from payasync.resources.payments import CreatePayment, Payments, QueryPayment
from payasync.responses import PaymentResponse
from tests.building import BARE, Sent


async def test_create() -> None:
    """`payments.create` is endpoint 1: its arguments become the request, and the answer is a payment's."""
    sent = Sent()
    answer = await Payments(sent, BARE).create(
        amount=1000, currency="USD", description="Invoice 42", extra={"deviceNo": "7"}, timeout=5
    )
    expected = CreatePayment(amount=1000, currency="USD", description="Invoice 42", extra={"deviceNo": "7"})

    assert [(expected, 5)] == sent.requests
    assert PaymentResponse is type(answer)


async def test_create_with_what_the_document_demands() -> None:
    """Amount and currency are enough; nothing else is sent."""
    sent = Sent()
    await Payments(sent, BARE).create(amount=1, currency="USD")

    assert [(CreatePayment(amount=1, currency="USD"), None)] == sent.requests


async def test_status() -> None:
    """`payments.status` is endpoint 6."""
    sent = Sent()
    answer = await Payments(sent, BARE).status("T1")
    await Payments(sent, BARE).status("T2", extra={"a": 1}, timeout=0.5)

    assert [
        (QueryPayment(identifier="T1"), None),
        (QueryPayment(identifier="T2", extra={"a": 1}), 0.5),
    ] == sent.requests
    assert PaymentResponse is type(answer)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("amount", {"amount": 1.5, "currency": "USD"}),
        ("currency", {"amount": 1, "currency": None}),
        ("description", {"amount": 1, "currency": "USD", "description": None}),
        ("extra", {"amount": 1, "currency": "USD", "extra": None}),
    ],
)
async def test_bad_value_is_not_sent(field: str, given: dict[str, Any]) -> None:
    """A bad value is refused before any I/O."""
    sent = Sent()
    with pytest.raises(InvalidArgumentError) as caught:
        await Payments(sent, BARE).create(**given)

    assert field == caught.value.field
    assert [] == sent.requests


@pytest.mark.parametrize("identifier", ["", None, 1])
async def test_bad_identifier_is_not_sent(identifier: Any) -> None:
    """What names no payment cannot be asked about."""
    sent = Sent()
    with pytest.raises(InvalidArgumentError, match="identifier must be"):
        await Payments(sent, BARE).status(identifier)

    assert [] == sent.requests


@pytest.mark.parametrize(("intent", "shield"), [(None, False), ("invoice-42", True)])
async def test_writes_pass_on_what_they_are_for(intent: str | None, *, shield: bool) -> None:
    """`intent` and `shield` are the session's to heed: every write passes them on."""
    sent = Sent()
    namespace = Payments(sent, BARE)
    await namespace.create(amount=1, currency="USD", intent=intent, shield=shield)
    await namespace.status("T1")

    assert [(intent, shield), (None, False)] == sent.options
