"""When a response is about the request: each rule of the comparison, and what a session believes."""

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from itertools import product
from typing import Any, Final

import orjson
from attrs import evolve

from payasync import Credentials, Profile
from payasync.credentials import Secret
from payasync.endpoints import (
    CANCEL_SUBSCRIPTION,
    CREATE_PAYMENT,
    CREATE_REFUND,
    CREATE_SUBSCRIPTION,
    OPERATIONS,
    QUERY_ORDER,
    QUERY_PAYMENT,
    QUERY_REFUND,
    UPDATE_SUBSCRIPTION,
    Operation,
    custom_operation,
)
from payasync.errors import InvalidSignatureError, NoAnswerError, OutcomeUnknownError, PayasyncError, ServiceError
from payasync.evidence.comparison import (
    PAYMENT,
    Objection,
    comparison_of,
    mismatch,
    names_only_the_number,
    names_the_same,
)
from payasync.middleware.verify import verify_reply
from payasync.profile import AnswerShape, Endpoint, Parameter, Recovery, ResultCodes, States
from payasync.resources.orders import QueryOrder
from payasync.resources.payments import QueryPayment
from payasync.resources.refunds import QueryRefund
from payasync.signing import SortedPairs
from payasync.wire.call import Reply
from payasync.wire.encode import Codec
from tests import sessions
from tests.foreign import signatures
from tests.foreign.recorder import RESET, Answer, Recorder, answer
from tests.wire.ten import DOCUMENTED, TEN

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
    """A caller's own enum of order numbers."""

    ORDER = "T1"


def differing(name: str, theirs: object, mine: object) -> str:
    """Return the text with which an error says that two values differ."""
    return f"{name} is {theirs} in the response, and {mine} in the request"


def test_other_number_is_another() -> None:
    """If an order, a refund or the merchant differs as text, the response is about another; a retry may be right."""
    for name, theirs, shown in [
        *(("outTradeNo", each, str(each)) for each in ("T2", "t1", "T1 ", {"no": "T1"}, 1.5)),
        *(("outRefundNo", each, str(each)) for each in (7, ["R1"])),
        *(("merchantId", each, str(each)) for each in (True, 2.5, "m1")),
        ("outRefundNo", "R0\nFAKE\x1b[31m", "R0 FAKE?[31m"),
    ]:
        found = [mismatch(SENT, MINE, {**others, name: theirs}) for others in ({}, {"refundAmt": 1, "totalAmt": 9})]

        assert [(differing(name, shown, SENT[name]), True)] * 2 == [
            (each.words.partition("; ")[0], each.about_another) for each in found if each
        ]


def test_other_amount_stays_so() -> None:
    """If an amount or the currency differs, the response is refused, and a retry would not help."""
    for name, theirs, shown in [
        *(("totalAmt", each, str(each)) for each in (451, 4.5)),
        *(("refundAmt", each, str(each)) for each in ("100", -200, "0", 0, "2.00")),
        ("refundAmt", "9" * 5000, f"{'9' * 99}…"),
        ("refundAmt", 10**120, f"1{'0' * 98}…"),
        ("currency", "USD", "USD"),
    ]:
        found = mismatch(SENT, MINE, {name: theirs})

        assert found is not None
        assert (differing(name, shown, SENT[name]), False) == (found.words.partition("; ")[0], found.about_another)


def test_what_is_no_amount() -> None:
    """What is no amount differs if it is signed, or at a path that the profile gives, and else says nothing."""
    scheme = SortedPairs(algorithm="hmac-sha256", encoding="hex")
    odd: tuple[object, ...] = ("-200", "+200", "2,00", "\u0661\u0660\u0660", " 200", "0x1", True, [200], {"value": 200})
    for shape, same in (
        (AnswerShape(), True),
        (AnswerShape(refund_amt="refundAmt"), False),
        (AnswerShape(signature="sign"), False),
    ):
        comparison = comparison_of(CREATE_REFUND, Profile(signature=scheme, answer=shape))

        assert [same] * len(odd) == [mismatch(SENT, comparison, {"refundAmt": theirs}) is None for theirs in odd]


def test_value_of_another_type_is_another() -> None:
    """A number is a text or an integer, although Python says that 1 equals `True` and 1.0, and `True` is no amount."""
    for theirs in [True, 1.0]:
        given = comparison_of(CREATE_REFUND, Profile(answer=AnswerShape(refund_amt="refundAmt")))

        assert mismatch({"outTradeNo": 1}, MINE, {"outTradeNo": theirs}) is not None
        assert mismatch({"outTradeNo": str(theirs)}, MINE, {"outTradeNo": theirs}) is not None
        assert (theirs is True) is (mismatch({"refundAmt": 1}, given, {"refundAmt": theirs}) is not None)


def test_amounts_in_the_major_unit() -> None:
    """If responses have amounts in the major unit, they are compared exactly, with the digits of the currency."""
    for currency, mine, same, others in [
        ("CAD", 450, ("4.50", "4.5", 4.5, "4.500"), ("450", 450, "4.501", "45.0", 5)),
        ("cad", 900, (9, "9", "9.00", 9.0), ("900", 900)),
        ("JPY", 450, ("450", 450, 450.0, "450.00"), ("4.50", 45000)),
        ("jpy", 450, ("450",), ("4.50",)),
        ("KWD", 4500, ("4.500", 4.5), ("45.00", 45)),
        (None, 450, ("4.50", "450", "0.450"), ("45.0", "4500")),
    ]:
        comparison = comparison_of(CREATE_REFUND, Profile(answer=AnswerShape(amounts="major")))
        fields = {"refundAmt": mine} if currency is None else {"refundAmt": mine, "currency": currency}

        assert [None] * len(same) == [mismatch(fields, comparison, {"refundAmt": each}) for each in same]
        assert all(mismatch(fields, comparison, {"refundAmt": each}) for each in others)


def test_currency_of_the_response_if_the_write_has_none() -> None:
    """If a write has no currency, the digits of an amount in the major unit are those of the response's currency."""
    comparison = comparison_of(CREATE_REFUND, Profile(answer=AnswerShape(amounts="major")))
    found = [mismatch({"refundAmt": 450}, comparison, {"refundAmt": each, "currency": "JPY"}) for each in (450, "4.50")]

    assert [True, False] == [each is None for each in found]


def test_another_number_comes_before_another_amount() -> None:
    """If the number and the amount differ, the response is about another payment: a retry may be right."""
    comparison = comparison_of(QUERY_PAYMENT, Profile(answer=AnswerShape(payment_id="id")))
    found = mismatch({"amount": 450, PAYMENT: "P1"}, comparison, {"amount": 9, "id": "P2"})

    assert found is not None
    assert found.about_another


def test_objection_names_the_other_unit() -> None:
    """If an amount would fit in the other unit, the objection says which key of the profile has it."""
    major = comparison_of(CREATE_REFUND, Profile(answer=AnswerShape(amounts="major")))
    fields = {"refundAmt": 450, "currency": "CAD"}
    found = [mismatch(fields, MINE, {"refundAmt": "4.50"}), mismatch(fields, major, {"refundAmt": 450})]

    assert ["major", "as sent"] == [each.words.rpartition('= "')[2].partition('"')[0] for each in found if each]


def test_no_objection() -> None:
    """A value that is equal in another form, cannot be compared, or is missing is no mismatch."""
    for told in [
        # The same in another form: digits are their integer, and a currency's code is the same in any case.
        {"outTradeNo": "T1", "outRefundNo": "R1", "merchantId": "M1", "totalAmt": 450, "refundAmt": 200},
        {"totalAmt": "450", "refundAmt": "0" * 5000 + "200", "currency": "cad"},
        {"totalAmt": 450.0, "refundAmt": "200.00"},
        {"currency": 124},
        {"currency": ["USD"]},
        # A response may name nothing of a request.
        {},
        None,
        [],
        "R2",
        {"refundDesc": "two cups", "outTradeNo": None},
    ]:
        assert mismatch(SENT, MINE, told) is None


def test_what_the_request_lacks_is_not_compared() -> None:
    """A field that the request lacks, or an amount that is no number there, is not compared."""
    cases: list[dict[str, object]] = [
        {"refundAmt": "***", "currency": 1},
        {"refundDesc": "one cup"},
        {"outTradeNo": None, "refundAmt": None},
        {"outTradeNo": ["T1"]},
    ]
    for mine in cases:
        assert mismatch(mine, MINE, {"outTradeNo": "T2", "refundAmt": 100, "currency": "USD"}) is None


def test_number_is_its_digits() -> None:
    """A number is compared by its digits: text, JSON integer and `StrEnum` are equal."""
    for mine, theirs in [("7", 7), (7, "7"), (7, 7), (Number.ORDER, "T1")]:
        assert mismatch({"outTradeNo": mine}, MINE, {"outTradeNo": theirs}) is None
        assert mismatch({"outTradeNo": mine}, MINE, {"outTradeNo": "T9"})


READ: Final = comparison_of(
    CREATE_REFUND, Profile(answer=AnswerShape(out_refund_no="refund.no", refund_amt="", currency="money.unit"))
)
LACKS_NUMBER: Final = "the response lacks refund.no, which must name outRefundNo"


def test_given_path_must_be_there_in_a_success() -> None:
    """If the profile gives a path for a compared field, a success must hold it there; the wire name is ignored.

    An empty path switches the comparison off. A field that the request lacks may be missing.
    """
    for told, lacks in [
        ({"refund": {"no": "R1"}}, "the response lacks money.unit, which must name currency"),
        ({"money": {"unit": "CAD"}}, LACKS_NUMBER),
        ({"refund": {"no": ""}, "money": {"unit": "CAD"}}, LACKS_NUMBER),
        ({"outRefundNo": "R1", "currency": "CAD"}, LACKS_NUMBER),
        (None, LACKS_NUMBER),
        ({"refund": {"no": "R1"}, "money": {"unit": "CAD"}}, ""),
        ({"refund": {"no": "R1"}, "money": {"unit": "CAD"}, "outRefundNo": "R2", "refundAmt": 1}, ""),
    ]:
        assert (Objection(lacks) if lacks else None) == mismatch(SENT, READ, told)
        assert mismatch({"outRefundNo": "R1"}, READ, {"refund": {"no": "R1"}}) is None


def test_given_path_that_is_the_wire_name() -> None:
    """If the given path is the wire name itself, the error does not say the name twice."""
    where = comparison_of(CREATE_REFUND, Profile(answer=AnswerShape(out_refund_no="outRefundNo")))

    assert Objection("the response lacks outRefundNo, which a success must have") == mismatch(SENT, where, {})


def test_refusal_is_held_to_numbers_and_merchant() -> None:
    """In a refusal, only numbers and the merchant are compared, and none needs to be there."""
    for told, refused in [
        ({"outTradeNo": "T2"}, True),
        ({"outRefundNo": "R2"}, True),
        ({"merchantId": "M2"}, True),
        ({"refundAmt": 100, "totalAmt": 1, "currency": "USD"}, False),
        ({}, False),
    ]:
        assert refused is (mismatch(SENT, MINE, told, success=False) is not None)
        assert mismatch(SENT, READ, {}, success=False) is None


VALUES: Final[dict[str, tuple[object, object]]] = {
    **dict.fromkeys(("outTradeNo", "outRefundNo", "merchantId", "planNo", "id"), ("N1", "N2")),
    **dict.fromkeys(("totalAmt", "refundAmt", "amount"), (2, 1)),
    "currency": ("CAD", "USD"),
}
COMPARED: Final = {
    "out_trade_no": "outTradeNo",
    "out_refund_no": "outRefundNo",
    "merchant_id": "merchantId",
    "total_amt": "totalAmt",
    "refund_amt": "refundAmt",
    "currency": "currency",
}
"""By key of the profile, the wire name."""
SIX: Final = {*COMPARED.values()}


def compared(operation: Operation, profile: Profile = BARE) -> set[str]:
    """Return the wire names of the fields in which a response to an operation is compared."""
    where = comparison_of(operation, profile)
    return {name for name, (mine, other) in VALUES.items() if mismatch({name: mine}, where, {name: other})}


def test_six_things_are_compared_under_their_wire_names() -> None:
    """By default six fields are compared if they are there; for endpoints 1 and 6 also `amount`."""
    for operation in OPERATIONS:
        amount = {"amount"} if operation in {CREATE_PAYMENT, QUERY_PAYMENT} else set()

        assert SIX | amount == compared(operation)
        assert mismatch({name: mine for name, (mine, _) in VALUES.items()}, comparison_of(operation, BARE), {}) is None


def test_each_of_the_six_is_compared_where_its_path_leads() -> None:
    """A path in the profile replaces the wire name; an empty path switches the comparison off."""
    for key, wire in COMPARED.items():
        shapes: list[dict[str, Any]] = [{key: "its.name"}, {key: ""}]
        located, off = (comparison_of(CREATE_REFUND, Profile(answer=AnswerShape(**shape))) for shape in shapes)
        mine, other = VALUES[wire]

        assert mismatch({wire: mine}, located, {"its": {"name": other}})
        assert mismatch({wire: mine}, located, {"its": {"name": mine}, wire: other}) is None
        assert mismatch({wire: mine}, off, {wire: other}) is None


def test_amount_of_a_refund_under_the_name_of_an_order_s() -> None:
    """If a service calls both amounts alike, a response about a refund has the refund's amount there."""
    fields = {"total_amt": "amount", "refunds.create": {"total_amt": "paid", "refund_amt": "amount"}}
    told: list[dict[str, Any]] = [{}, {"total_amt": "amount"}, {"total_amt": "amount", "refund_amt": "amount"}]
    for operation, shape in product((CREATE_REFUND, QUERY_REFUND), told):
        profile = Profile(fields=fields, answer=AnswerShape(**shape))
        where, sent = comparison_of(operation, profile), {"totalAmt": 450, "refundAmt": 200}

        assert mismatch(sent, where, {"amount": 200}) is None
        assert mismatch(sent, where, {"amount": 450})
        assert mismatch({"totalAmt": 450}, comparison_of(QUERY_ORDER, profile), {"amount": 200})


def test_total_that_a_refund_does_not_send() -> None:
    """If a refund does not send the order's total, no response about a refund must show it."""
    for operation in [CREATE_REFUND, QUERY_REFUND]:
        profile = Profile(fields={"refunds.create": {"total_amt": ""}}, answer=AnswerShape(total_amt="sum"))

        assert mismatch({"totalAmt": 450}, comparison_of(operation, profile), {}) is None
        assert mismatch({"totalAmt": 450}, comparison_of(QUERY_ORDER, profile), {})


def test_refusal_with_a_number_of_its_own() -> None:
    """A refusal's number at `answer.request_id` is not compared, though a success has the subscription's there."""
    shape = AnswerShape(data="in", subscription_id="id", request_id="in.id", code="code", ok=[0])
    profile, sent = Profile(fields={"subscription_id": "no"}, answer=shape), {"no": "S1"}
    where = comparison_of(CANCEL_SUBSCRIPTION, profile)

    assert mismatch(sent, where, {"id": "E1"}, success=False) is None
    assert mismatch(sent, where, {"id": "S2"})


def test_amount_of_a_subscription_is_no_other_amount() -> None:
    """A subscription's amount is not compared as a total or a refund, though the service calls all of them alike."""
    for key in ["total_amt", "refund_amt"]:
        fields = {key: "amount", "subscription_amount": "amount", "refunds.create": {"total_amt": "total"}}
        told: dict[str, Any] = {key: "told"}
        profile = Profile(fields=fields, answer=AnswerShape(**told))

        assert COMPARED[key] not in {each.name for each in comparison_of(CREATE_SUBSCRIPTION, profile).fields}
        assert COMPARED[key] in {each.name for each in comparison_of(CREATE_REFUND, profile).fields}


def test_total_of_a_payment_stands_where_the_profile_says() -> None:
    """A payment's total is compared at its path and as `amount`, if it is there; an empty path switches both off."""
    for operation in [CREATE_PAYMENT, QUERY_PAYMENT]:
        placed, off = (Profile(answer=AnswerShape(total_amt=path)) for path in ("money.total", ""))
        where = comparison_of(operation, placed)

        assert mismatch({"amount": 2}, where, {"money": {"total": 1}})
        assert mismatch({"amount": 2}, where, {"amount": 1})
        assert mismatch({"amount": 2, "totalAmt": 2}, where, {}) is None
        assert not {"amount", "totalAmt"} & compared(operation, off)


def test_endpoint_that_the_document_does_not_show() -> None:
    """For a custom endpoint, only numbers and the merchant are compared, because amounts may mean anything."""
    operation = custom_operation("POST", "/payment/split", read=False)

    assert {"outTradeNo", "outRefundNo", "merchantId"} == compared(operation)


def test_subscription_is_compared_by_its_number() -> None:
    """A subscription's number is compared under its wire name in the profile, or at the path in `answer`."""
    for operation in [UPDATE_SUBSCRIPTION, CANCEL_SUBSCRIPTION]:
        called = Profile(fields={"subscription_id": "planNo"})
        placed, off = (evolve(called, answer=AnswerShape(subscription_id=path)) for path in ("plan.no", ""))
        where = comparison_of(operation, placed)

        assert SIX | {"planNo"} == compared(operation, called)
        assert mismatch({"planNo": "S1"}, where, {"plan": {"no": "S2"}})
        assert mismatch({"planNo": "S1"}, where, {"planNo": "S1"}) == Objection(
            "the response lacks plan.no, which must name planNo"
        )
        assert SIX == compared(operation, off) == compared(CREATE_SUBSCRIPTION, called)


def test_change_of_a_subscription_that_is_only_acknowledged() -> None:
    """A change's success need not name the subscription if it has no state: the path is for the new number."""
    for data, believed in [(None, True), ({}, True), ({"state": "OFF"}, False), ({"no": "S2"}, False)]:
        for operation in [UPDATE_SUBSCRIPTION, CANCEL_SUBSCRIPTION]:
            shape = AnswerShape(subscription_id="no", subscription_status="state")
            where = comparison_of(operation, Profile(fields={"subscription_id": "planNo"}, answer=shape))

            assert believed == (mismatch({"planNo": "S1"}, where, data) is None)


def test_identifier_is_compared_under_its_own_wire_name() -> None:
    """The identifier of endpoint 6 or 7 is compared under the profile's name for it, unless its path is empty."""
    for operation in [QUERY_PAYMENT, QUERY_REFUND]:
        asked = Profile(payment_status=Parameter("id", "path"), refund_status=Parameter("id"))

        assert "id" in compared(operation, asked)
        assert SIX == compared(QUERY_ORDER, asked)
    off = Profile(refund_status=Parameter("outRefundNo"), answer=AnswerShape(out_refund_no=""))

    assert SIX - {"outRefundNo"} == compared(QUERY_REFUND, off)


EITHER: Final = AnswerShape(payment_id="paymentId")


def test_payment_is_asked_about_by_either_number() -> None:
    """If a response names the queried number as order number or payment number, it is about that payment."""
    cases: list[tuple[dict[str, Any], AnswerShape, dict[str, Any], bool]] = [
        # Endpoint 6 takes the merchant's own number or the service's, and a response names both.
        ({"outTradeNo": "T1"}, EITHER, {"outTradeNo": "T1", "paymentId": "P1"}, True),
        ({"outTradeNo": "P1"}, EITHER, {"outTradeNo": "T1", "paymentId": "P1"}, True),
        ({"outTradeNo": "T1"}, EITHER, {"outTradeNo": "T9", "paymentId": 7}, False),
        ({"outTradeNo": "T1"}, EITHER, {"outTradeNo": "T9"}, False),
        ({"outTradeNo": "T1"}, EITHER, {"paymentId": "P9"}, True),
        # Who asks about a payment of endpoint 1 knows the service's number.
        ({"outTradeNo": "P1", PAYMENT: "P1"}, EITHER, {"paymentId": "P9"}, False),
        ({"outTradeNo": "P1", PAYMENT: 7}, EITHER, {"paymentId": "7"}, True),
        # It has no order number: that the profile says where one stands asks for none.
        ({"outTradeNo": "P1"}, evolve(EITHER, out_trade_no="outTradeNo"), {"paymentId": "P1"}, True),
        ({"outTradeNo": "P1"}, evolve(EITHER, out_trade_no="outTradeNo"), {"paymentId": "P2"}, False),
    ]
    for mine, shape, told, same in cases:
        things = comparison_of(QUERY_PAYMENT, Profile(payment_status=Parameter("outTradeNo"), answer=shape))

        assert same is (mismatch(mine, things, told) is None)


def test_refund_is_compared_also_where_its_parameter_has_a_name_of_its_own() -> None:
    """The identifier of endpoint 7 is compared as `outRefundNo`, too, whatever its parameter is called."""
    for path, told, same in [
        (None, {"outRefundNo": "R0"}, False),
        (None, {"outRefundNo": "R1"}, True),
        (None, {"outRefundNo": "R0", "no": "R1"}, True),
        (None, {"no": "R0"}, False),
        (None, {"no": "R0", "outRefundNo": "R1"}, False),
        (None, {"no": None, "outRefundNo": None}, True),
        ("outRefundNo", {"outRefundNo": None}, False),
        ("outRefundNo", {"no": "R1"}, False),
        ("outRefundNo", {"no": "R1", "outRefundNo": "R0"}, False),
        ("outRefundNo", {"no": "R0", "outRefundNo": "R1"}, False),
        ("outRefundNo", {"no": "R1", "outRefundNo": "R1"}, True),
        ("", {"outRefundNo": "R0"}, True),
        ("", {"no": "R0"}, False),
    ]:
        profile = Profile(
            refund_status=Parameter("no"),
            endpoints={"refunds.status": Endpoint(number="merchant")},
            answer=AnswerShape(out_refund_no=path),
        )

        assert same is (mismatch({"no": "R1"}, comparison_of(QUERY_REFUND, profile), told) is None)


def test_payment_is_compared_as_an_order_where_the_profile_tells_the_two_apart() -> None:
    """The identifier of endpoint 6 is compared as `outTradeNo` only if the profile locates one of the two numbers."""
    for path, payment_id, told, same in [
        (None, "", {"outTradeNo": "T2"}, True),
        (None, "id", {"outTradeNo": "T2", "id": "P2"}, False),
        (None, "id", {"outTradeNo": "T2", "id": "T1"}, True),
        (None, "", {"no": "T2"}, False),
        (None, "", {"no": None}, True),
        ("outTradeNo", "", {"outTradeNo": "T2"}, False),
        ("outTradeNo", "", {"outTradeNo": None, "no": "T1"}, False),
        ("outTradeNo", "", {"outTradeNo": "T2", "no": "T1"}, False),
        ("outTradeNo", "", {"outTradeNo": "T1", "no": "T2"}, False),
        ("outTradeNo", "", {"outTradeNo": "T1", "no": "T1"}, True),
        ("outTradeNo", "id", {"outTradeNo": None, "id": "T1"}, True),
        ("", "id", {"outTradeNo": "T2", "id": "P2"}, True),
    ]:
        shape = AnswerShape(out_trade_no=path, payment_id=payment_id)
        things = comparison_of(QUERY_PAYMENT, Profile(payment_status=Parameter("no"), answer=shape))

        assert same is (mismatch({"no": "T1"}, things, told) is None)


TEMPLATE: Final = "https://pay.example/{gateNo}?for={outTradeNo}&note={subject}"
"""The service gives one part of the customer's address; requests say the others."""
KEY: Final = "a key that signs requests"
PARTS: Final = {"redirect_url": "", "redirect_template": TEMPLATE}
SERVICE_KEY: Final = "a key of the service alone"
OWN_KEY: Final = Credentials("1001", secret_key="sk", signing_key=KEY, service_keys=SERVICE_KEY)
SAME_KEY: Final = Credentials("1001", secret_key="sk", signing_key=KEY)

UNSIGNED: Final = evolve(
    DOCUMENTED,
    signed=("orders.place", "orders.query", "orders.close", "refunds.create", "refunds.status"),
    answer=AnswerShape(
        data="data",
        code="code",
        ok=(0,),
        order_status="tradeStatus",
        payment_status="tradeStatus",
        refund_status="refundStatus",
        subscription_status="planStatus",
        payment_id="paymentNo",
        subscription_id="subscriptionId",
        redirect_url="payUrl",
    ),
    states=States(
        order={"pending": ("WAIT",), "paid": ("PAID",), "closed": ("CLOSED",)},
        payment={"pending": ("WAIT",), "paid": ("PAID",), "failed": ("NO",)},
        refund={"processing": ("BUSY",), "succeeded": ("DONE",), "failed": ("NO",)},
        subscription={"active": ("ON",), "cancelled": ("OFF",)},
    ),
    codes=ResultCodes(not_executed=(9,), absent=(4,)),
    recovery=Recovery(quarantine=60.0),
)
SIGNED: Final = evolve(UNSIGNED, answer=evolve(UNSIGNED.answer, signature="data.sign", refusals_signed=False))


CALLS: Final[dict[str, Any]] = {each.name: each.least for each in TEN}
CALLS["orders.place"] = lambda pay: pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
READS: Final = {each.name for each in OPERATIONS if each.read}
RIGHT: Final[Mapping[str, dict[str, Any]]] = {
    "payments.create": {"paymentNo": "P1", "amount": 1000, "currency": "USD", "tradeStatus": "WAIT"},
    "orders.place": {"outTradeNo": "T1", "tradeStatus": "WAIT", "payUrl": "https://pay.example/1"},
    "orders.query": {"outTradeNo": "T1", "tradeStatus": "PAID", "totalAmt": 450},
    "orders.close": {"outTradeNo": "T1", "tradeStatus": "CLOSED"},
    "refunds.create": {"outTradeNo": "T1", "outRefundNo": "R1", "refundAmt": 200, "refundStatus": "DONE"},
    "payments.status": {"outTradeNo": "T1", "tradeStatus": "PAID", "paymentNo": "P1"},
    "refunds.status": {"outRefundNo": "R1", "outTradeNo": "T1", "refundStatus": "DONE"},
}


ABOUT_ANOTHER: Final = (
    ("payments.create", "amount", 1),
    ("payments.create", "merchantId", "1002"),
    ("orders.place", "totalAmt", 990),
    ("orders.query", "merchantId", "1002"),
    ("orders.close", "outTradeNo", "T2"),
    ("refunds.create", "outRefundNo", "R0"),
    ("payments.status", "outTradeNo", "T2"),
    ("refunds.status", "outRefundNo", "R0"),
)


def response(data: Mapping[str, Any], code: int = 0, *, key: str = SERVICE_KEY, status: int = 200) -> Answer:
    """Return a response that `openssl` signed; an unsigned profile ignores the signature."""
    signed = {**data, "sign": signatures.hmac_sha256(signatures.signed_text(data), key)}
    return answer(status, orjson.dumps({"code": code, "data": signed}))


ended = partial(sessions.ended, credentials=OWN_KEY)


def unclear(name: str) -> type[PayasyncError]:
    """Return the error after a response that is not believed."""
    return NoAnswerError if name in READS else OutcomeUnknownError


async def test_genuine_response_about_another_thing() -> None:
    """A replayed response about another order, refund, amount or merchant is neither a success nor a refusal."""
    for profile, (name, field, other) in product((UNSIGNED, SIGNED), ABOUT_ANOTHER):
        found = await ended(CALLS[name], Recorder(otherwise=response({**RIGHT[name], field: other})), profile)

        assert unclear(name) is type(found)
        assert f"{field} is " in str(found.reason)
        assert field != "merchantId" or "answer.merchant_id in the profile" in str(found)


async def test_right_response() -> None:
    """A right response ends the call in one attempt. Missing fields and the order of fields do not matter."""
    for profile, (name, data) in product((UNSIGNED, SIGNED), RIGHT.items()):
        found = await ended(CALLS[name], Recorder(otherwise=response(dict(reversed(data.items())))), profile)

        assert data.items() <= found.data.items()
        assert 1 == found.attempts


async def test_right_response_after_a_replayed_one() -> None:
    """After a replayed response, a read is repeated and a write is queried; the right response then counts."""
    other, right = response({"outRefundNo": "R0", "refundStatus": "DONE"}), response(RIGHT["refunds.status"])
    refund = await ended(CALLS["refunds.create"], Recorder([other, other, right]), SIGNED)
    status = await ended(CALLS["refunds.status"], Recorder([other, right]), SIGNED)

    assert ("succeeded", True, 3) == (refund.state, refund.recovered, refund.attempts)
    assert ("succeeded", False, 2) == (status.state, status.recovered, status.attempts)


UNMAPPED: Final = evolve(SIGNED.answer, refund_status="", payment_status="", payment_id="", redirect_url="")
"""Locates no state, and nothing that the service makes."""
IN_PARTS: Final = evolve(SIGNED.answer, redirect_url="", redirect_template=TEMPLATE)
REFUSES: Final = "it refuses the request, and says that the"
NO_SUCH: Final = "it says that there is no such"
PERHAPS: Final = "what is signed may be a success"
REFUSALS: Final[list[tuple[str, AnswerShape, dict[str, Any], str]]] = [
    # It names another number. It may name an amount, such as the one that is left.
    ("refunds.create", UNSIGNED.answer, {"outRefundNo": "R9"}, "outRefundNo is R9"),
    ("orders.close", SIGNED.answer, {"outTradeNo": "T2"}, "outTradeNo is T2"),
    ("refunds.create", UNSIGNED.answer, {"outRefundNo": "R1", "refundAmt": 7, "totalAmt": 1}, ""),
    ("refunds.create", SIGNED.answer, {}, ""),
    # It shows a state that only a success of this write leads to.
    ("payments.create", UNSIGNED.answer, {"tradeStatus": "PAID"}, f"{REFUSES} payment is paid"),
    ("payments.create", UNSIGNED.answer, {"tradeStatus": "NO"}, ""),
    ("orders.place", UNSIGNED.answer, {"tradeStatus": "WAIT"}, f"{REFUSES} order is pending"),
    ("orders.place", SIGNED.answer, {"tradeStatus": "CLOSED"}, f"{REFUSES} order is closed"),
    ("orders.place", UNSIGNED.answer, {"tradeStatus": "ODD"}, ""),
    ("orders.close", SIGNED.answer, {"tradeStatus": "CLOSED"}, f"{REFUSES} order is closed"),
    ("orders.close", UNSIGNED.answer, {"tradeStatus": "PAID"}, ""),
    ("refunds.create", UNSIGNED.answer, {"refundStatus": "BUSY"}, f"{REFUSES} refund is processing"),
    ("refunds.create", SIGNED.answer, RIGHT["refunds.create"], f"{REFUSES} refund is succeeded"),
    ("refunds.create", UNSIGNED.answer, {"refundStatus": "DONE", "code": 4}, f"{NO_SUCH} refund, and that it is"),
    ("refunds.create", SIGNED.answer, {"outRefundNo": "R1", "refundStatus": "NO"}, ""),
    ("subscriptions.create", UNSIGNED.answer, {"planStatus": "ON"}, f"{REFUSES} subscription is active"),
    ("subscriptions.cancel", UNSIGNED.answer, {"planStatus": "OFF"}, f"{REFUSES} subscription is cancelled"),
    ("subscriptions.cancel", UNSIGNED.answer, {"planStatus": "ON"}, ""),
    ("subscriptions.update", UNSIGNED.answer, {"planStatus": "ON"}, ""),
    ("orders.query", UNSIGNED.answer, {"tradeStatus": "PAID"}, ""),
    ("orders.query", UNSIGNED.answer, {"tradeStatus": "PAID", "code": 4}, f"{NO_SUCH} order, and that it is paid"),
    ("payments.status", UNSIGNED.answer, {"tradeStatus": "NO", "code": 4}, f"{NO_SUCH} payment, and that it is failed"),
    ("refunds.status", UNSIGNED.answer, {"refundStatus": "ODD", "code": 4}, ""),
    ("refunds.create", evolve(UNSIGNED.answer, refund_status=""), {"refundStatus": "DONE"}, ""),
    # The signature does not cover the code: an unknown state, what the service makes, or the number with its amount.
    ("refunds.create", SIGNED.answer, {"message": "done", "code": 0}, PERHAPS),
    ("refunds.create", SIGNED.answer, {"outRefundNo": "R1", "refundStatus": "ODD"}, PERHAPS),
    ("refunds.status", SIGNED.answer, {"refundStatus": "ODD"}, PERHAPS),
    ("refunds.create", SIGNED.answer, {"outRefundNo": "R1", "refundAmt": 200}, PERHAPS),
    ("refunds.create", SIGNED.answer, {"outRefundNo": "R1", "refundAmt": 199}, ""),
    ("refunds.create", SIGNED.answer, {"outRefundNo": "R1"}, ""),
    ("orders.place", SIGNED.answer, {"outTradeNo": "T1"}, ""),
    ("orders.place", SIGNED.answer, {"payUrl": "https://pay.example/1"}, PERHAPS),
    ("orders.place", SIGNED.answer, {"paymentNo": "P1"}, PERHAPS),
    ("orders.query", SIGNED.answer, {"paymentNo": "P1"}, ""),
    ("payments.create", SIGNED.answer, {"payUrl": "https://pay.example/1"}, PERHAPS),
    ("payments.create", SIGNED.answer, {"paymentNo": "P1"}, PERHAPS),
    ("subscriptions.create", SIGNED.answer, {"subscriptionId": "S1"}, PERHAPS),
    ("orders.place", IN_PARTS, {"gateNo": "G1"}, PERHAPS),
    ("orders.place", IN_PARTS, {"subject": "Coffee"}, ""),
    ("orders.close", IN_PARTS, {"gateNo": "G1"}, ""),
    # If the profile locates no state, any compared field may belong to a success.
    ("refunds.create", UNMAPPED, {"outRefundNo": "R1"}, PERHAPS),
    ("payments.create", UNMAPPED, {"amount": 1}, PERHAPS),
    ("refunds.create", UNMAPPED, {"amount": 1}, ""),
]
"""By call, where the profile finds what, the payload with the code if it is not 9, and the objection."""


async def test_refusal() -> None:
    """If a refusal names another number, or shows or may be a success of this write, the outcome is unknown."""
    for name, shape, told, words in REFUSALS:
        code = told.get("code", 9)
        data = {key: value for key, value in told.items() if key != "code"}
        said = response(data, code, status=400 if code == 0 else 200)
        found = await ended(CALLS[name], Recorder(otherwise=said), evolve(UNSIGNED, answer=shape))

        assert (unclear(name) if words else ServiceError) is type(found), (name, told)
        assert words in str(found)


def without_quarantine(*, refusals_signed: bool | None) -> Profile:
    """Return a profile whose "not found" is final immediately."""
    shape = evolve(SIGNED.answer, refusals_signed=refusals_signed)
    return evolve(SIGNED, answer=shape, recovery=Recovery(quarantine=0.0))


ODD: Final = {"outRefundNo": "R1", "outTradeNo": "T1", "refundStatus": "ODD"}


async def test_absent_beside_what_the_service_signed() -> None:
    """If the code is unsigned, "not found" repeats a write only if the payload names the number and no more."""
    cases: list[tuple[bool | None, dict[str, Any], int]] = [
        # A state that the profile does not know is still one of something that is there.
        *((said, ODD, 1) for said in (True, False, None)),
        # Anything else that the service signed, such as that an order is closed, could stand beside a forged code.
        (True, {"outRefundNo": "R1"}, 3),
        (True, {}, 1),
        (True, {"outRefundNo": "R1", "tradeStatus": "CLOSED"}, 1),
        (True, {"outRefundNo": "R1", "refundStatus": "", "refundAmt": ""}, 3),
    ]
    for refusals_signed, data, sent in cases:
        service = Recorder(by_path={"/payment/refund": RESET, "/payment/refund/status": response(data, code=4)})
        found = await ended(CALLS["refunds.create"], service, without_quarantine(refusals_signed=refusals_signed))

        assert OutcomeUnknownError is type(found)
        assert sent == [request.path for request in service.requests].count("/payment/refund")


ADDRESS: Final = "https://pay.example/?a=1&"
HIDDEN: Final[list[tuple[str, dict[str, Any], bool]]] = [
    ("orders.query", {"body": "Coffee&outTradeNo=T0&totalAmt=9900", "tradeStatus": "PAID"}, True),
    ("orders.query", {"body": "Coffee&outTradeNo=T0", "outTradeNo": "", "tradeStatus": "PAID"}, True),
    ("refunds.status", {"notifyUrl": f"{ADDRESS}outRefundNo=R0", "refundStatus": "DONE"}, True),
    ("orders.place", {"body": "Coffee&outTradeNo=T0", "payUrl": "https://pay.example/0"}, True),
    ("orders.query", {"body": "Coffee&outTradeNo=T0&subject=x", "outTradeNo": "T1", "tradeStatus": "PAID"}, True),
    ("orders.query", {"body": "Tea", "outTradeNo": "T1", "returnUrl": "x&outTradeNo=T0", "tradeStatus": "PAID"}, True),
    ("orders.query", {"body": "Tea", "returnUrl": "x&outTradeNo=T0", "tradeStatus": "PAID"}, True),
    # They repeat the request, or hide no field that could be signed.
    ("orders.place", {"outTradeNo": "T1", "payUrl": f"{ADDRESS}outTradeNo=T1"}, False),
    ("orders.place", {"payUrl": f"{ADDRESS}outTradeNo=T1&totalAmt=0450&currency=cad"}, False),
    ("orders.place", {"body": "Coffee", "payUrl": f"{ADDRESS}merchantId=1001&totalAmt=450.00"}, False),
    ("refunds.create", {"notifyUrl": f"{ADDRESS}outRefundNo=R1", "refundStatus": "DONE"}, False),
    ("orders.query", {"body": "Coffee&Tea=2", "tradeStatus": "PAID"}, False),
    ("orders.query", {"body": "Coffee&outTradeNo=T0", "outTradeNo": "T1", "tradeStatus": "PAID"}, False),
]


async def test_delimiters_in_a_text() -> None:
    """If a text may hide the number of another order, the response is refused: its signature fits both."""
    for name, data, hides in HIDDEN:
        found = await ended(CALLS[name], Recorder(otherwise=response(data)), SIGNED)

        assert not hides or type(found) in {InvalidSignatureError, OutcomeUnknownError}
        assert ("could have hidden out" in str(found)) if hides else (data.items() <= found.data.items())


def test_what_the_request_says_of_a_payment() -> None:
    """A hidden field is harmless only if it equals the request or the write that is queried, in any form."""
    asked = {"outTradeNo": "T1", "amount": 1000, "payment_id": "P1", "currency": None}
    profile = evolve(SIGNED, payment_status=Parameter("no"))
    call = Codec(profile, OWN_KEY).call(QueryPayment(identifier="T1")).expect_match(asked)
    same = (("outTradeNo", "T1"), ("paymentNo", "P1"), ("totalAmt", "01000"), ("amount", "1000.00"))
    others = (("outTradeNo", "T0"), ("paymentNo", "T1"), ("amount", "999"), ("currency", "CAD"), ("refundAmt", "1"))

    assert all(names_the_same(call, path, value) for path, value in same)
    assert not any(names_the_same(call, path, value) for path, value in others)


def test_payload_of_what_is_not_there() -> None:
    """A "not found" payload may name the queried number, but no amount and no other order or refund."""
    cases: list[tuple[QueryOrder | QueryRefund | QueryPayment, dict[str, Any], dict[str, Any], bool]] = [
        (QueryOrder(out_trade_no="T1"), {}, {"outTradeNo": "T1", "message": "no such order"}, True),
        (QueryOrder(out_trade_no="T1"), {}, {"outTradeNo": "T2"}, False),
        (QueryOrder(out_trade_no="T1"), {}, {"outTradeNo": ""}, False),
        (QueryOrder(out_trade_no="T1"), {}, {"merchantId": "1001"}, False),
        (QueryOrder(out_trade_no="T1"), {}, {"outTradeNo": "T1", "outRefundNo": "R1"}, False),
        (QueryOrder(out_trade_no="T1"), {"out_refund_no": "refund"}, {"outTradeNo": "T1", "refund": "R1"}, False),
        (QueryOrder(out_trade_no="T1"), {"out_trade_no": "no"}, {"no": "T1"}, True),
        (QueryOrder(out_trade_no="T1"), {"out_trade_no": ""}, {"outTradeNo": "T1"}, False),
        (QueryOrder(out_trade_no="T1"), {"total_amt": "sum"}, {"outTradeNo": "T1", "sum": 450}, False),
        (QueryOrder(out_trade_no="T1"), {}, {"outTradeNo": "T1", "totalAmt": 450}, False),
        (QueryOrder(out_trade_no="T1"), {}, {"outTradeNo": "T1", "amount": 450}, False),
        (QueryOrder(out_trade_no="T1"), PARTS, {"outTradeNo": "T1", "gateNo": "G1"}, False),
        (QueryOrder(out_trade_no="T1"), PARTS, {"outTradeNo": "T1", "gateNo": ""}, True),
        (QueryRefund(identifier="R1"), {}, {"outTradeNo": "T1", "outRefundNo": "R1"}, True),
        (QueryRefund(identifier="R1"), {}, {"no": "R1"}, True),
        (QueryRefund(identifier="R1"), {}, {"outTradeNo": "T1", "no": "R2"}, False),
        (QueryPayment(identifier="T1"), {}, {"outTradeNo": "T1"}, True),
    ]
    for query, answers, told, expected in cases:
        profile = evolve(
            SIGNED,
            refund_status=Parameter("no"),
            endpoints={"refunds.status": Endpoint(number="merchant")},
            answer=evolve(SIGNED.answer, **answers),
        )
        call = Codec(profile, OWN_KEY).call(query)
        if isinstance(query, QueryRefund):
            call = call.expect_match({"outTradeNo": "T1", "outRefundNo": "R1"})

        assert expected is names_only_the_number(call, told)


def test_payload_of_what_is_not_there_under_other_names() -> None:
    """A "not found" payload may name no amount under the name of the write, and none under the general name."""
    cases: list[dict[str, Any]] = [{"totalAmt": 450}, {"sum": {"total": 450}}, {"refundAmt": 1}, {"amount": 450}]
    for told in cases:
        names = {"orders.place": {"total_amt": "sum.total"}, "refunds.create": {"refund_amt": "back"}}
        call = Codec(evolve(SIGNED, fields=names, signed=()), OWN_KEY).call(QueryOrder(out_trade_no="T1"))

        assert names_only_the_number(call, {"outTradeNo": "T1"})
        assert not names_only_the_number(call, {"outTradeNo": "T1", **told})


ENVELOPED: Final = evolve(
    SIGNED,
    signature=SortedPairs(algorithm="hmac-sha256", encoding="hex", nested="json", allow_delimiters=("body", "data")),
    answer=evolve(SIGNED.answer, signature="sign", message="msg"),
    codes=ResultCodes(not_executed=("DECLINED",)),
)


def test_what_is_hidden_from_an_envelope() -> None:
    """If a text may hide a field that payasync reads, inside or outside an envelope, the response is refused."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"code": 0, "data": {"outTradeNo": "T1", "tradeStatus": "PAID"}}, ""),
        ({"code": 0, "data": {"payUrl": "https://pay.example/?a=1&outTradeNo=T1", "tradeStatus": "PAID"}}, ""),
        ({"code": 0, "data": "[none]", "msg": "[E1] a"}, ""),
        ({"body": '{"size":1}', "code": 0, "data": {}}, ""),
        ({"code": 0, "data": '{"outTradeNo":"T0","tradeStatus":"PAID"}'}, "data is a text that holds JSON"),
        ({"code": 0, "data": "[]"}, "data is a text that holds JSON"),
        ({"body": 'a&data={"outTradeNo":"T0"}', "code": 0}, "body holds &data="),
        ({"body": "a&code=9", "data": {}}, "body holds &code="),
        ({"body": "a&outTradeNo=T0", "code": 0}, ""),
        ({"body": "a&outTradeNo=T0", "tradeStatus": "PAID"}, "body holds &outTradeNo="),
        ({"body": "a&data={}", "msg": "", "tradeStatus": "PAID"}, "body holds &data="),
        ({"body": "a&msg=DECLINED", "tradeStatus": "PAID"}, "body holds &msg="),
        ({"body": "a&tradeStatus=PAID"}, "body holds &tradeStatus="),
        ({"body": "a&payUrl=https://pay.example/1", "tradeStatus": "PAID"}, "body holds &payUrl="),
    ]
    for document, doubt in cases:
        scheme, secret = ENVELOPED.signature, Secret(SERVICE_KEY)
        assert isinstance(scheme, SortedPairs)
        sign = scheme.sign(document, path="", key=secret)
        call = Codec(ENVELOPED, OWN_KEY).call(QueryOrder(out_trade_no="T1"))
        found = verify_reply(call, Reply(200, {}, orjson.dumps({**document, "sign": sign})), scheme, [secret])

        assert (not doubt) is found.verified
        assert doubt == found.doubt.partition(":")[0]


async def echo(name: str, code: int, profile: Profile) -> Recorder:
    """Return a service that returns requests as responses, with their own fields and signatures."""
    recorded = Recorder([RESET])
    await ended(CALLS[name], recorded, profile, credentials=SAME_KEY)
    echoes = {each.path: {"code": code, "data": signatures.fields(each)} for each in recorded.requests}
    return Recorder(by_path={path: answer(200, orjson.dumps(document)) for path, document in echoes.items()})


async def test_request_that_is_sent_back() -> None:
    """If one key signs both ways, an echo of the request is no response."""
    for name in ["orders.place", "orders.query", "orders.close", "refunds.create", "refunds.status"]:
        found = await ended(CALLS[name], await echo(name, 0, SIGNED), SIGNED, credentials=SAME_KEY)

        assert unclear(name) is type(found)
        assert "sent back" in str(found.reason)


async def test_request_that_is_sent_back_as_a_refusal() -> None:
    """If one key signs both ways, an echo with a refusing code is neither a refusal nor a "not found"."""
    for code in [9, 4]:
        profile = without_quarantine(refusals_signed=True)
        service = await echo("refunds.create", code, profile)
        found = await ended(CALLS["refunds.create"], service, profile, credentials=SAME_KEY)

        assert OutcomeUnknownError is type(found)
        assert 1 == [request.path for request in service.requests].count("/payment/refund")


async def test_service_that_sends_the_nonce_back() -> None:
    """If a response with the same key echoes the nonce, its state, also 0, still shows that it is a response."""
    said = [
        *((name, RIGHT[name]) for name in ("payments.create", "refunds.create")),
        ("orders.close", {"tradeStatus": 0}),
    ]
    for name, told in said:
        data = {**told, "nonceStr": "1" * 32}
        found = await ended(CALLS[name], Recorder(otherwise=response(data, key=KEY)), SIGNED, credentials=SAME_KEY)

        assert data.items() <= found.data.items()
