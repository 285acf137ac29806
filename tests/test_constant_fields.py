"""Constants that no call could carry, or sign: refused when the profile is made."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from payasync.arguments import ARGUMENTS
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.profile import Profile
from payasync.secret import Secret
from payasync.shapes import Parameter
from payasync.signing import SortedPairs

DOCUMENTED: Final = [(operation, each) for operation, given in ARGUMENTS.items() for each in given if each.wire]
ALWAYS_GIVEN: Final = [(operation, each.name, each.wire) for operation, each in DOCUMENTED if each.required]
MAY_BE_LEFT_OUT: Final = [(operation, each.wire) for operation, each in DOCUMENTED if not each.required]


def refusal(**parts: Any) -> tuple[str | None, str]:
    """Return the field and the words of the error that a profile is refused with."""
    with pytest.raises(ConfigurationError) as caught:
        Profile(**parts)
    return caught.value.field, str(caught.value)


def never_sent(operation: str, name: str, argument: str) -> tuple[str, str]:
    """Return what is said of a constant that no call would carry."""
    key = f"constants.{operation}.{name}"
    return key, f"{key} is the argument {argument}, which every call gives: the constant would never be sent"


@pytest.mark.parametrize(("operation", "argument", "wire"), ALWAYS_GIVEN)
def test_a_constant_is_no_required_argument(operation: str, argument: str, wire: str) -> None:
    """A constant under the wire name of what every call gives would have no effect."""
    assert never_sent(operation, wire, argument) == refusal(constants={operation: {"v": 1, wire: "x"}})


@pytest.mark.parametrize(
    ("further", "argument", "operation"),
    [
        ({"fields": {"subscription_id": "back"}}, "subscription_id", "subscriptions.cancel"),
        ({"fields": {"customer": "back"}}, "customer", "subscriptions.create"),
        ({"payment_status": Parameter("back", "path")}, "identifier", "payments.status"),
        ({"refund_status": Parameter("back", "header")}, "identifier", "refunds.status"),
    ],
)
def test_a_constant_has_no_name_that_the_profile_gives_to_one(
    further: Mapping[str, Any], argument: str, operation: str
) -> None:
    """A name that the profile gives to a required argument is as taken as one that the document shows."""
    assert never_sent(operation, "back", argument) == refusal(constants={operation: {"back": 1}}, **further)


@pytest.mark.parametrize(("operation", "wire"), MAY_BE_LEFT_OUT)
def test_a_constant_stands_in_for_an_optional_argument(operation: str, wire: str) -> None:
    """What a call may leave out has the constant's value then, such as the one scene type of a merchant."""
    constants = {operation: {wire: "x"}}

    assert constants == Profile(constants=constants).constants


@pytest.mark.parametrize(
    ("constants", "further"),
    [
        ({"orders.query": {"totalAmt": 1}}, {}),
        ({"*": {"currency": "CAD"}}, {}),
        ({"payments.status": {"outTradeNo": "T1"}}, {"payment_status": Parameter("no")}),
        ({"refunds.status": {"no": 1}}, {"payment_status": Parameter("no")}),
        ({"orders.query": {"back": 1}}, {"fields": {"return_url": "back"}}),
        ({"subscriptions.update": {"back": 1}}, {"fields": {"customer": "back"}}),
    ],
)
def test_a_constant_may_be_named_as_what_is_not_always_there(
    constants: Mapping[str, Mapping[str, Any]], further: Mapping[str, Any]
) -> None:
    """Only the required arguments of its own operation stand in a constant's way, and only under their wire names."""
    assert constants == Profile(constants=constants, **further).constants


NO_ONE_FORM: Final = "it must be a text or an integer of 64 bits: nothing else has one form that can be signed"
NO_FLOATS: Final = "it must be JSON of texts, integers, booleans, nulls, lists and objects, without floats"
AMBIGUOUS: Final = "it must be free of '&' and '=': there they would make the signed text ambiguous"
DIGEST: Final[dict[str, Any]] = {"algorithm": "hmac-sha256", "encoding": "hex"}
JSON: Final = SortedPairs(**DIGEST, nested="json")
UNSIGNABLE: Final[list[tuple[str, Any, SortedPairs, str]]] = [
    ("fee", 1.5, SortedPairs(**DIGEST), NO_ONE_FORM),
    ("test", True, SortedPairs(**DIGEST), NO_ONE_FORM),
    ("note", None, SortedPairs(**DIGEST), NO_ONE_FORM),
    ("device", {"os": "x"}, SortedPairs(**DIGEST), NO_ONE_FORM),
    ("tags", ["x"], SortedPairs(**DIGEST), NO_ONE_FORM),
    ("device", {"fee": 1.5}, JSON, NO_FLOATS),
    ("test", True, JSON, NO_ONE_FORM),
    ("device", {"query": "a=b"}, JSON, AMBIGUOUS),
    ("query", "a=b", SortedPairs(**DIGEST), AMBIGUOUS),
    ("query", "a&b", SortedPairs(**DIGEST), AMBIGUOUS),
    ("a=b", "x", SortedPairs(**DIGEST), AMBIGUOUS),
    ("a&b", 1, SortedPairs(**DIGEST), AMBIGUOUS),
    ("a=b", "", SortedPairs(**DIGEST), AMBIGUOUS),
    ("subject", "a=b", SortedPairs(**DIGEST, allow_delimiters=[]), AMBIGUOUS),
    ("query", "a|b", SortedPairs(separator="|"), AMBIGUOUS.replace("&", "|")),
]


@pytest.mark.parametrize(("name", "value", "scheme", "why"), UNSIGNABLE)
@pytest.mark.parametrize("where", ["*", "orders.place"])
def test_a_constant_of_a_signed_operation_can_be_signed(
    where: str, name: str, value: Any, scheme: SortedPairs, why: str
) -> None:
    """Each call would be refused for what its caller has not written: the profile is, and the constant named."""
    key = f"constants.{where}.{name}"
    field, words = refusal(constants={where: {"v": 1, name: value}}, signature=scheme)

    assert key == field
    assert words.startswith(
        f"{key} cannot be sent with orders.place, which is signed: the field {name!r} cannot be signed: {why}. "
    )


@pytest.mark.parametrize(("name", "value", "scheme", "why"), UNSIGNABLE)
def test_what_is_refused_would_have_been_refused_with_each_call(
    name: str, value: Any, scheme: SortedPairs, why: str
) -> None:
    """It is the scheme that says so, among the other fields of a call as for the constant alone."""
    with pytest.raises(InvalidArgumentError, match=f"^the field {name!r} cannot be signed") as caught:
        scheme.text({"nonceStr": "n", "outTradeNo": "T1", name: value}, path="/payment/orderquery")

    assert f"it must be {caught.value.rule}" == why


class Odd(SortedPairs):
    """A scheme of the merchant's own, which makes its text in its own way."""

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Sign whatever there is."""
        return f"{fields}{path}{key}"


@pytest.mark.parametrize(
    "further",
    [
        {},
        {"signature": Odd(**DIGEST)},
        {"signature": SortedPairs(**DIGEST), "signed": []},
        {"signature": SortedPairs(**DIGEST, exclude=["sign", "fee", "a=b", "device"])},
    ],
    ids=["no scheme", "own scheme", "nothing signed", "excluded"],
)
def test_what_is_not_signed_may_be_any_json(further: Mapping[str, Any]) -> None:
    """Only a scheme says what it refuses, and only of what it signs; one of the merchant's own says it as it signs."""
    constants: dict[str, dict[str, Any]] = {
        "*": {"fee": 1.5},
        "orders.place": {"a=b": True, "device": {"fee": [1.5, "="]}},
    }

    assert constants == Profile(constants=constants, **further).constants


@pytest.mark.parametrize(
    ("constants", "further"),
    [
        ({"payments.create": {"fee": 1.5}}, {}),
        ({"subscriptions.create": {"a=b": "="}}, {}),
        ({"*": {"fee": 1.5}, "orders.place": {"fee": 1}}, {"signed": ["orders.place"]}),
        ({"*": {"outTradeNo": 1.5, "refundAmt": "="}}, {"signed": ["refunds.create"]}),
        ({"*": {"no": 1.5}}, {"signed": ["refunds.status"], "refund_status": Parameter("no", "path")}),
    ],
)
def test_a_constant_that_no_signed_operation_carries(
    constants: Mapping[str, Mapping[str, Any]], further: Mapping[str, Any]
) -> None:
    """One of all operations gives way to the operation's own, and to what every call gives."""
    assert constants == Profile(constants=constants, signature=SortedPairs(**DIGEST), **further).constants


@pytest.mark.parametrize(
    ("name", "value", "options"),
    [
        ("signType", "RSA", {}),
        ("v", 2, {}),
        ("v", -(2**63), {}),
        ("v", "", {}),
        ("device", {"os": ["x", True, None]}, {"nested": "json"}),
        ("device", {"fee": 1.5, "query": "a=b"}, {"nested": "omit"}),
        ("subject", "a=b&c", {}),
        ("query", "a=b&c", {"allow_delimiters": ["query"]}),
        ("query", "a&b", {"separator": "|"}),
    ],
)
def test_constants_that_can_be_signed(name: str, value: Any, options: Mapping[str, Any]) -> None:
    """Texts and integers, and what the options of the scheme allow beyond them."""
    constants = {"*": {name: value}, "orders.place": {name: value}}

    assert constants == Profile(constants=constants, signature=SortedPairs(**DIGEST, **options)).constants


def test_the_line_of_a_constant_is_told() -> None:
    """In a TOML file, it is found where it stands."""
    text = '[signature]\nalgorithm = "hmac-sha256"\n[constants."*"]\nsignType = "HMAC"\nfee = 1.5\n'
    with pytest.raises(ConfigurationError, match=r"^profile, line 5: constants\.\*\.fee cannot be sent with") as caught:
        Profile.from_toml(text)

    assert ("constants.*.fee", 5) == (caught.value.field, caught.value.line)
