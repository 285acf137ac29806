from datetime import date

import pytest
from attrs import evolve

from payasync.errors import ConfigurationError, NotConfiguredError
from payasync.profile import Profile
from payasync.requests import Request
from payasync.resources.orders import PlaceOrder
from payasync.resources.subscriptions import CreateSubscription, UpdateSubscription
from payasync.responses import Response
from payasync.writers import camel, writer
from tests.building import FULL, PROFILE, WIRE, call_for, codec


@pytest.mark.parametrize(
    ("name", "expected"), [("total_amt", "totalAmt"), ("out_trade_no", "outTradeNo"), ("amount", "amount")]
)
def test_camel(name: str, expected: str) -> None:
    """An argument is the snake_case of its wire name."""
    assert expected == camel(name)


@pytest.mark.parametrize(
    ("name", "argument", "point"),
    [
        ("orders.place", "return_url", "return_url"),
        ("subscriptions.create", "frequency", "frequency"),
        ("subscriptions.create", "amount", "subscription_amount"),
        ("subscriptions.create", "start_date", "start_date"),
        ("subscriptions.create", "customer", "customer"),
        ("subscriptions.update", "subscription_id", "subscription_id"),
        ("subscriptions.cancel", "subscription_id", "subscription_id"),
    ],
)
def test_open_wire_name(name: str, argument: str, point: str) -> None:
    """An argument without a wire name is never sent under a guess: the error names the field of the profile."""
    fields = {key: value for key, value in PROFILE.fields.items() if key != point}
    with pytest.raises(NotConfiguredError, match=f"fields.{point} is open") as caught:
        call_for(name, evolve(PROFILE, fields=fields))

    assert f"fields.{point}" == caught.value.field
    assert (name, FULL[name].reference) == (caught.value.operation, caught.value.reference)
    assert hasattr(FULL[name], argument)


def test_open_wire_name_matters_only_where_it_is_needed() -> None:
    """A profile that leaves points open still sends what does not need them."""
    order = codec(Profile()).call(PlaceOrder(total_amt=450, currency="CAD"))
    update = codec(Profile(fields={"subscription_id": "planNo"})).call(UpdateSubscription(subscription_id="S1"))

    assert {"merchantId": "M1", "totalAmt": 450, "currency": "CAD"} == order.fields
    assert {"planNo": "S1"} == update.fields


@pytest.mark.parametrize(
    ("written", "expected"), [("%Y-%m-%d", "2027-01-31"), ("%Y%m%d", "20270131"), ("%d/%m/%y", "31/01/27")]
)
@pytest.mark.parametrize("name", ["subscriptions.create", "subscriptions.update"])
def test_date_format(name: str, written: str, expected: str) -> None:
    """A date is written as the profile says."""
    request = evolve(FULL[name], start_date=date(2027, 1, 31))  # type: ignore[call-arg] # both have one
    call = codec(evolve(PROFILE, formats={"start_date": written})).call(request)

    assert expected == call.fields["from"]


def test_open_date_format() -> None:
    """How a date is written is not guessed; an update without a date does not need it."""
    profile = evolve(PROFILE, formats={})
    with pytest.raises(NotConfiguredError) as caught:
        call_for("subscriptions.create", profile)

    assert "formats.start_date" == caught.value.field
    assert codec(profile).call(UpdateSubscription(subscription_id="S1", amount=5)).fields


@pytest.mark.parametrize("name", FULL)
def test_writer_writes_what_was_given(name: str) -> None:
    """Each kind of request has one writer, which gives every argument its wire name."""
    request = FULL[name]
    identifier = {"payments.status": {"identifier": "T1"}, "refunds.status": {"identifier": "R1"}}
    expected = {key: value for key, value in WIRE[name].items() if key != "merchantId"}

    assert identifier.get(name, expected) == writer(type(request), PROFILE).fields(request)


def test_writer_leaves_extra_alone() -> None:
    """What stands in `extra` has wire names already."""
    request = PlaceOrder(total_amt=450, currency="CAD", extra={"deviceNo": "7"})
    made = writer(PlaceOrder, PROFILE)

    assert {"totalAmt": 450, "currency": "CAD"} == made.fields(request)
    assert "extra" not in made.names


def test_writer_knows_what_is_open() -> None:
    """An open name is no hindrance until its argument is given; until then it has none but the argument's own."""
    made, few = writer(PlaceOrder, Profile()), PlaceOrder(total_amt=450, currency="CAD")

    assert {"totalAmt": 450, "currency": "CAD"} == made.fields(few)
    assert "return_url" == made.names["return_url"]
    with pytest.raises(NotConfiguredError, match=r"fields\.return_url is open"):
        made.fields(FULL["orders.place"])


@pytest.mark.parametrize(
    ("kind", "fields", "point", "other"),
    [
        (PlaceOrder, {"return_url": "notifyUrl"}, "return_url", "notify_url"),
        (PlaceOrder, {"return_url": "outTradeNo"}, "return_url", "out_trade_no"),
        (CreateSubscription, {"frequency": "a", "start_date": "a"}, "frequency", "start_date"),
        (UpdateSubscription, {"subscription_id": "id", "customer": "id"}, "subscription_id", "customer"),
        (CreateSubscription, {"subscription_amount": "frequency"}, "frequency", "amount"),
    ],
)
def test_two_arguments_under_one_name(
    kind: type[Request[Response]], fields: dict[str, str], point: str, other: str
) -> None:
    """One would replace the other, and money would move by what is left: the profile is refused, and says where."""
    with pytest.raises(ConfigurationError, match=rf"is the wire name of {other}, too") as caught:
        writer(kind, Profile(fields=fields))

    assert f"fields.{point}" == caught.value.field


def test_one_name_in_two_kinds_of_request() -> None:
    """What never stands in the same request may be named alike."""
    profile = evolve(PROFILE, fields={**PROFILE.fields, "return_url": "every"})

    assert "every" == writer(PlaceOrder, profile).names["return_url"]
    assert "every" == writer(CreateSubscription, profile).names["frequency"]
