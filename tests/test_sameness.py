from typing import Any, Final

import pytest

from payasync.sameness import difference

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
