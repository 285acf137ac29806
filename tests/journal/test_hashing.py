from hashlib import sha256
from typing import Any, Final

import pytest

from payasync.endpoints import ARGUMENTS, OPERATIONS
from payasync.journal.entries import COUNTED, digest

SAID: Final = {"description", "subject", "body", "refund_desc"}
ADDRESSES: Final = {"notify_url", "return_url"}
CIRCUMSTANCES: Final = {"scene_type"}

REFUND: Final[dict[str, Any]] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}


def test_every_write_has_its_line() -> None:
    """Each write of the document says what of it moves money."""
    assert {operation.name for operation in OPERATIONS if not operation.read} == COUNTED.keys()


@pytest.mark.parametrize("operation", COUNTED)
def test_all_counts_but_words_addresses_and_circumstances(operation: str) -> None:
    """References, amounts, the currency and the frequency count; what a deployment may change does not."""
    given = {argument.name for argument in ARGUMENTS[operation]}

    assert given - SAID - ADDRESSES - CIRCUMSTANCES == set(COUNTED[operation])


@pytest.mark.parametrize("name", REFUND)
def test_each_of_what_counts_counts(name: str) -> None:
    """Two requests that differ in one thing that counts are two requests."""
    other = "X" if isinstance(REFUND[name], str) else 451

    assert digest("refunds.create", "M1", REFUND) != digest("refunds.create", "M1", {**REFUND, name: other})


def test_operation_and_merchant_count() -> None:
    """The same numbers of another merchant, or for another purpose, are another request."""
    given = {"out_trade_no": "T1"}
    digests = {digest("orders.close", "M1", given), digest("orders.close", "M2", given), digest("x", "M1", given)}

    assert 3 == len(digests)


def test_order_and_words_do_not_count() -> None:
    """The same request is the same, however it is written down."""
    other = {"refund_desc": "cold", "notify_url": "https://a.example/", **dict(reversed(REFUND.items()))}

    assert digest("refunds.create", "M1", REFUND) == digest("refunds.create", "M1", other)


def test_absence_and_types_count() -> None:
    """What is left out is not what is empty, and a text is no number."""
    given: list[dict[str, Any]] = [{}, {"amount": 1}, {"amount": "1"}, {"frequency": "1"}]

    assert 4 == len({digest("subscriptions.update", "M1", each) for each in given})


def test_all_fields_of_an_unknown_endpoint_count() -> None:
    """Of an endpoint that the document does not show, nobody knows what moves money."""
    path = "POST /payment/transfer"

    assert digest(path, "M1", {"a": {"b": 1}}) != digest(path, "M1", {"a": {"b": 2}})


def test_digest_never_changes() -> None:
    """A journal that was written years ago still knows its requests."""
    text = b'["refunds.create","M1",{"out_refund_no":"R1","out_trade_no":"T1","refund_amt":200,"total_amt":450}]'

    assert sha256(text).hexdigest() == digest("refunds.create", "M1", REFUND)
