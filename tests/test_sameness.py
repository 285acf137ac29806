from typing import Any, Final

import pytest
from payasync.sameness import difference, tells_of_something

from payasync import AnswerShape, Parameter, Profile, States
from tests.building import call_for

ASKED_FOR: Final = {
    "outTradeNo": "T1",
    "outRefundNo": "R1",
    "totalAmt": 450,
    "refundAmt": 200,
    "currency": "CAD",
    "refundDesc": "one cup",
}


@pytest.mark.parametrize(
    ("told", "differs"),
    [
        ({"outTradeNo": "T2"}, "outTradeNo is T2 there, and T1 here"),
        ({"outTradeNo": "T1", "refundAmt": 100}, "refundAmt is 100 there, and 200 here"),
        ({"refundAmt": "100"}, "refundAmt is 100 there, and 200 here"),
        ({"refundAmt": "9" * 5000}, f"refundAmt is {'9' * 100}… there, and 200 here"),
        ({"refundAmt": "\u0661\u0660\u0660"}, "refundAmt is \u0661\u0660\u0660 there, and 200 here"),
        ({"refundAmt": "0"}, "refundAmt is 0 there, and 200 here"),
        ({"outRefundNo": 7}, "outRefundNo is 7 there, and R1 here"),
        ({"currency": "USD"}, "currency is USD there, and CAD here"),
    ],
)
def test_another_is_told_apart(told: dict[str, Any], differs: str) -> None:
    """A number that stands for another order or amount does so by what both sides have."""
    assert differs == difference(ASKED_FOR, told)


@pytest.mark.parametrize(
    "told",
    [
        {"outTradeNo": "T1", "outRefundNo": "R1", "totalAmt": "450", "refundAmt": 200},
        {"refundAmt": "2.00", "totalAmt": 4.5, "outTradeNo": None, "currency": "cad"},
        {"refundAmt": True, "outTradeNo": ["T2"], "outRefundNo": True},
        {"refundAmt": "0200"},
        {"refundAmt": "0" * 5000 + "200"},
        {"refundAmt": "\u0662\u0660\u0660"},
        {"refundAmt": "\u00b2"},
        {"refundDesc": "two cups"},
        {},
        None,
        ["R2"],
    ],
)
def test_the_same_is_not(told: object) -> None:
    """What is written otherwise, said by one side only, or moves no money makes no other refund."""
    assert "" == difference(ASKED_FOR, told)


SHAPED: Final = Profile(
    answer=AnswerShape(data="data", order_status="state", refund_status="state", payment_status="state"),
    states=States(order={"paid": (2,)}, refund={"succeeded": ("DONE",)}, payment={"paid": (2,)}),
    payment_status=Parameter("no"),
    refund_status=Parameter("no"),
)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("orders.query", {"state": 2}),
        ("payments.status", {"state": 2}),
        ("refunds.status", {"state": "DONE"}),
        ("refunds.status", {"refundAmt": "200"}),
        ("orders.query", {"totalAmt": 450}),
        ("orders.query", {"outTradeNo": "T2"}),
        ("refunds.status", {"outTradeNo": "T1", "outRefundNo": "R9"}),
    ],
)
def test_absent_that_tells_of_something(name: str, told: dict[str, Any]) -> None:
    """A state that the profile knows, an amount, or another number is of something that there is."""
    assert tells_of_something(call_for(name, SHAPED), {"code": "ABSENT", "data": told})


@pytest.mark.parametrize("name", ["orders.query", "payments.status", "refunds.status"])
@pytest.mark.parametrize(
    "told",
    [
        {},
        None,
        "no such thing",
        {"state": "ERROR", "message": "no such thing"},
        {"outTradeNo": "T1", "outRefundNo": "R1"},
        {"outTradeNo": None, "outRefundNo": None, "totalAmt": None},
    ],
)
def test_absent_that_tells_of_nothing(name: str, told: object) -> None:
    """Words, a state that nobody knows, and the number that was asked about are of nothing."""
    assert not tells_of_something(call_for(name, SHAPED), {"code": "ABSENT", "data": told})


def test_question_about_something_else() -> None:
    """An answer to a call that asks about no order, payment or refund tells of none."""
    assert not tells_of_something(call_for("orders.close", SHAPED), {"data": {"totalAmt": 1}})
