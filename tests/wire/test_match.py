"""Whether a response answers its request: the plain functions, and what calls over HTTP make of it."""

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, Final

import orjson
import pytest
from attrs import evolve

from payasync import (
    AnswerShape,
    ConfigurationError,
    Credentials,
    NoAnswerError,
    OutcomeUnknownError,
    Parameter,
    PayasyncError,
    Profile,
    Recovery,
    ResultCodes,
    RetryPolicy,
    Session,
    SortedPairs,
    States,
    Timeouts,
    WaitTimeoutError,
)
from payasync.endpoints import (
    CANCEL_SUBSCRIPTION,
    CLOSE_ORDER,
    CREATE_PAYMENT,
    CREATE_REFUND,
    CREATE_SUBSCRIPTION,
    OPERATIONS,
    PLACE_ORDER,
    QUERY_ORDER,
    QUERY_PAYMENT,
    QUERY_REFUND,
    UPDATE_SUBSCRIPTION,
    Operation,
    custom_operation,
)
from payasync.wire.call import ComparedField, Objection, ValueKind
from payasync.wire.match import (
    PAYMENT,
    compared_fields,
    comparison_of,
    contradiction,
    is_sent_back,
    may_be_relabelled,
    mismatch,
    names_an_amount,
    names_number_and_amounts,
    why_empty,
)
from tests.building import WIRE
from tests.foreign import signatures
from tests.foreign.recorder import RESET, Answer, Recorder, Request, answer

SENT: Final = {
    "outTradeNo": "T1",
    "outRefundNo": "R1",
    "merchantId": "M1",
    "totalAmt": 450,
    "refundAmt": 200,
    "currency": "CAD",
    "refundDesc": "one cup",
}
"""A refund of an order, by wire names."""
BARE: Final = Profile()
MINE: Final = comparison_of(CREATE_REFUND, BARE)


class Number(StrEnum):
    """Numbers that a caller has made an enum of."""

    ORDER = "T1"


@pytest.mark.parametrize(
    ("told", "differs"),
    [
        ({"outTradeNo": "T2"}, "outTradeNo is T2 in the response, and T1 in the request"),
        ({"outTradeNo": "t1"}, "outTradeNo is t1 in the response, and T1 in the request"),
        ({"outTradeNo": "T1 "}, "outTradeNo is T1  in the response, and T1 in the request"),
        ({"outRefundNo": "R2"}, "outRefundNo is R2 in the response, and R1 in the request"),
        ({"outRefundNo": 7}, "outRefundNo is 7 in the response, and R1 in the request"),
        ({"merchantId": "M2"}, "merchantId is M2 in the response, and M1 in the request"),
        ({"merchantId": "m1"}, "merchantId is m1 in the response, and M1 in the request"),
    ],
)
def test_other_number_is_another(told: dict[str, Any], differs: str) -> None:
    """Numbers and the merchant are compared as text, upper and lower case apart: the next response may be right."""
    assert Objection(differs, about_another=True) == mismatch(SENT, MINE, told)


@pytest.mark.parametrize(
    ("told", "differs"),
    [
        ({"totalAmt": 451}, "totalAmt is 451 in the response, and 450 in the request"),
        ({"refundAmt": 100}, "refundAmt is 100 in the response, and 200 in the request"),
        ({"refundAmt": "100"}, "refundAmt is 100 in the response, and 200 in the request"),
        ({"refundAmt": -200}, "refundAmt is -200 in the response, and 200 in the request"),
        ({"refundAmt": "0"}, "refundAmt is 0 in the response, and 200 in the request"),
        ({"refundAmt": 0}, "refundAmt is 0 in the response, and 200 in the request"),
        ({"refundAmt": "9" * 5000}, f"refundAmt is {'9' * 99}… in the response, and 200 in the request"),
        ({"refundAmt": 10**120}, f"refundAmt is 1{'0' * 98}… in the response, and 200 in the request"),
        ({"currency": "USD"}, "currency is USD in the response, and CAD in the request"),
    ],
)
def test_other_amount_stays_so(told: dict[str, Any], differs: str) -> None:
    """An integer, or its digits as text: the number stands for another amount, and asking again changes nothing."""
    assert Objection(differs, about_another=False) == mismatch(SENT, MINE, told)


@pytest.mark.parametrize(
    "told",
    [
        {"outTradeNo": "T1", "outRefundNo": "R1", "merchantId": "M1", "totalAmt": 450, "refundAmt": 200},
        {"totalAmt": "450", "refundAmt": "0200"},
        {"refundAmt": "0" * 5000 + "200"},
        {"currency": "cad"},
    ],
)
def test_the_same_is_no_objection(told: dict[str, Any]) -> None:
    """Digits as text are their integer, and a currency's code is the same in any case."""
    assert mismatch(SENT, MINE, told) is None


@pytest.mark.parametrize(("mine", "theirs"), [("7", 7), (7, "7"), (7, 7), (Number.ORDER, "T1")])
def test_number_is_its_digits(mine: object, theirs: object) -> None:
    """A service may write a number of digits as a JSON integer, and a caller may have an enum of numbers."""
    assert mismatch({"outTradeNo": mine}, MINE, {"outTradeNo": theirs}) is None
    assert mismatch({"outTradeNo": mine}, MINE, {"outTradeNo": "T9"})


@pytest.mark.parametrize(
    "told",
    [
        {"refundAmt": "2.00", "totalAmt": 4.5},
        {"refundAmt": "2,00", "totalAmt": "+1"},
        {"refundAmt": "\u0661\u0660\u0660", "totalAmt": "\u00b2"},
        {"refundAmt": True, "totalAmt": [1]},
        {"currency": 124},
        {"currency": ["USD"]},
        {"outTradeNo": ["T2"], "outRefundNo": {"no": "R2"}, "merchantId": True},
        {"outTradeNo": 1.5},
    ],
)
def test_other_form_says_nothing(told: dict[str, Any]) -> None:
    """An amount with a fraction may be in another unit, and a list may be of anything: neither is compared."""
    assert mismatch(SENT, MINE, told) is None


@pytest.mark.parametrize("told", [{}, None, [], "R2", ["R2"], {"refundDesc": "two cups"}, {"outTradeNo": None}])
def test_what_one_side_lacks_is_not_compared(told: object) -> None:
    """A response may name nothing of a request, and a request may lack what a response names."""
    assert mismatch(SENT, MINE, told) is None
    assert mismatch({"refundDesc": "one cup"}, MINE, {"outTradeNo": "T2", "refundAmt": 1}) is None
    assert mismatch({"outTradeNo": None}, MINE, {"outTradeNo": "T2"}) is None


GIVEN: Final = Profile(answer=AnswerShape(out_refund_no="refund.no", refund_amt="", currency="money.unit"))
READ: Final = comparison_of(CREATE_REFUND, GIVEN)


@pytest.mark.parametrize(
    ("told", "differs"),
    [
        ({"refund": {"no": "R1"}}, "the response lacks money.unit, which must name currency"),
        ({"money": {"unit": "CAD"}}, "the response lacks refund.no, which must name outRefundNo"),
        ({"refund": {"no": ""}, "money": {"unit": "CAD"}}, "the response lacks refund.no, which must name outRefundNo"),
        ({"outRefundNo": "R1", "currency": "CAD"}, "the response lacks refund.no, which must name outRefundNo"),
        (None, "the response lacks refund.no, which must name outRefundNo"),
    ],
)
def test_given_path_must_be_there_in_a_success(told: object, differs: str) -> None:
    """A path that the profile gives names what a success is about: without it, it may be about anything."""
    assert Objection(differs) == mismatch(SENT, READ, told)


@pytest.mark.parametrize(
    "told",
    [
        {"refund": {"no": "R1"}, "money": {"unit": "CAD"}},
        {"refund": {"no": "R1"}, "money": {"unit": "CAD"}, "outRefundNo": "R2", "refundAmt": 1},
    ],
)
def test_given_path_takes_the_place_of_the_wire_name(told: dict[str, Any]) -> None:
    """What stands under the wire name is something else then; an empty path switches the comparison off."""
    assert mismatch(SENT, READ, told) is None


@pytest.mark.parametrize(
    ("told", "refused"),
    [
        ({"outTradeNo": "T2"}, True),
        ({"outRefundNo": "R2"}, True),
        ({"merchantId": "M2"}, True),
        ({"refundAmt": 100, "totalAmt": 1, "currency": "USD"}, False),
        ({}, False),
    ],
)
def test_refusal_is_held_to_numbers_and_merchant(told: dict[str, Any], *, refused: bool) -> None:
    """A refusal may name the amount that is left, and need not name a path that the profile gives."""
    assert refused is (mismatch(SENT, MINE, told, success=False) is not None)
    assert mismatch(SENT, READ, {}, success=False) is None


def found(operation: Operation, profile: Profile = BARE) -> dict[str, ComparedField]:
    """Return in what a response to an operation is compared, by wire names."""
    return {each.name: each for each in comparison_of(operation, profile).fields}


SIX: Final = {
    "outTradeNo": ValueKind.NUMBER,
    "outRefundNo": ValueKind.NUMBER,
    "merchantId": ValueKind.NUMBER,
    "totalAmt": ValueKind.AMOUNT,
    "refundAmt": ValueKind.AMOUNT,
    "currency": ValueKind.CURRENCY,
}


OF_PAYMENT: Final = {CREATE_PAYMENT, QUERY_PAYMENT}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_six_things_are_compared_under_their_wire_names(operation: Operation) -> None:
    """A profile that says nothing of them has them compared, and asks for none; a payment's total is its `amount`."""
    names = {**SIX, "amount": ValueKind.AMOUNT} if operation in OF_PAYMENT else SIX

    assert {name: ComparedField(name, name, kind) for name, kind in names.items()} == found(operation)


@pytest.mark.parametrize("operation", [CREATE_PAYMENT, QUERY_PAYMENT], ids=["1", "6"])
def test_total_of_a_payment_stands_where_the_profile_says(operation: Operation) -> None:
    """It is compared at the path and as `amount`, and demanded at neither; an empty text switches both off."""
    placed, off = (Profile(answer=AnswerShape(total_amt=path)) for path in ("money.total", ""))

    places = [each for each in comparison_of(operation, placed).fields if each.name == "amount"]
    assert [ComparedField("amount", path, ValueKind.AMOUNT) for path in ("money.total", "amount")] == places
    assert not found(operation, placed)["totalAmt"].required
    assert not {"amount", "totalAmt"} & found(operation, off).keys()


def test_endpoint_that_the_document_does_not_show() -> None:
    """Nobody knows what amounts mean there: only numbers and the merchant are compared."""
    assert {"outTradeNo", "outRefundNo", "merchantId"} == set(
        found(custom_operation("POST", "/payment/split", read=False))
    )


@pytest.mark.parametrize("operation", [UPDATE_SUBSCRIPTION, CANCEL_SUBSCRIPTION], ids=["9", "10"])
def test_subscription_is_compared_by_its_number(operation: Operation) -> None:
    """Where the profile says what it is called, and where responses have it; else under the same name."""
    called = Profile(fields={"subscription_id": "planNo"})
    placed, off = (evolve(called, answer=AnswerShape(subscription_id=path)) for path in ("plan.no", ""))

    assert ComparedField("planNo", "planNo", ValueKind.NUMBER) == found(operation, called)["planNo"]
    assert ComparedField("planNo", "plan.no", ValueKind.NUMBER, required=True) == found(operation, placed)["planNo"]
    assert SIX.keys() == found(operation, off).keys() == found(CREATE_SUBSCRIPTION, called).keys()


@pytest.mark.parametrize("operation", [QUERY_PAYMENT, QUERY_REFUND], ids=["6", "7"])
def test_identifier_is_compared_under_its_own_wire_name(operation: Operation) -> None:
    """The profile names it; one that is a path parameter has a name, too."""
    asked = Profile(payment_status=Parameter("id", "path"), refund_status=Parameter("id"))

    assert ComparedField("id", "id", ValueKind.NUMBER) in comparison_of(operation, asked).fields
    assert "id" not in found(QUERY_ORDER, asked)


def test_identifier_that_is_switched_off() -> None:
    """An empty path in the profile's `[answer]` counts for the identifier of the same wire name, too."""
    asked = Profile(
        refund_status=Parameter("outRefundNo"), answer=AnswerShape(out_refund_no="", out_trade_no="order.no")
    )

    assert {"outTradeNo", "merchantId", "totalAmt", "refundAmt", "currency"} == set(found(QUERY_REFUND, asked))


BY_EITHER: Final = Profile(payment_status=Parameter("outTradeNo"), answer=AnswerShape(payment_id="paymentId"))


@pytest.mark.parametrize(
    ("told", "same"),
    [
        ({"outTradeNo": "T1", "paymentId": "P1"}, True),
        ({"outTradeNo": "T9", "paymentId": 7}, False),
        ({"outTradeNo": "T9"}, False),
        ({"paymentId": "P9"}, True),
    ],
)
def test_payment_is_asked_about_by_either_number(told: dict[str, Any], *, same: bool) -> None:
    """Endpoint 6 takes the merchant's own number or the service's, and a response names both."""
    things = comparison_of(QUERY_PAYMENT, BY_EITHER)

    assert same is (mismatch({"outTradeNo": "T1"}, things, told) is None)
    assert mismatch({"outTradeNo": "P1"}, things, {"outTradeNo": "T1", "paymentId": "P1"}) is None


def test_payment_is_compared_in_the_services_number_where_that_is_known() -> None:
    """Who asks about a payment of endpoint 1 knows it; whoever asks by the merchant's own number does not."""
    things = comparison_of(QUERY_PAYMENT, BY_EITHER)

    assert ComparedField(PAYMENT, "paymentId", ValueKind.NUMBER) in things.fields
    assert mismatch({"outTradeNo": "P1", PAYMENT: "P1"}, things, {"paymentId": "P9"})
    assert mismatch({"outTradeNo": "P1", PAYMENT: 7}, things, {"paymentId": "7"}) is None


def test_payment_that_has_the_services_number_alone() -> None:
    """A payment of endpoint 1 has no order number: that the profile says where one stands asks for none."""
    things = comparison_of(QUERY_PAYMENT, evolve(BY_EITHER, answer=evolve(BY_EITHER.answer, out_trade_no="outTradeNo")))

    assert mismatch({"outTradeNo": "P1"}, things, {"paymentId": "P1"}) is None
    assert mismatch({"outTradeNo": "P1"}, things, {"paymentId": "P2"})


def test_what_a_write_has_named() -> None:
    """What a response to it, or to a query about it, is compared with; no description, and no address."""
    assert {name: value for name, value in SENT.items() if name != "refundDesc"} == compared_fields(SENT)
    assert {"amount": 1} == compared_fields({"amount": 1, "identifier": "T1"})


STATED: Final = Profile(
    answer=AnswerShape(
        data="data",
        payment_status="state",
        order_status="state",
        refund_status="state",
        subscription_status="state",
        refund_amt="money.back",
    ),
    states=States(
        payment={"pending": ("NEW",), "paid": ("PAID",), "failed": ("NO",)},
        order={"pending": ("NEW",), "paid": ("PAID",), "closed": ("SHUT",)},
        refund={"processing": ("NEW",), "succeeded": ("DONE",), "failed": ("NO",)},
        subscription={"active": ("ON",), "cancelled": ("OFF",)},
    ),
)


@pytest.mark.parametrize(
    ("operation", "state", "words"),
    [
        (CREATE_PAYMENT, "PAID", "it refuses the request, and says that the payment is paid"),
        (CREATE_PAYMENT, "NO", ""),
        (PLACE_ORDER, "NEW", "it refuses the request, and says that the order is pending"),
        (PLACE_ORDER, "SHUT", "it refuses the request, and says that the order is closed"),
        (PLACE_ORDER, "WHAT", ""),
        (CLOSE_ORDER, "SHUT", "it refuses the request, and says that the order is closed"),
        (CLOSE_ORDER, "PAID", ""),
        (CREATE_REFUND, "NEW", "it refuses the request, and says that the refund is processing"),
        (CREATE_REFUND, "DONE", "it refuses the request, and says that the refund is succeeded"),
        (CREATE_REFUND, "NO", ""),
        (CREATE_SUBSCRIPTION, "ON", "it refuses the request, and says that the subscription is active"),
        (CANCEL_SUBSCRIPTION, "OFF", "it refuses the request, and says that the subscription is cancelled"),
        (CANCEL_SUBSCRIPTION, "ON", ""),
        (UPDATE_SUBSCRIPTION, "ON", ""),
        (QUERY_ORDER, "PAID", ""),
    ],
)
def test_refusal_that_tells_of_a_success_contradicts_itself(operation: Operation, state: str, words: str) -> None:
    """Only the state of what the very write would have made, or ended, speaks against its refusal."""
    objection = contradiction(operation, STATED, {"state": state}, absent=False)

    assert words == (objection.words if objection else "")


def test_state_that_the_profile_does_not_place_contradicts_nothing() -> None:
    """Without a path to it nobody reads a state, whatever stands there."""
    for operation in (CREATE_REFUND, QUERY_REFUND):
        assert contradiction(operation, BARE, {"state": "DONE", "status": "DONE"}, absent=True) is None


@pytest.mark.parametrize(
    ("operation", "state", "words"),
    [
        (QUERY_ORDER, "PAID", "it says that there is no such order, and that it is paid"),
        (QUERY_PAYMENT, "NO", "it says that there is no such payment, and that it is failed"),
        (QUERY_REFUND, "DONE", "it says that there is no such refund, and that it is succeeded"),
        (QUERY_REFUND, "ERROR", ""),
        (CREATE_REFUND, "DONE", "it refuses the request, and says that the refund is succeeded"),
        (CREATE_REFUND, "NO", ""),
    ],
)
def test_absent_that_tells_a_state_contradicts_itself(operation: Operation, state: str, words: str) -> None:
    """What is not there has no state: a response "not found" that tells one is not believed."""
    objection = contradiction(operation, STATED, {"state": state}, absent=True)

    assert words == (objection.words if objection else "")


@pytest.mark.parametrize(
    ("profile", "told", "expected"),
    [
        (BARE, {"refundAmt": 200}, True),
        (BARE, {"totalAmt": "450"}, True),
        (BARE, {"totalAmt": None}, False),
        (BARE, None, False),
        (STATED, {"money": {"back": 200}}, True),
        (STATED, {"refundAmt": 200}, False),
        (BARE, {"amount": 1}, True),
        (Profile(answer=AnswerShape(total_amt="total")), {"amount": 1}, False),
        (Profile(answer=AnswerShape(refund_amt="", total_amt="")), {"refundAmt": 200}, True),
    ],
)
def test_what_is_not_there_has_no_amount(profile: Profile, told: object, *, expected: bool) -> None:
    """An amount is looked for where it is compared, and under its wire name also where that is switched off."""
    assert expected is names_an_amount(profile, told)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"code": 0}, False),
        ({"code": "", "data": {"url": None}}, True),
        ({"code": None, "data": {"url": "https://pay.example"}}, False),
        (SENT, True),
        (None, True),
    ],
)
def test_request_that_is_sent_back_says_nothing_of_its_own(document: object, *, expected: bool) -> None:
    """A verified success holds something that only a response says; 0 is a code, an empty text is nothing."""
    assert expected is is_sent_back(("code", "data.url"), document)
    assert not is_sent_back((), document)


@pytest.mark.parametrize(
    ("document", "words"), [({"data": {}}, "the service tells nothing of R1"), ({"data": [1]}, "")]
)
def test_empty_envelope_tells_nothing(document: object, words: str) -> None:
    """So some services answer about what they do not know."""
    assert words == why_empty("R1", STATED.answer, document)


def test_wire_names_are_those_of_the_document() -> None:
    """A typing mistake in one would compare nothing."""
    assert SIX.keys() <= {name for fields in WIRE.values() for name in fields}


@pytest.mark.parametrize(
    ("shape", "told", "same"),
    [
        (AnswerShape(), {"outRefundNo": "R0"}, False),
        (AnswerShape(), {"outRefundNo": "R1"}, True),
        (AnswerShape(), {"outRefundNo": "R0", "no": "R1"}, True),
        (AnswerShape(), {"no": "R0"}, False),
        (AnswerShape(), {"no": "R0", "outRefundNo": "R1"}, False),
        (AnswerShape(), {"no": None, "outRefundNo": None}, True),
        (AnswerShape(out_refund_no="outRefundNo"), {}, False),
        (AnswerShape(out_refund_no="outRefundNo"), {"outRefundNo": None}, False),
        (AnswerShape(out_refund_no="outRefundNo"), {"no": "R1"}, False),
        (AnswerShape(out_refund_no="outRefundNo"), {"no": "R1", "outRefundNo": "R0"}, False),
        (AnswerShape(out_refund_no="outRefundNo"), {"no": "R0", "outRefundNo": "R1"}, False),
        (AnswerShape(out_refund_no="outRefundNo"), {"no": "R1", "outRefundNo": "R1"}, True),
        (AnswerShape(out_refund_no=""), {"outRefundNo": "R0"}, True),
        (AnswerShape(out_refund_no=""), {"no": "R0"}, False),
    ],
)
def test_refund_is_compared_also_where_its_parameter_has_a_name_of_its_own(
    shape: AnswerShape, told: dict[str, Any], *, same: bool
) -> None:
    """The identifier of endpoint 7 is the refund's number, whatever the service calls it in the query."""
    things = comparison_of(QUERY_REFUND, Profile(refund_status=Parameter("no"), answer=shape))

    assert same is (mismatch({"no": "R1"}, things, told) is None)


@pytest.mark.parametrize(
    ("shape", "told", "same"),
    [
        (AnswerShape(), {"outTradeNo": "T2"}, True),
        (AnswerShape(payment_id="paymentId"), {"outTradeNo": "T2", "paymentId": "P2"}, False),
        (AnswerShape(payment_id="paymentId"), {"outTradeNo": "T2", "paymentId": "T1"}, True),
        (AnswerShape(), {"no": "T2"}, False),
        (AnswerShape(), {"no": None}, True),
        (AnswerShape(out_trade_no="outTradeNo"), {"outTradeNo": "T2"}, False),
        (AnswerShape(out_trade_no="outTradeNo"), {"outTradeNo": None, "no": "T1"}, False),
        (AnswerShape(out_trade_no="outTradeNo"), {"outTradeNo": "T2", "no": "T1"}, False),
        (AnswerShape(out_trade_no="outTradeNo"), {"outTradeNo": "T1", "no": "T2"}, False),
        (AnswerShape(out_trade_no="outTradeNo"), {"outTradeNo": "T1", "no": "T1"}, True),
        (AnswerShape(out_trade_no="outTradeNo", payment_id="id"), {"outTradeNo": None, "id": "T1"}, True),
        (AnswerShape(out_trade_no="", payment_id="id"), {"outTradeNo": "T2", "id": "P2"}, True),
    ],
)
def test_payment_is_compared_as_an_order_where_the_profile_tells_the_two_apart(
    shape: AnswerShape, told: dict[str, Any], *, same: bool
) -> None:
    """Under a name of its own, the identifier of endpoint 6 may be the service's: that must be located first."""
    things = comparison_of(QUERY_PAYMENT, Profile(payment_status=Parameter("no"), answer=shape))

    assert same is (mismatch({"no": "T1"}, things, told) is None)


def test_another_number_goes_before_another_amount() -> None:
    """Whatever the order of the names: a response about another refund may be followed by the right one."""
    found = mismatch(SENT, MINE, {"refundAmt": 1, "totalAmt": 9, "outRefundNo": "R0"})

    assert found is not None
    assert found.about_another


@pytest.mark.parametrize(
    ("operation", "told", "whole"),
    [
        (CREATE_REFUND, {"outRefundNo": "R1", "refundAmt": 200}, True),
        (CREATE_REFUND, {"outRefundNo": "R1"}, False),
        (CREATE_REFUND, {"refundAmt": 200, "outRefundNo": ""}, False),
        (PLACE_ORDER, {"outTradeNo": "T1", "totalAmt": "450"}, True),
        (PLACE_ORDER, {"outTradeNo": "T1"}, False),
        (CLOSE_ORDER, {"outTradeNo": "T1"}, True),
        (CREATE_PAYMENT, {}, True),
    ],
)
def test_what_tells_a_write_from_another_under_its_number(
    operation: Operation, told: dict[str, Any], *, whole: bool
) -> None:
    """It is the number, and the amount that moves."""
    assert whole is names_number_and_amounts(operation, SENT, comparison_of(operation, BARE), told)


REFUNDS: Final = Profile(
    answer=AnswerShape(refund_status="state"), states=States(refund={"succeeded": ("DONE",), "failed": ("NO",)})
)


@pytest.mark.parametrize(
    ("operation", "profile", "told", "expected"),
    [
        (CREATE_REFUND, REFUNDS, {"state": "ODD"}, True),
        (QUERY_REFUND, REFUNDS, {"state": "ODD"}, True),
        (CREATE_REFUND, REFUNDS, {"state": "NO"}, False),
        (CREATE_REFUND, REFUNDS, {"outRefundNo": "R1"}, False),
        (CREATE_REFUND, BARE, {"outRefundNo": "R1"}, True),
        (CREATE_REFUND, BARE, {"message": "no"}, False),
        (CREATE_PAYMENT, BARE, {"amount": 1}, True),
        (CREATE_REFUND, BARE, {"amount": 1}, False),
    ],
)
def test_what_may_be_a_success_with_another_code(
    operation: Operation, profile: Profile, told: dict[str, Any], *, expected: bool
) -> None:
    """An unknown state may; where states are not located, whatever says what it is about may."""
    assert expected is may_be_relabelled(operation, profile, told)


KEY: Final = "a key that signs requests"
SERVICE_KEY: Final = "a key of the service alone"
OWN_KEY: Final = Credentials("1001", secret_key="sk", signing_key=KEY, service_keys=SERVICE_KEY)
SAME_KEY: Final = Credentials("1001", secret_key="sk", signing_key=KEY)

UNSIGNED: Final = Profile(
    signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"),
    signed=("orders.place", "orders.query", "orders.close", "refunds.create", "refunds.status"),
    fields={"subscription_id": "subscriptionId"},
    payment_status=Parameter("outTradeNo"),
    refund_status=Parameter("outRefundNo"),
    answer=AnswerShape(
        data="data",
        code="code",
        ok=(0,),
        order_status="tradeStatus",
        payment_status="tradeStatus",
        refund_status="refundStatus",
        payment_id="paymentNo",
        redirect_url="payUrl",
    ),
    states=States(
        order={"pending": ("WAIT",), "paid": ("PAID",), "closed": ("CLOSED",)},
        payment={"pending": ("WAIT",), "paid": ("PAID",)},
        refund={"processing": ("BUSY",), "succeeded": ("DONE",), "failed": ("NO",)},
    ),
    codes=ResultCodes(not_executed=(9,), absent=(4,)),
    recovery=Recovery(quarantine=60.0),
)
SIGNED: Final = evolve(UNSIGNED, answer=evolve(UNSIGNED.answer, signature="data.sign", refusals_signed=False))

REFUND: Final[dict[str, Any]] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}
ORDER: Final[dict[str, Any]] = {"out_trade_no": "T1", "total_amt": 450, "currency": "CAD"}

Ask = Callable[[Session], Awaitable[Any]]

CALLS: Final[Mapping[str, Ask]] = {
    "payments.create": lambda pay: pay.payments.create(amount=1000, currency="USD"),
    "orders.place": lambda pay: pay.orders.place(**ORDER),
    "orders.query": lambda pay: pay.orders.query("T1"),
    "orders.close": lambda pay: pay.orders.close("T1"),
    "refunds.create": lambda pay: pay.refunds.create(**REFUND),
    "payments.status": lambda pay: pay.payments.status("T1"),
    "refunds.status": lambda pay: pay.refunds.status("R1"),
}
RIGHT: Final[Mapping[str, dict[str, Any]]] = {
    "payments.create": {"paymentNo": "P1", "amount": 1000, "currency": "USD", "tradeStatus": "WAIT"},
    "orders.place": {"outTradeNo": "T1", "tradeStatus": "WAIT", "payUrl": "https://pay.example/1"},
    "orders.query": {"outTradeNo": "T1", "tradeStatus": "PAID", "totalAmt": 450},
    "orders.close": {"outTradeNo": "T1", "tradeStatus": "CLOSED"},
    "refunds.create": {"outTradeNo": "T1", "outRefundNo": "R1", "refundAmt": 200, "refundStatus": "DONE"},
    "payments.status": {"outTradeNo": "T1", "tradeStatus": "PAID", "paymentNo": "P1"},
    "refunds.status": {"outRefundNo": "R1", "outTradeNo": "T1", "refundStatus": "DONE"},
}
ABOUT_ANOTHER: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    *(
        (name, {"outTradeNo": other})
        for name in ("orders.place", "orders.query", "orders.close", "refunds.create", "payments.status")
        for other in ("T2", "t1", 7)
    ),
    *((name, {"outRefundNo": "R0"}) for name in ("refunds.create", "refunds.status")),
    *((name, {"merchantId": "1002"}) for name in ("orders.place", "orders.query", "orders.close", "refunds.create")),
    *((name, {"totalAmt": amount}) for name in ("orders.place", "refunds.create") for amount in (990, "990")),
    ("refunds.create", {"refundAmt": 1}),
    ("refunds.create", {"refundAmt": "0201"}),
    ("payments.create", {"amount": 1}),
    ("payments.create", {"amount": "0100"}),
    ("payments.create", {"currency": "CAD"}),
    ("orders.place", {"currency": "USD"}),
)
STILL_RIGHT: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("payments.create", {"amount": "01000", "currency": "usd"}),
    ("payments.create", {"amount": "10.00", "totalAmt": 7}),
    ("payments.create", {"amount": "", "currency": ""}),
    ("orders.place", {"totalAmt": "450", "currency": "cad", "merchantId": 1001}),
    ("orders.place", {"totalAmt": 450, "outTradeNo": "T1", "currency": "Cad"}),
    ("orders.place", {"totalAmt": "4.50"}),
    ("orders.query", {"totalAmt": 450, "currency": "CAD", "merchantId": "1001"}),
    ("orders.query", {"outRefundNo": "R7", "refundAmt": 9}),
    ("orders.close", {"totalAmt": 450}),
    ("refunds.create", {"refundAmt": "200", "totalAmt": "0450"}),
    ("refunds.create", {"currency": "CAD"}),
    ("refunds.status", {"outTradeNo": "T1", "refundAmt": 200, "totalAmt": 450}),
    ("payments.status", {"outTradeNo": "", "totalAmt": 450}),
)


def response(data: Mapping[str, Any], code: int = 0, *, key: str = SERVICE_KEY, status: int = 200) -> Answer:
    """Return what the service says, signed by another program; an unsigned profile ignores the signature."""
    signed = {**data, "sign": signatures.hmac_sha256(signatures.signed_text(data), key)}
    return answer(status, orjson.dumps({"code": code, "data": signed}))


def pay_with(service: Recorder, profile: Profile, credentials: Credentials = OWN_KEY) -> Session:
    """Return a session that asks as often as any other, without the pauses."""
    return Session(service.url, credentials=credentials, profile=profile, retry=RetryPolicy(base_delay=0))


async def ended(ask: Ask, service: Recorder, profile: Profile, credentials: Credentials = OWN_KEY) -> object:
    """Return the response or the error that a call ends with."""
    with service:
        async with pay_with(service, profile, credentials) as pay:
            try:
                return await ask(pay)
            except PayasyncError as error:
                return error


def writes(name: str) -> bool:
    """Return whether a call may move money."""
    return name in {"payments.create", "orders.place", "orders.close", "refunds.create"}


@pytest.mark.parametrize("profile", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
@pytest.mark.parametrize(("name", "other"), ABOUT_ANOTHER)
async def test_genuine_response_about_another_thing(name: str, other: dict[str, Any], profile: Profile) -> None:
    """A replayed response about another order, refund, amount or merchant is never believed, and never a refusal."""
    service = Recorder(otherwise=response({**RIGHT[name], **other}))
    found = await ended(CALLS[name], service, profile)

    assert (OutcomeUnknownError if writes(name) else NoAnswerError) is type(found)
    assert isinstance(found, PayasyncError)
    assert f"{next(iter(other))} is " in str(found.reason)


@pytest.mark.parametrize("profile", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
@pytest.mark.parametrize(("name", "more"), [*((name, {}) for name in RIGHT), *STILL_RIGHT])
async def test_right_response(name: str, more: dict[str, Any], profile: Profile) -> None:
    """What either side lacks is not compared; text or number, case of a currency and order of fields do not count."""
    data = {**RIGHT[name], **more}
    service = Recorder(otherwise=response(dict(reversed(data.items()))))
    found: Any = await ended(CALLS[name], service, profile)

    assert data.items() <= found.data.items()
    assert 1 == found.attempts


@pytest.mark.parametrize("profile", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
async def test_right_response_after_a_replayed_one(profile: Profile) -> None:
    """A read is asked again, and a write asked about: the response about this refund counts."""
    other, right = response({"outRefundNo": "R0", "refundStatus": "DONE"}), response(RIGHT["refunds.status"])
    refund: Any = await ended(CALLS["refunds.create"], Recorder([other, other, right]), profile)
    status: Any = await ended(CALLS["refunds.status"], Recorder([other, right]), profile)

    assert ("succeeded", True, 3) == (refund.state, refund.recovered, refund.attempts)
    assert ("succeeded", False, 2) == (status.state, status.recovered, status.attempts)


async def test_waiting_does_not_end_with_another_order() -> None:
    """A poll that hears of another order has failed, and is repeated until the time is over."""
    paid = response({"outTradeNo": "T2", "tradeStatus": "PAID"})
    found = await ended(
        lambda pay: pay.orders.wait("UNPAID", until="paid", timeout=0.5), Recorder(otherwise=paid), SIGNED
    )

    assert WaitTimeoutError is type(found)


@pytest.mark.parametrize("profile", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
async def test_reconcile_is_not_answered_by_another_refund(profile: Profile) -> None:
    """After a lost response, `reconcile` takes only what matches the write in numbers and amounts."""
    other = {"outRefundNo": "R1", "outTradeNo": "T1", "refundAmt": 1, "refundStatus": "DONE"}
    with Recorder([RESET] * 4, otherwise=response(other)) as service:
        async with pay_with(service, profile) as pay:
            with pytest.raises(OutcomeUnknownError) as lost:
                await pay.refunds.create(**REFUND)
            with pytest.raises(OutcomeUnknownError) as still:
                await pay.reconcile(lost.value)

    assert "refundAmt is 1 in the response, and 200 in the request" in str(still.value.reason)


@pytest.mark.parametrize("profile", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("refunds.create", {"outRefundNo": "R999", "message": "too much"}),
        ("refunds.create", {**RIGHT["refunds.create"]}),
        ("refunds.create", {"outRefundNo": "R1", "refundStatus": "BUSY"}),
        ("orders.place", {"outTradeNo": "T2"}),
        ("orders.place", {"outTradeNo": "T1", "tradeStatus": "CLOSED"}),
        ("orders.close", {"outTradeNo": "T1", "tradeStatus": "CLOSED"}),
        ("orders.close", {"outTradeNo": "T2"}),
    ],
)
async def test_refusal_that_is_about_another_or_contradicts_itself(
    name: str, data: dict[str, Any], profile: Profile
) -> None:
    """A code that refuses, beside another number or a success of this very write, is no definite refusal."""
    found = await ended(CALLS[name], Recorder(otherwise=response(data, code=9)), profile)

    assert OutcomeUnknownError is type(found)


@pytest.mark.parametrize("profile", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("refunds.create", {"outRefundNo": "R1", "refundAmt": 7, "totalAmt": 1}),
        ("refunds.create", {"outRefundNo": "R1", "refundStatus": "NO"}),
        ("orders.close", {"outTradeNo": "T1", "tradeStatus": "PAID"}),
        ("orders.query", {"outTradeNo": "T1", "totalAmt": 1}),
        ("refunds.create", {}),
    ],
)
async def test_definite_refusal(name: str, data: dict[str, Any], profile: Profile) -> None:
    """A refusal may name an amount, such as the one that is left, and a state that is no success of the write."""
    found: Any = await ended(CALLS[name], Recorder(otherwise=response(data, code=9)), profile)

    assert "ServiceError" == type(found).__name__
    assert (9, 1) == (found.code, found.attempts)


UNMAPPED: Final = evolve(SIGNED, answer=evolve(SIGNED.answer, refund_status=""), states=States())


@pytest.mark.parametrize(
    ("profile", "data", "refusal"),
    [
        (UNMAPPED, {"outRefundNo": "R1", "refundAmt": 200}, {"code": 9}),
        (UNMAPPED, {"outRefundNo": "R1", "refundAmt": 200}, {"status": 404}),
        (SIGNED, {"outRefundNo": "R1", "refundStatus": "ODD"}, {"code": 9}),
        (SIGNED, {"outRefundNo": "R1", "refundStatus": "ODD"}, {"status": 400}),
    ],
)
async def test_refusal_beside_what_may_be_a_signed_success(
    profile: Profile, data: dict[str, Any], refusal: dict[str, Any]
) -> None:
    """A code or status that no signature covers refuses nothing beside a signed payload that may be a success."""
    found = await ended(CALLS["refunds.create"], Recorder(otherwise=response(data, **refusal)), profile)

    assert OutcomeUnknownError is type(found)


@pytest.mark.parametrize("refusals_signed", [True, False, None])
async def test_absent_beside_a_signed_state(*, refusals_signed: bool | None) -> None:
    """A state that the profile does not know is still one of something that is there: nothing is sent again."""
    answers = evolve(SIGNED.answer, refusals_signed=refusals_signed)
    profile = evolve(SIGNED, answer=answers, recovery=Recovery(quarantine=0.0))
    odd = response({"outRefundNo": "R1", "outTradeNo": "T1", "refundStatus": "ODD"}, code=4)
    service = Recorder(by_path={"/payment/refund": RESET, "/payment/refund/status": odd})
    found = await ended(CALLS["refunds.create"], service, profile)

    assert OutcomeUnknownError is type(found)
    assert 1 == [request.path for request in service.requests].count("/payment/refund")


def sent_back(request: Request) -> Answer:
    """Return a request as a response: its own fields with their own signature, by who knows no key."""
    return answer(200, orjson.dumps({"code": 0, "data": signatures.fields(request)}))


@pytest.mark.parametrize("name", ["orders.place", "orders.query", "orders.close", "refunds.create", "refunds.status"])
async def test_request_that_is_sent_back(name: str) -> None:
    """Where the same key signs both, the body of this or of an earlier request is no response."""
    recorded = Recorder([RESET])
    await ended(CALLS[name], recorded, SIGNED, SAME_KEY)
    echo = sent_back(recorded.requests[0])
    found = await ended(CALLS[name], Recorder(otherwise=echo), SIGNED, SAME_KEY)

    assert (OutcomeUnknownError if writes(name) else NoAnswerError) is type(found)
    assert isinstance(found, PayasyncError)
    assert "sent back" in str(found.reason)


@pytest.mark.parametrize("code", [9, 4])
async def test_request_that_is_sent_back_as_a_refusal(code: int) -> None:
    """Beside a code that refuses, a request that is sent back is no signed refusal, and no signed "absent"."""
    profile = evolve(SIGNED, answer=evolve(SIGNED.answer, refusals_signed=True), recovery=Recovery(quarantine=0.0))
    recorded = Recorder([RESET])
    await ended(CALLS["refunds.create"], recorded, profile, SAME_KEY)
    echoes = {request.path: signatures.fields(request) for request in recorded.requests}
    by_path = {path: answer(200, orjson.dumps({"code": code, "data": echo})) for path, echo in echoes.items()}
    service = Recorder(by_path=by_path)
    found = await ended(CALLS["refunds.create"], service, profile, SAME_KEY)

    assert OutcomeUnknownError is type(found)
    assert 1 == [request.path for request in service.requests].count("/payment/refund")


@pytest.mark.parametrize("name", RIGHT)
async def test_service_that_sends_the_nonce_back(name: str) -> None:
    """A service with the same key may echo the nonce: its state shows that it is a response."""
    data = {**RIGHT[name], "nonceStr": "1" * 32}
    found: Any = await ended(CALLS[name], Recorder(otherwise=response(data, key=KEY)), SIGNED, SAME_KEY)

    assert data.items() <= found.data.items()


def test_profile_by_which_a_request_passes_for_a_response() -> None:
    """A session with the same key for both is refused if nothing inside the signature is the service's alone."""
    bare = evolve(SIGNED, answer=AnswerShape(data="data", code="code", ok=(0,), signature="data.sign"))
    with pytest.raises(ConfigurationError, match="sent back") as refused:
        Session("https://pay.example", credentials=SAME_KEY, profile=bare)

    assert "answer.signature" == refused.value.field
    assert Session("https://pay.example", credentials=OWN_KEY, profile=bare).profile is bare


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (SIGNED, True),
        (evolve(SIGNED, answer=evolve(SIGNED.answer, refusals_signed=None)), False),
        (evolve(SIGNED, answer=evolve(SIGNED.answer, refusals_signed=True)), False),
        (UNSIGNED, True),
    ],
    ids=["false", "not given", "true", "no signature"],
)
async def test_unsigned_absent_is_final_only_where_refusals_are_not_signed(profile: Profile, *, expected: bool) -> None:
    """Whether "absent" without a signature counts is the profile's to say; not given, it never does."""
    final = evolve(profile, recovery=Recovery(quarantine=0.0))
    absent, done = answer(200, b'{"code":4}'), response(RIGHT["refunds.create"])
    with Recorder([RESET, absent, done], otherwise=absent) as service:
        session = pay_with(service, final)
        async with session.with_options(timeouts=Timeouts(total=3.0)) as pay:
            try:
                found: object = (await pay.refunds.create(**REFUND)).attempts
            except OutcomeUnknownError:
                found = None

    assert (3 if expected else None) == found
