"""The audit: which points of the service's document a profile answers."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from attrs import evolve, fields

from payasync.endpoints import OPERATIONS
from payasync.profile.audit import Point
from payasync.profile.profile import Profile
from payasync.profile.sandbox_profile import PROFILE as SANDBOX
from payasync.profile.schema import (
    OPEN_FIELDS,
    Accept,
    AnswerShape,
    Auth,
    HttpCodes,
    Idempotency,
    NotificationShape,
    Recovery,
    ResultCodes,
    States,
)
from payasync.profile.wire_names import COMPARED as COMPARED_KEYS
from payasync.signing.schemes import SortedPairs

NAMES: Final = tuple(operation.name for operation in OPERATIONS)
NOT_SHOWN: Final = NAMES[5:]
"""6 to 10: the document does not say how they are authenticated (docs/reference/service.md#authentication)."""


def named(prefix: str, part: type[Any], *without: str) -> list[str]:
    """Return the names of the points of a part of the profile."""
    return [f"{prefix}.{each.name}" for each in fields(part) if each.name not in without]


SIGNED_VALUES: Final = [f"signature.{name}" for name in ("skip_null", "booleans", "numbers", "service_key")]
OF_NOTIFICATIONS: Final = ["notification.merchant_id", "notification.amounts", "notification.must"]
"""The points of notifications that have a default."""
NUMBERS: Final = ["endpoints.orders.query.number", "endpoints.refunds.status.number"]

POINTS: Final = [
    *(f"authentication of {name}" for name in NOT_SHOWN),
    "amount_unit",
    "signature.algorithm",
    "signature.encoding",
    *SIGNED_VALUES,
    *NUMBERS,
    *(f"fields.{name}" for name in OPEN_FIELDS),
    "formats.start_date",
    *named("accept", Accept, "redirect_schemes"),
    "payment_status",
    "refund_status",
    *named("answer", AnswerShape, "ok", "refusals_signed", "header", "tolerance"),
    *named("states", States),
    *named("codes", ResultCodes, "by_operation"),
    *named("http", HttpCodes),
    *named("recovery", Recovery),
    *named("notification", NotificationShape, "tolerance", "volatile", "header", "tells", "timezone"),
]
"""Every point that the document leaves open.

`ok`, which `code` demands, is no point of its own, nor are two that have defaults, nor is `refusals_signed` while
successes are not signed.
"""

ASSUMED: Final = ["answer.code", "answer.amounts", "answer.code_optional", "answer.redirect_template"]
COMPARED: Final = [f"answer.{name}" for name in COMPARED_KEYS]
"""What a response is compared in."""
SIGNED: Final = AnswerShape(signature="sign")


OWN_SCHEME: Final[Any] = SimpleNamespace(sign=str, verify=bool)
"""A scheme of a merchant's own."""


def audited(profile: Profile) -> dict[str, Point]:
    """Return the points by their names."""
    return {point.name: point for point in profile.audit()}


def test_each_point_once_and_in_order() -> None:
    """Every open point is listed, once, in the order of the TOML form, whatever the profile answers."""
    for profile in [Profile(), SANDBOX]:
        names = [point.name for point in profile.audit()]
        if profile.answer.redirect_url:  # its address has no parts
            names.insert(names.index("answer.redirect_url") + 1, "answer.redirect_template")
        names = [name for name in names if not name.startswith("constants.")]  # a profile has these, or not

        assert [name for name in POINTS if name.startswith("answer.")] == [n for n in names if n.startswith("answer.")]
        assert sorted(POINTS) == sorted(names)
        assert len(names) == len(set(names))
        assert [name.partition(".")[0] for name in POINTS] == [name.partition(".")[0] for name in names]


def test_every_point_says_what_to_put_there() -> None:
    """Each point says what it means, and which methods need it. An open point has no value, an answered one has."""
    for profile in [Profile(), SANDBOX, Profile(signature=OWN_SCHEME), Profile(answer=SIGNED)]:
        points = profile.audit()

        assert all(point.means for point in points)
        assert all(point.value is None for point in points if point.status == "open")
        assert all(point.value is not None for point in points if point.status == "answered")
        assert set(NAMES) >= {method for point in points for method in point.needed_by}


def test_bare_profile_answers_nothing() -> None:
    """Without a profile, only named conventions are assumed, and every other point is open."""
    points = audited(Profile())
    assumed = [name for name, point in points.items() if point.status == "assumed"]

    assert [
        *(f"authentication of {name}" for name in NOT_SHOWN),
        *SIGNED_VALUES,
        *NUMBERS,
        *ASSUMED,
        *COMPARED,
        "answer.must",
        *named("http", HttpCodes),
        *OF_NOTIFICATIONS,
    ] == assumed
    assert set() == {name for name, point in points.items() if point.status == "answered"}


def value_at(profile: Profile, name: str) -> Any:
    """Return the value of a profile at a key."""
    held: Any = profile
    while name:
        steps = held if isinstance(held, Mapping) else [name.partition(".")[0]]
        step = next(each for each in steps if f"{name}.".startswith(f"{each}."))
        held = held[step] if isinstance(held, Mapping) else getattr(held, step)
        name = name[len(step) + 1 :]
    return held


def test_what_is_answered_is_shown() -> None:
    """A profile with every key answers every point with its value."""
    profile = Profile.from_toml(Path(__file__).with_name("whole_profile.toml").read_text(encoding="utf-8"))
    points = {name: point for name, point in audited(profile).items() if not name.startswith("authentication")}

    assert "answer.redirect_template" not in points
    assert "assumed" == points.pop("endpoints.orders.query.number").status
    assert ("NOT_ENOUGH",) == points.pop("codes.refunds.create.not_executed").value
    assert "billingFrequency, plan.interval" == points.pop("fields.frequency").value
    assert {name: ("answered", value_at(profile, name)) for name in points} == {
        name: (point.status, point.value) for name, point in points.items()
    }


def test_headers_with_keys_are_shown_if_they_differ() -> None:
    """The audit shows what differs from `Authorization: Bearer`, and which methods carry it."""
    for bearer, needed_by in [(("orders.query",), ("orders.query",)), ((), NAMES)]:
        points = audited(Profile(bearer=bearer, auth=Auth(header="X-Key")))

        assert {"auth.header": ("answered", "X-Key", needed_by)} == {
            name: (point.status, point.value, point.needed_by)
            for name, point in points.items()
            if name.startswith("auth.")
        }


def test_authentication_of_6_to_10() -> None:
    """Endpoints 6 to 10 are assumed to carry no authentication, until `bearer` or `signed` is given."""
    for lists, expected in [
        ({}, ("assumed", "none")),
        ({"bearer": ["payments.create", "payments.status"]}, ("answered", "bearer")),
        ({"signed": ["payments.status"]}, ("answered", "signed")),
        ({"signed": []}, ("answered", "none")),
        ({"bearer": ["payments.status"], "signed": ["payments.status"]}, ("answered", "bearer and signed")),
    ]:
        point = audited(Profile(**lists))["authentication of payments.status"]  # type: ignore[arg-type] # converted

        assert expected == (point.status, point.value)


def test_who_needs_a_point() -> None:
    """A point lists the methods that fail, or are less safe, without it. A notification point lists none."""
    for name, expected in [
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
        ("answer.subscription_id", set(NAMES[7:])),
        ("answer.total_amt", {*NAMES[:7]} - {"orders.close"}),
        ("notification.id", set()),
    ]:
        assert expected == set(audited(Profile())[name].needed_by)


def test_idempotency_key() -> None:
    """The audit says what an idempotency key takes on the service's word. Its lifetime is open until it is given."""
    for given, name, lifetime in [
        (Idempotency(header="Idempotency-Key"), "header", ("open", None)),
        (Idempotency(field="key", lifetime=60.0), "field", ("answered", 60.0)),
    ]:
        points = audited(Profile(idempotency=given))
        place, kept = points[f"idempotency.{name}"], points["idempotency.lifetime"]

        assert ("answered", getattr(given, name)) == (place.status, place.value)
        assert "the service's word" in place.means
        assert {each.name for each in OPERATIONS if not each.read} == set(place.needed_by)
        assert (*lifetime, {"payments.create", "orders.place", *NAMES[7:]}) == (
            kept.status,
            kept.value,
            {*kept.needed_by},
        )
        assert not [each for each in audited(Profile()) if each.startswith("idempotency")]


def test_signed_answers_need_the_scheme_everywhere() -> None:
    """If responses are signed, every method needs the signature scheme, also one that sends Bearer."""
    for scheme in [None, SortedPairs(), OWN_SCHEME]:
        points = audited(Profile(signature=scheme, answer=SIGNED)).values()

        signing = [point for point in points if point.name.startswith("signature") and point.name != SIGNED_VALUES[-1]]
        assert {NAMES} == {point.needed_by for point in signing}
        assert ("signature" in [point.name for point in points]) is (scheme is OWN_SCHEME)


def test_whose_key_it_is() -> None:
    """A key is this merchant's alone, and all merchants' if the algorithm is asymmetric, unless the profile says it."""
    cases: list[tuple[dict[str, Any], tuple[str, str | None]]] = [
        ({}, ("assumed", None)),
        ({"algorithm": "hmac-sha256"}, ("assumed", "merchant")),
        ({"algorithm": "hmac-sha256", "service_key": "shared"}, ("answered", "shared")),
        ({"algorithm": "ed25519"}, ("assumed", "shared")),
        ({"algorithm": "rsa-sha256", "service_key": "merchant"}, ("answered", "merchant")),
    ]
    for options, expected in cases:
        point = audited(Profile(signature=SortedPairs(**options)))["signature.service_key"]

        assert expected == (point.status, point.value)
        follows = {
            "shared": "; a notification whose signed part names",
            "merchant": "; a signature alone binds",
            None: "",
        }
        assert f"whose the key that verifies is{follows[expected[1]]}" in point.means


def test_key_of_standard_webhooks() -> None:
    """Standard Webhooks has symmetric keys: one is taken for this merchant's, whatever signs requests."""
    shape = NotificationShape(verification="standard-webhooks")
    point = audited(Profile(signature=SortedPairs(algorithm="rsa-sha256"), notification=shape))["signature.service_key"]

    assert ("assumed", "merchant") == (point.status, point.value)


def test_what_notifications_take_from_other_tables() -> None:
    """Without a value of their own, notifications name the merchant and have amounts as other tables say."""
    profile = Profile(fields={"merchant_id": "mchid"}, answer=AnswerShape(amounts="major"))
    off = audited(evolve(profile, notification=NotificationShape(merchant_id="")))["notification.merchant_id"]

    assert ["mchid", "major"] == [audited(profile)[name].value for name in OF_NOTIFICATIONS[:2]]
    assert ("answered", "", "the merchant's number is not compared") == (off.status, off.value, off.means)


NO_EFFECT: Final = "; the value that is given has no effect without answer"
NOT_FINAL: Final = "is never final, and recovery.quarantine has no effect"
FINAL: Final = "no write that a number names is sent a second time"
SUBSCRIPTION: Final = "in subscriptions.update and subscriptions.cancel"
STATES: Final[dict[str, dict[str, tuple[str | int, ...]]]] = {
    "order": {"paid": ("P",)},
    "payment": {"paid": ("P",)},
    "refund": {"failed": ("P",)},
    "subscription": {"active": (1,)},
}
UNRECOGNISED: Final = "a success that lacks it, or names another number, is unrecognised"
TAKING: Final = AnswerShape(out_trade_no="no", total_amt="no", subscription_id="no")
OFF: Final = AnswerShape(out_trade_no="", total_amt="", merchant_id="", subscription_id="")
NONE: Final = ResultCodes(absent=("N",))
OPEN: Final = ("open", None)
REFUNDS: Final = ResultCodes(by_operation={"refunds.create": {"absent": ("N",)}})
REFUND_CODE: Final = "codes.refunds.create.absent"
TEMPLATE: Final = "https://pay.example/{no}"
PARTS: Final = AnswerShape(redirect_template=TEMPLATE)
MINUTE: Final = ("answered", 60.0)


def signing(*, said: bool | None, path: str = "sign") -> dict[str, Any]:
    """Return profile parts with a quarantine, and with or without a statement that failures are signed."""
    return {"answer": AnswerShape(signature=path, refusals_signed=said), "recovery": Recovery(quarantine=60.0)}


def test_point() -> None:
    """The audit of a key says what its value causes, or which other key is missing."""
    cases: list[tuple[dict[str, Any], str, tuple[str, object], str]] = [
        # An empty path, an empty list and 0 are answers; codes are also found in messages.
        ({"answer": OFF}, "answer.merchant_id", ("answered", ""), "is not compared"),
        ({"http": HttpCodes(duplicate=())}, "http.duplicate", ("answered", ()), ""),
        ({"recovery": Recovery(quarantine=0.0)}, "recovery.quarantine", ("answered", 0.0), FINAL),
        ({"codes": NONE, "answer": AnswerShape(message="m")}, "codes.absent", ("answered", ("N",)), ""),
        # Values that no response is searched for have no effect.
        *(
            ({"states": States(**{thing: table})}, f"states.{thing}", OPEN, f"{NO_EFFECT}.{thing}_status")
            for thing, table in STATES.items()
        ),
        ({"codes": NONE}, "codes.absent", OPEN, f"{NO_EFFECT}.code or answer.message"),
        # What a response is compared in has its wire name until a path is given.
        ({}, "answer.out_trade_no", ("assumed", "outTradeNo"), "names another outTradeNo is refused"),
        ({}, "answer.total_amt", ("assumed", "totalAmt"), "another totalAmt (payments.create: amount) is refused"),
        ({"answer": TAKING}, "answer.out_trade_no", ("answered", "no"), "or names another outTradeNo, is refused"),
        ({"answer": TAKING}, "answer.total_amt", ("answered", "no"), "names another amount, here or as amount"),
        ({"answer": TAKING}, "answer.subscription_id", ("answered", "no"), f"{SUBSCRIPTION} {UNRECOGNISED}"),
        ({"answer": OFF}, "answer.out_trade_no", ("answered", ""), "outTradeNo is not compared"),
        ({"answer": OFF}, "answer.total_amt", ("answered", ""), "totalAmt and amount are not compared"),
        ({"answer": OFF}, "answer.subscription_id", ("answered", ""), f"{SUBSCRIPTION} it is not compared"),
        ({}, "answer.subscription_id", OPEN, f"{SUBSCRIPTION} it is compared under its wire name, if it is there"),
        ({"answer": AnswerShape(ok=("OK",))}, "answer.code", ("assumed", None), "and answer.ok has no effect"),
        ({"codes": REFUNDS, "answer": AnswerShape(message="m")}, REFUND_CODE, ("answered", ("N",)), "codes.absent"),
        ({"answer": PARTS}, "answer.redirect_url", ("assumed", TEMPLATE), "answer.redirect_template gives it"),
        ({"answer": PARTS}, "answer.redirect_template", ("answered", TEMPLATE), "gives only these"),
        # A wire name that the profile gives is the one that is compared.
        ({"fields": {"currency": "cur"}}, "answer.currency", ("assumed", "cur"), "names another cur is refused"),
        (
            {"fields": {"total_amt": "total", "refunds.create": {"total_amt": "whole"}}},
            "answer.total_amt",
            ("assumed", "total, whole"),
            "names another total or whole (payments.create: amount) is refused",
        ),
        # If successes are signed, the quarantine counts once the profile says whether failures are, too.
        (signing(said=None), "answer.refusals_signed", OPEN, NOT_FINAL),
        (signing(said=None), "recovery.quarantine", OPEN, f"{NO_EFFECT}.refusals_signed"),
        *(
            (signing(said=said), "answer.refusals_signed", ("answered", said), "is signed, too")
            for said in (True, False)
        ),
        *((signing(said=said), "recovery.quarantine", MINUTE, FINAL) for said in (True, False)),
        (signing(said=True, path=""), "answer.refusals_signed", OPEN, f"{NO_EFFECT}.signature or answer.header"),
        *((signing(said=said, path=""), "recovery.quarantine", MINUTE, FINAL) for said in (True, None)),
    ]
    for parts, name, expected, means in cases:
        point = audited(Profile(**parts))[name]

        assert expected == (point.status, point.value)
        assert point.means.endswith(means)
