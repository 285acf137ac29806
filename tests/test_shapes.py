import pickle
from collections.abc import Callable
from typing import Any, Final

import attrs
import pytest

from payasync.errors import ConfigurationError
from payasync.shapes import (
    Accept,
    AnswerShape,
    HttpCodes,
    NotificationShape,
    Parameter,
    Recovery,
    ResultCodes,
    States,
    among,
)

DEFAULTS: Final[dict[type, dict[str, Any]]] = {
    Accept: {"currency": (), "scene_type": (), "amount": (), "required": {}, "length": {}},
    AnswerShape: {
        "data": "",
        "code": "",
        "ok": (),
        "message": "",
        "request_id": "",
        "payment_id": "",
        "payment_status": "",
        "redirect_url": "",
        "order_status": "",
        "refund_status": "",
        "subscription_id": None,
        "subscription_status": "",
        "signature": "",
        "refusals_signed": None,
        "out_trade_no": None,
        "out_refund_no": None,
        "total_amt": None,
        "refund_amt": None,
        "currency": None,
        "merchant_id": None,
    },
    States: {"order": {}, "payment": {}, "refund": {}, "subscription": {}},
    ResultCodes: {"not_executed": (), "retryable": (), "duplicate": (), "absent": ()},
    HttpCodes: {
        "not_executed": (400, 401, 403, 404, 405, 413, 415, 422),
        "absent": (),
        "duplicate": (409,),
        "rate_limit_precedes_execution": False,
    },
    Recovery: {"quarantine": None},
    NotificationShape: {
        "verification": "",
        "data": "",
        "signature": "",
        "kind": "",
        "kinds": {},
        "time": "",
        "tolerance": 300,
        "id": {},
        "out_trade_no": "",
        "out_refund_no": "",
        "subscription_id": "",
        "volatile": (),
        "ack_status": None,
        "ack_body": "",
        "nack_status": None,
        "nack_body": "",
    },
}
CODES: Final = "a list, each of it a text or an integer"
TEXTS: Final = "a list, each of it a text"
INTEGERS: Final = "a list, each of it an integer"
FITTING: Final[dict[str, list[Any]]] = {TEXTS: ["A", "B"], CODES: [0, "0"], INTEGERS: [400, 401]}
LISTS: Final[list[tuple[Callable[..., Any], str, str]]] = [
    (Accept, "accept.currency", TEXTS),
    (Accept, "accept.scene_type", TEXTS),
    (Accept, "accept.amount", INTEGERS),
    (AnswerShape, "answer.ok", CODES),
    (ResultCodes, "codes.not_executed", CODES),
    (ResultCodes, "codes.retryable", CODES),
    (ResultCodes, "codes.duplicate", CODES),
    (ResultCodes, "codes.absent", CODES),
    (HttpCodes, "http.not_executed", INTEGERS),
    (HttpCodes, "http.absent", INTEGERS),
    (HttpCodes, "http.duplicate", INTEGERS),
    (NotificationShape, "notification.volatile", TEXTS),
]
TABLES_OF_LISTS: Final[list[tuple[Callable[..., Any], str, str, str]]] = [
    (Accept, "accept.required", "orders.place", TEXTS),
    (States, "states.order", "paid", CODES),
    (States, "states.payment", "paid", CODES),
    (States, "states.refund", "succeeded", CODES),
    (States, "states.subscription", "active", CODES),
    (NotificationShape, "notification.kinds", "payment", TEXTS),
    (NotificationShape, "notification.id", "payment", TEXTS),
]
TEXT_FIELDS: Final[list[tuple[Callable[..., Any], str]]] = [
    (shape, f"{section}.{name}")
    for shape, section in ((AnswerShape, "answer"), (NotificationShape, "notification"))
    for name, default in DEFAULTS[shape].items()
    if default == "" and name != "verification"
]
ORDER_STATES: Final = ["pending", "paid", "closed", "failed", "expired", "refunded"]
STATES: Final = {
    "order": ORDER_STATES,
    "payment": ORDER_STATES,
    "refund": ["processing", "succeeded", "failed"],
    "subscription": ["scheduled", "active", "past_due", "cancelled"],
}


@pytest.mark.parametrize("shape", DEFAULTS, ids=lambda shape: shape.__name__)
def test_what_the_document_leaves_open_is_empty(shape: Callable[[], Any]) -> None:
    """No shape answers for the service: only what is stated, or said to be assumed, has a default."""
    assert DEFAULTS[type(shape())] == attrs.asdict(shape(), recurse=False)


@pytest.mark.parametrize("shape", DEFAULTS, ids=lambda shape: shape.__name__)
def test_shapes_are_frozen_values(shape: Callable[[], Any]) -> None:
    """A part of a profile is compared by its value, sent to workers, and never changed."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(shape(), next(iter(DEFAULTS[type(shape())])), "x")

    assert shape() == pickle.loads(pickle.dumps(shape()))  # noqa: S301 - made in the same line


@pytest.mark.parametrize("shape", DEFAULTS, ids=lambda shape: shape.__name__)
def test_unknown_argument_is_refused(shape: Callable[..., Any]) -> None:
    """A misspelt key is not a default."""
    with pytest.raises(TypeError, match="curency"):
        shape(curency=["CAD"])


def own(field: str) -> str:
    """Return the name by which a part knows the field that errors name."""
    return field.rpartition(".")[2]


@pytest.mark.parametrize(("shape", "field", "wanted"), LISTS)
def test_a_list_is_its_own(shape: Callable[..., Any], field: str, wanted: str) -> None:
    """A list is taken over as it was: what becomes of it afterwards changes no profile."""
    given = list(FITTING[wanted])
    made = shape(**{own(field): given})
    given.clear()

    assert tuple(FITTING[wanted]) == getattr(made, own(field))


@pytest.mark.parametrize(("shape", "field", "wanted"), LISTS)
@pytest.mark.parametrize("kind", [tuple, set, frozenset, dict.fromkeys])
def test_a_set_is_a_list(shape: Callable[..., Any], field: str, wanted: str, kind: Callable[..., Any]) -> None:
    """A tuple, a set and the names of a table say as much as a list."""
    given = kind(FITTING[wanted])
    made = shape(**{own(field): given.keys() if isinstance(given, dict) else given})

    assert set(FITTING[wanted]) == set(getattr(made, own(field)))


@pytest.mark.parametrize(("shape", "field", "wanted"), LISTS)
@pytest.mark.parametrize("wrong", ["SUCCESS", "", 0, None, b"SU", {"SUCCESS": 1}])
def test_a_value_is_no_list(shape: Callable[..., Any], field: str, wanted: str, wrong: Any) -> None:
    """`ok="SUCCESS"` would otherwise mean the codes S, U, C and E."""
    with pytest.raises(ConfigurationError) as caught:
        shape(**{own(field): wrong})

    assert f"{field} must be {wanted}, not {wrong!r}" == str(caught.value)
    assert field == caught.value.field


@pytest.mark.parametrize(("shape", "field", "wanted"), LISTS)
@pytest.mark.parametrize("odd", [True, 1.0, None, ["A"], b"A"])
def test_what_is_listed_is_of_one_kind(shape: Callable[..., Any], field: str, wanted: str, odd: Any) -> None:
    """A code is a text or an integer, and nothing that only looks like one: `false` is not 0."""
    given = [*FITTING[wanted], odd]
    with pytest.raises(ConfigurationError) as caught:
        shape(**{own(field): given})

    assert f"{field} must be {wanted}, not {given!r}" == str(caught.value)
    assert field == caught.value.field


@pytest.mark.parametrize(("shape", "field", "key", "wanted"), TABLES_OF_LISTS)
def test_a_table_of_lists_is_its_own(shape: Callable[..., Any], field: str, key: str, wanted: str) -> None:
    """A table is taken over as it was, with the lists in it."""
    given = {key: list(FITTING[wanted])}
    made = shape(**{own(field): given})
    given[key].append("C")
    given["x"] = []

    assert {key: tuple(FITTING[wanted])} == getattr(made, own(field))


@pytest.mark.parametrize(("shape", "field", "key", "wanted"), TABLES_OF_LISTS)
@pytest.mark.parametrize("wrong", ["PAID", 0, None, [False], ["A", 1.5]])
def test_a_value_in_a_table_is_no_list(
    shape: Callable[..., Any], field: str, key: str, wanted: str, wrong: Any
) -> None:
    """`{"paid": "PAID"}` would otherwise mean the values P, A, I and D; the entry that is wrong is named."""
    with pytest.raises(ConfigurationError) as caught:
        shape(**{own(field): {"x": [], key: wrong}})

    assert f"{field} must be a table of names, each with {wanted}, not {key!r} with {wrong!r}" == str(caught.value)
    assert f"{field}.{key}" == caught.value.field


@pytest.mark.parametrize(
    ("shape", "field", "wanted"),
    [*((shape, field, wanted) for shape, field, _, wanted in TABLES_OF_LISTS), (Accept, "accept.length", "an integer")],
)
@pytest.mark.parametrize("wrong", [["paid"], "paid", None, [("paid", ["A"])]])
def test_a_value_is_no_table(shape: Callable[..., Any], field: str, wanted: str, wrong: Any) -> None:
    """A list or a word where names and values belong is refused by our own error."""
    with pytest.raises(ConfigurationError) as caught:
        shape(**{own(field): wrong})

    assert f"{field} must be a table of names, each with {wanted}, not {wrong!r}" == str(caught.value)
    assert field == caught.value.field


@pytest.mark.parametrize(("shape", "field"), TEXT_FIELDS)
@pytest.mark.parametrize("wrong", [None, 5, ["a"], b"a"])
def test_a_path_or_a_text_is_one(shape: Callable[..., Any], field: str, wrong: Any) -> None:
    """What is read as a path, or sent as a body, is a text: a `None` would be found in no answer."""
    with pytest.raises(ConfigurationError) as caught:
        shape(**{own(field): wrong})

    assert f"{field} must be a text, not {wrong!r}" == str(caught.value)
    assert field == caught.value.field


COMPARED: Final = [name for name, default in DEFAULTS[AnswerShape].items() if default is None and "_signed" not in name]


@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.parametrize("wrong", [5, False, ["a"], b"a"])
def test_a_compared_path_is_a_text_or_not_given(name: str, wrong: Any) -> None:
    """Not given and empty are two things: looked for under its wire name, and not compared."""
    with pytest.raises(ConfigurationError) as caught:
        AnswerShape(**{name: wrong})

    assert f"answer.{name} must be a text, not {wrong!r}" == str(caught.value)
    for path in (None, "", "a.b"):
        given: dict[str, Any] = {name: path}
        assert path == getattr(AnswerShape(**given), name)


@pytest.mark.parametrize(
    ("shape", "field", "wrong", "wanted"),
    [
        (AnswerShape, "answer.refusals_signed", "false", "true or false"),
        (AnswerShape, "answer.refusals_signed", 0, "true or false"),
        (HttpCodes, "http.rate_limit_precedes_execution", 1, "true or false"),
        (HttpCodes, "http.rate_limit_precedes_execution", "false", "true or false"),
        (NotificationShape, "notification.tolerance", True, "an integer"),
        (NotificationShape, "notification.tolerance", 1.5, "an integer"),
        (NotificationShape, "notification.tolerance", None, "an integer"),
        (NotificationShape, "notification.ack_status", "200", "an integer"),
        (NotificationShape, "notification.nack_status", False, "an integer"),
    ],
)
def test_a_number_is_no_truth_value(shape: Callable[..., Any], field: str, wrong: Any, wanted: str) -> None:
    """No truth value passes for a number, nor a text or a number for one: `"false"` is not false."""
    with pytest.raises(ConfigurationError) as caught:
        shape(**{own(field): wrong})

    assert f"{field} must be {wanted}, not {wrong!r}" == str(caught.value)
    assert field == caught.value.field


@pytest.mark.parametrize("length", ["30", True, 1.5, None])
def test_a_length_is_an_integer(length: Any) -> None:
    """A number of characters is counted; the argument whose length is wrong is named."""
    wanted = "accept.length must be a table of names, each with an integer"
    with pytest.raises(ConfigurationError) as caught:
        Accept(length={"body": 5, "subject": length})

    assert f"{wanted}, not 'subject' with {length!r}" == str(caught.value)
    assert "accept.length.subject" == caught.value.field


@pytest.mark.parametrize("length", [0, -1])
def test_a_length_is_of_one_character_or_more(length: int) -> None:
    """A length that nothing has would refuse every text."""
    with pytest.raises(ConfigurationError) as caught:
        Accept(length={"body": 1, "subject": length})

    assert f"accept.length.subject must be 1 or more, not {length}" == str(caught.value)
    assert "accept.length.subject" == caught.value.field


def test_lengths_are_their_own() -> None:
    """The table of lengths is taken over as it was."""
    given = {"subject": 30}
    accept = Accept(length=given)
    given["body"] = 1

    assert {"subject": 30} == accept.length


@pytest.mark.parametrize("amount", [(), (1, 1), (1, 2**53 - 1)])
def test_amounts_are_bounded_on_both_sides_or_not(amount: tuple[int, ...]) -> None:
    """The amounts that a service takes are a least and a greatest, or not known."""
    assert amount == Accept(amount=list(amount)).amount


@pytest.mark.parametrize(
    ("amount", "wanted"),
    [
        ([1], "[least, greatest], two integers"),
        ([1, 2, 3], "[least, greatest], two integers"),
        ([2, 1], "[least, greatest], two integers"),
        ([1, 2.0], INTEGERS),
        ([True, 2], INTEGERS),
        (["1", "2"], INTEGERS),
        ([None, 1], INTEGERS),
    ],
)
def test_amounts_in_another_form_are_refused(amount: Any, wanted: str) -> None:
    """Bounds that are none, or the wrong way round, would refuse every amount or none."""
    with pytest.raises(ConfigurationError) as caught:
        Accept(amount=amount)

    assert f"accept.amount must be {wanted}, not {amount!r}" == str(caught.value)
    assert "accept.amount" == caught.value.field


@pytest.mark.parametrize("place", ["query", "path", "header"])
def test_parameter_stands_in_one_of_three_places(place: Any) -> None:
    """The identifier of endpoints 6 and 7 stands in the query, the path or a header."""
    assert ("X-Order", place) == attrs.astuple(Parameter("X-Order", place))


def test_parameter_stands_in_the_query_by_default() -> None:
    """Who gives a name only means a query parameter."""
    assert Parameter("outTradeNo", "query") == Parameter("outTradeNo")


@pytest.mark.parametrize("place", ["body", "", None, "Query", ["query"]])
def test_other_place_is_refused(place: Any) -> None:
    """A place that does not exist is named, with those that do."""
    with pytest.raises(ConfigurationError) as caught:
        Parameter("outTradeNo", place)

    assert f"status.place must be one of 'query', 'path', 'header', not {place!r}" == str(caught.value)
    assert "status.place" == caught.value.field


def test_parameter_needs_a_name() -> None:
    """A parameter without a name cannot be sent."""
    with pytest.raises(ConfigurationError, match="a parameter needs the name") as caught:
        Parameter("")

    assert "status.name" == caught.value.field


@pytest.mark.parametrize("name", [None, 5, b"outTradeNo"])
def test_the_name_of_a_parameter_is_a_text(name: Any) -> None:
    """What names a parameter on the wire is a text."""
    with pytest.raises(ConfigurationError) as caught:
        Parameter(name)

    assert f"status.name must be a text, not {name!r}" == str(caught.value)
    assert "status.name" == caught.value.field


def test_a_code_needs_to_know_success() -> None:
    """With a result code, but without those that mean success, no answer would be one."""
    with pytest.raises(ConfigurationError, match="must list the codes that mean success") as caught:
        AnswerShape(code="code")

    assert "answer.ok" == caught.value.field
    assert (0, "0") == AnswerShape(code="code", ok=[0, "0"]).ok


@pytest.mark.parametrize(("thing", "names"), STATES.items())
def test_our_names_of_states(thing: str, names: list[str]) -> None:
    """Each of our names can be mapped, and gives the name back for the service's value."""
    states = States(**{thing: {name: [name.upper()] for name in names}})

    assert names == [states.name(thing, name.upper()) for name in names]


@pytest.mark.parametrize("thing", STATES)
def test_unknown_name_of_a_state_is_refused(thing: str) -> None:
    """A name that is not ours is named, with those that are."""
    with pytest.raises(ConfigurationError, match=f"states.{thing} knows no done, payed; allowed are ") as caught:
        States(**{thing: {"payed": ["A"], "done": ["B"]}})

    assert f"states.{thing}.done" == caught.value.field
    assert all(name in str(caught.value) for name in STATES[thing])


@pytest.mark.parametrize(
    ("table", "second"),
    [
        ({"paid": ["A"], "closed": ["A"]}, "closed"),
        ({"paid": ["A", "A"]}, "paid"),
        ({"paid": ["A", "B"], "pending": [0, "B"]}, "pending"),
    ],
)
def test_a_value_has_one_meaning(table: dict[str, list[str | int]], second: str) -> None:
    """A value under two names could be read as either: paid, or not."""
    with pytest.raises(ConfigurationError, match="two meanings") as caught:
        States(order=table)

    assert f"states.order.{second}" == caught.value.field


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "pending"),
        ("0", "paid"),
        (1, "closed"),
        ("", "failed"),
        (False, None),
        (True, None),
        (0.0, None),
        (1.0, None),
        (None, None),
        ("1", None),
        ([], None),
        ({"a": 1}, None),
    ],
    ids=repr,
)
def test_states_compare_by_type_and_value(value: object, expected: str | None) -> None:
    """`0` is not `False`, nor `"0"`: what the service did not write is not what the profile says."""
    states = States(order={"pending": [0], "paid": ["0"], "closed": [1], "failed": [""]})

    assert expected == states.name("order", value)


def test_states_of_one_thing_say_nothing_of_another() -> None:
    """Orders and refunds may use the same word for different states."""
    states = States(order={"paid": ["SUCCESS"]}, refund={"succeeded": ["SUCCESS"]})

    assert ("paid", "succeeded") == (states.name("order", "SUCCESS"), states.name("refund", "SUCCESS"))
    assert states.name("subscription", "SUCCESS") is None


@pytest.mark.parametrize(
    ("value", "codes", "expected"),
    [
        ("SUCCESS", ("SUCCESS",), True),
        ("success", ("SUCCESS",), False),
        (0, (0, "0"), True),
        ("0", (0, "0"), True),
        (False, (0, "0"), False),
        (True, (1,), False),
        (0.0, (0,), False),
        ("SUCC", ("SUCCESS",), False),
        (None, (), False),
    ],
)
def test_codes_compare_by_type_and_value(value: object, codes: tuple[str | int, ...], *, expected: bool) -> None:
    """A JSON `false` is not the code 0 that means success."""
    assert expected == among(value, codes)
    assert expected == among(value, list(codes))


@pytest.mark.parametrize("quarantine", [None, 0, 2, 60.0])
def test_quarantine_is_a_number_of_seconds(quarantine: float | None) -> None:
    """Seconds after which an absent answer is final, or nothing: then nothing is sent twice."""
    assert quarantine == Recovery(quarantine=quarantine).quarantine


@pytest.mark.parametrize(
    ("quarantine", "wanted"),
    [
        (-1, "a number of seconds, 0 or more"),
        (float("nan"), "a number of seconds, 0 or more"),
        (float("inf"), "a number of seconds, 0 or more"),
        (True, "a number"),
        ("60", "a number"),
        ([60], "a number"),
    ],
)
def test_quarantine_of_another_kind_is_refused(quarantine: Any, wanted: str) -> None:
    """A quarantine that never holds, or cannot be compared, would let a refund be sent twice."""
    with pytest.raises(ConfigurationError) as caught:
        Recovery(quarantine=quarantine)

    assert f"recovery.quarantine must be {wanted}, not {quarantine!r}" == str(caught.value)
    assert "recovery.quarantine" == caught.value.field


@pytest.mark.parametrize("verification", ["", "body", "standard-webhooks", "none"])
def test_verification_is_one_of_three_or_open(verification: Any) -> None:
    """How notifications are verified is one of three ways, or not yet said."""
    assert verification == NotificationShape(verification=verification).verification


@pytest.mark.parametrize("verification", ["Body", "standardwebhooks", None, False])
def test_other_verification_is_refused(verification: Any) -> None:
    """A misspelt verification must not end in none."""
    wanted = "notification.verification must be one of 'body', 'standard-webhooks', 'none'"
    with pytest.raises(ConfigurationError) as caught:
        NotificationShape(verification=verification)

    assert f"{wanted}, not {verification!r}" == str(caught.value)
    assert "notification.verification" == caught.value.field
