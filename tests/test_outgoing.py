from typing import Any

import orjson
import pytest
from attrs import evolve

from payasync.errors import InvalidArgumentError
from payasync.operations import CREATE_PAYMENT, OPERATIONS, Operation, custom
from payasync.outgoing import encode, place
from payasync.profile import Profile
from payasync.resources.payments import CreatePayment, QueryPayment
from payasync.shapes import Parameter
from tests.building import FULL, WIRE, bare_call, call_for, codec


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


def test_place_needs_no_method() -> None:
    """Where a call's fields stand without a body can be asked of any call, as for what must be signed."""
    sent = place(bare_call(CREATE_PAYMENT, fields={"a": 1}))

    assert ({"a": "1"}, b"") == (sent.query, sent.body)
