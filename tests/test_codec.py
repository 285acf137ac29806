from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Any, Final

import orjson
import pytest
from attrs import evolve

from payasync.codec import camel, encode
from payasync.errors import InvalidArgumentError, NotConfiguredError
from payasync.operations import CREATE_PAYMENT, OPERATIONS, Operation, custom
from payasync.profile import Profile
from payasync.resources.orders import PlaceOrder, QueryOrder
from payasync.resources.payments import CreatePayment, QueryPayment
from payasync.resources.refunds import QueryRefund
from payasync.resources.subscriptions import UpdateSubscription
from payasync.shapes import Accept, Parameter
from tests.building import FULL, PROFILE, bare_call, call_for, codec

WIRE: Final[Mapping[str, Mapping[str, Any]]] = {
    "payments.create": {"amount": 1000, "currency": "USD", "description": "Invoice 42"},
    "orders.place": {
        "merchantId": "M1",
        "totalAmt": 450,
        "currency": "CAD",
        "subject": "Coffee",
        "body": "Large coffee",
        "notifyUrl": "https://shop.example/notify/payment",
        "sceneType": "JSAPI",
        "backTo": "https://shop.example/thanks",
        "outTradeNo": "T1",
    },
    "orders.query": {"merchantId": "M1", "outTradeNo": "T1"},
    "orders.close": {"merchantId": "M1", "outTradeNo": "T1"},
    "refunds.create": {
        "merchantId": "M1",
        "outTradeNo": "T1",
        "outRefundNo": "R1",
        "totalAmt": 450,
        "refundAmt": 200,
        "refundDesc": "cold",
        "notifyUrl": "https://shop.example/notify/refund",
    },
    "payments.status": {"tradeNo": "T1"},
    "refunds.status": {"refundNo": "R1"},
    "subscriptions.create": {
        "every": "monthly",
        "price": 900,
        "from": "31.01.2027",
        "payer": {"email": "a@example.com"},
    },
    "subscriptions.update": {
        "planNo": "S1",
        "every": "weekly",
        "price": 1000,
        "from": "01.02.2027",
        "payer": {"email": "b@example.com"},
    },
    "subscriptions.cancel": {"planNo": "S1"},
}
"""What the document shows (spec: Resources), with the profile's words for what it does not."""


@pytest.mark.parametrize("name", FULL)
def test_wire_names_are_the_documents(name: str) -> None:
    """Every field of every operation is sent under its exact name, and nothing else is."""
    assert WIRE[name] == call_for(name).fields


def test_absent_is_not_null() -> None:
    """An argument that was not given is not on the wire."""
    call = codec().call(PlaceOrder(total_amt=450, currency="CAD"))

    assert {"merchantId": "M1", "totalAmt": 450, "currency": "CAD"} == call.fields


@pytest.mark.parametrize(
    ("name", "expected"), [("total_amt", "totalAmt"), ("out_trade_no", "outTradeNo"), ("amount", "amount")]
)
def test_camel(name: str, expected: str) -> None:
    """An argument is the snake_case of its wire name."""
    assert expected == camel(name)


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
    every = call_for(name, evolve(PROFILE, bearer=FULL, signed=FULL, merchant=FULL))

    assert (False, False, False) == (none.bearer, none.signed, "merchantId" in none.fields)
    assert (True, True, "M1") == (every.bearer, every.signed, every.fields["merchantId"])


def test_extra_goes_through() -> None:
    """A field that the document does not show is sent as it is, nested ones too."""
    call = codec().call(QueryOrder(out_trade_no="T1", extra={"deviceNo": "7", "more": {"a": [None, True]}}))

    assert {"merchantId": "M1", "outTradeNo": "T1", "deviceNo": "7", "more": {"a": [None, True]}} == call.fields


@pytest.mark.parametrize("name", ["totalAmt", "outTradeNo", "backTo", "merchantId", "nonceStr", "sign"])
def test_extra_replaces_nothing(name: str) -> None:
    """`extra` may not say anew what an argument or payasync itself says."""
    request = evolve(FULL["orders.place"], extra={name: "x"})
    with pytest.raises(InvalidArgumentError, match=f"extra must be free of {name}") as caught:
        codec().call(request)

    assert ("extra", [name], "orders.place", "T1") == (
        caught.value.field,
        caught.value.value,
        caught.value.operation,
        caught.value.reference,
    )


@pytest.mark.parametrize("name", ["payments.status", "refunds.status"])
def test_extra_does_not_replace_the_identifier(name: str) -> None:
    """The identifier of endpoints 6 and 7 is an argument under the profile's name for it."""
    parameter = {"payments.status": "tradeNo", "refunds.status": "refundNo"}[name]
    with pytest.raises(InvalidArgumentError, match=f"free of {parameter}"):
        codec().call(evolve(FULL[name], extra={parameter: "x"}))


def test_constants() -> None:
    """Constants are sent with every operation, or with one; the one's own word wins."""
    profile = evolve(PROFILE, constants={"*": {"signType": "RSA", "v": 1}, "orders.query": {"v": 2}})

    assert {"signType": "RSA", "v": 2, **WIRE["orders.query"]} == call_for("orders.query", profile).fields
    assert {"signType": "RSA", "v": 1, **WIRE["payments.create"]} == call_for("payments.create", profile).fields
    assert {"signType": "RSA", "v": 1, "tradeNo": "T1"} == call_for("payments.status", profile).fields


def test_the_callers_field_wins_over_a_constant() -> None:
    """A constant is what is sent where the caller says nothing."""
    constants = {"*": {"currency": "USD", "v": 1}, "orders.place": {"sceneType": "H5", "w": 1}}
    request = evolve(FULL["orders.place"], extra={"v": 3, "w": 4})
    fields = codec(evolve(PROFILE, constants=constants)).call(request).fields

    assert {**WIRE["orders.place"], "v": 3, "w": 4} == fields


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


def test_payment_needs_no_profile() -> None:
    """Endpoint 1 is wholly shown: a bare profile is enough."""
    assert WIRE["payments.create"] == call_for("payments.create", Profile()).fields


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
    with pytest.raises(InvalidArgumentError, match=f"fields must be free of {name}"):
        codec().custom(operation, {name: "x"}, bearer=False, signed=True)

    assert {name: "x"} == codec().custom(operation, {name: "x"}, bearer=False, signed=False).fields


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each.has_body], ids=lambda each: each.name)
def test_fields_travel_in_the_body(operation: Operation) -> None:
    """Endpoints with a body carry all fields in it, as JSON (spec: Endpoints, rule 7)."""
    sent = encode(call_for(operation.name))

    assert (operation.path, {}, {}) == (sent.path, sent.query, sent.headers)
    assert WIRE[operation.name] == orjson.loads(sent.body)


@pytest.mark.parametrize("name", ["payments.status", "refunds.status"])
@pytest.mark.parametrize(
    ("parameter", "path", "query", "headers"),
    [
        (Parameter("no", "query"), "", {"no": "T-1", "v": "1"}, {}),
        (Parameter("no", "path"), "/T-1", {"v": "1"}, {}),
        (Parameter("X-No", "header"), "", {"v": "1"}, {"X-No": "T-1"}),
    ],
)
def test_identifier_stands_where_the_profile_says(
    name: str, parameter: Parameter, path: str, query: dict[str, str], headers: dict[str, str]
) -> None:
    """Endpoints 6 and 7 take their identifier in the query, the path or a header; the rest stays in the query."""
    profile = Profile(payment_status=parameter, refund_status=parameter, constants={"*": {"v": 1}})
    call = codec(profile).call(evolve(FULL[name], identifier="T-1"))  # type: ignore[call-arg] # both have one
    sent = encode(call)

    assert (f"{call.operation.path}{path}", query, headers, b"") == (sent.path, sent.query, sent.headers, sent.body)
    assert {parameter.name: "T-1", "v": 1} == call.fields


@pytest.mark.parametrize("place", ["query", "path", "header"])
def test_signed_get_carries_its_signature_in_the_query(place: Any) -> None:
    """The identifier is among what is signed, wherever it stands; nonce, signature and constants are in the query."""
    profile = Profile(
        signed=("payments.status",),
        merchant=("payments.status",),
        payment_status=Parameter("no", place),
        constants={"*": {"v": 1}},
    )
    call = call_for("payments.status", profile).with_fields(nonceStr="n", sign="s")
    expected = {"merchantId": "M1", "v": "1", "nonceStr": "n", "sign": "s"}

    assert "T1" == call.fields["no"]
    assert expected | ({"no": "T1"} if place == "query" else {}) == encode(call).query


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [("a/b", "a%2Fb"), ("a?b#c", "a%3Fb%23c"), ("a b", "a%20b"), ("é", "%C3%A9"), ("..a", "..a")],
)
def test_identifier_in_the_path_is_quoted(identifier: str, expected: str) -> None:
    """An identifier stays one step of the path, whatever the profile's pattern lets through."""
    profile = Profile(payment_status=Parameter("no", "path"), identifier=".*")
    call = codec(profile).call(QueryPayment(identifier=identifier))

    assert f"/payment/status/{expected}" == encode(call).path


@pytest.mark.parametrize(
    ("place", "identifier", "why"),
    [
        ("path", ".", "no step between folders"),
        ("path", "..", "no step between folders"),
        ("header", "a\r\nX-B: c", "visible ASCII"),
        ("header", "é", "visible ASCII"),
    ],
)
def test_identifier_cannot_leave_its_place(place: Any, identifier: str, why: str) -> None:
    """A pattern that lets too much through cannot turn an identifier into another path or header."""
    profile = Profile(payment_status=Parameter("no", place), identifier="(?s:.*)")
    with pytest.raises(InvalidArgumentError, match=why) as caught:
        encode(codec(profile).call(QueryPayment(identifier=identifier)))

    assert ("identifier", identifier) == (caught.value.field, caught.value.value)


@pytest.mark.parametrize("value", [None, True, 1.5, [1], {"a": 1}])
def test_query_holds_texts_and_integers(value: object) -> None:
    """Nothing else has one form in a query: it is refused, not converted."""
    call = bare_call(custom("GET", "/payment/bill", read=True), fields={"a": value})
    with pytest.raises(InvalidArgumentError, match="a must be a text or an integer") as caught:
        encode(call)

    assert "a" == caught.value.field


def test_custom_get_has_a_query() -> None:
    """An endpoint without a body carries its fields in the query."""
    sent = encode(bare_call(custom("DELETE", "/payment/bill", read=False), fields={"a": "x", "b": 2}))

    assert ("/payment/bill", {"a": "x", "b": "2"}, {}, b"") == (sent.path, sent.query, sent.headers, sent.body)


def test_body_is_an_object_even_without_fields() -> None:
    """A POST without fields sends an empty object, which is JSON."""
    assert b"{}" == encode(bare_call(CREATE_PAYMENT)).body


def test_amounts_are_sent_exactly() -> None:
    """The greatest amount arrives digit by digit."""
    call = codec().call(CreatePayment(amount=2**53 - 1, currency="USD"))

    assert b'{"amount":9007199254740991,"currency":"USD"}' == encode(call).body
