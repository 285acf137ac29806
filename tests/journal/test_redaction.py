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
from payasync.strict_json import loads
from payasync.wire.call import Call
from payasync.wire.response import OrderResponse
from tests.building import ENVELOPE, PROFILE, call_for, codec, reply

SIGNED: Final = evolve(PROFILE, answer=evolve(ENVELOPE, signature="result.proof"))

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
    """Return the document that is kept of an answer, where whole ones are."""
    return orjson.loads(redact_outcome(call, reply(document), whole=True).body)


def test_whole_answer_is_kept_as_it_came() -> None:
    """Who opts in gets, by a later call under the same key, what the service said: values, types and order."""
    document = {"z": 1, "a": [True, None, 1.5, {"b": ""}], "e": "é", "big": 2**64 - 1}

    assert orjson.dumps(document) == redact_outcome(call_for("refunds.create"), reply(document), whole=True).body


LOCATED: Final[dict[str, Any]] = {
    "code": 0,
    "message": "done",
    "trace": {"id": "7"},
    "result": {"payment_id": 9, "urls": ["https://pay.example/1"], "state": "PAID"},
}


def test_of_an_answer_what_the_profile_locates_is_kept() -> None:
    """A payer, a card, an address: whatever else a service puts into its answer does not reach the journal."""
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


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"status": "outer", "result": None}, {"status": "outer", "result": {}}),
        ({"status": "outer", "result": {"status": 1.5}}, {"status": "outer", "result": {}}),
        ({"status": "outer", "other": 1}, {"status": "outer"}),
        (["status"], {}),
    ],
)
def test_envelope_stays_where_it_was(document: Any, expected: Any) -> None:
    """An answer that is read again is read in the same way: the code outside is not taken for the state inside."""
    profile = evolve(PROFILE, answer=AnswerShape(data="result", code="status", ok=("outer",), refund_status="status"))

    assert expected == orjson.loads(redact_outcome(call_for("refunds.create", profile), reply(document)).body)


@pytest.mark.parametrize("whole", [False, True])
def test_long_number_is_kept_to_its_last_digit(*, whole: bool) -> None:
    """A service may count beyond 64 bits; the write was done, and must not fail because of that."""
    profile = evolve(PROFILE, answer=AnswerShape(payment_id="no"))
    came = evolve(reply(), body=b'{"no":1208925819614629174706176}')
    body = redact_outcome(call_for("payments.create", profile), came, whole=whole).body

    assert {"no": 2**80} == loads(body)


def test_facts_of_an_answer_are_kept() -> None:
    """Its status, whether it was verified, and whether it was a query's."""
    came = evolve(reply({}, status=201), verified=True, recovered=True, attempts=3)

    assert Outcome(status=201, body=b"{}", verified=True, recovered=True) == redact_outcome(
        call_for("refunds.create"), came
    )


@pytest.mark.parametrize(
    ("request_id", "expected"),
    [("header:X-Request-Id", {"X-Request-Id": "7"}), ("header:X-Other", {}), ("id", {}), ("", {})],
)
def test_only_the_requests_number_is_kept_of_headers(request_id: str, expected: dict[str, str]) -> None:
    """Cookies and the like stay out; the number that a merchant gives to the service's support does not."""
    profile = Profile(answer=AnswerShape(request_id=request_id))
    came = reply({}, headers={"x-request-id": "7", "Set-Cookie": "canary"})

    assert expected == redact_outcome(call_for("orders.close", profile), came).headers


def test_nonces_and_signatures_are_left_out() -> None:
    """Wherever they stand, whether the profile knows of them or the service repeats ours."""
    document = {
        "sign": "1",
        "echo": [{"nonceStr": "2", "sign": "3", "a": 1}],
        "result": {"proof": "4", "state": "DONE"},
    }

    assert {"echo": [{"a": 1}], "result": {"state": "DONE"}} == kept(call_for("refunds.create", SIGNED), document)


def test_customer_is_left_out_under_its_name() -> None:
    """An answer that repeats the customer, under our name or the service's, loses it."""
    document = {"customer": {"email": "canary"}, "payer": "canary", "price": 900}

    assert {"price": 900} == kept(subscribing(), document)


def test_customers_details_are_hidden_wherever_they_stand() -> None:
    """Services repeat details under other names, and in sentences."""
    document = {
        "to": "anna@example.com",
        "said": "Hello Ann, we wrote to anna@example.com",
        "who": ["Ann", "CA", 49151123456],
        "12 Canary Row": "12 Canary Row, Toronto",
    }

    assert {
        "to": "***",
        "said": "Hello Ann, we wrote to ***",
        "who": ["***", "***", "***"],
        "***": "***, Toronto",
    } == kept(subscribing(), document)


def test_amounts_and_empty_texts_are_no_details() -> None:
    """What stands there by chance stays: small numbers, and what is empty."""
    assert {"price": 42, "note": "", "ok": True} == kept(subscribing(), {"price": 42, "note": "", "ok": True})


@pytest.mark.parametrize("name", [*OWN, "code", "request_id"])
def test_what_the_profile_locates_stays(name: str) -> None:
    """A number or a state that looks like a detail of the customer's is the service's own all the same."""
    profile = evolve(PROFILE, answer=AnswerShape(**{"ok": (0,), name: "x.y"}))  # type: ignore[arg-type] # by name
    for own in ("active-1", 49151123456):
        found = kept(subscribing(profile, {"a": own, "b": "active"}), {"x": {"y": own}, "other": "active"})

        assert {"x": {"y": own}, "other": "***"} == found


def test_error_is_kept_in_one_line_without_details() -> None:
    """A refusal may quote what it refuses."""
    assert "bad address ***, or ***" == redact_text(subscribing(), "bad address\n  anna@example.com, or\t12 Canary Row")


def test_calls_without_a_customer_hide_nothing() -> None:
    """An order's answer has nothing of a customer's that we would know of."""
    assert {"a": "T1 Coffee"} == kept(call_for("orders.place"), {"a": "T1 Coffee"})
