"""Numbers that the sandbox gives are such as the profile takes back."""

import re
from datetime import date
from typing import Final

import pytest
from attrs import evolve

from payasync import Profile
from payasync.profile.schema import Accept
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.service import Numbering

UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"


def free(_number: str) -> bool:
    """Take no number."""
    return False


def test_number_says_what_it_names() -> None:
    """Where the profile allows it, a number begins with a letter that says what it is of."""
    assert re.fullmatch("S[0-9]{20}", Numbering(PROFILE).new("S", free))


@pytest.mark.parametrize(
    "identifier",
    ["[0-9]{8,32}", "[1-9][0-9]{11}", "[A-Z0-9]{6,16}", "[a-z0-9]{30,40}", "[a-z][0-9]+", "[0-9a-f]{32}", UUID],
)
def test_number_is_of_the_profiles_form(identifier: str) -> None:
    """Whatever a profile says that numbers look like, those of the sandbox look so, each time."""
    numbering = Numbering(Profile(identifier=identifier))
    drawn = {numbering.new("T", free) for _ in range(50)}

    assert [] == [number for number in drawn if not re.fullmatch(identifier, number)]
    assert 50 == len(drawn)


@pytest.mark.parametrize("name", ["out_trade_no", "identifier", "subscription_id"])
def test_number_is_not_too_long(name: str) -> None:
    """A number is no longer than the service takes it back as an argument."""
    assert re.fullmatch("T[0-9]{11}", Numbering(Profile(accept=Accept(length={name: 12}))).new("T", free))


def test_number_that_is_taken_is_not_given_again() -> None:
    """What names something already is passed over."""
    seen = list[str]()

    def taken(number: str) -> bool:
        seen.append(number)
        return len(seen) < 3

    given = Numbering(Profile(identifier="[0-9]{2}")).new("T", taken)

    assert (3, given) == (len(seen), seen[-1])
    assert [] == [number for number in seen if not re.fullmatch("[0-9]{2}", number)]


@pytest.mark.parametrize(("identifier", "all_taken"), [("T[1-9]", True), ("SHOP-[0-9]+", False)])
def test_number_where_none_of_the_profiles_is_found(identifier: str, *, all_taken: bool) -> None:
    """Where all are taken, or the form is one that nobody could guess, the number is of our own form."""
    given = Numbering(Profile(identifier=identifier)).new("T", lambda _: all_taken)

    assert re.fullmatch("T[0-9]{20}", given)


async def test_merchant_can_send_each_number_back() -> None:
    """An order, a payment and a subscription can be asked about by the numbers that the sandbox gave them."""
    profile = evolve(PROFILE, identifier="[0-9]{8,16}")
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        order = await pay.orders.place(total_amt=450, currency="CAD")
        payment = await pay.payments.create(amount=450, currency="CAD")
        subscription = await pay.subscriptions.create(
            frequency="monthly", amount=900, start_date=date(2999, 1, 1), customer={"email": "a@example.com"}
        )
        asked = [
            await pay.orders.query(order["outTradeNo"]),
            await pay.payments.status(str(payment.payment_id)),
            await pay.subscriptions.cancel(str(subscription.subscription_id)),
        ]

    assert ["pending", "pending", "cancelled"] == [answer.state for answer in asked]
