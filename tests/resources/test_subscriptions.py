from datetime import date
from typing import Any, Final

import pytest

from payasync.errors import InvalidArgumentError
from payasync.resources.subscriptions import (
    CancelSubscription,
    CreateSubscription,
    Subscriptions,
    UpdateSubscription,
)
from payasync.responses import SubscriptionResponse
from tests.building import BARE, Sent

DEMANDED: Final[dict[str, Any]] = {
    "frequency": "monthly",
    "amount": 900,
    "start_date": date(2027, 1, 1),
    "customer": {"email": "a@example.com"},
}


async def test_create() -> None:
    """`subscriptions.create` is endpoint 8: its arguments become the request, and the answer is a subscription's."""
    sent = Sent()
    answer = await Subscriptions(sent, BARE).create(**DEMANDED)
    await Subscriptions(sent, BARE).create(**DEMANDED, extra={"deviceNo": "7"}, timeout=5)

    assert [
        (CreateSubscription(**DEMANDED), None),
        (CreateSubscription(**DEMANDED, extra={"deviceNo": "7"}), 5),
    ] == sent.requests
    assert SubscriptionResponse is type(answer)


@pytest.mark.parametrize("change", [{}, *({name: value} for name, value in DEMANDED.items()), DEMANDED])
async def test_update(change: dict[str, Any]) -> None:
    """`subscriptions.update` is endpoint 9: it sends what is given, and nothing that is left out."""
    sent = Sent()
    answer = await Subscriptions(sent, BARE).update("S1", **change, extra={"a": 1}, timeout=5)

    assert [(UpdateSubscription(subscription_id="S1", **change, extra={"a": 1}), 5)] == sent.requests
    assert SubscriptionResponse is type(answer)


async def test_cancel() -> None:
    """`subscriptions.cancel` is endpoint 10."""
    sent = Sent()
    answer = await Subscriptions(sent, BARE).cancel("S1")
    await Subscriptions(sent, BARE).cancel("S2", extra={"a": 1}, timeout=0.5)

    assert [
        (CancelSubscription(subscription_id="S1"), None),
        (CancelSubscription(subscription_id="S2", extra={"a": 1}), 0.5),
    ] == sent.requests
    assert SubscriptionResponse is type(answer)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("frequency", None),
        ("amount", True),
        ("start_date", "2027-01-01"),
        ("customer", None),
        ("customer", {"email": object()}),
        ("extra", {1: 2}),
    ],
)
async def test_bad_value_is_not_sent(field: str, value: object) -> None:
    """A bad value is refused before any I/O, when a subscription is made and when it is changed."""
    sent = Sent()
    given: dict[str, Any] = {**DEMANDED, field: value}
    with pytest.raises(InvalidArgumentError) as made:
        await Subscriptions(sent, BARE).create(**given)
    with pytest.raises(InvalidArgumentError) as changed:
        await Subscriptions(sent, BARE).update("S1", **{field: value})  # type: ignore[arg-type] # the mistake that is refused

    assert (field, field) == (made.value.field, changed.value.field)
    assert [] == sent.requests


@pytest.mark.parametrize("number", ["", None, 1])
async def test_bad_number_is_not_sent(number: Any) -> None:
    """What names no subscription can neither be changed nor ended."""
    sent = Sent()
    for method in (Subscriptions(sent, BARE).update, Subscriptions(sent, BARE).cancel):
        with pytest.raises(InvalidArgumentError, match="subscription_id must be"):
            await method(number)

    assert [] == sent.requests


@pytest.mark.parametrize(("intent", "shield"), [(None, False), ("invoice-42", True)])
async def test_writes_pass_on_what_they_are_for(intent: str | None, *, shield: bool) -> None:
    """`intent` and `shield` are the session's to heed: every write passes them on."""
    sent = Sent()
    namespace = Subscriptions(sent, BARE)
    await namespace.create(
        frequency="monthly", amount=1, start_date=date(2027, 1, 31), customer={}, intent=intent, shield=shield
    )
    await namespace.update("S1", intent=intent, shield=shield)
    await namespace.cancel("S1", intent=intent, shield=shield)

    assert [(intent, shield)] * 3 == sent.options
