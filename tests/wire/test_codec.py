from types import MappingProxyType
from typing import Any, Final

import pytest
from attrs import evolve

from payasync.endpoints import custom
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.profile.profile import Profile
from payasync.profile.schema import Accept
from payasync.resources.orders import PlaceOrder, QueryOrder
from payasync.session import Session
from payasync.wire.call import Call, Reply, Send
from payasync.wire.encode import encode
from tests.building import CREDENTIALS, FULL, PROFILE, WIRE, call_for, codec
from tests.foreign import signatures
from tests.foreign.recorder import Recorder

ARGUMENT, OWN = "which is an argument: give it as such", "which is set by payasync itself"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("totalAmt", ARGUMENT),
        ("outTradeNo", ARGUMENT),
        ("backTo", ARGUMENT),
        ("merchantId", OWN),
        ("nonceStr", OWN),
        ("sign", OWN),
    ],
)
@pytest.mark.parametrize("given", [FULL["orders.place"], PlaceOrder(total_amt=1, currency="CAD")], ids=["all", "few"])
def test_extra_replaces_nothing(given: PlaceOrder, name: str, why: str) -> None:
    """`extra` may not say what an argument or payasync itself says, even where the argument was not given."""
    with pytest.raises(InvalidArgumentError, match=f"extra must not hold {name}, {why}") as caught:
        codec().call(evolve(given, extra={"deviceNo": "7", name: "x"}))

    assert ("extra", f"without {name}", [name], "orders.place", given.reference) == (
        caught.value.field,
        caught.value.rule,
        caught.value.value,
        caught.value.operation,
        caught.value.reference,
    )


def test_extra_names_all_that_it_must_not_hold() -> None:
    """Who is to mend it once is told all of it."""
    with pytest.raises(InvalidArgumentError, match="extra must not hold currency, totalAmt, which is an argument"):
        codec().call(evolve(FULL["orders.place"], extra={"totalAmt": 1, "currency": "USD"}))


def test_two_arguments_under_one_wire_name() -> None:
    """A name that passes for an open argument would lose one of the two: the call is refused, with its operation."""
    profile = evolve(PROFILE, fields={"subscription_id": "planNo", "customer": "frequency"})
    with pytest.raises(ConfigurationError, match=r"fields\.frequency is 'frequency'") as caught:
        call_for("subscriptions.update", profile)

    assert ("fields.frequency", "subscriptions.update", "S1") == (
        caught.value.field,
        caught.value.operation,
        caught.value.reference,
    )
    assert call_for("orders.query", profile).fields


@pytest.mark.parametrize("name", ["payments.status", "refunds.status"])
def test_extra_does_not_replace_the_identifier(name: str) -> None:
    """The identifier of endpoints 6 and 7 is an argument under the profile's name for it."""
    parameter = {"payments.status": "tradeNo", "refunds.status": "refundNo"}[name]
    with pytest.raises(InvalidArgumentError, match=f"must not hold {parameter}, which is set by payasync itself"):
        codec().call(evolve(FULL[name], extra={parameter: "x"}))


def test_nested_constants_are_each_calls_own() -> None:
    """A layer that changes a nested constant of its call changes no other call, and not the profile."""
    profile = evolve(PROFILE, constants={"*": {"device": {"parts": [1]}}})
    made = codec(profile)
    made.call(FULL["orders.query"]).fields["device"]["parts"].append(2)

    assert {"parts": [1]} == made.call(FULL["orders.query"]).fields["device"]
    assert {"*": {"device": {"parts": [1]}}} == profile.constants


def test_the_callers_field_wins_over_a_constant() -> None:
    """A constant is what is sent where the caller says nothing."""
    constants = {"*": {"currency": "USD", "v": 1}, "orders.place": {"sceneType": "H5", "w": 1}}
    request = evolve(FULL["orders.place"], extra={"v": 3, "w": 4})
    fields = codec(evolve(PROFILE, constants=constants)).call(request).fields

    assert {**WIRE["orders.place"], "v": 3, "w": 4} == fields


def test_what_the_service_does_not_take_is_no_call() -> None:
    """The profile's `accept` is asked first, and the error knows what it was about."""
    with pytest.raises(InvalidArgumentError) as caught:
        call_for("orders.place", Profile(accept=Accept(currency=("EUR",))))

    assert ("currency", "orders.place", "T1") == (caught.value.field, caught.value.operation, caught.value.reference)


CONSTANT: Final = evolve(
    PROFILE,
    constants={"*": {"signType": "RSA", "v": 1}, "orders.query": {"v": 2}},
    merchant=[*FULL],
)


def spoil(call: Any) -> None:
    """Do what no layer should: change the fields of a call in their place."""
    call.fields.update(dict.fromkeys(call.fields, "spoilt"), more="spoilt")


async def test_layer_that_changes_its_call() -> None:
    """Over HTTP, too: the second call is sent as the profile and its caller say, whatever became of the first."""

    async def layer(call: Call, send: Send) -> Reply:
        if call.reference == "T1":
            spoil(call)
        return await send(call)

    with Recorder() as service:
        settings: dict[str, Any] = {"credentials": CREDENTIALS, "profile": evolve(CONSTANT, signed=())}
        async with Session(service.url, middleware=[layer], **settings) as pay:
            await pay.orders.query("T1")
            await pay.orders.query("T2")
    first, second = map(signatures.fields, service.requests)

    assert {"spoilt"} == set(first.values())
    assert {"merchantId": "M1", "outTradeNo": "T2", "signType": "RSA", "v": 2} == second


def test_kind_of_ones_own() -> None:
    """A request class derived from ours has a form of its own, beside that of its base."""

    class Query(QueryOrder):
        """As ours."""

    both = codec()

    assert both.call(FULL["orders.query"]).fields == both.call(Query(out_trade_no="T1")).fields
    assert "T2" == both.call(Query(out_trade_no="T2")).fields["outTradeNo"]


def test_custom_copies_its_fields() -> None:
    """What the caller changes later changes nothing that is sent; any mapping will do."""
    inner = {"a": [1]}
    call = codec().custom(
        custom("POST", "/x", read=False), MappingProxyType({"in": MappingProxyType(inner)}), bearer=False, signed=False
    )
    inner["a"].append(2)

    assert b'{"in":{"a":[1]}}' == encode(call).body


@pytest.mark.parametrize("name", ["nonceStr", "sign"])
def test_custom_signature_is_the_sessions_or_the_callers(name: str) -> None:
    """A field is never replaced silently: who lets the session sign cannot give a signature of his own."""
    operation = custom("POST", "/x", read=False)
    with pytest.raises(InvalidArgumentError, match=f"fields must not hold {name}, which is set by payasync itself"):
        codec().custom(operation, {name: "x"}, bearer=False, signed=True)

    assert {name: "x"} == codec().custom(operation, {name: "x"}, bearer=False, signed=False).fields
