"""Responses, lightly typed, and their data as a class."""

import copy
import enum
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final, Generic, Literal, TypeVar

import pytest
from attrs import evolve, field, frozen

from payasync.endpoints import CREATE_PAYMENT
from payasync.errors import InvalidArgumentError, NotConfiguredError
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape
from payasync.wire.call import Reply
from payasync.wire.response import (
    STRICT,
    OrderResponse,
    PaymentResponse,
    RefundResponse,
    Response,
    SubscriptionResponse,
    explain_misfit,
    structure_as,
)
from tests.building import ENVELOPE, STATES, bare_call, reply

ANSWERED: Final = Profile(answer=ENVELOPE, states=STATES)
LOCATIONS: Final[list[tuple[type[Response], str, str]]] = [
    (PaymentResponse, "payment_id", "pay.no"),
    (PaymentResponse, "payment_status", "pay.state"),
    (OrderResponse, "redirect_url", "goTo"),
    (OrderResponse, "order_status", "state"),
    (RefundResponse, "refund_status", "state"),
    (SubscriptionResponse, "subscription_id", "planNo"),
    (SubscriptionResponse, "subscription_status", "state"),
]


@frozen
class Line:
    """One line of a bill."""

    text: str
    day: date


@frozen
class Bill:
    """A class of a merchant's own."""

    paid: bool
    total: int
    lines: list[Line]
    note: str | None = None


def answer(
    kind: type[Response], document: object, profile: Profile = ANSWERED, headers: Mapping[str, str] | None = None
) -> Any:
    """Return the answer that a document stands for."""
    return kind.of(bare_call(CREATE_PAYMENT, profile=profile), reply(document, headers=headers))


def nested(path: str, value: object) -> object:
    """Return a document that holds a value at a dotted path."""
    for step in reversed(path.split(".")):
        value = {step: value}
    return value


def test_answer_tells_what_came() -> None:
    """Status, headers, bytes and JSON are there as they were received, with the call's own facts."""
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


def test_answer_is_a_frozen_value() -> None:
    """An answer can be passed around: nobody changes it on the way."""
    response = answer(Response, {"a": 1})
    with pytest.raises(AttributeError):
        response.data = {}
    with pytest.raises(AttributeError):
        response.other = {}

    assert response == answer(Response, {"a": 1})


@pytest.mark.parametrize(
    ("path", "document", "expected"),
    [
        ("", {"a": 1}, {"a": 1}),
        ("", [1], [1]),
        ("", None, None),
        ("result", {"result": {"a": 1}}, {"a": 1}),
        ("result.inner", {"result": {"inner": [1]}}, [1]),
        ("result", {"result": None}, None),
        ("result", {"a": 1}, {"a": 1}),
    ],
)
def test_data_is_inside_the_envelope(path: str, document: object, expected: object) -> None:
    """The payload is where the profile says; an answer without the envelope, as errors are, is its own payload."""
    response = answer(Response, document, Profile(answer=AnswerShape(data=path)))

    assert expected == response.data


def test_no_json_is_no_document() -> None:
    """An answer without JSON still has its bytes."""
    came = Reply(status=200, headers={}, body=b"<html>")
    response = Response.of(bare_call(CREATE_PAYMENT, profile=ANSWERED), came)

    assert (None, None, b"<html>") == (response.document, response.data, response.body)
    assert response.get("a") is None


def test_item_is_a_field_of_data() -> None:
    """`response["field"]` is a field, or a `KeyError` as a dict raises it; `null` is a field."""
    response = answer(Response, {"result": {"a": 1, "b": None, "c.d": 2}})
    with pytest.raises(KeyError, match="missing"):
        response["missing"]

    assert (1, None, 2) == (response["a"], response["b"], response["c.d"])


def test_get_steps_along_a_path() -> None:
    """`get` steps into `data`, and gives the default for what is missing only."""
    response = answer(Response, {"result": {"a": {"b": [10, None]}}})

    assert 10 == response.get("a.b.0")
    assert response.get("a.b.1", 7) is None
    assert response.get("a.c") is None
    assert 7 == response.get("a.c", 7)


@pytest.mark.parametrize(("kind", "name", "path"), LOCATIONS)
def test_location_keeps_the_type(kind: type[Response], name: str, path: str) -> None:
    """A number stays a number; only a URL is nothing but a text."""
    expected = None if name == "redirect_url" else 5

    assert expected == getattr(answer(kind, {"result": nested(path, 5)}), name)


@pytest.mark.parametrize("value", [True, False, 1.5, ["a"], {"a": 1}], ids=repr)
@pytest.mark.parametrize(("kind", "name", "path"), LOCATIONS)
def test_what_is_neither_text_nor_integer_is_none(kind: type[Response], name: str, path: str, value: object) -> None:
    """What the annotation promises is what comes: anything else is in `data`, and not here."""
    given = answer(kind, {"result": nested(path, value)})

    assert getattr(given, name) is None
    assert value == given.get(path)


@pytest.mark.parametrize(("kind", "name", "path"), LOCATIONS)
def test_missing_is_none(kind: type[Response], name: str, path: str) -> None:
    """What this answer does not hold is `None`: the profile may be right about others."""
    assert getattr(answer(kind, {"result": {}}), name) is None
    assert getattr(answer(kind, {"result": nested(path, None)}), name) is None
    assert getattr(answer(kind, None), name) is None


@pytest.mark.parametrize(("kind", "name", "path"), LOCATIONS)
def test_open_location(kind: type[Response], name: str, path: str) -> None:
    """A place that the profile does not name is not guessed, even where something stands that could be it."""
    response = answer(kind, {name: "x", "state": "x", path: "x"}, Profile())
    with pytest.raises(NotConfiguredError, match=f"answer.{name} is open") as caught:
        getattr(response, name)

    assert f"answer.{name}" == caught.value.field
    assert response.state is None


@pytest.mark.parametrize(
    ("kind", "path", "value", "expected"),
    [
        (OrderResponse, "state", "SUCCESS", "paid"),
        (OrderResponse, "state", 2, "paid"),
        (OrderResponse, "state", "2", None),
        (OrderResponse, "state", 3, "closed"),
        (OrderResponse, "state", "3", None),
        (OrderResponse, "state", "OTHER", None),
        (PaymentResponse, "pay.state", "SUCCESS", "paid"),
        (RefundResponse, "state", "DONE", "succeeded"),
        (RefundResponse, "state", "SUCCESS", None),
        (SubscriptionResponse, "state", 1, "active"),
        (SubscriptionResponse, "state", True, None),
        (SubscriptionResponse, "state", [1], None),
        (Response, "state", "SUCCESS", None),
    ],
)
def test_state_is_our_name_where_the_profile_maps_it(
    kind: type[Response], path: str, value: object, expected: str | None
) -> None:
    """States are mapped by type and value, each thing by its own table."""
    assert expected == answer(kind, {"result": nested(path, value)}).state


@pytest.mark.parametrize(
    ("where", "document", "expected"),
    [
        ("", {"id": "q1"}, None),
        ("id", {"id": "q1"}, "q1"),
        ("head.id", {"head": {"id": 5}}, 5),
        ("id", {"id": True}, None),
        ("id", {"id": {}}, None),
        ("id", {}, None),
        ("id", None, None),
        ("header:X-Request-Id", {}, "q2"),
        ("header:x-request-id", {}, "q2"),
        ("header:X-Other", {}, None),
    ],
)
def test_request_id(where: str, document: object, expected: object) -> None:
    """The service's number of a request is in its document, from the top, or in a header."""
    response = answer(Response, document, Profile(answer=AnswerShape(request_id=where)), headers={"X-Request-Id": "q2"})

    assert expected == response.request_id


def test_request_id_is_beside_the_envelope() -> None:
    """The path of the request's number starts at the document, not at the payload."""
    assert "q1" == answer(Response, {"head": {"id": "q1"}, "result": {"head": {"id": "no"}}}).request_id


def test_to_a_class() -> None:
    """The data becomes a class of the merchant's own, with nested classes, lists and dates."""
    bill = answer(
        Response,
        {"result": {"paid": True, "total": 5, "lines": [{"text": "tea", "day": "2027-01-31"}], "more": 1}},
    ).to(Bill)

    assert Bill(paid=True, total=5, lines=[Line("tea", date(2027, 1, 31))]) == bill


@pytest.mark.parametrize("kind", [int, list[int], dict[str, int], int | None, Bill, object])
def test_to_any_kind_raises_our_own_error_only(kind: Any) -> None:
    """Whatever class is asked for, nothing of the library beneath shows."""
    with pytest.raises(InvalidArgumentError, match="the answer does not fit"):
        answer(Response, {"result": "text"}).to(kind)


COPIES: Final[dict[str, Callable[[Any], Any]]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda response: pickle.loads(pickle.dumps(response)),  # noqa: S301 - made in the same line
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("kind", [Response, PaymentResponse, OrderResponse, RefundResponse, SubscriptionResponse])
def test_answer_crosses_a_process_boundary(kind: type[Response], copied: Callable[[Any], Any]) -> None:
    """An answer that a task worker returns is the same at the other end, states and places included."""
    response = answer(kind, {"result": {"state": "SUCCESS"}, "head": {"id": 7}}, headers={"X-Request-Id": "q1"})
    twin = copied(response)

    assert kind is type(twin)
    assert response == twin
    assert "q1" == twin.headers["x-REQUEST-id"]
    assert response.state == twin.state
    assert 7 == twin.request_id


def test_repr_shows_status_and_state() -> None:
    """A log shows no header and no data of a response: a cookie, a signature or a customer's details may be there."""
    document = {"result": {"state": "SUCCESS", "sign": "canary"}, "head": "canary"}
    shown = repr(answer(OrderResponse, document, headers={"Set-Cookie": "canary"}))

    assert "<OrderResponse 200 'paid'>" == shown
    assert "<OrderResponse 200>" == repr(answer(OrderResponse, {}))


T = TypeVar("T")


class Colour(enum.Enum):
    """A word with a name."""

    RED = "red"


@frozen
class Inner:
    """A nested class."""

    paid: bool


@frozen
class Outer:
    """A class that holds others."""

    inner: Inner
    many: list[Inner] = field(factory=list)


@dataclass(frozen=True)
class Plain:
    """A class by the standard library."""

    paid: bool


@frozen
class Box(Generic[T]):
    """A class of whatever it holds."""

    inside: T


TAKEN: Final[list[tuple[Any, Any, Any]]] = [
    (str, "1", "1"),
    (int, 1, 1),
    (float, 1, 1),
    (date, "2027-01-31", date(2027, 1, 31)),
    (datetime, "2027-01-31T10:00:00+00:00", datetime(2027, 1, 31, 10, tzinfo=UTC)),
    (str | int, 1, 1),
    (str | float | None, 1.5, 1.5),
    (Literal["a", "b"], "b", "b"),
    (Colour, "red", Colour.RED),
    (list[int], [1, 2], [1, 2]),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[int, str], [1, "a"], (1, "a")),
    (Sequence[str], ["a"], ("a",)),
    (set[str], ["a", "a"], {"a"}),
    (Mapping[str, list[int]], {"a": [1]}, {"a": [1]}),
    (Outer, {"inner": {"paid": True}, "more": 1}, Outer(Inner(paid=True))),
    (Plain, {"paid": True}, Plain(paid=True)),
    (Box[int], {"inside": 1}, Box(1)),
]
REFUSED: Final[list[tuple[Any, Any]]] = [
    (str, 1),
    (int, "1"),
    (int, 1.0),
    (int, True),
    (bool, "false"),
    (bool, 1),
    (float, "1.5"),
    (bytes, "text"),
    (date, 20270131),
    (date, "31.01.2027"),
    (str | int, True),
    (str | None, 1),
    (Literal["a"], "b"),
    (Colour, "green"),
    (list[str], "abc"),
    (list[int], [1, "2"]),
    (tuple[str, ...], "abc"),
    (tuple[int, str], [1]),
    (set[str], "abc"),
    (dict[str, int], {"a": "1"}),
    (Outer, {"inner": {"paid": "true"}}),
    (Plain, ["paid"]),
    (Box[int], {"inside": "1"}),
    (Outer, "text"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), TAKEN)
def test_a_value_of_the_type_is_taken(kind: Any, value: object, expected: object) -> None:
    """What already is of the type that a class asks for becomes a part of it."""
    made = STRICT.structure(value, kind)

    assert expected == made
    assert type(expected) is type(made)


@pytest.mark.parametrize(("kind", "value"), REFUSED)
def test_nothing_is_converted(kind: Any, value: object) -> None:
    """No text becomes a number or a list of its letters, no number a truth value, no missing field a default."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever cattrs raises
        STRICT.structure(value, kind)

    assert explain_misfit(caught.value, "data")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"inner": {"paid": "false"}}, "expected bool, got str @ data.inner.paid"),
        ({"inner": {"paid": 1}}, "expected bool, got int @ data.inner.paid"),
        ({"inner": {}}, "is missing @ data.inner.paid"),
        ({"inner": []}, "expected an object, got list @ data.inner"),
        ({"inner": None}, "expected an object, got NoneType @ data.inner"),
        ({"inner": {"paid": True}, "many": ["x"]}, "expected an object, got str @ data.many[0]"),
        ({"inner": {"paid": True}, "many": "x"}, "expected a list, got str @ data.many"),
        ({"inner": {"paid": True}, "many": [{"paid": 0}]}, "expected bool, got int @ data.many[0].paid"),
        (
            {"inner": {"paid": 0}, "many": 0},
            "expected bool, got int @ data.inner.paid; expected a list, got int @ data.many",
        ),
    ],
)
def test_complaints_name_the_place(value: object, expected: str) -> None:
    """Every place that does not fit is named, with what was expected there."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - a group of them
        STRICT.structure(value, Outer)

    assert expected == explain_misfit(caught.value, "data")


def test_complaint_without_words_names_its_class() -> None:
    """An error that says nothing is still told apart."""
    assert "LookupError @ data" == explain_misfit(LookupError(), "data")


def test_fitted_data() -> None:
    """Data that fits is of its class; what does not is our error, which says whose it is, and where."""
    assert Inner(paid=True) == structure_as({"paid": True}, Inner, "the answer")
    with pytest.raises(InvalidArgumentError, match=r"the notification does not fit Inner: .* @ data\.paid") as refused:
        structure_as({"paid": 1}, Inner, "the notification")

    assert ("Inner", "fits the notification's data") == (refused.value.field, refused.value.rule)
