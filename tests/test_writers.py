import pytest
from attrs import evolve

from payasync.errors import ConfigurationError
from payasync.profile import Profile
from payasync.requests import Request
from payasync.resources.orders import PlaceOrder
from payasync.resources.subscriptions import CreateSubscription, UpdateSubscription
from payasync.responses import Response
from payasync.writers import writer
from tests.building import PROFILE


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
