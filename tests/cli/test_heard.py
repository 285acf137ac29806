"""What is told of a notification that arrived."""

import json
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import InvalidArgumentError, InvalidSignatureError
from payasync.cli.listen import NO_KIND, OTHER_BODY, TOO_MUCH, Heard, heard
from payasync.notifications import Added, Answer, parse
from payasync.notifications.ingest import Arrival
from payasync.sandbox import PROFILE

AT: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)
YES: Final = Answer(200)
PAID: Final = {"outTradeNo": "T1", "status": "SBX_PAID", "totalAmt": 450, "currency": "CAD"}
REFUNDED: Final = {"outTradeNo": "T1", "outRefundNo": "R1", "totalAmt": 450, "refundAmt": 100, "status": "SBX_X"}
RENEWED: Final = {"subscriptionId": "S1", "amount": 900, "period": 2, "status": "SBX_ACTIVE"}


def arrival(data: Any, event: str = "payment.paid", added: Added | None = Added.NEW, **facts: Any) -> Arrival:
    """Return what became of a notification that was believed."""
    raw = json.dumps({"type": event, "data": data}).encode()
    told = evolve(parse(raw, {}, profile=PROFILE), **{"verified": True, **facts})
    return Arrival(YES, told, added)


def shown(came: Arrival) -> Heard:
    """Return what is told of it."""
    return heard(came, PROFILE, AT)


def test_payment() -> None:
    """The kind, the event, the order's number, the amount with its currency, and the key."""
    expected = Heard(
        at=AT,
        verdict="verified",
        status=200,
        kind="payment",
        event="payment.paid",
        reference="T1",
        amount="450 CAD",
        key='payment:["T1","SBX_PAID"]',
    )

    assert expected == shown(arrival(PAID))


@pytest.mark.parametrize(
    ("data", "event", "reference", "amount"),
    [
        (REFUNDED, "refund.succeeded", "R1", "100"),
        (RENEWED, "subscription.renewed", "S1", "900"),
        ({"outTradeNo": "T1"}, "payment.paid", "T1", ""),
        ({"outTradeNo": "T1", "amount": {"value": 1}}, "payment.paid", "T1", ""),
        ({}, "payment.paid", "", ""),
        ([], "payment.paid", "", ""),
    ],
)
def test_number_and_amount_of_each_kind(data: Any, event: str, reference: str, amount: str) -> None:
    """The number is the narrowest, and so is the amount; what is not told is left empty."""
    told = shown(arrival(data, event))

    assert (reference, amount) == (told.reference, told.amount)


def test_amount_stands_where_the_profile_says() -> None:
    """A service may name a subscription's amount as it likes."""
    profile = evolve(PROFILE, fields={**PROFILE.fields, "subscription_amount": "price"})
    came = arrival({"subscriptionId": "S1", "price": 900, "currency": "CAD"}, "subscription.renewed")

    assert "900 CAD" == heard(came, profile, AT).amount


def test_hint_is_called_one() -> None:
    """What nobody signed is known by its words alone, as in the inbox."""
    told = shown(arrival(PAID, verified=False))

    assert "hint" == told.verdict
    assert told.key.startswith("hint:payment:")


def test_again_and_another_body() -> None:
    """What came before, and what contradicts it, are told apart."""
    again, conflict = (shown(arrival(PAID, added=added)) for added in (Added.AGAIN, Added.CONFLICT))

    assert (True, "") == (again.again, again.why)
    assert (False, OTHER_BODY) == (conflict.again, conflict.why)


def test_without_a_kind_it_says_what_to_do() -> None:
    """Where neither the payload nor the address says the kind, no handler would get it."""
    assert NO_KIND == shown(arrival(PAID, "something.else")).why


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (InvalidSignatureError("it is not verified", field="webhook-id", reason="is missing"), "webhook-id is missing"),
        (InvalidArgumentError("raw must be JSON, not this"), "raw must be JSON, not this"),
        (None, TOO_MUCH),
    ],
)
def test_refused(error: Exception | None, why: str) -> None:
    """What was not believed has no facts but what its address says, and the reason."""
    expected = Heard(at=AT, verdict="refused", status=400, kind="refund", why=why)

    assert expected == heard(Arrival(Answer(400), error=error), PROFILE, AT, "refund")


def test_not_kept() -> None:
    """What could not be kept is to come again, and says why."""
    told = heard(evolve(arrival(PAID, added=None), answer=Answer(503), error=OSError("disk full")), PROFILE, AT)

    assert ("not kept", 503, "disk full") == (told.verdict, told.status, told.why)
