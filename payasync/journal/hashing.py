"""What moves money: of two requests under one key that differ in it, one is a mistake.

Addresses and descriptions do not count: a deployment may change them between two attempts. Of the customer's details
nothing but this digest of the whole is kept.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import orjson

COUNTED: Final[Mapping[str, tuple[str, ...]]] = {
    "payments.create": ("amount", "currency"),
    "orders.place": ("out_trade_no", "total_amt", "currency"),
    "orders.close": ("out_trade_no",),
    "refunds.create": ("out_trade_no", "out_refund_no", "total_amt", "refund_amt"),
    # How often is as good as how much; and nothing but the customer and the first day tells two of them apart.
    "subscriptions.create": ("amount", "frequency", "start_date", "customer"),
    "subscriptions.update": ("subscription_id", "amount", "frequency", "start_date", "customer"),
    "subscriptions.cancel": ("subscription_id",),
}
"""By operation, the arguments that move money; of an endpoint that the document does not show, every field does."""


def digest(operation: str, merchant: str, arguments: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what moves money, in hexadecimal digits.

    Args:
        operation: Its name.
        merchant: The merchant's number.
        arguments: All that were given, by their names in Python; of an endpoint of `request`, its fields.
    """
    counted = COUNTED.get(operation, tuple(arguments))
    moving = {name: arguments[name] for name in counted if name in arguments}
    return hashlib.sha256(orjson.dumps([operation, merchant, moving], option=orjson.OPT_SORT_KEYS)).hexdigest()
