"""A sandbox's dialect: it reads requests, and writes responses and notifications, as the profile says."""

from typing import Any, Final

import pytest
from attrs import evolve

from payasync import (
    Accept,
    AnswerShape,
    DuplicateError,
    HttpCodes,
    NotificationShape,
    Profile,
    Recovery,
    ResultCodes,
    RetryPolicy,
    ServiceError,
)
from payasync.endpoints import PLACE_ORDER, QUERY_PAYMENT, Operation
from payasync.errors import ConfigurationError
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.dialect import Dialect, WireNames
from payasync.sandbox.model import RefusedError
from tests.sandbox.world import SAMPLES


def words(**parts: Any) -> WireNames:
    """Return the wire names of a profile with these parts."""
    return WireNames(Profile(**parts))


@pytest.mark.parametrize(
    ("answer", "untold"),
    [
        (AnswerShape(order_status="code"), {"code"}),
        (AnswerShape(order_status="code.state"), {"code"}),
        (AnswerShape(data="code"), {"code"}),
        (AnswerShape(data="message.inner"), {"message"}),
        (AnswerShape(payment_id="status"), {"order_status", "payment_status", "refund_status"}),
        (AnswerShape(data="x", payment_id="code"), set[str]()),
        (AnswerShape(refund_status="paymentId"), {"payment_id"}),
        (AnswerShape(order_status="status"), set[str]()),
        (AnswerShape(request_id="header:code"), set[str]()),
    ],
)
def test_answered_points_stay_where_they_are(answer: AnswerShape, untold: set[str]) -> None:
    """An open point is left out if its own place would overwrite a point that the profile answers."""
    shape = words(answer=answer).answer
    points = ("code", "message", "request_id", "payment_id", "payment_status", "order_status", "refund_status")

    assert untold == {point for point in points if not getattr(shape, point)}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (NotificationShape(ack_body="OK", kind="event"), ("OK", "event", "data", "standard-webhooks")),
        (NotificationShape(verification="none"), ("", "", "", "none")),
    ],
)
def test_open_points_of_notifications(given: NotificationShape, expected: tuple[str, ...]) -> None:
    """Open points of notifications have the sandbox's own values, unless the profile gives a verification."""
    shape = words(notification=given).notification

    assert expected == (shape.ack_body, shape.kind, shape.data, shape.verification)


def test_codes_that_stand_in_messages() -> None:
    """If the profile has no place for a code but lists codes, the message of a refusal is the code."""
    codes, gone = ResultCodes(absent=("NO_ORDER",)), RefusedError("absent", "there is no such order")
    busy = RefusedError("busy", "later")

    assert ["NO_ORDER", "later"] == [
        words(answer=AnswerShape(message="m"), codes=codes).message(each) for each in (gone, busy)
    ]
    assert "there is no such order" == words(answer=AnswerShape(message="m", code="c", ok=[0]), codes=codes).message(
        gone
    )
    assert "there is no such order" == words(codes=codes).message(gone)


def test_codes_by_what_they_mean() -> None:
    """If a profile lists fewer codes than the sandbox has reasons, its last code is used for the rest."""
    told = words(codes=ResultCodes(not_executed=("PARAM", "AUTH"), duplicate=(77,)))

    assert ["PARAM", "AUTH", "AUTH", "AUTH", 77] == [
        told.code(why) for why in ("invalid", "unauthenticated", "nonce_used", "wrong_state", "duplicate")
    ]


def test_names_of_events() -> None:
    """Event names follow the sandbox's own order. The last name is used for the rest, except for orders."""
    kinds = {"payment": ["p1", "p2"], "refund": ["r1"], "subscription": ["s1", "s2", "s3"]}
    told = words(notification=NotificationShape(verification="none", kind="k", kinds=kinds))
    ends = [told.event("payment", name) for name in ("paid", "failed", "closed", "expired")]
    steps = [told.event("subscription", name) for name in ("renewed", "past_due", "cancelled", "started")]

    assert ["p1", "p2", None, None] == ends
    assert ["r1", "r1"] == [told.event("refund", name) for name in ("succeeded", "failed")]
    assert ["s1", "s2", "s3", "s1"] == steps


def test_wrong_signature_leads_to_the_dashboard() -> None:
    """A refused signature's message points to the dashboard, and does not contain the text to sign."""
    refused = RefusedError("bad_signature", "it is wrong", expected="totalAmt=1")

    assert "it is wrong; the sandbox's dashboard shows the text to sign" == words().message(refused)


def test_title_says_who_checks_signatures() -> None:
    """If the profile has a custom scheme, the title warns that only this scheme checks its signatures."""

    class Mine:
        def sign(self, fields: Any, *, path: str, key: Any) -> str:
            raise NotImplementedError

        def verify(self, fields: Any, signature: str, *, path: str, key: Any) -> bool:
            raise NotImplementedError

    assert "shop" == words(name="shop").title
    assert (
        "shop: signatures are made and checked by its own Mine, by nothing else"
        == words(name="shop", signature=Mine()).title
    )


ORDER = {"outTradeNo": "T1", "totalAmt": 450, "currency": "CAD"}
BARE: Any = {"signed": [], "merchant": [], "bearer": []}


def refused(profile: Profile, operation: Operation, fields: dict[str, Any], **headers: str) -> str | None:
    """Return the field for which a request is refused, or `None` if it is accepted."""
    try:
        Dialect(profile).read(operation, fields, headers)
    except RefusedError as error:
        return error.field
    return None


NESTED: Final = {"a": 1, "b": [2]}


@pytest.mark.parametrize(
    ("constants", "fields", "field"),
    [
        ({"*": {"v": 1}}, {"v": 1}, None),
        # To Python, 1 is true and 1.0; to a service it is not.
        *(({"*": {"v": 1}}, {"v": value}, "v") for value in (2, "1", True, 1.0, None, [1])),
        ({"orders.place": {"v": NESTED}}, {"v": {"b": [2], "a": 1}}, None),
        ({"orders.place": {"v": NESTED}}, {"v": {"a": 1, "b": [3]}}, "v"),
        ({"orders.place": {"v": NESTED}}, {}, "v"),
        # The table of one operation goes before the one for all.
        ({"*": {"v": 1}, "orders.place": {"v": 2}}, {"v": 2}, None),
        ({"*": {"v": 1}, "orders.place": {"v": 2}}, {"v": 1}, "v"),
        # A caller may give an argument in place of a constant of its name.
        ({"*": {"sceneType": "JSAPI"}}, {"sceneType": "H5"}, None),
        ({"*": {"sceneType": "JSAPI"}}, {}, None),
    ],
)
def test_constant_has_its_type_and_its_value(
    constants: dict[str, Any], fields: dict[str, Any], field: str | None
) -> None:
    """A request must hold the constants of its operation, with equal JSON types and values."""
    assert field == refused(Profile(**BARE, constants=constants), PLACE_ORDER, {**ORDER, **fields})


@pytest.mark.parametrize(("value", "field"), [("1", None), ("2", "v"), ("", "v")])
def test_constant_in_a_query_is_its_digits(value: str, field: str | None) -> None:
    """In a query, a constant is compared as text."""
    profile = Profile(**BARE, constants={"*": {"v": 1}})

    assert field == refused(profile, QUERY_PAYMENT, {"outTradeNo": "T1", "v": value})


def test_extra_field_that_is_required() -> None:
    """`accept.required` may name fields of `extra`, which may have any value."""
    profile = Profile(**BARE, accept=Accept(required={"orders.place": ["deviceNo", "subject"]}))

    assert ["subject", "deviceNo", None] == [
        refused(profile, PLACE_ORDER, {**ORDER, **given})
        for given in ({}, {"subject": "x"}, {"subject": "x", "deviceNo": ""})
    ]


@pytest.mark.parametrize(("amount", "field"), [(1, "totalAmt"), (2, None), (9, None), (10, "totalAmt")])
def test_bounds_of_amounts(amount: int, field: str | None) -> None:
    """The bounds of an amount are inclusive."""
    profile = Profile(**BARE, accept=Accept(amount=(2, 9)))

    assert field == refused(profile, PLACE_ORDER, {**ORDER, "totalAmt": amount})


@pytest.mark.parametrize(("failures", "listed", "status"), [
    ("", True, 409), ("", False, 200), ("status", False, 409), ("200", True, 200)
])  # fmt: skip
def test_how_refusals_are_told(failures: Any, listed: bool, status: int) -> None:  # noqa: FBT001 - a column
    """A refusal has its own status, or 200 if the profile lists no statuses or the setting says so."""
    http = HttpCodes() if listed else HttpCodes(not_executed=())
    dialect = Dialect(Profile(answer=AnswerShape(code="code", ok=["OK"]), http=http), failures)
    refusals = [
        dialect.build_refusal(RefusedError("wrong_state", "no"), PLACE_ORDER, "r"),
        dialect.build_refusal(RefusedError("duplicate", "no"), PLACE_ORDER, "r"),
        dialect.build_refusal(RefusedError("invalid", "no", status=413), PLACE_ORDER, "r"),
        dialect.build_refusal(RefusedError("absent", "no"), None, "r"),
        dialect.build_refusal(RefusedError("busy", "no"), PLACE_ORDER, "r"),
    ]

    assert [status, status, 413, 404, 503] == [each.status for each in refusals]


def test_failures_are_told_in_one_of_two_ways() -> None:
    """An invalid value of `failures` is refused, and the error names the two valid ones."""
    wrong: Any = "202"
    with pytest.raises(ConfigurationError, match='"status" or "200"'):
        Sandbox(PROFILE, failures=wrong)


FAST: Final = RetryPolicy(base_delay=0.001, max_delay=0.002)
PLACES: Final = {
    "out_trade_no": "about.order",
    "out_refund_no": "about.refund",
    "total_amt": "about.total",
    "refund_amt": "about.part",
    "currency": "money.unit",
    "merchant_id": "shop",
}


def answering(**points: Any) -> Profile:
    """Return the sandbox's own profile with other points of a response."""
    return evolve(PROFILE, answer=evolve(PROFILE.answer, **points))


ABOUT: Final = evolve(
    answering(**PLACES),
    constants={"*": {"currency": "CAD"}},
    merchant=["payments.create", "orders.place", "refunds.create"],
)
"""Every path is given, so that each success must say what its request did; `currency` goes with all ten."""

CALLS: Final[dict[str, dict[str, Any]]] = {
    "payments.create": {"total": 1000, "unit": "USD", "shop": "SANDBOX"},
    "orders.place": {"order": "T1", "total": 450, "unit": "CAD", "shop": "SANDBOX"},
    "orders.close": {"order": "T1", "unit": "CAD"},
    "orders.query": {"order": "T1", "total": 450, "unit": "CAD"},
    "payments.status": {"order": "T1", "total": 450, "unit": "CAD"},
    "refunds.create": {"order": "T1", "refund": "R1", "total": 450, "part": 200, "unit": "CAD", "shop": "SANDBOX"},
    "refunds.status": {"refund": "R1", "total": 450, "part": 200, "unit": "CAD"},
    "subscriptions.create": {"amount": 900, "unit": "CAD"},
}


@pytest.mark.parametrize(("name", "expected"), CALLS.items(), ids=CALLS)
async def test_successes_name_what_they_are_about(name: str, expected: dict[str, Any]) -> None:
    """If the profile says where a response names its order, amounts or merchant, each success names them there."""
    async with Sandbox(ABOUT) as sandbox, sandbox.session(retry=FAST) as pay:
        if name == "orders.close":
            await sandbox.given.pending_order(out_trade_no="T1")
        elif name != "orders.place":
            await sandbox.given.paid_order(out_trade_no="T1")
        if name == "refunds.status":
            await pay.send(SAMPLES["refunds.create"])
        document = (await pay.send(SAMPLES[name])).document
    told = {**document.get("about", {}), **document["money"], "shop": document["shop"]}
    told |= {name: document[name] for name in {"amount"} & set(document)}

    assert expected == {name: told[name] for name in expected}
    assert ("amount" in expected) is ("amount" in document)
    assert not {"outTradeNo", "outRefundNo", "totalAmt", "refundAmt", "currency", "merchantId"} & set(document)


async def test_recovered_by_what_it_is_about() -> None:
    """A query after a lost response is compared with the write's amounts and merchant."""
    async with Sandbox(ABOUT) as sandbox, sandbox.session(retry=FAST) as pay:
        sandbox.faults.reset_after_commit("orders.place")
        sandbox.faults.reset_after_commit("refunds.create")
        placed = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
        await sandbox.customer.authorize("T1")
        refunded = await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=1)

    assert [True, True] == [placed.recovered, refunded.recovered]


async def test_number_that_an_answer_tells() -> None:
    """A response can be used in place of a number, wherever the profile places the number."""
    async with Sandbox(ABOUT) as sandbox, sandbox.session() as pay:
        placed = await pay.orders.place(total_amt=450, currency="CAD")
        await sandbox.customer.authorize(placed)
        found = await pay.orders.query(placed.document["about"]["order"])

    assert "paid" == found.state


SIGNED: Final = evolve(answering(signature="sign"), recovery=Recovery(quarantine=0.0))


@pytest.mark.parametrize(("said", "signed"), [(True, True), (False, False), (None, True)])
async def test_refusals_are_signed_as_the_profile_says(*, said: bool | None, signed: bool) -> None:
    """By default, refusals are signed as successes are. Signed or not, an "absent" is final."""
    profile = evolve(SIGNED, answer=evolve(SIGNED.answer, refusals_signed=said))
    async with Sandbox(profile) as sandbox, sandbox.session(retry=FAST) as pay:
        with pytest.raises(ServiceError) as caught:
            await pay.orders.query("T9")
        number = await sandbox.given.paid_order(total_amt=450)
        sandbox.faults.reset_before("refunds.create")
        made = await pay.refunds.create(out_trade_no=number, out_refund_no="R1", total_amt=450, refund_amt=1)
        asked = [len(sandbox.ledger.calls(name)) for name in ("refunds.create", "refunds.status")]

    assert caught.value.response is not None
    document: Any = caught.value.response.document
    assert signed == ("sign" in document)
    assert ("SBX_NOT_FOUND", True) == (document["code"], "sign" in made.document)
    assert [1, 1] == asked


UNCODED: Final = evolve(
    answering(code="", ok=()),
    codes=ResultCodes(),
    http=HttpCodes(duplicate=(410, 409), not_executed=(404, 422), absent=(404,)),
)


@pytest.mark.parametrize(
    ("statuses", "expected"), [((409,), 409), ((410,), 410), ((423, 410), 423), ((410, 409), 409), ((), 409)]
)
async def test_used_before_is_told_by_a_status_of_the_profile(statuses: tuple[int, ...], expected: int) -> None:
    """Without codes, a used number gets a status of the profile: 409 if that is listed, or if none is."""
    profile = evolve(UNCODED, http=evolve(UNCODED.http, duplicate=statuses))
    kind: type[Exception] = DuplicateError if statuses else Exception
    async with Sandbox(profile) as sandbox, sandbox.session(retry=FAST) as pay:
        await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
        with pytest.raises(kind):
            await pay.orders.place(total_amt=451, currency="CAD", out_trade_no="T1")
        statuses_told = [each.status for each in sandbox.ledger.calls("orders.place")]

    assert [200, expected] == statuses_told
