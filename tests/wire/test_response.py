"""Responses: their attributes, and their data converted to a class."""

import enum
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Generic, TypeVar

import pytest
from attrs import evolve, field, frozen

from payasync.endpoints import CREATE_PAYMENT, PLACE_ORDER
from payasync.errors import InvalidArgumentError, NotConfiguredError
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape
from payasync.wire.call import Reply
from payasync.wire.response import OrderResponse, PaymentResponse, RefundResponse, Response, SubscriptionResponse
from tests.building import ENVELOPE, STATES, bare_call, reply

ANSWERED: Final = Profile(answer=ENVELOPE, states=STATES)
LOCATIONS: Final[list[tuple[type[Response], str, str]]] = [
    (PaymentResponse, "payment_id", "pay.no"),
    (PaymentResponse, "payment_status", "pay.state"),
    (PaymentResponse, "redirect_url", "goTo"),
    (OrderResponse, "redirect_url", "goTo"),
    (OrderResponse, "order_status", "state"),
    (RefundResponse, "refund_status", "state"),
    (SubscriptionResponse, "subscription_id", "planNo"),
    (SubscriptionResponse, "subscription_status", "state"),
]


def answer(
    kind: type[Response], document: object, profile: Profile = ANSWERED, headers: Mapping[str, str] | None = None
) -> Any:
    """Return the response for a document."""
    return kind.of(bare_call(CREATE_PAYMENT, profile=profile), reply(document, headers=headers))


def nested(path: str, value: object) -> object:
    """Return a document that holds a value at a dotted path."""
    for step in reversed(path.split(".")):
        value = {step: value}
    return value


def unpickled(value: Any) -> Any:
    """Return a value as another process would get it."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - made in the same line


def test_answer_tells_what_came() -> None:
    """A frozen response has status, headers, bytes and JSON as received, and the attempts and time of its call."""
    came = evolve(reply({"a": 1}, 201, {"X-A": "1"}), elapsed=0.5, attempts=2, recovered=True)
    response = Response.of(bare_call(CREATE_PAYMENT), came)

    assert (201, b'{"a":1}', {"a": 1}, {"a": 1}) == (
        response.http_status,
        response.body,
        response.document,
        response.data,
    )
    assert (0.5, 2, True, None) == (response.elapsed, response.attempts, response.recovered, response.request_id)
    assert "1" == response.headers["x-a"]
    assert response == Response.of(bare_call(CREATE_PAYMENT), came)
    with pytest.raises(AttributeError):
        response.data = {}  # type: ignore[misc] # the mistake that is refused


def test_data_is_inside_the_envelope() -> None:
    """`data` is the payload at the profile's path, or the whole document if that path is missing."""
    for path, document, expected in [
        ("", {"a": 1}, {"a": 1}),
        ("", [1], [1]),
        ("", None, None),
        ("result", {"result": {"a": 1}}, {"a": 1}),
        ("result.inner", {"result": {"inner": [1]}}, [1]),
        ("result", {"result": None}, None),
        ("result", {"a": 1}, {"a": 1}),
    ]:
        response = answer(Response, document, Profile(answer=AnswerShape(data=path)))

        assert expected == response.data


def test_no_json_is_no_document() -> None:
    """A response that is not JSON has `None` as document and data, and keeps its bytes."""
    came = Reply(status=200, headers={}, body=b"<html>")
    response = Response.of(bare_call(CREATE_PAYMENT, profile=ANSWERED), came)

    assert (None, None, b"<html>") == (response.document, response.data, response.body)
    assert response.get("a") is None


def test_fields_of_data() -> None:
    """`response["field"]` returns a field, also a null; `get` follows a path. Only a missing field has a default."""
    response = answer(Response, {"result": {"a": {"b": [10, None]}, "n": None, "c.d": 2}})
    with pytest.raises(KeyError, match="missing"):
        response["missing"]

    assert (None, 2, 10) == (response["n"], response["c.d"], response.get("a.b.0"))
    assert (None, None, 7) == (response.get("a.b.1", 7), response.get("a.c"), response.get("a.c", 7))


def test_located_value() -> None:
    """A number may be a text or an integer, and a URL only a text; any other value, and a missing one, is `None`.

    The value itself stays in `data`.
    """
    for kind, name, path in LOCATIONS:
        for value in ["https://pay.example/S1", 5, True, 1.5, ["a"], {"a": 1}, None]:
            promised = str if name == "redirect_url" else (str, int)
            expected = value if isinstance(value, promised) and not isinstance(value, bool) else None
            given = answer(kind, {"result": nested(path, value)})

            assert expected == getattr(given, name)
            assert value == given.get(path)
            assert getattr(answer(kind, {"result": {}}), name) is None
            assert getattr(answer(kind, None), name) is None


TEMPLATE: Final = "https://pay.example/{shop.id}?no={gatewayNo}&amount={totalAmt}&ref={list.0}#{gatewayNo}"
PARTS: Final[dict[str, Any]] = {"shop": {"id": "a/b"}, "gatewayNo": "G 1&x=é", "totalAmt": 450, "list": ["T1"]}
ADDRESS: Final = "https://pay.example/a%2Fb?no=G%201%26x%3D%C3%A9&amount=450&ref=T1#G%201%26x%3D%C3%A9"


def test_address_of_parts() -> None:
    """The customer's address is made of the payload's parts, or else the request's; without one it is `None`."""
    cases: list[tuple[object, Mapping[str, Any], str | None]] = [
        (PARTS, {}, ADDRESS),
        (PARTS, {"totalAmt": 7, "shop": {"id": "c"}}, ADDRESS),
        ({**PARTS, "totalAmt": None}, {"totalAmt": 450}, ADDRESS),
        ({"gatewayNo": PARTS["gatewayNo"]}, {**PARTS, "gatewayNo": "mine"}, ADDRESS),
        *(({**PARTS, "gatewayNo": wrong}, {}, None) for wrong in (None, True, 1.5, ["x"])),
        ([], PARTS, ADDRESS),
        (None, {}, None),
    ]
    call = bare_call(PLACE_ORDER, profile=Profile(answer=AnswerShape(data="data", redirect_template=TEMPLATE)))
    for payload, sent, expected in cases:
        for kind in (OrderResponse, PaymentResponse):
            response: Any = kind.of(evolve(call, fields=sent), reply({"data": payload}))

            assert expected == response.redirect_url == unpickled(response).redirect_url


def test_open_location() -> None:
    """If the profile does not locate a value, reading it raises `NotConfiguredError`, and nothing is guessed.

    The error says that the service responded, so that no handler sends the request again. It does not say that the
    service carried it out: the response may be one of a query, or tell of a failure.
    """
    for kind, name, path in LOCATIONS:
        call = bare_call(PLACE_ORDER, profile=Profile())
        response = kind.of(call, reply({name: "x", "state": "x", path: "x"}))
        with pytest.raises(NotConfiguredError, match=f"answer.{name} is open") as caught:
            getattr(response, name)

        error = caught.value
        assert f"answer.{name}" == error.field
        assert (True, "orders.place", call.reference) == (error.sent, error.operation, error.reference)
        assert (response, response.attempts) == (error.response, error.attempts)
        assert f"as 'answer.{name}'. The service responded to the request. Only reading {name} needs this key" in str(
            error
        )
        assert "this error does not say that the request failed" in str(error)
        assert "carried it out" not in str(error)
        assert (True, response) == (unpickled(error).sent, unpickled(error).response)
        assert response.state is None


def test_data_that_does_not_fit_was_sent() -> None:
    """The error of `to` says that the service has responded, and to what."""
    call = bare_call(PLACE_ORDER, profile=ANSWERED)
    response = OrderResponse.of(call, reply({"result": "text"}))
    with pytest.raises(InvalidArgumentError, match="the response does not fit int") as caught:
        response.to(int)

    error = caught.value
    assert (True, "orders.place", call.reference) == (error.sent, error.operation, error.reference)
    assert response == error.response


def test_state_is_our_name_where_the_profile_maps_it() -> None:
    """`state` is mapped by type and value, with the table of the response's own kind."""
    for kind, path, value, expected in [
        (OrderResponse, "state", "SUCCESS", "paid"),
        (OrderResponse, "state", "2", None),
        (OrderResponse, "state", 2, "paid"),
        (PaymentResponse, "pay.state", "SUCCESS", "paid"),
        (RefundResponse, "state", "DONE", "succeeded"),
        (SubscriptionResponse, "state", 1, "active"),
        (SubscriptionResponse, "state", True, None),
        (Response, "state", "SUCCESS", None),
    ]:
        assert expected == answer(kind, {"result": nested(path, value)}).state


def test_request_id() -> None:
    """`request_id` is read from the whole document, not from the payload, or from a header."""
    for where, document, expected in [
        ("", {"id": "q1"}, None),
        ("id", {"id": "q1"}, "q1"),
        ("head.id", {"head": {"id": 5}, "result": {"head": {"id": "no"}}}, 5),
        ("id", {"id": True}, None),
        ("id", {}, None),
        ("id", None, None),
        ("header:X-Request-Id", {}, "q2"),
        ("header:X-Other", {}, None),
    ]:
        profile = Profile(answer=AnswerShape(data="result", request_id=where))

        assert expected == answer(Response, document, profile, {"X-Request-Id": "q2"}).request_id


def test_answer_crosses_a_process_boundary() -> None:
    """A pickled response keeps its class, headers, state and request number."""
    for kind in [Response, PaymentResponse, OrderResponse, RefundResponse, SubscriptionResponse]:
        response = answer(kind, {"result": {"state": "SUCCESS"}, "head": {"id": 7}}, headers={"X-Request-Id": "q1"})
        twin = unpickled(response)

        assert kind is type(twin)
        assert response == twin
        assert "q1" == twin.headers["x-REQUEST-id"]
        assert response.state == twin.state
        assert 7 == twin.request_id


def test_repr_shows_status_and_state() -> None:
    """The repr of a response has its status and state, but no header and no data."""
    document = {"result": {"state": "SUCCESS", "sign": "canary"}, "head": "canary"}
    shown = repr(answer(OrderResponse, document, headers={"Set-Cookie": "canary"}))

    assert "<OrderResponse 200 'paid'>" == shown
    assert "<OrderResponse 200>" == repr(answer(OrderResponse, {}))


T = TypeVar("T")


class Colour(enum.Enum):
    """An enum."""

    RED = "red"


@frozen
class Inner:
    """A nested class."""

    paid: bool


@frozen
class Outer:
    """A class with nested classes."""

    inner: Inner
    many: list[Inner] = field(factory=list)


@dataclass(frozen=True)
class Plain:
    """A standard dataclass."""

    paid: bool


@frozen
class Box(Generic[T]):
    """A generic class."""

    inside: T


def made(value: object, kind: Any) -> Any:
    """Return the data of a response, converted to a class."""
    return answer(Response, {"result": value}).to(kind)


def test_data_becomes_a_class() -> None:
    """`to` builds a class from data whose JSON types fit it."""
    for kind, value, expected in [
        (float, 1, 1),
        (date, "2027-01-31", date(2027, 1, 31)),
        (str | float | None, 1.5, 1.5),
        (Colour, "red", Colour.RED),
        (list[int], [1, 2], [1, 2]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (Sequence[str], ["a"], ("a",)),
        (Mapping[str, list[int]], {"a": [1]}, {"a": [1]}),
        (Outer, {"inner": {"paid": True}, "more": 1}, Outer(Inner(paid=True))),
        (Plain, {"paid": True}, Plain(paid=True)),
        (Box[int], {"inside": 1}, Box(1)),
    ]:
        assert expected == made(value, kind)
        assert type(expected) is type(made(value, kind))


def test_nothing_is_converted() -> None:
    """`to` converts no value to another type, and gives no missing field a default.

    The error names every place that does not fit, with the type that was expected there.
    """
    for kind, value, expected in [
        *((kind, "text", "@ data") for kind in (dict[str, int], int | None, object)),
        (str, 1, "expected str, got int @ data"),
        (int, "1", "expected int, got str @ data"),
        (int, True, "expected int, got bool @ data"),
        (float, "1.5", "expected a number, got str @ data"),
        (date, 20270131, "@ data"),
        (bytes, "text", "@ data"),
        (set[str], "abc", "@ data"),
        (str | int, True, "@ data"),
        (Colour, "green", "@ data"),
        (list[str], "abc", "expected a list, got str @ data"),
        (list[int], [1, "2"], "expected int, got str @ data[1]"),
        (dict[str, int], {"a": "1"}, "expected int, got str @ data"),
        (Plain, ["paid"], "expected an object, got list @ data"),
        (Box[int], {"inside": "1"}, "expected int, got str @ data.inside"),
        (Outer, {"inner": {}}, "is missing @ data.inner.paid"),
        (Outer, {"inner": None}, "expected an object, got NoneType @ data.inner"),
        (
            Outer,
            {"inner": {"paid": 0}, "many": [{"paid": 0}]},
            "expected bool, got int @ data.inner.paid; expected bool, got int @ data.many[0].paid",
        ),
    ]:
        with pytest.raises(InvalidArgumentError, match="the response does not fit") as refused:
            made(value, kind)

        assert expected in str(refused.value)
        assert "fits the response's data" == refused.value.rule
