"""The arguments of each operation, and the wire names that the document shows of them, as data.

The classes of requests stand on a higher floor than the profile, which must know their arguments by name: a
test holds this table to them.
"""

from collections.abc import Mapping
from typing import Final

from attrs import evolve, frozen


@frozen
class Argument:
    """One argument of a request.

    Attributes:
        name: As users write it.
        wire: Its wire name, where the document shows it.
        point: Where it does not, the key in the profile's `fields`; the identifier of endpoints 6 and 7 has none.
        text: Whether it is a text, so that it has a length.
        required: Every call gives it.
    """

    name: str
    wire: str = ""
    point: str = ""
    text: bool = True
    required: bool = False


_CURRENCY: Final = Argument("currency", "currency", required=True)
_TOTAL_AMT: Final = Argument("total_amt", "totalAmt", text=False, required=True)
_OUT_TRADE_NO: Final = Argument("out_trade_no", "outTradeNo", required=True)
_NOTIFY_URL: Final = Argument("notify_url", "notifyUrl")
_IDENTIFIER: Final = Argument("identifier", required=True)
_SUBSCRIPTION_ID: Final = Argument("subscription_id", point="subscription_id", required=True)
_SUBSCRIPTION: Final = (
    Argument("frequency", point="frequency"),
    Argument("amount", point="subscription_amount", text=False),
    Argument("start_date", point="start_date", text=False),
    Argument("customer", point="customer", text=False),
)

ARGUMENTS: Final[Mapping[str, tuple[Argument, ...]]] = {
    "payments.create": (
        Argument("amount", "amount", text=False, required=True),
        _CURRENCY,
        Argument("description", "description"),
    ),
    "orders.place": (
        _TOTAL_AMT,
        _CURRENCY,
        Argument("subject", "subject"),
        Argument("body", "body"),
        _NOTIFY_URL,
        Argument("scene_type", "sceneType"),
        Argument("return_url", point="return_url"),
        evolve(_OUT_TRADE_NO, required=False),
    ),
    "orders.query": (_OUT_TRADE_NO,),
    "orders.close": (_OUT_TRADE_NO,),
    "refunds.create": (
        _OUT_TRADE_NO,
        Argument("out_refund_no", "outRefundNo", required=True),
        _TOTAL_AMT,
        Argument("refund_amt", "refundAmt", text=False, required=True),
        Argument("refund_desc", "refundDesc"),
        _NOTIFY_URL,
    ),
    "payments.status": (_IDENTIFIER,),
    "refunds.status": (_IDENTIFIER,),
    "subscriptions.create": tuple(evolve(each, required=True) for each in _SUBSCRIPTION),
    "subscriptions.update": (_SUBSCRIPTION_ID, *_SUBSCRIPTION),
    "subscriptions.cancel": (_SUBSCRIPTION_ID,),
}
"""By the name of the operation, without `extra`."""

TEXTS: Final = frozenset(each.name for arguments in ARGUMENTS.values() for each in arguments if each.text)
"""The arguments that are texts."""
