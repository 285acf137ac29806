from types import MappingProxyType
from typing import Any, Final

import pytest
from attrs import evolve

from payasync.calls import Call, Reply, Send
from payasync.codec import Codec, Writers
from payasync.credentials import Credentials
from payasync.errors import ConfigurationError, InvalidArgumentError, NotConfiguredError
from payasync.operations import OPERATIONS, Operation, custom
from payasync.outgoing import encode
from payasync.profile import Profile
from payasync.resources.orders import PlaceOrder, QueryOrder
from payasync.resources.payments import QueryPayment
from payasync.resources.refunds import QueryRefund
from payasync.session import Session
from payasync.settings import Timeouts
from payasync.shapes import Accept
from tests.building import CREDENTIALS, FULL, PROFILE, WIRE, call_for, codec
from tests.foreign import signatures
from tests.foreign.recorder import Recorder


@pytest.mark.parametrize("name", FULL)
def test_wire_names_are_the_documents(name: str) -> None:
    """Every field of every operation is sent under its exact name, and nothing else is."""
    assert WIRE[name] == call_for(name).fields


def test_absent_is_not_null() -> None:
    """An argument that was not given is not on the wire."""
    call = codec().call(PlaceOrder(total_amt=450, currency="CAD"))

    assert {"merchantId": "M1", "totalAmt": 450, "currency": "CAD"} == call.fields


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_call_says_what_the_layers_need(operation: Operation) -> None:
    """The call has its operation and number, and is authenticated as the profile says."""
    call = call_for(operation.name)

    assert operation is call.operation
    assert FULL[operation.name].reference == call.reference
    assert (operation.name in PROFILE.bearer) == call.bearer
    assert (operation.name in PROFILE.signed) == call.signed


@pytest.mark.parametrize("name", FULL)
def test_profile_says_who_carries_what(name: str) -> None:
    """Bearer, signature and merchant's number are each by the profile's lists, for any operation."""
    none = call_for(name, evolve(PROFILE, bearer=(), signed=(), merchant=()))
    every = call_for(name, evolve(PROFILE, bearer=list(FULL), signed=set(FULL), merchant=FULL.keys()))

    assert (False, False, False) == (none.bearer, none.signed, "merchantId" in none.fields)
    assert (True, True, "M1") == (every.bearer, every.signed, every.fields["merchantId"])


def test_extra_goes_through() -> None:
    """A field that the document does not show is sent as it is, nested ones too."""
    call = codec().call(QueryOrder(out_trade_no="T1", extra={"deviceNo": "7", "more": {"a": [None, True]}}))

    assert {"merchantId": "M1", "outTradeNo": "T1", "deviceNo": "7", "more": {"a": [None, True]}} == call.fields


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


def test_codec_of_another_merchant_writes_in_the_same_way() -> None:
    """A copy differs in the merchant's number alone; how requests are written is found out once for both."""
    writers: Writers = {}
    first = Codec(PROFILE, CREDENTIALS, writers)
    other = first.for_merchant(Credentials("M2"))

    assert {"merchantId": "M2", "outTradeNo": "T1"} == other.call(FULL["orders.query"]).fields
    assert {"merchantId": "M1", "outTradeNo": "T1"} == first.call(FULL["orders.query"]).fields
    assert [QueryOrder] == list(writers)


@pytest.mark.parametrize("name", ["payments.status", "refunds.status"])
def test_extra_does_not_replace_the_identifier(name: str) -> None:
    """The identifier of endpoints 6 and 7 is an argument under the profile's name for it."""
    parameter = {"payments.status": "tradeNo", "refunds.status": "refundNo"}[name]
    with pytest.raises(InvalidArgumentError, match=f"must not hold {parameter}, which is set by payasync itself"):
        codec().call(evolve(FULL[name], extra={parameter: "x"}))


def test_constants() -> None:
    """Constants are sent with every operation, or with one; the one's own word wins."""
    profile = evolve(PROFILE, constants={"*": {"signType": "RSA", "v": 1}, "orders.query": {"v": 2}})

    assert {"signType": "RSA", "v": 2, **WIRE["orders.query"]} == call_for("orders.query", profile).fields
    assert {"signType": "RSA", "v": 1, **WIRE["payments.create"]} == call_for("payments.create", profile).fields
    assert {"signType": "RSA", "v": 1, "tradeNo": "T1"} == call_for("payments.status", profile).fields


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


def test_payment_needs_no_profile() -> None:
    """Endpoint 1 is wholly shown: a bare profile is enough."""
    assert WIRE["payments.create"] == call_for("payments.create", Profile()).fields


@pytest.mark.parametrize(
    ("request_", "point"),
    [(QueryPayment(identifier="T1"), "payment_status"), (QueryRefund(identifier="R1"), "refund_status")],
)
def test_open_parameter(request_: Any, point: str) -> None:
    """How endpoints 6 and 7 take their identifier is not guessed."""
    table = point.removesuffix("_status")
    with pytest.raises(NotConfiguredError, match=rf"\[status\.{table}\]") as caught:
        codec(Profile()).call(request_)

    assert point == caught.value.field


def test_what_the_service_does_not_take_is_no_call() -> None:
    """The profile's `accept` is asked first, and the error knows what it was about."""
    with pytest.raises(InvalidArgumentError) as caught:
        call_for("orders.place", Profile(accept=Accept(currency=("EUR",))))

    assert ("currency", "orders.place", "T1") == (caught.value.field, caught.value.operation, caught.value.reference)


def test_one_codec_for_many_calls() -> None:
    """A codec keeps nothing of a call."""
    both = codec()

    assert both.call(FULL["orders.query"]) == both.call(FULL["orders.query"])
    assert WIRE["orders.query"] == both.call(QueryOrder(out_trade_no="T1")).fields


CONSTANT: Final = evolve(
    PROFILE,
    constants={"*": {"signType": "RSA", "v": 1}, "orders.query": {"v": 2}},
    merchant=[*FULL],
)


def spoil(call: Any) -> None:
    """Do what no layer should: change the fields of a call in their place."""
    call.fields.update(dict.fromkeys(call.fields, "spoilt"), more="spoilt")


@pytest.mark.parametrize("name", FULL)
def test_calls_share_no_fields(name: str) -> None:
    """What a layer does to the fields of one call, no other call has: neither of its kind nor of another."""
    both = codec(CONSTANT)
    before = {each: dict(both.call(FULL[each]).fields) for each in FULL}
    spoil(both.call(FULL[name]))
    spoil(both.custom(custom("POST", "/x", read=False), {}, bearer=False, signed=False))

    assert before == {each: both.call(FULL[each]).fields for each in FULL}
    assert {"signType": "RSA", "v": 1} == both.custom(
        custom("POST", "/x", read=False), {}, bearer=False, signed=False
    ).fields
    assert {"*": {"signType": "RSA", "v": 1}, "orders.query": {"v": 2}} == CONSTANT.constants


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


@pytest.mark.parametrize("name", FULL)
def test_each_call_has_a_progress_of_its_own(name: str) -> None:
    """That one call has begun says nothing of another."""
    both = codec()
    first, second = both.call(FULL[name]), both.call(FULL[name])
    first.progress.begun = True

    assert not second.progress.begun
    assert not both.call(FULL[name]).progress.begun


def test_each_call_has_its_own_times() -> None:
    """Times, deadline and intent are those of the one call that they were given for."""
    both = codec()
    one = both.call(FULL["orders.close"], timeouts=Timeouts(total=1), deadline=5.0, intent="i")
    other = both.call(FULL["orders.close"])

    assert (Timeouts(total=1), 5.0, "i", "T1") == (one.timeouts, one.deadline, one.intent, one.reference)
    assert (Timeouts(), float("inf"), None, "T1") == (other.timeouts, other.deadline, other.intent, other.reference)


@pytest.mark.parametrize("first", [True, False], ids=["used before", "fresh"])
def test_merchant_of_a_copy_is_its_own(*, first: bool) -> None:
    """What was worked out for one merchant is not sent for another, whoever calls first."""
    one = codec()
    if first:
        one.call(FULL["orders.query"])
    two = one.for_merchant(Credentials("M2"))
    three = two.for_merchant(Credentials("M3"))
    said = [each.call(FULL["orders.query"]).fields["merchantId"] for each in (three, two, one, three)]

    assert ["M3", "M2", "M1", "M3"] == said
    with pytest.raises(InvalidArgumentError, match="extra must not hold merchantId"):
        two.call(QueryOrder(out_trade_no="T1", extra={"merchantId": "M1"}))


def test_kind_of_ones_own() -> None:
    """A request class derived from ours has a form of its own, beside that of its base."""

    class Query(QueryOrder):
        """As ours."""

    both = codec()

    assert both.call(FULL["orders.query"]).fields == both.call(Query(out_trade_no="T1")).fields
    assert "T2" == both.call(Query(out_trade_no="T2")).fields["outTradeNo"]


def test_custom_takes_wire_names_as_they_are() -> None:
    """An endpoint that the document does not show gets the caller's fields, and the constants of all."""
    profile = evolve(PROFILE, constants={"*": {"v": 1, "w": 1}})
    call = codec(profile).custom(
        custom("POST", "/payment/bill", read=True), {"bill_date": "x", "w": 2}, bearer=True, signed=True
    )

    assert {"v": 1, "bill_date": "x", "w": 2} == call.fields
    assert (True, True, True, None) == (call.bearer, call.signed, call.read, call.reference)


def test_custom_copies_its_fields() -> None:
    """What the caller changes later changes nothing that is sent; any mapping will do."""
    inner = {"a": [1]}
    call = codec().custom(
        custom("POST", "/x", read=False), MappingProxyType({"in": MappingProxyType(inner)}), bearer=False, signed=False
    )
    inner["a"].append(2)

    assert b'{"in":{"a":[1]}}' == encode(call).body


@pytest.mark.parametrize("fields", [{"a": float("nan")}, {"a": object()}, [("a", 1)], "text", None])
def test_custom_fields_must_be_json(fields: Any) -> None:
    """What cannot be sent is refused here, with our own error."""
    with pytest.raises(InvalidArgumentError, match="fields must be a mapping") as caught:
        codec().custom(custom("POST", "/x", read=False), fields, bearer=False, signed=False)

    assert "fields" == caught.value.field


@pytest.mark.parametrize("name", ["nonceStr", "sign"])
def test_custom_signature_is_the_sessions_or_the_callers(name: str) -> None:
    """A field is never replaced silently: who lets the session sign cannot give a signature of his own."""
    operation = custom("POST", "/x", read=False)
    with pytest.raises(InvalidArgumentError, match=f"fields must not hold {name}, which is set by payasync itself"):
        codec().custom(operation, {name: "x"}, bearer=False, signed=True)

    assert {name: "x"} == codec().custom(operation, {name: "x"}, bearer=False, signed=False).fields
