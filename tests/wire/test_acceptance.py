from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from payasync.errors import InvalidArgumentError
from payasync.profile.profile import Profile
from payasync.profile.schema import Accept
from payasync.resources.orders import CloseOrder, PlaceOrder, QueryOrder
from payasync.resources.payments import CreatePayment, QueryPayment
from payasync.resources.refunds import CreateRefund, QueryRefund
from payasync.resources.subscriptions import CancelSubscription, UpdateSubscription
from payasync.wire.request import Request
from payasync.wire.response import Response
from tests.building import FULL, PROFILE, codec


def check_acceptance(request: Request[Response], profile: Profile) -> None:
    """Make the call of a request for a service with this `identifier` and `accept`."""
    codec(evolve(PROFILE, identifier=profile.identifier, accept=profile.accept)).call(request)


def order(**facts: Any) -> PlaceOrder:
    """Return an order with what it needs, and more."""
    given: dict[str, Any] = {"total_amt": 450, "currency": "CAD", **facts}
    return PlaceOrder(**given)


def identified(number: str) -> list[Request[Response]]:
    """Return a request for every argument that holds a number."""
    return [
        order(out_trade_no=number),
        QueryOrder(out_trade_no=number),
        CloseOrder(out_trade_no=number),
        CreateRefund(out_trade_no=number, out_refund_no="R1", total_amt=1, refund_amt=1),
        CreateRefund(out_trade_no="T1", out_refund_no=number, total_amt=1, refund_amt=1),
        QueryPayment(identifier=number),
        QueryRefund(identifier=number),
        UpdateSubscription(subscription_id=number),
        CancelSubscription(subscription_id=number),
    ]


@pytest.mark.parametrize("name", FULL)
def test_a_bare_profile_takes_what_the_document_shows(name: str) -> None:
    """What the document leaves open is refused by nobody's guess."""
    check_acceptance(FULL[name], Profile())


@pytest.mark.parametrize("number", ["T1\n", " T1", "T 1", "T/1", "T1;", "é", "x" * 65, "T1\x00"])
def test_numbers_match_the_pattern_as_a_whole(number: str) -> None:
    """A number that is only partly one is refused, a line end behind it, too: it could break a text apart."""
    for request in identified(number):
        with pytest.raises(InvalidArgumentError, match="identifier") as caught:
            check_acceptance(request, Profile())

        assert number == caught.value.value


@given(st.text(min_size=1).filter(str.strip) | st.from_regex(r"[A-Za-z0-9_-]{1,65}", fullmatch=True))
def test_numbers_are_judged_by_the_pattern_alone(number: str) -> None:
    """A number is taken exactly where it is of the allowed characters and length."""
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
    fits = set(number) <= allowed and len(number) <= 64

    assert fits == accepts(QueryOrder(out_trade_no=number), Profile())


def test_pattern_of_the_profile() -> None:
    """A service with numbers of another form is described by its profile; the error names the pattern."""
    profile = Profile(identifier="A|AB")
    check_acceptance(QueryOrder(out_trade_no="AB"), profile)
    with pytest.raises(InvalidArgumentError, match=r"matches A\|AB") as caught:
        check_acceptance(QueryOrder(out_trade_no="ABC"), profile)

    assert ("out_trade_no", "ABC") == (caught.value.field, caught.value.value)


@pytest.mark.parametrize(
    ("accept", "good", "bad", "field", "rule"),
    [
        (Accept(currency=("CAD", "USD")), order(), order(currency="EUR"), "currency", "one of CAD, USD"),
        (Accept(currency=("CAD",)), order(), CreatePayment(amount=1, currency="USD"), "currency", "one of CAD"),
        (Accept(scene_type=("JSAPI",)), order(), order(scene_type="H5"), "scene_type", "one of JSAPI"),
        (Accept(amount=(100, 500)), order(total_amt=100), order(total_amt=99), "total_amt", "from 100 to 500"),
        (Accept(amount=(100, 500)), order(total_amt=500), order(total_amt=501), "total_amt", "from 100 to 500"),
        (
            Accept(amount=(1, 5)),
            CreatePayment(amount=5, currency="USD"),
            CreatePayment(amount=6, currency="USD"),
            "amount",
            "from 1 to 5",
        ),
        (Accept(amount=(201, 500)), order(), FULL["refunds.create"], "refund_amt", "from 201 to 500"),
        (Accept(length={"subject": 3}), order(subject="tea"), order(subject="milk"), "subject", "at most 3 characters"),
        (Accept(length={"out_trade_no": 1}), order(), order(out_trade_no="T1"), "out_trade_no", "at most 1 characters"),
    ],
)
def test_what_the_service_does_not_take_is_refused_here(
    accept: Accept, good: Request[Response], bad: Request[Response], field: str, rule: str
) -> None:
    """Each key of the profile's `accept` refuses before any I/O, and names the field, the rule and the value."""
    profile = Profile(accept=accept)
    check_acceptance(good, profile)
    with pytest.raises(InvalidArgumentError, match=rule) as caught:
        check_acceptance(bad, profile)

    assert field == caught.value.field
    assert rule in str(caught.value.rule)
    assert getattr(bad, field) == caught.value.value


def test_required_by_this_service() -> None:
    """A service may demand, for one operation, what the document leaves optional."""
    profile = Profile(accept=Accept(required={"orders.place": ("subject", "notify_url")}))
    check_acceptance(order(subject="", notify_url="https://shop.example"), profile)
    check_acceptance(CreatePayment(amount=1, currency="USD"), profile)
    with pytest.raises(InvalidArgumentError, match="notify_url is missing: this service requires it") as caught:
        check_acceptance(order(subject="tea"), profile)

    assert ("notify_url", "required by this service") == (caught.value.field, caught.value.rule)


def test_length_counts_texts_only() -> None:
    """What was not given has no length, nor what another operation takes."""
    profile = Profile(accept=Accept(length={"body": 1, "scene_type": 1}))

    assert accepts(order(), profile)
    assert accepts(FULL["subscriptions.create"], profile)


def test_required_in_extra() -> None:
    """A field that the document does not show is given where it stands in `extra`, whatever it holds."""
    profile = Profile(accept=Accept(required={"orders.place": ("deviceNo",)}))
    check_acceptance(order(extra={"deviceNo": None}), profile)
    check_acceptance(CreatePayment(amount=1, currency="USD"), profile)
    with pytest.raises(InvalidArgumentError, match="deviceNo is missing in extra: this service requires it") as caught:
        check_acceptance(order(extra={"device": "7"}), profile)

    assert ("deviceNo", "required by this service") == (caught.value.field, caught.value.rule)


def test_an_argument_is_not_given_by_extra() -> None:
    """`extra` has wire names: what stands there under the name of an argument is another field."""
    profile = Profile(accept=Accept(required={"orders.place": ("notify_url",)}))

    assert not accepts(order(extra={"notify_url": "https://shop.example"}), profile)


@pytest.mark.parametrize("name", ["reference", "operation", "answer"])
def test_a_field_named_as_an_attribute_of_a_request(name: str) -> None:
    """A wire name is that of a field, and of nothing else that a request has."""
    profile = Profile(accept=Accept(required={"orders.place": (name,)}))

    assert not accepts(order(out_trade_no="T1"), profile)
    assert accepts(order(extra={name: "x"}), profile)


def accepts(request: Request[Response], profile: Profile) -> bool:
    """Return whether the service takes a request, as far as its profile says."""
    try:
        check_acceptance(request, profile)
    except InvalidArgumentError:
        return False
    return True
