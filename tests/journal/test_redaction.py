from datetime import date
from typing import Any, Final

import orjson
import pytest
from attrs import evolve

from payasync.journal.intents import Outcome
from payasync.journal.redaction import OWN, redact_outcome, redact_text
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape
from payasync.resources.subscriptions import CreateSubscription
from payasync.wire.call import Call
from payasync.wire.response import OrderResponse
from tests.building import PROFILE, call_for, codec, reply

CUSTOMER: Final = {
    "email": "anna@example.com",
    "name": "Ann",
    "address": {"lines": ["12 Canary Row", ""], "country": "CA"},
    "phone": 49151123456,
    "age": 42,
}


def subscribing(profile: Profile = PROFILE, customer: Any = CUSTOMER) -> Call:
    """Return the call that starts a subscription."""
    request = CreateSubscription(frequency="monthly", amount=900, start_date=date(2027, 1, 31), customer=customer)
    return codec(profile).call(request)


def kept(call: Call, document: Any) -> Any:
    """Return the document that the journal stores of a response, if it stores whole responses."""
    return orjson.loads(redact_outcome(call, reply(document), whole=True).body)


def test_whole_response_is_stored_as_it_came() -> None:
    """With `whole=True`, the journal stores a response's document with its values, types and order."""
    document = {"z": 1, "a": [True, None, 1.5, {"b": ""}], "e": "é", "big": 2**64 - 1}

    assert orjson.dumps(document) == redact_outcome(call_for("refunds.create"), reply(document), whole=True).body


LOCATED: Final[dict[str, Any]] = {
    "code": 0,
    "message": "done",
    "trace": {"id": "7"},
    "result": {"payment_id": 9, "urls": ["https://pay.example/1"], "state": "PAID"},
}


def test_of_a_response_what_the_profile_locates_is_stored() -> None:
    """By default, the journal stores only the fields of a response that the profile locates."""
    shape = AnswerShape(
        data="result",
        code="code",
        ok=(0,),
        message="message",
        request_id="trace.id",
        payment_id="payment_id",
        payment_status="state",
        redirect_url="urls.0",
        order_status="state",
    )
    result = {**LOCATED["result"], "payer": {"email": "canary"}, "card": "canary", "refund_status": ["canary"]}
    document = {**LOCATED, "trace": {"id": "7", "user": "canary"}, "result": result, "customer": "canary"}
    call = call_for("orders.place", evolve(PROFILE, answer=shape))
    body = redact_outcome(call, reply(document)).body
    came, again = OrderResponse.of(call, reply(document)), OrderResponse.of(call, reply(orjson.loads(body)))

    assert {**LOCATED, "result": {**LOCATED["result"], "urls": {"0": "https://pay.example/1"}}} == orjson.loads(body)
    assert all(getattr(came, name) == getattr(again, name) for name in ("request_id", "state"))
    assert ("https://pay.example/1", "PAID") == (again.redirect_url, again.order_status)


def test_parts_of_the_address_are_stored() -> None:
    """The journal stores codes at each of their places, and the parts of the customer's address."""
    shape = AnswerShape(
        data="result",
        code=("code", "errors.0.code"),
        ok=(0,),
        message=("errors.0.text", "text"),
        redirect_template="https://pay.example/{gateway.nos.1}?amount={totalAmt}&for={outTradeNo}",
    )
    call = call_for("orders.place", evolve(PROFILE, answer=shape))
    document = {
        "code": 0,
        "errors": [{"code": "", "user": "canary"}],
        "text": "done",
        "result": {"gateway": {"nos": ["canary", "G1"]}, "totalAmt": 450, "payer": "canary"},
    }
    body = redact_outcome(call, reply(document)).body
    came, again = OrderResponse.of(call, reply(document)), OrderResponse.of(call, reply(orjson.loads(body)))
    number = call.fields["outTradeNo"]

    assert b"canary" not in body
    assert {"code": 0, "errors": {"0": {"code": ""}}, "text": "done"}.items() <= orjson.loads(body).items()
    assert came.redirect_url == again.redirect_url == f"https://pay.example/G1?amount=450&for={number}"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"status": "outer", "result": None}, {"status": "outer", "result": {}}),
        ({"status": "outer", "result": {"status": 1.5}}, {"status": "outer", "result": {}}),
        ({"status": "outer", "other": 1}, {"status": "outer"}),
        ({"status": "outer", "id": "envelope"}, {"status": "outer"}),
        (["status"], {}),
    ],
)
def test_envelope_stays_where_it_was(document: Any, expected: Any) -> None:
    """A stored response has its fields at their original paths, so that it is read in the same way again."""
    shape = AnswerShape(data="result", code="status", ok=("outer",), refund_status="status", payment_id="id")
    profile = evolve(PROFILE, answer=shape)

    assert expected == orjson.loads(redact_outcome(call_for("refunds.create", profile), reply(document)).body)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("digits", [b"1208925819614629174706176", b"7" * 5000], ids=len)
def test_long_number_is_stored_to_its_last_digit(digits: bytes, *, whole: bool) -> None:
    """The journal stores an integer of any length in a response without loss."""
    profile = evolve(PROFILE, answer=AnswerShape(payment_id="no"))
    came = evolve(reply(), body=b'{"no":%b}' % digits)
    body = redact_outcome(call_for("payments.create", profile), came, whole=whole).body

    assert came.body == body


def test_facts_of_a_response_are_stored() -> None:
    """The journal stores a response's status, whether it was verified, and whether a query recovered it."""
    came = evolve(reply({}, status=201), verified=True, recovered=True, attempts=3)

    assert Outcome(status=201, body=b"{}", verified=True, recovered=True) == redact_outcome(
        call_for("refunds.create"), came
    )


@pytest.mark.parametrize(
    ("request_id", "expected"),
    [("header:X-Request-Id", {"X-Request-Id": "7"}), ("header:X-Other", {}), ("id", {}), ("", {})],
)
def test_only_the_requests_number_is_stored_of_headers(request_id: str, expected: dict[str, str]) -> None:
    """Of a response's headers, the journal stores only the one that the profile names as request id."""
    profile = Profile(answer=AnswerShape(request_id=request_id))
    came = reply({}, headers={"x-request-id": "7", "Set-Cookie": "canary"})

    assert expected == redact_outcome(call_for("orders.close", profile), came).headers


def test_customers_details_are_hidden_wherever_they_stand() -> None:
    """The journal masks the customer's details in any value, name or sentence of a response.

    Small numbers and empty texts are no details, and a call without a customer has none.
    """
    document = {
        "to": "anna@example.com",
        "said": "Hello Ann, we wrote to anna@example.com",
        "who": ["Ann", "CA", 49151123456],
        "12 Canary Row": "12 Canary Row, Toronto",
        "rest": [42, "", True],
    }
    hidden = {"to": "***", "said": "Hello Ann, we wrote to ***", "who": ["***"] * 3, "***": "***, Toronto"}

    assert {**hidden, "rest": [42, "", True]} == kept(subscribing(), document)
    assert document == kept(call_for("orders.place"), document)


@pytest.mark.parametrize("name", [*OWN, "code", "request_id"])
def test_what_the_profile_locates_stays(name: str) -> None:
    """The journal does not mask a field that the profile locates, even if its value looks like a customer's detail."""
    profile = evolve(PROFILE, answer=AnswerShape(**{"ok": (0,), name: "x.y"}))  # type: ignore[arg-type] # by name
    for own in ("active-1", 49151123456):
        found = kept(subscribing(profile, {"a": own, "b": "active"}), {"x": {"y": own}, "other": "active"})

        assert {"x": {"y": own}, "other": "***"} == found


def test_error_is_stored_in_one_line_without_details() -> None:
    """The journal stores an error's text in one line, with the customer's details masked."""
    assert "bad address ***, or ***" == redact_text(subscribing(), "bad address\n  anna@example.com, or\t12 Canary Row")
