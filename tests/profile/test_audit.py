"""The audit: which points of the service's document a profile answers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import fields

from payasync.endpoints import OPERATIONS
from payasync.profile.audit import Point
from payasync.profile.profile import Profile
from payasync.profile.sandbox_profile import PROFILE as SANDBOX
from payasync.profile.schema import COMPARED as COMPARED_KEYS
from payasync.profile.schema import (
    OPEN_FIELDS,
    Accept,
    AnswerShape,
    HttpCodes,
    NotificationShape,
    Recovery,
    ResultCodes,
    States,
)
from payasync.signing.schemes import SignatureScheme, SortedPairs

NAMES: Final = tuple(operation.name for operation in OPERATIONS)
NOT_SHOWN: Final = NAMES[5:]
"""6 to 10: the document does not say how they are authenticated (docs/service.md#authentication)."""


def named(prefix: str, part: type[Any], *without: str) -> list[str]:
    """Return the names of the points of a part of the profile."""
    return [f"{prefix}.{each.name}" for each in fields(part) if each.name not in without]


SIGNED_VALUES: Final = ["signature.skip_null", "signature.booleans", "signature.numbers"]

POINTS: Final = [
    *(f"authentication of {name}" for name in NOT_SHOWN),
    "amount_unit",
    "signature.algorithm",
    "signature.encoding",
    *SIGNED_VALUES,
    *(f"fields.{name}" for name in OPEN_FIELDS),
    "formats.start_date",
    *named("accept", Accept),
    "payment_status",
    "refund_status",
    *named("answer", AnswerShape, "ok", "refusals_signed"),
    *named("states", States),
    *named("codes", ResultCodes),
    *named("http", HttpCodes),
    *named("recovery", Recovery),
    *named("notification", NotificationShape, "tolerance", "volatile"),
]
"""Every point that the document leaves open.

`ok`, which `code` demands, is no point of its own, nor are two that have defaults, nor is `refusals_signed` while
successes are not signed.
"""

COMPARED: Final = [f"answer.{name}" for name in COMPARED_KEYS]
"""What a response is compared in."""
SIGNED: Final = AnswerShape(signature="sign")


class Custom:
    """A scheme of a merchant's own."""

    def sign(self, *_: object, **__: object) -> str:
        """Sign anything."""
        return "signed"

    def verify(self, *_: object, **__: object) -> bool:
        """Verify nothing."""
        return False


PROFILES: Final = {
    "bare": Profile(),
    "sandbox": SANDBOX,
    "custom": Profile(signature=Custom()),
    "signed": Profile(answer=SIGNED),
}


def audited(profile: Profile) -> dict[str, Point]:
    """Return the points by their names."""
    return {point.name: point for point in profile.audit()}


@pytest.mark.parametrize("profile", [PROFILES["bare"], SANDBOX], ids=["bare", "sandbox"])
def test_each_point_once_and_in_order(profile: Profile) -> None:
    """Every open point is listed, once, in the order of the TOML form, whatever the profile answers."""
    names = [point.name for point in profile.audit()]

    assert [name for name in POINTS if name.startswith("answer.")] == [n for n in names if n.startswith("answer.")]
    assert sorted(POINTS) == sorted(names)
    assert len(names) == len(set(names))
    assert [name.partition(".")[0] for name in POINTS] == [name.partition(".")[0] for name in names]


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_every_point_says_what_to_put_there(profile: Profile) -> None:
    """Whoever reads the table knows what is missing, and for which methods; an open point has no value."""
    points = profile.audit()

    assert all(point.means for point in points)
    assert {None} == {point.value for point in points if point.status == "open"} | {None}
    assert all(point.value is not None for point in points if point.status == "answered")
    assert set(NAMES) >= {method for point in points for method in point.needed_by}


def test_bare_profile_answers_nothing() -> None:
    """What is assumed without a profile are named conventions only; all else is open."""
    points = audited(Profile())
    assumed = [name for name, point in points.items() if point.status == "assumed"]

    assert [
        *(f"authentication of {name}" for name in NOT_SHOWN),
        *SIGNED_VALUES,
        "answer.code",
        *COMPARED,
        *named("http", HttpCodes),
    ] == assumed
    assert set() == {name for name, point in points.items() if point.status == "answered"}


def test_sandbox_answers_what_calls_need() -> None:
    """With the sandbox's profile only what it does not restrict, wrap or sign stays open."""
    points = audited(SANDBOX)

    assert {
        *named("accept", Accept),
        "answer.data",
        "answer.signature",
        "notification.signature",
    } == {name for name, point in points.items() if point.status == "open"}
    assumed = {name for name, point in points.items() if point.status == "assumed"}
    assert {*COMPARED, *SIGNED_VALUES, "http.not_executed", "http.duplicate"} == assumed


def value_at(profile: Profile, name: str) -> Any:
    """Return what a profile holds at a key."""
    held: Any = profile
    for step in name.split("."):
        held = held[step] if isinstance(held, Mapping) else getattr(held, step)
    return held


def test_what_is_answered_is_shown() -> None:
    """A profile with every key answers every point with its value, but for an address that could never verify."""
    profile = Profile.from_toml(Path(__file__).with_name("whole_profile.toml").read_text(encoding="utf-8"))
    points = {name: point for name, point in audited(profile).items() if not name.startswith("authentication")}

    assert "open" == points.pop("signature.allow_delimiters").status
    assert {name: ("answered", value_at(profile, name)) for name in points} == {
        name: (point.status, point.value) for name, point in points.items()
    }


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        (Profile(answer=AnswerShape(merchant_id="")), "answer.merchant_id"),
        (Profile(http=HttpCodes(duplicate=())), "http.duplicate"),
        (Profile(recovery=Recovery(quarantine=0.0)), "recovery.quarantine"),
        (Profile(codes=ResultCodes(absent=("N",)), answer=AnswerShape(message="m")), "codes.absent"),
    ],
)
def test_empty_answers_are_answers(profile: Profile, name: str) -> None:
    """An empty path, an empty list and 0 say something, and codes are also found in messages."""
    assert ("answered", value_at(profile, name)) == (audited(profile)[name].status, audited(profile)[name].value)


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ({}, ("assumed", "none")),
        ({"bearer": ["payments.create", "payments.status"]}, ("answered", "bearer")),
        ({"signed": ["payments.status"]}, ("answered", "signed")),
        ({"signed": []}, ("answered", "none")),
        ({"bearer": ["payments.status"], "signed": ["payments.status"]}, ("answered", "bearer and signed")),
    ],
)
def test_authentication_of_6_to_10(lists: dict[str, list[str]], expected: tuple[str, str]) -> None:
    """It is assumed that they carry nothing, until one of the two lists is given."""
    point = audited(Profile(**lists))["authentication of payments.status"]  # type: ignore[arg-type] # converted

    assert expected == (point.status, point.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fields.return_url", {"orders.place"}),
        ("fields.subscription_id", {"subscriptions.update", "subscriptions.cancel"}),
        ("payment_status", {"payments.status"}),
        ("refund_status", {"refunds.status", "refunds.create"}),
        ("signature.algorithm", set(NAMES[1:5])),
        ("answer.refund_amt", {"refunds.create", "refunds.status"}),
        ("recovery.quarantine", {"orders.place", "refunds.create"}),
        ("codes.absent", {"orders.place", "refunds.create"}),
        ("states.order", set(NAMES[1:4])),
        ("answer.subscription_status", set(NAMES[7:])),
        ("notification.id", set()),
    ],
)
def test_who_needs_a_point(name: str, expected: set[str]) -> None:
    """The methods that cannot do without it, or are less safe without it; of notifications none."""
    assert expected == set(audited(Profile())[name].needed_by)


@pytest.mark.parametrize("scheme", [None, SortedPairs(), Custom()], ids=["none", "pairs", "custom"])
def test_signed_answers_need_the_scheme_everywhere(scheme: SignatureScheme | None) -> None:
    """Where answers are signed, those that carry Bearer must verify, too."""
    points = audited(Profile(signature=scheme, answer=AnswerShape(signature="sign"))).values()
    needed = [point.needed_by for point in points if point.name.startswith("signature")]

    assert {NAMES} == set(needed)
    assert ("signature" in [point.name for point in points]) is isinstance(scheme, Custom)


@pytest.mark.parametrize(
    ("part", "name", "missing"),
    [
        ({"states": States(order={"paid": ("P",)})}, "states.order", "answer.order_status"),
        ({"states": States(payment={"paid": ("P",)})}, "states.payment", "answer.payment_status"),
        ({"states": States(refund={"failed": ("P",)})}, "states.refund", "answer.refund_status"),
        ({"states": States(subscription={"active": (1,)})}, "states.subscription", "answer.subscription_status"),
        ({"codes": ResultCodes(absent=("N",))}, "codes.absent", "answer.code or answer.message"),
        ({"codes": ResultCodes(retryable=(1,))}, "codes.retryable", "answer.code or answer.message"),
    ],
)
def test_values_that_stand_nowhere_are_open(part: dict[str, Any], name: str, missing: str) -> None:
    """Values that no answer is searched for have no effect: their point stays open, and says what is missing."""
    point = audited(Profile(**part))[name]

    assert ("open", None) == (point.status, point.value)
    assert point.means.endswith(f"; the value that is given has no effect without {missing}")


def test_what_a_response_is_compared_in() -> None:
    """Each has its wire name until it is given, at the top level of the payload; the duplicate is HTTP 409."""
    points = audited(Profile())
    wire = ["outTradeNo", "outRefundNo", "totalAmt", "refundAmt", "currency", "merchantId"]

    assert wire == [points[name].value for name in COMPARED]
    assert (409,) == points["http.duplicate"].value
    assert "a response that names another outTradeNo is refused" == points["answer.out_trade_no"].means
    assert points["answer.total_amt"].means.startswith(
        "a response that names another totalAmt (payments.create: amount)"
    )
    assert "payments.create" in points["answer.total_amt"].needed_by


@pytest.mark.parametrize(
    ("path", "status", "means"),
    [
        (None, "open", "it is compared under its wire name, if it is there"),
        ("", "answered", "it is not compared"),
        ("no", "answered", "a success that lacks it, or names another number, is unrecognised"),
    ],
)
def test_where_a_subscription_is_named(path: str | None, status: str, means: str) -> None:
    """It says what that means for endpoints 9 and 10, too."""
    point = audited(Profile(answer=AnswerShape(subscription_id=path)))["answer.subscription_id"]

    assert (status, path) == (point.status, point.value)
    assert point.means.endswith(f"in subscriptions.update and subscriptions.cancel {means}")
    assert {"subscriptions.create", "subscriptions.update", "subscriptions.cancel"} == set(point.needed_by)


NO_EFFECT: Final = "the value that is given has no effect without answer"
FINAL: Final = "no write is ever sent a second time"
UNTIL_THEN: Final = "is never final, and recovery.quarantine has no effect"


@pytest.mark.parametrize(
    ("signature", "said", "refusals", "quarantine"),
    [
        ("sign", None, ("open", None, UNTIL_THEN), ("open", None, f"{NO_EFFECT}.refusals_signed")),
        ("sign", True, ("answered", True, "is signed, too"), ("answered", 60.0, FINAL)),
        (
            "sign",
            False,
            ("answered", False, "is signed, too"),
            ("answered", 60.0, FINAL),
        ),
        ("", True, ("open", None, f"{NO_EFFECT}.signature"), ("answered", 60.0, FINAL)),
        ("", None, None, ("answered", 60.0, FINAL)),
    ],
)
def test_signed_refusals(signature: str, said: Any, refusals: Any, quarantine: Any) -> None:
    """Where successes are signed, the quarantine counts once it is said whether failures are, too."""
    answer = AnswerShape(signature=signature, refusals_signed=said)
    points = audited(Profile(answer=answer, recovery=Recovery(quarantine=60.0)))

    for name, expected in (("answer.refusals_signed", refusals), ("recovery.quarantine", quarantine)):
        point = points.get(name)
        assert (expected and expected[:2]) == (point and (point.status, point.value))
        assert point is None or point.means.endswith(expected[2])


ADDRESS: Final = "signature.allow_delimiters"


@pytest.mark.parametrize(
    ("answer", "name", "means"),
    [
        (AnswerShape(ok=("OK",)), "answer.code", "HTTP 2xx is success, and answer.ok has no effect"),
        (AnswerShape(out_trade_no="no"), "answer.out_trade_no", "or names another outTradeNo, is refused"),
        (AnswerShape(out_trade_no=""), "answer.out_trade_no", "outTradeNo is not compared"),
        (AnswerShape(total_amt=""), "answer.total_amt", "totalAmt and amount are not compared"),
        (AnswerShape(total_amt="t"), "answer.total_amt", "names another amount, here or as amount"),
    ],
)
def test_what_an_answer_means(answer: AnswerShape, name: str, means: str) -> None:
    """A path that is given demands more than the assumed one, and an empty one nothing: the point says so."""
    assert audited(Profile(answer=answer))[name].means.endswith(means)


@pytest.mark.parametrize(
    ("answer", "scheme", "value"),
    [
        (AnswerShape(data="data", signature="data.sign", redirect_url="payUrl"), None, None),
        (AnswerShape(signature="a.sign", redirect_url="a.payUrl"), SortedPairs(), None),
        (AnswerShape(signature="sign", redirect_url="payUrl"), SortedPairs(allow_delimiters=("payUrl",)), ("payUrl",)),
        (AnswerShape(redirect_url="payUrl"), SortedPairs(), "no point"),
        (AnswerShape(signature="sign"), SortedPairs(), "no point"),
        (AnswerShape(data="data", signature="sign", redirect_url="payUrl"), SortedPairs(), "no point"),
        (AnswerShape(signature="sign", redirect_url="payUrl"), SortedPairs(exclude=("sign", "payUrl")), "no point"),
        (AnswerShape(signature="sign", redirect_url="payUrl"), Custom(), "no point"),
    ],
    ids=["in the payload", "in an object", "allowed", "unsigned", "none", "outside", "excluded", "custom"],
)
def test_address_in_a_signed_answer(answer: AnswerShape, scheme: SignatureScheme | None, value: object) -> None:
    """An address holds `&` and `=`, with which a signed answer verifies only if the scheme allows them there."""
    point = audited(Profile(answer=answer, signature=scheme)).get(ADDRESS)

    assert value == (point.value if point else "no point")
    assert point is None or (("orders.place",) == point.needed_by and "'payUrl'" in point.means)
