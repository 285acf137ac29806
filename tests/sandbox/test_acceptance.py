"""What a profile says that its service takes, as the sandbox checks it."""

from typing import Any

import pytest

from payasync import Accept, AnswerShape, HttpCodes, Profile
from payasync.endpoints import PLACE_ORDER, QUERY_PAYMENT, Operation
from payasync.errors import ConfigurationError
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.dialect import Dialect
from payasync.sandbox.model import RefusedError

ORDER = {"outTradeNo": "T1", "totalAmt": 450, "currency": "CAD"}
BARE: Any = {"signed": [], "merchant": [], "bearer": []}


def refused(profile: Profile, operation: Operation, fields: dict[str, Any], **headers: str) -> str | None:
    """Return the field for which a request is refused, or `None` where it is taken."""
    try:
        Dialect(profile).read(operation, fields, headers)
    except RefusedError as error:
        return error.field
    return None


@pytest.mark.parametrize(
    ("value", "field"), [(1, None), (2, "v"), ("1", "v"), (True, "v"), (1.0, "v"), (None, "v"), ([1], "v")]
)
def test_constant_has_its_type_and_its_value(value: object, field: str | None) -> None:
    """To Python 1 is true and 1.0; to a service it is not."""
    profile = Profile(**BARE, constants={"*": {"v": 1}})

    assert field == refused(profile, PLACE_ORDER, {**ORDER, "v": value})


def test_constant_that_is_nested() -> None:
    """The order of its members does not count; what is in them does."""
    profile = Profile(**BARE, constants={"orders.place": {"v": {"a": 1, "b": [2]}}})

    assert [None, "v", "v"] == [
        refused(profile, PLACE_ORDER, {**ORDER, **given})
        for given in ({"v": {"b": [2], "a": 1}}, {"v": {"a": 1, "b": [3]}}, {})
    ]


@pytest.mark.parametrize(("value", "field"), [("1", None), ("2", "v"), ("", "v")])
def test_constant_in_a_query_is_its_digits(value: str, field: str | None) -> None:
    """A query holds texts only."""
    profile = Profile(**BARE, constants={"*": {"v": 1}})

    assert field == refused(profile, QUERY_PAYMENT, {"outTradeNo": "T1", "v": value})


def test_constant_of_one_operation_is_no_others() -> None:
    """A table by an operation's name is that operation's alone, and goes before the one for all."""
    profile = Profile(**BARE, constants={"*": {"v": 1}, "orders.place": {"v": 2}})

    assert [None, "v"] == [refused(profile, PLACE_ORDER, {**ORDER, "v": value}) for value in (2, 1)]


def test_argument_goes_before_a_constant_of_its_name() -> None:
    """What a caller may give in place of a constant need not equal it, but must be there."""
    profile = Profile(**BARE, constants={"*": {"sceneType": "JSAPI"}})

    assert [None, None] == [refused(profile, PLACE_ORDER, {**ORDER, **given}) for given in ({"sceneType": "H5"}, {})]


def test_extra_field_that_is_required() -> None:
    """What `accept.required` names beyond the arguments travels in `extra`: any value counts."""
    profile = Profile(**BARE, accept=Accept(required={"orders.place": ["deviceNo", "subject"]}))

    assert ["subject", "deviceNo", None] == [
        refused(profile, PLACE_ORDER, {**ORDER, **given})
        for given in ({}, {"subject": "x"}, {"subject": "x", "deviceNo": ""})
    ]


@pytest.mark.parametrize(("amount", "field"), [(1, "totalAmt"), (2, None), (9, None), (10, "totalAmt")])
def test_bounds_of_amounts(amount: int, field: str | None) -> None:
    """Both ends are within."""
    profile = Profile(**BARE, accept=Accept(amount=(2, 9)))

    assert field == refused(profile, PLACE_ORDER, {**ORDER, "totalAmt": amount})


@pytest.mark.parametrize(("failures", "listed", "status"), [
    ("", True, 409), ("", False, 200), ("status", False, 409), ("200", True, 200)
])  # fmt: skip
def test_how_refusals_are_told(failures: Any, listed: bool, status: int) -> None:  # noqa: FBT001 - a column
    """By the status, or inside HTTP 200 where the profile says of no status what it means, or where that is asked."""
    http = HttpCodes() if listed else HttpCodes(not_executed=())
    dialect = Dialect(Profile(answer=AnswerShape(code="code", ok=["OK"]), http=http), failures)
    refusals = [
        dialect.refusal(RefusedError("wrong_state", "no"), PLACE_ORDER, "r"),
        dialect.refusal(RefusedError("invalid", "no", status=413), PLACE_ORDER, "r"),
        dialect.refusal(RefusedError("absent", "no"), None, "r"),
        dialect.refusal(RefusedError("busy", "no"), PLACE_ORDER, "r"),
    ]

    assert [status, 413, 404, 503] == [each.status for each in refusals]


def test_failures_are_told_in_one_of_two_ways() -> None:
    """Another word is refused, and both are named."""
    wrong: Any = "202"
    with pytest.raises(ConfigurationError, match='"status" or "200"'):
        Sandbox(PROFILE, failures=wrong)
