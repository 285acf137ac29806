"""What each endpoint takes (spec: Resources and their fields), by our names."""

from typing import Final

from attrs import frozen

from payasync.operations import (
    CANCEL_SUBSCRIPTION,
    CLOSE_ORDER,
    CREATE_PAYMENT,
    CREATE_REFUND,
    CREATE_SUBSCRIPTION,
    PLACE_ORDER,
    QUERY_ORDER,
    QUERY_PAYMENT,
    QUERY_REFUND,
    UPDATE_SUBSCRIPTION,
    Operation,
)
from payasync.sandbox.checks import Sort


@frozen
class Argument:
    """One argument of an endpoint.

    Attributes:
        name: Ours.
        sort: What it must be.
        required: The document demands it, or the call has no meaning without it.
        point: Its key in the profile's `fields`, where the document does not show its wire name.
    """

    name: str
    sort: Sort
    required: bool = False
    point: str = ""


_NUMBER: Final = Argument("out_trade_no", "identifier", required=True)
_RETURN_URL: Final = Argument("return_url", "url", point="return_url")
_NOTIFY_URL: Final = Argument("notify_url", "url")
_CURRENCY: Final = Argument("currency", "currency", required=True)
_IDENTIFIER: Final = Argument("identifier", "identifier", required=True)
_SUBSCRIPTION_ID: Final = Argument("subscription_id", "identifier", required=True, point="subscription_id")


def _terms(*, required: bool) -> tuple[Argument, ...]:
    return (
        Argument("frequency", "frequency", required, "frequency"),
        Argument("amount", "amount", required, "subscription_amount"),
        Argument("start_date", "date", required, "start_date"),
        Argument("customer", "customer", required, "customer"),
    )


ARGUMENTS: Final[dict[Operation, tuple[Argument, ...]]] = {
    CREATE_PAYMENT: (
        Argument("amount", "amount", required=True),
        _CURRENCY,
        Argument("description", "text"),
        _RETURN_URL,
    ),
    PLACE_ORDER: (
        Argument("out_trade_no", "identifier"),
        Argument("subject", "text"),
        Argument("body", "text"),
        Argument("total_amt", "amount", required=True),
        _CURRENCY,
        _NOTIFY_URL,
        Argument("scene_type", "word"),
        _RETURN_URL,
    ),
    QUERY_ORDER: (_NUMBER,),
    CLOSE_ORDER: (_NUMBER,),
    CREATE_REFUND: (
        _NUMBER,
        Argument("out_refund_no", "identifier", required=True),
        Argument("total_amt", "amount", required=True),
        Argument("refund_amt", "amount", required=True),
        Argument("refund_desc", "text"),
        _NOTIFY_URL,
    ),
    QUERY_PAYMENT: (_IDENTIFIER,),
    QUERY_REFUND: (_IDENTIFIER,),
    CREATE_SUBSCRIPTION: _terms(required=True),
    UPDATE_SUBSCRIPTION: (_SUBSCRIPTION_ID, *_terms(required=False)),
    # The sandbox's own addition: the document shows nothing of when a cancellation counts.
    CANCEL_SUBSCRIPTION: (_SUBSCRIPTION_ID, Argument("at_period_end", "flag")),
}
