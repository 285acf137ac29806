import asyncio
from collections.abc import Callable
from datetime import UTC, date, datetime
from enum import Enum
from itertools import product
from types import MappingProxyType
from typing import Any, Final

import attrs
import pytest
from attrs.exceptions import FrozenInstanceError

from payasync.errors import InvalidArgumentError
from payasync.resources.orders import CloseOrder, PlaceOrder, QueryOrder
from payasync.resources.payments import CreatePayment
from payasync.resources.refunds import CreateRefund
from payasync.resources.subscriptions import CancelSubscription, CreateSubscription, UpdateSubscription
from payasync.strict_json import ABSENT
from payasync.wire.request import Request
from payasync.wire.response import Response
from payasync.wire.validators import MAX_AMOUNT, invalid_argument
from tests.building import FULL, codec

AMOUNTS: Final[dict[str, Callable[[Any], Request[Response]]]] = {
    "amount": lambda value: CreatePayment(amount=value, currency="USD"),
    "total_amt": lambda value: PlaceOrder(total_amt=value, currency="USD"),
    "refund_amt": lambda value: CreateRefund(
        out_trade_no="T1", out_refund_no="R1", total_amt=MAX_AMOUNT, refund_amt=value
    ),
    "update": lambda value: UpdateSubscription(subscription_id="S1", amount=value),
}
WORDS: Final[dict[str, Callable[[Any], Request[Response]]]] = {
    "currency": lambda value: CreatePayment(amount=1, currency=value),
    "scene_type": lambda value: PlaceOrder(total_amt=1, currency="CAD", scene_type=value),
    "out_trade_no": lambda value: QueryOrder(out_trade_no=value),
    "subscription_id": lambda value: CancelSubscription(subscription_id=value),
}
URLS: Final[dict[str, Callable[[Any], Request[Response]]]] = {
    "notify_url": lambda value: PlaceOrder(total_amt=1, currency="CAD", notify_url=value),
    "return_url": lambda value: PlaceOrder(total_amt=1, currency="CAD", return_url=value),
}
OBJECTS: Final[dict[str, Callable[[Any], Request[Response]]]] = {
    "extra": lambda value: QueryOrder(out_trade_no="T1", extra=value),
    "customer": lambda value: CreateSubscription(
        frequency="monthly", amount=1, start_date=date(2027, 1, 1), customer=value
    ),
}


class Number(str, Enum):  # noqa: UP042 - a `StrEnum` writes its value anyhow
    """Numbers of a shop's test orders."""

    FIRST = "T1"


def vars_of(request: Request[Response]) -> dict[str, Any]:
    """Return the arguments of a request."""
    return {each.name: getattr(request, each.name) for each in attrs.fields(type(request))}


def optional_of(request: Request[Response]) -> list[str]:
    """Return the names of the arguments that may be absent."""
    return [each.name for each in attrs.fields(type(request)) if each.default is ABSENT]


def test_no_amount_is_converted() -> None:
    """An amount is an integer from 1 to 2^53 - 1. Else it is refused; the error has field, rule and value."""
    for name in AMOUNTS:
        assert all(value in vars_of(AMOUNTS[name](value)).values() for value in (1, 450, MAX_AMOUNT))
        for value in [0, -1, MAX_AMOUNT + 1, 10**5000, True, 1.0, "1", None, 1j]:
            with pytest.raises(InvalidArgumentError, match="must be an int from 1 to 9007199254740991") as caught:
                AMOUNTS[name](value)

            assert {"update": "amount"}.get(name, name) == caught.value.field
            assert "an int from 1 to 9007199254740991, in the unit that the service counts in" == caught.value.rule
            assert value is caught.value.value


def test_refund_above_its_order() -> None:
    """A refund of more than the order's total is refused with the field, both amounts, and what to do."""
    for whole in (1, MAX_AMOUNT):
        CreateRefund(out_trade_no="T1", out_refund_no="R1", total_amt=whole, refund_amt=whole)
    for total, amount in [(1, 2), (450, 451), (450, 45_000), (MAX_AMOUNT - 1, MAX_AMOUNT)]:
        with pytest.raises(InvalidArgumentError, match=r"Correct the one that is wrong$") as caught:
            CreateRefund(out_trade_no="T1", out_refund_no="R1", total_amt=total, refund_amt=amount)

        assert ("refund_amt", amount, f"at most total_amt, which is {total}") == (
            caught.value.field,
            caught.value.value,
            caught.value.rule,
        )
        assert f"refunds.create: refund_amt must be {caught.value.rule}, not {amount}: " in str(caught.value)


def test_words_are_texts_that_are_not_empty() -> None:
    """A number or a code that is empty, blank or no text is refused."""
    for name in WORDS:
        for value in ["", " ", "\n", None, 1, True, b"T1", "\ud800"]:
            with pytest.raises(InvalidArgumentError, match=f"{name} must be a text that is not empty") as caught:
                WORDS[name](value)

            assert (name, "a text that is not empty", value) == (
                caught.value.field,
                caught.value.rule,
                caught.value.value,
            )


def test_texts_are_unicode() -> None:
    """Free text that is `None`, no text, or holds a lone surrogate is refused. It may be empty."""
    assert "" == PlaceOrder(total_amt=1, currency="CAD", subject="").subject
    values: list[Any] = [None, 1, b"Coffee", "\ud800"]
    for name, value in product(("subject", "body"), values):
        with pytest.raises(InvalidArgumentError, match=f"{name} must be a text of valid Unicode") as caught:
            PlaceOrder(total_amt=1, currency="CAD", **{name: value})

        assert name == caught.value.field


def test_urls_are_absolute() -> None:
    """Only absolute http and https URLs are accepted, because notifications sent elsewhere would be lost."""
    host = "https://shop.example"
    for name in URLS:
        for value in [host, "HTTPS://shop.example:8443/", "https://[::1]:8080/notify", "https://müller.example/ä"]:
            assert value == getattr(URLS[name](value), name)
        for wrong in [
            *("", "/notify", "shop.example/notify", "//shop.example", "javascript:alert(1)", "https://"),
            *(f"{host}/a b", f"{host}\n", f"{host}:port/", f"{host}/\ud800", None, host.encode()),
        ]:
            with pytest.raises(InvalidArgumentError, match=f"{name} must be an absolute http or https URL") as caught:
                URLS[name](wrong)

            assert (name, wrong) == (caught.value.field, caught.value.value)


def test_dates_are_dates() -> None:
    """A date must be a `datetime.date`, such as a `datetime`; texts and integers are refused."""
    for value in [date(2027, 1, 31), datetime(2027, 1, 31, tzinfo=UTC)]:
        assert value == UpdateSubscription(subscription_id="S1", start_date=value).start_date
    cases: list[Any] = [None, "2027-01-31", 20270131]
    for wrong in cases:
        with pytest.raises(InvalidArgumentError, match=r"start_date must be a datetime\.date"):
            UpdateSubscription(subscription_id="S1", start_date=wrong)


def test_objects_must_be_json() -> None:
    """An object that JSON cannot express is refused; the error holds only its type."""
    mapping, text = "a mapping of names to JSON values", ", or a text that is not empty"
    for name, value, why in [
        *((name, value, mapping) for name in OBJECTS for value in (None, [("a", 1)])),
        *((name, {"a": {"b": "\ud800"}}, "without a text with a lone surrogate") for name in OBJECTS),
        ("extra", "text", mapping),
        *(("customer", wrong, f"{mapping}{text}") for wrong in ("", " ", "a@example.com\ud800")),
    ]:
        with pytest.raises(InvalidArgumentError, match=f"{name} must be .*{why}") as caught:
            OBJECTS[name](value)

        assert (name, None if value is None else type(value)) == (caught.value.field, caught.value.value)


def test_customer_may_be_a_text() -> None:
    """A service may know its customers by a text, which is sent as it is given. No repr shows a customer."""
    requests = OBJECTS["customer"]("cus_1"), UpdateSubscription(subscription_id="S1", customer="cus_1")

    assert ["cus_1", "cus_1"] == [codec().call(each).fields["payer"] for each in requests]
    assert not [each for each in (*requests, *FULL.values()) if "cus_1" in repr(each) or "@" in repr(each)]


def test_objects_are_copied() -> None:
    """A request copies its objects, so that later changes of the caller are not sent."""
    for name in OBJECTS:
        inner = [1]
        given = {"a": {"b": inner}}
        request = OBJECTS[name](MappingProxyType(given))
        inner.append(2)
        given["c"] = {}

        assert {"a": {"b": [1]}} == getattr(request, name)


def test_reference_is_the_number_as_it_is_sent() -> None:
    """The `reference` of a request with a `str` Enum is the Enum's value, as it is sent."""
    assert "T1" == f"{QueryOrder(out_trade_no=Number.FIRST).reference}"


def test_requests_are_frozen_values() -> None:
    """A request is frozen, and equals another of its kind with the same arguments, which its text shows."""
    query = QueryOrder(out_trade_no="T1")
    assert query not in [QueryOrder(out_trade_no="T2"), CloseOrder(out_trade_no="T1")]
    assert "QueryOrder(extra={}, out_trade_no='T1')" == repr(query)
    for name in FULL:
        request = FULL[name]
        with pytest.raises(FrozenInstanceError):
            request.extra = {}  # type: ignore[misc] # the mistake that is refused

        assert request == type(request)(**vars_of(request))


def test_long_values_are_shortened_in_the_message() -> None:
    """The error's text shortens a long value; the error itself has the whole value."""
    error = invalid_argument("subject", "short", "x" * 1000)

    assert 100 > len(str(error))
    assert "x" * 1000 == error.value


async def test_forgotten_await_is_named() -> None:
    """If an argument is a coroutine or a future, the error asks whether an await was forgotten."""

    async def number() -> str:
        return "T1"

    given = number()
    for value in (given, asyncio.get_running_loop().create_future()):
        with pytest.raises(InvalidArgumentError, match=r"not <.*>; was an await forgotten\?$"):
            QueryOrder(out_trade_no=value)  # type: ignore[arg-type]
    assert "T1" == await given


def test_none_leaves_nothing_out() -> None:
    """`None` for an optional argument is refused, and the error says to leave it out; for others, it does not."""
    with pytest.raises(InvalidArgumentError, match=r"out_trade_no must be .*, not None: it is required$"):
        QueryOrder(out_trade_no=None)  # type: ignore[arg-type] # the mistake that is refused
    for name in FULL:
        request = FULL[name]
        told = []
        for argument in optional_of(request):
            with pytest.raises(InvalidArgumentError, match=f"{argument} must be .*, not None: leave it out$") as caught:
                attrs.evolve(request, **{argument: None})
            told.append(caught.value.field)

        assert optional_of(request) == told
