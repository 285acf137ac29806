"""A sandbox's dialect: it reads requests, and writes responses and notifications, as the profile says."""

import json
from collections.abc import Awaitable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import (
    Accept,
    AnswerShape,
    DuplicateError,
    HttpCodes,
    Idempotency,
    NoAnswerError,
    NotificationShape,
    OutcomeUnknownError,
    Parameter,
    PayasyncError,
    Profile,
    Recovery,
    ResultCodes,
    RetryPolicy,
    SandboxShape,
    ServiceError,
)
from payasync.endpoints import OPERATIONS, PLACE_ORDER, QUERY_PAYMENT, Operation
from payasync.errors import ConfigurationError
from payasync.journal import SqliteJournal
from payasync.profile.schema import KINDS, REFUSALS, Endpoint
from payasync.resources.orders import PlaceOrder
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.dialect import SAMPLES as EVENTS
from payasync.sandbox.dialect import Dialect, WireNames
from payasync.sandbox.model import Event, Refund, RefusedError
from payasync.sandbox.openapi import describe_service
from payasync.sandbox.signatures import ServiceSigner, make_keys
from payasync.strict_json import at
from tests.building import codec
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


def test_code_in_the_place_of_the_message() -> None:
    """If code and message have one place, a refusal with a code has the code there."""
    shape = AnswerShape(code="error.text", message="error.text", code_optional=True)
    dialect = Dialect(Profile(answer=shape, codes=ResultCodes(absent=("no such order",))))
    gone, wrong = (
        dialect.build_refusal(RefusedError(why, "it is wrong"), PLACE_ORDER, "r").document["error"]
        for why in ("absent", "invalid")
    )

    assert ("no such order", "it is wrong") == (gone["text"], wrong["text"])


def test_refund_is_described_as_it_was_made() -> None:
    """Both amounts of a refund have the names that the refund itself gave them."""
    fields = {"total_amt": "amount", "refunds.create": {"total_amt": "paid", "refund_amt": "amount"}}
    refund = Refund(out_refund_no="R", refund_id="N", out_trade_no="T", total_amt=450, refund_amt=200, fingerprint="")
    told = Dialect(Profile(fields=fields)).describe_refund(refund)

    assert (450, 200) == (told["paid"], told["amount"])


@pytest.mark.parametrize("asked", ["refunds.create", "orders.place"])
async def test_service_that_takes_less(asked: str) -> None:
    """If the profile gives an argument an empty name, it is neither sent nor demanded."""
    fields = {**PROFILE.fields, "refunds.create": {"total_amt": ""}, "orders.place": {"currency": ""}}
    required = {"refunds.create": ("total_amt", "shop"), "orders.place": ("currency",)}
    profile = evolve(PROFILE, fields=fields, accept=Accept(currency=("CAD",), required=required))
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        sandbox.faults.reset_after_commit(asked)
        order = await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        await sandbox.customer.authorize(order)
        refund = await pay.refunds.create(
            out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200, extra={"shop": "one"}
        )

        assert ("pending", "succeeded") == (order.state, refund.state)
        assert (450, 200) == (sandbox.ledger.paid("T1"), sandbox.ledger.refunded("T1"))
        assert Profile.from_toml(profile.to_toml()) == profile


async def test_service_with_fewer_states_and_numbers() -> None:
    """A subscription is active where no state is *scheduled*; a place for two numbers has the subscription's."""
    answer = evolve(PROFILE.answer, request_id="id", subscription_id="id", data="", code_optional=True)
    states = evolve(PROFILE.states, subscription={"active": ("ON",), "cancelled": ("OFF",)})
    async with Sandbox(evolve(PROFILE, answer=answer, states=states)) as sandbox, sandbox.session() as pay:
        made = await pay.subscriptions.create(
            frequency="monthly", amount=900, start_date=date(2100, 1, 31), customer={"email": "a@example.com"}
        )
        assert made.subscription_id
        ended = await pay.subscriptions.cancel(str(made.subscription_id))
        with pytest.raises(ServiceError) as caught:
            await pay.subscriptions.cancel("S0")

    assert ("active", "cancelled") == (made.state, ended.state)
    assert caught.value.response is not None
    assert caught.value.response.request_id not in {None, "S0"}


@pytest.mark.parametrize("given", ["closed", "expired", "failed"])
async def test_service_with_one_word_for_the_ends_without_payment(given: str) -> None:
    """If the profile has a word for only one of *closed*, *expired* and *failed*, the sandbox uses it for all."""
    words = {"pending": ("OPEN",), "paid": ("PAID",), given: ("OVER",)}
    profile = evolve(PROFILE, states=evolve(PROFILE.states, order=words))
    async with Sandbox(profile, clock="frozen") as sandbox, sandbox.session() as pay:
        orders = {
            number: await pay.orders.place(out_trade_no=number, total_amt=450, currency="CAD")
            for number in ("T1", "T2", "T3")
        }
        for _ in range(3):
            await sandbox.customer.decline(orders["T1"])
        failed = await pay.orders.query("T1")
        closed = await pay.orders.close("T2")
        await sandbox.clock.advance(hours=1)
        expired = await pay.orders.query("T3")

    assert [given] * 3 == [failed.state, closed.state, expired.state]


async def test_service_that_takes_a_list() -> None:
    """The number 0 in a dotted name is the one entry of a list, in requests and responses."""
    names = {"out_trade_no": "units.0.no", "total_amt": "units.0.sum.value", "currency": "units.0.sum.unit"}
    shape = evolve(PROFILE.answer, out_trade_no="units.0.no", total_amt="units.0.sum.value")
    profile = evolve(PROFILE, fields={**PROFILE.fields, "orders.place": names}, answer=shape, signed=())
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        order = await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        sent = codec(profile).call(PlaceOrder(out_trade_no="T1", total_amt=450, currency="CAD")).fields

    assert [{"no": "T1", "sum": {"value": 450, "unit": "CAD"}}] == sent["units"]
    assert ("T1", "pending") == (order["units"][0]["no"], order.state)


OF_THEIR_OWN: Final = {why: number for number, why in enumerate(REFUSALS)}
LISTED: Final = ResultCodes(not_executed=("PARAM", "AUTH"), retryable=("BUSY", "WAIT"), duplicate=(77, 78), absent=(0,))
BY_KEYS: Final = ResultCodes(unauthenticated=("SIGN", "KEY"))


@pytest.mark.parametrize(
    ("codes", "sandbox", "expected"),
    [
        (ResultCodes(), {}, {}),
        (LISTED, {}, {"busy": "BUSY", "duplicate": 77, "absent": 0}),
        (LISTED, {"duplicate": 78, "busy": "LATER"}, {"busy": "LATER", "duplicate": 78, "absent": 0}),
        (ResultCodes(), OF_THEIR_OWN, OF_THEIR_OWN),
        (BY_KEYS, {}, {"unauthenticated": "SIGN", "bad_signature": "SIGN"}),
        (BY_KEYS, {"unauthenticated": "KEY"}, {"unauthenticated": "KEY", "bad_signature": "SIGN"}),
    ],
)
def test_codes_by_what_they_mean(codes: ResultCodes, sandbox: Any, expected: dict[str, Any]) -> None:
    """A refusal has the code that the profile names for it, or that means the same alone. Else it has none."""
    told = words(codes=codes, sandbox=SandboxShape(codes=sandbox))

    assert expected == {why: code for why in REFUSALS if (code := told.code(why)) is not None}


def test_refusal_without_a_code() -> None:
    """If the profile names no code for a refusal, its HTTP status tells it, and the document has no code."""
    dialect = Dialect(Profile(answer=AnswerShape(code="code", ok=["OK"], message="why"), codes=LISTED))
    wrong, gone = (
        dialect.build_refusal(RefusedError(why, "no"), PLACE_ORDER, "r") for why in ("bad_signature", "absent")
    )

    assert (401, {"why", "requestId"}) == (wrong.status, set(wrong.document))
    assert (404, 0) == (gone.status, gone.document["code"])


@pytest.mark.parametrize(
    ("codes", "http", "expected"),
    [
        # 409 means a used number to this profile, so it cannot tell a wrong state.
        ((), HttpCodes(), 422),
        (("STATE",), HttpCodes(), 409),
        ((), HttpCodes(not_executed=(400, 409)), 409),
        ((), HttpCodes(not_executed=(403, 400)), 403),
        ((), HttpCodes(not_executed=()), 409),
    ],
)
def test_status_means_to_the_profile_that_nothing_was_done(codes: Any, http: HttpCodes, expected: int) -> None:
    """A refusal that its code does not tell has a status that the profile reads as "nothing was done"."""
    sandbox = SandboxShape(failures="status", codes=dict(zip(["wrong_state"], codes, strict=False)))
    told = words(codes=ResultCodes(not_executed=codes), http=http, sandbox=sandbox)

    assert expected == told.status("wrong_state")


def test_a_code_about_keys_tells_the_refusal() -> None:
    """A wrong signature has its usual status if its code tells that nothing was done, whatever statuses mean so."""
    http = HttpCodes(not_executed=(422,))

    assert (401, 422) == tuple(words(codes=each, http=http).status("bad_signature") for each in (BY_KEYS, LISTED))


@pytest.mark.parametrize(("statuses", "expected"), [([401, 403], 401), ([403], 403), ([], 401)])
def test_status_is_about_keys(statuses: list[int], expected: int) -> None:
    """A wrong signature has a status that the profile reads as such, and no other refusal follows it."""
    told = words(http=HttpCodes(unauthenticated=statuses))

    assert [expected, expected, 404] == [told.status(why) for why in ("bad_signature", "unauthenticated", "absent")]


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
        # To JSON Schema, 1.0 is the integer 1. To Python, 1 is true, too.
        ({"*": {"v": 1}}, {"v": 1.0}, None),
        ({"*": {"v": [{"a": 1.0}]}}, {"v": [{"a": 1}]}, None),
        *(({"*": {"v": 1}}, {"v": value}, "v") for value in (2, "1", True, 1.5, None, [1])),
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


SHARED: Final = Profile(
    **BARE,
    constants={"orders.place": {"sum": {"of": {"scale": 2}, "kind": "gross"}}},
    fields={"orders.place": {"total_amt": "sum.of.value", "currency": "sum.unit"}},
)


@pytest.mark.parametrize(
    ("changed", "field"),
    [({}, None), ({"kind": "net"}, "sum.kind"), ({"of": {"value": 450}}, "sum.of.scale"), ({"unit": 1}, "sum.unit")],
)
def test_constant_beside_nested_arguments(changed: dict[str, Any], field: str | None) -> None:
    """In an object with arguments, each constant is compared by itself."""
    given = {"of": {"scale": 2, "value": 450}, "unit": "CAD", "kind": "gross", **changed}

    assert field == refused(SHARED, PLACE_ORDER, {"outTradeNo": "T1", "sum": given})


@pytest.mark.parametrize(("count", "field"), [(1, None), (2, "items.0.count")])
def test_constant_beside_arguments_in_a_list(count: int, field: str | None) -> None:
    """In a list with arguments, each constant is compared by itself."""
    profile = Profile(
        **BARE,
        constants={"orders.place": {"items": [{"count": 1}]}},
        fields={"orders.place": {"total_amt": "items.0.price"}},
    )

    given = {"items": [{"count": count, "price": 450}], "currency": "CAD"}
    assert field == refused(profile, PLACE_ORDER, given)


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


CODED: Final = evolve(PROFILE, http=HttpCodes())
UNREADABLE: Final = (400, 405, 413, 415)
"""What stands for a request that cannot be read, also where other failures stand inside HTTP 200."""


@pytest.mark.parametrize(("failures", "said", "listed", "status"), [
    ("", "", True, 409), ("", "", False, 200),
    ("", "status", False, 409), ("", "200", True, 200),
    ("status", "200", False, 409), ("200", "status", True, 200),
])  # fmt: skip
def test_how_refusals_are_told(failures: Any, said: Any, listed: bool, status: int) -> None:  # noqa: FBT001 - a column
    """The setting of the sandbox decides, then the profile's key, then whether the profile lists statuses."""
    http = HttpCodes() if listed else HttpCodes(not_executed=())
    dialect = Dialect(evolve(CODED, http=http, sandbox=evolve(CODED.sandbox, failures=said)), failures)
    refusals = [
        dialect.build_refusal(RefusedError("wrong_state", "no"), PLACE_ORDER, "r"),
        dialect.build_refusal(RefusedError("duplicate", "no"), PLACE_ORDER, "r"),
        *(dialect.build_refusal(RefusedError("invalid", "no", status=each), PLACE_ORDER, "r") for each in UNREADABLE),
        dialect.build_refusal(RefusedError("absent", "no"), None, "r"),
        dialect.build_refusal(RefusedError("busy", "no"), PLACE_ORDER, "r"),
    ]

    assert [status, status, *UNREADABLE, 404, 503] == [each.status for each in refusals]


def test_failures_are_told_in_one_of_two_ways() -> None:
    """An invalid value of `failures` is refused, and the error names the two valid ones."""
    wrong: Any = "202"
    with pytest.raises(ConfigurationError, match='"status" or "200"'):
        Sandbox(PROFILE, failures=wrong)


NAMED: Final = PROFILE.sandbox.codes


@pytest.mark.parametrize("why", sorted({*REFUSALS} - {"busy"}))
def test_refusal_inside_200_needs_a_code(why: str) -> None:
    """If refusals are sent inside HTTP 200, each needs a code; the error names the key of a missing one."""
    named = {name: code for name, code in NAMED.items() if name != why}
    profile = evolve(CODED, codes=ResultCodes(), sandbox=SandboxShape(failures="200", codes=named))
    with pytest.raises(ConfigurationError, match="only a code tells them from a success") as caught:
        Sandbox(profile)

    assert f"sandbox.codes.{why}" == caught.value.field


OWN: Final = {
    "orders.place": {"duplicate": ["TAKEN"]},
    "refunds.create": {"duplicate": ["USED"], "absent": ["NONE"]},
    "orders.query": {"absent": ["NONE"]},
    "orders.close": {"absent": ["NONE"]},
    "payments.status": {"absent": ["NONE"]},
    "refunds.status": {"absent": ["NONE"]},
    "subscriptions.update": {"absent": ["NONE"]},
    "subscriptions.cancel": {"absent": ["NONE"]},
}
"""The codes of each operation that can be refused because of a number."""


@pytest.mark.parametrize(
    ("without", "parts", "missing"),
    [
        (
            {"nonce_used", "invalid", "absent"},
            {},
            "sandbox.codes.invalid, sandbox.codes.nonce_used, sandbox.codes.absent",
        ),
        (
            {"duplicate", "absent"},
            {"codes": ResultCodes(by_operation={name: OWN[name] for name in OWN if name != "orders.query"})},
            "sandbox.codes.absent",
        ),
        (
            {"duplicate"},
            {"codes": ResultCodes(by_operation=OWN), "idempotency": Idempotency(header="Idempotency-Key")},
            "sandbox.codes.duplicate",
        ),
    ],
)
def test_all_codes_that_are_missing_are_named(without: set[str], parts: dict[str, Any], missing: str) -> None:
    """If codes of refusals inside HTTP 200 are missing, one error names all of them."""
    named = {name: code for name, code in NAMED.items() if name not in without}
    profile = evolve(CODED, codes=ResultCodes(), sandbox=SandboxShape(failures="200", codes=named))
    with pytest.raises(ConfigurationError, match=f"^the sandbox needs {missing}, because"):
        Sandbox(evolve(profile, **parts))


@pytest.mark.parametrize(
    ("without", "parts"),
    [
        ({"busy"}, {}),
        ({"duplicate", "absent"}, {"codes": ResultCodes(by_operation=OWN)}),
        ({"bad_signature", "nonce_used"}, {"signed": []}),
        ({"bad_signature", "nonce_used", "unauthenticated"}, BARE),
        ({"duplicate", "absent"}, {"codes": ResultCodes(duplicate=("USED",), absent=("NONE",))}),
    ],
)
def test_refusal_that_never_stands_inside_200_needs_no_code(without: set[str], parts: dict[str, Any]) -> None:
    """A refusal needs no code if it has a status of its own, never happens, or has the code of its meaning."""
    named = {name: code for name, code in NAMED.items() if name not in without}
    profile = evolve(CODED, **parts, sandbox=SandboxShape(failures="200", codes=named))

    assert profile == Sandbox(profile).profile


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Endpoint(path="/orders/ask"), Endpoint(path="/orders/ask")),
        (Endpoint(method="GET", path="/o/{out_trade_no}"), Endpoint(method="GET", path="/o/{merchant_id}")),
        (Endpoint(method="GET", path="/o", place="path"), Endpoint(method="GET", path="/o/{out_trade_no}")),
        (Endpoint(path="/payment/closeorder"), None),
    ],
)
def test_two_operations_have_two_addresses(one: Endpoint, other: Endpoint | None) -> None:
    """A sandbox whose profile gives two operations one method and path is refused, because one would never be done."""
    endpoints = {"orders.query": one, **({"orders.close": other} if other else {})}

    with pytest.raises(ConfigurationError, match=r'^endpoints\."orders.*could not tell their') as caught:
        Dialect(Profile(endpoints=endpoints))
    assert f"endpoints.{'orders.close' if other else 'orders.query'}" == caught.value.field


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_field_that_tells_the_kind_holds_the_state(event: Event) -> None:
    """If the field that tells the kind holds nothing else, it holds the state."""
    shape = NotificationShape(verification="none", tells={kind: f"told.{kind}" for kind in KINDS})
    body = Dialect(evolve(PROFILE, notification=shape)).build_notification(event, datetime.now(UTC))
    thing = "order" if event.kind == "payment" else event.kind

    assert {event.kind: words().state(thing, event.subject.state)} == json.loads(body or "")["told"]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_notifications_hold_what_the_profile_names(event: Event) -> None:
    """A notification names the merchant, both times and what it must hold, each at the profile's path."""
    shape = NotificationShape(
        verification="none",
        data="data",
        merchant_id="shop.id",
        must={"livemode": True, "shop.id": "other"},
        time="sent",
        event_time="data.paid",
    )
    body = Dialect(evolve(PROFILE, notification=shape)).build_notification(event, datetime(2027, 1, 31, tzinfo=UTC))
    document = json.loads(body or "")

    data, time = document["data"], "2027-01-31T00:00:00.000Z"
    assert ({"id": "SANDBOX"}, True) == (data["shop"], data["livemode"])
    assert (time, time) == (document["sent"], data["paid"])


@pytest.mark.parametrize(
    ("responses", "notifications", "expected"),
    [("major", "", "0.01"), ("major", "as sent", 1), ("as sent", "major", "0.01")],
)
def test_notifications_have_their_own_unit(responses: Any, notifications: Any, expected: object) -> None:
    """Amounts in notifications have the unit of `notification.amounts`, or without it that of responses."""
    shape = NotificationShape(verification="none", amounts=notifications)
    answer = evolve(PROFILE.answer, amounts=responses)
    dialect = Dialect(evolve(PROFILE, answer=answer, notification=shape))
    bodies = [dialect.build_notification(each, datetime.now(UTC)) or "" for each in EVENTS[:2]]

    assert [expected, expected] == [json.loads(body)["totalAmt"] for body in bodies]
    assert ("0.01" if responses == "major" else 1) == dialect.describe_sample("refund")["refundAmt"]


async def test_successes_lack_what_the_service_omits() -> None:
    """A success lacks what `omits` names, at any depth. A 204 has no body, and everything was done."""
    answer = evolve(PROFILE.answer, code_optional=True, payment_id="a.id", order_status="a.status")
    omits = {"orders.place": ["a.status", "totalAmt", "none.such"], "orders.close": ["*"]}
    profile = evolve(PROFILE, answer=answer, sandbox=SandboxShape(codes=PROFILE.sandbox.codes, omits=omits))
    async with Sandbox(profile=profile) as sandbox, sandbox.session() as pay:
        placed = await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        queried = await pay.orders.query("T1")
        closed, described = await pay.orders.close("T1"), describe_service(Dialect(profile))["paths"]

        assert "closed" == sandbox.ledger.order_state("T1")
    assert (None, None, "pending") == (placed.state, placed.get("totalAmt"), queried.state)
    assert queried.get("a.id") == placed.get("a.id") is not None
    assert (204, None, None) == (closed.http_status, closed.data, closed.state)
    assert {"204", "default"} == described["/payment/closeorder"]["post"]["responses"].keys()


@pytest.mark.parametrize(
    ("operation", "paths", "answer"),
    [
        ("orders.place", ["*"], AnswerShape()),
        ("orders.close", ["*", "a"], AnswerShape()),
        ("orders.close", ["*"], AnswerShape(code="code", ok=("OK",))),
        ("orders.close", ["*"], AnswerShape(signature="sign")),
        ("orders.close", ["*"], AnswerShape(must={"live": True})),
        ("orders.shut", ["a"], AnswerShape()),
    ],
)
def test_what_a_success_cannot_omit(operation: str, paths: list[str], answer: AnswerShape) -> None:
    """A profile whose sandbox would send a 204 that a session does not believe is refused."""
    with pytest.raises(ConfigurationError) as caught:
        Profile(answer=answer, sandbox=SandboxShape(omits={operation: paths}))
    assert f"sandbox.omits.{operation}" == caught.value.field


GATEWAY: Final = Profile(
    bearer=(),
    signed=(),
    merchant=(),
    fields=PROFILE.fields,
    formats=PROFILE.formats,
    states=PROFILE.states,
    answer=PROFILE.answer,
    payment_status=Parameter("no"),
    refund_status=Parameter("outRefundNo"),
    endpoints={each.name: Endpoint(method="POST", path="/gateway") for each in OPERATIONS},
    constants={each.name: {"service": each.name} for each in OPERATIONS},
)


@pytest.mark.parametrize("operation", [each.name for each in OPERATIONS])
async def test_constants_tell_operations_at_one_address_apart(operation: str) -> None:
    """All operations may have one address if a constant names each; a fault meets only its own operation."""
    async with Sandbox(profile=GATEWAY) as sandbox, sandbox.session(retry=RetryPolicy(attempts=1, quota=0)) as pay:
        sandbox.faults.server_error(operation, status=502)
        with pytest.raises((OutcomeUnknownError, NoAnswerError), match="502"):
            await pay.send(SAMPLES[operation])
        if operation == "refunds.status":
            await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
            await pay.send(SAMPLES["refunds.create"])
            assert "R1" == (await pay.send(SAMPLES[operation])).get("outRefundNo")


async def test_arguments_tell_operations_at_one_address_apart() -> None:
    """Two operations may have one address if each requires an argument that the other does not have."""
    ask = Endpoint(method="POST", path="/ask")
    profile = evolve(
        GATEWAY,
        constants={},
        endpoints={"orders.query": ask, "payments.status": ask},
        payment_status=Parameter("id"),
        http=HttpCodes(uncoded=(422,)),
    )
    async with Sandbox(profile=profile) as sandbox, sandbox.session() as pay:
        await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        payment = await pay.payments.create(amount=700, currency="CAD")
        described = describe_service(Dialect(profile))["paths"]["/ask"]["post"]["requestBody"]

        assert "T1" == (await pay.orders.query("T1")).get("outTradeNo")
        assert payment.payment_id == (await pay.payments.status(str(payment.payment_id))).payment_id
        with pytest.raises(ServiceError, match="outTradeNo is missing"):
            await pay.request("POST", "/ask", fields={})
    schemas = described["content"]["application/json"]["schema"]["anyOf"]
    assert [["outTradeNo"], ["id"]] == [each["required"] for each in schemas]


async def test_one_path_with_and_without_an_argument() -> None:
    """Two operations may share a path if one of them has its argument behind it."""
    profile = Profile(
        bearer=(),
        signed=(),
        states=PROFILE.states,
        answer=PROFILE.answer,
        payment_status=Parameter("no", "path"),
        endpoints={
            "orders.query": Endpoint(method="GET", path="/orders"),
            "payments.status": Endpoint(path="/orders"),
        },
    )
    async with Sandbox(profile=profile) as sandbox, sandbox.session() as pay:
        await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        order, payment = await pay.orders.query("T1"), await pay.payments.status("T1")

    assert ("pending", "pending") == (order.state, payment.state)


def test_refusal_inside_200_needs_a_place_for_its_code() -> None:
    """If nothing says where a code is, a sandbox whose refusals are inside HTTP 200 is refused."""
    profile = Profile(sandbox=SandboxShape(codes=NAMED))
    with pytest.raises(ConfigurationError, match=r"answer\.code or answer\.message must be given") as caught:
        Sandbox(profile, failures="200")

    assert "answer.code" == caught.value.field


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


@pytest.mark.parametrize(("said", "signed"), [(True, True), (False, False)])
async def test_refusals_are_signed_as_the_profile_says(*, said: bool, signed: bool) -> None:
    """Refusals are signed if the profile says so. Signed or not, an "absent" is final."""
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


async def test_refusals_are_not_signed_if_the_profile_leaves_that_open() -> None:
    """If the profile does not say whether refusals are signed, they are not, and no "absent" is final."""
    async with Sandbox(SIGNED) as sandbox, sandbox.session(retry=FAST) as pay:
        number = await sandbox.given.paid_order(total_amt=450)
        sandbox.faults.reset_before("refunds.create")
        with pytest.raises(OutcomeUnknownError):
            await pay.refunds.create(out_trade_no=number, out_refund_no="R1", total_amt=450, refund_amt=1)
        with pytest.raises(ServiceError) as caught:
            await pay.orders.query("T9")

    assert caught.value.response is not None
    assert "sign" not in caught.value.response.document


APART: Final = evolve(PROFILE, sandbox=evolve(PROFILE.sandbox, codes={why: why.upper() for why in REFUSALS}))
"""A service with a code of its own for each refusal."""


async def test_refusals_of_a_paid_order_have_their_own_codes() -> None:
    """A paid order is not closed, only a paid one is refunded, and one code is for each amount that does not fit."""
    refund: Any = {"out_refund_no": "R1", "refund_amt": 1}
    whole: Any = {"out_refund_no": "R2", "refund_amt": 450}
    async with Sandbox(APART) as sandbox, sandbox.session(retry=FAST) as pay:
        paid, pending = await sandbox.given.paid_order(total_amt=450), await sandbox.given.pending_order(total_amt=450)
        await pay.refunds.create(out_trade_no=paid, out_refund_no="R0", total_amt=450, refund_amt=1)
        refused = [
            pay.orders.close(paid),
            pay.refunds.create(out_trade_no=paid, total_amt=449, **refund),
            pay.refunds.create(out_trade_no=paid, total_amt=450, **whole),
            pay.refunds.create(out_trade_no=pending, total_amt=450, **refund),
        ]
        codes = [await code_of(each) for each in refused]

    assert ["ALREADY_PAID", "REFUND_MISMATCH", "REFUND_MISMATCH", "WRONG_STATE"] == codes


async def code_of(call: Awaitable[object]) -> object:
    """Return the result code with which a call is refused."""
    with pytest.raises(PayasyncError) as caught:
        await call
    return getattr(caught.value, "code", None)


SCHEME: Final[Any] = PROFILE.signature
CONSTANTS: Final = {"signType": "RSA", "about": {"versions": [1, True]}}


def constant(**points: Any) -> Profile:
    """Return the sandbox's profile with constants and other points of a response."""
    return evolve(answering(**points), sandbox=evolve(PROFILE.sandbox, constants=CONSTANTS))


@pytest.mark.parametrize(
    ("profile", "success", "refusal"),
    [
        (constant(), "", ""),
        (constant(data="in.data"), "", ""),
        (constant(signature="sign", refusals_signed=True), "", ""),
        (
            constant(data="in.data", code="in.code", signature="in.sign", refusals_signed=True),
            "in",
            "in",
        ),
        (constant(data="in.data", signature="in.sign", refusals_signed=False), "in", ""),
    ],
)
async def test_constants_stand_in_what_is_signed(profile: Profile, success: str, refusal: str) -> None:
    """Each response has the profile's constants: in the signed object if there is one, else in the document."""
    nested = evolve(profile, signature=evolve(SCHEME, nested="json", booleans="json"))
    async with Sandbox(nested) as sandbox, sandbox.session(retry=FAST) as pay:
        made = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
        with pytest.raises(ServiceError) as caught:
            await pay.orders.query("T9")

    assert caught.value.response is not None
    found = [(made.document, success), (caught.value.response.document, refusal)]
    assert [CONSTANTS] * 2 == [{name: at(document, place)[name] for name in CONSTANTS} for document, place in found]


@pytest.mark.parametrize("signature", ["", "sign", "event.data.sign"])
async def test_constants_stand_in_notifications(signature: str) -> None:
    """Each notification has the profile's constants, where its signature covers them."""
    shape = evolve(PROFILE.notification, data="event.data", kind="kind", time="event.data.at")
    if signature:
        shape = evolve(shape, verification="body", signature=signature)
    scheme = evolve(SCHEME, nested="json", booleans="json", numbers="text")
    profile = evolve(constant(), notification=shape, signature=scheme)
    async with Sandbox(profile) as sandbox, sandbox.receiver() as receiver:
        await sandbox.given.paid_order(notify_url=receiver.url)
        notified = await receiver.next()

    above = at(notified.document, signature.rpartition(".")[0], None) if "." in signature else notified.document
    assert CONSTANTS == {name: above[name] for name in CONSTANTS}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        *((value, "stands in what the service signs") for value in ({"a": 1}, True, 1.5)),
        *((text, "list flag in signature.allow_delimiters") for text in ("a=b", "a&b")),
    ],
)
def test_constant_that_cannot_be_signed(value: object, why: str) -> None:
    """If the scheme cannot sign a constant that the service would sign, the error names the constant."""
    profile = evolve(answering(signature="sign"), sandbox=SandboxShape(constants={"signType": "RSA", "flag": value}))
    with pytest.raises(ConfigurationError, match=why) as caught:
        ServiceSigner(Dialect(profile), make_keys(profile))

    assert "sandbox.constants.flag" == caught.value.field


async def test_signed_constant_that_may_hold_a_delimiter() -> None:
    """A signed constant may hold a delimiter if `allow_delimiters` lists it."""
    scheme = evolve(SCHEME, allow_delimiters=("help",))
    shape = SandboxShape(constants={"help": "https://pay.example/?a=b&c=d"})
    async with Sandbox(evolve(answering(signature="sign"), signature=scheme, sandbox=shape)) as sandbox:
        number = await sandbox.given.pending_order()
        async with sandbox.session() as pay:
            found = await pay.orders.query(number)

    assert "https://pay.example/?a=b&c=d" == found.document["help"]


async def test_signature_of_a_response_covers_the_arguments_in_its_path() -> None:
    """If the path of an endpoint has arguments and is signed, responses are signed over the path as it was sent."""
    scheme = evolve(SCHEME, append_path=True)
    endpoints = {"orders.query": Endpoint(method="GET", path="/v2/{merchant_id}/orders/{out_trade_no}")}
    profile = evolve(answering(signature="sign", refusals_signed=True), signature=scheme, endpoints=endpoints)
    async with Sandbox(profile) as sandbox, sandbox.session(retry=FAST) as pay:
        await sandbox.given.pending_order(out_trade_no="T1")

        assert "pending" == (await pay.orders.query("T1")).state
        assert "SBX_NOT_FOUND" == await code_of(pay.orders.query("T9"))


async def test_constant_does_not_replace_a_value() -> None:
    """If a response has a value of its own under the name of a constant, the value stays."""
    shape = SandboxShape(constants={"outTradeNo": "T0", "currency": "XXX"})
    async with Sandbox(evolve(answering(data=""), sandbox=shape)) as sandbox, sandbox.session() as pay:
        made = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")

    assert ("T1", "CAD") == (made.document["outTradeNo"], made.document["currency"])


ODD: Final = """
bearer = ["payments.create", "payments.status", "orders.place", "orders.query", "refunds.create", "refunds.status"]
signed = []
[status.payment]
name = "gateway"
[status.refund]
name = "no"
[endpoints."refunds.status"]
number = "merchant"
[answer]
data = "result.0"
code = ["errors.0.code", "error.code"]
code_optional = true
message = ["errors.0.text"]
order_status = "state"
refund_status = "state"
redirect_template = "https://pay.example/p?no={gateway.no}&amount={totalAmt}&note={subject}"
[states.order]
paid = ["DONE"]
[states.refund]
succeeded = ["DONE"]
[codes]
duplicate = ["BAD"]
absent = ["NONE"]
[codes."refunds.create"]
not_executed = ["NOT_ENOUGH"]
absent = ["BAD"]
[sandbox.codes]
invalid = "WRONG"
unauthenticated = "WHO"
wrong_state = "OTHER"
already_paid = "PAID"
refund_mismatch = "NOT_ENOUGH"
"""
"""A service with codes only in failures and only in lists, and with codes of refunds.

A part of its address has the name of an argument of another operation.
"""


@pytest.mark.parametrize("failures", ["status", "200"])
async def test_codes_in_failures_only_and_an_address_of_parts(failures: Any, tmp_path: Path) -> None:
    """The sandbox says codes only in failures, and gives the parts of the address, by which the customer pays."""
    profile = Profile.from_toml(ODD)
    async with (
        Sandbox(profile, failures=failures, refunds="succeed") as sandbox,
        SqliteJournal(tmp_path / "pay.db") as journal,
        sandbox.session(journal=journal, retry=FAST) as pay,
    ):
        request = PlaceOrder(out_trade_no="T1", total_amt=450, currency="CAD", subject="a b")
        placed, recorded = await pay.send(request), await pay.send(request)
        assert isinstance(placed.redirect_url, str)
        await sandbox.customer.authorize(placed.redirect_url)
        paid = await pay.orders.query("T1")
        told: list[Any] = []
        for ask in (
            lambda: pay.orders.query("T9"),
            lambda: pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=451, refund_amt=451),
            lambda: pay.refunds.create(out_trade_no="T9", out_refund_no="R2", total_amt=450, refund_amt=1),
        ):
            with pytest.raises(ServiceError) as caught:
                await ask()
            told.append((caught.value.code, caught.value.http_status))

    token = placed.get("gateway.no")
    assert f"https://pay.example/p?no={token}&amount=450&note=a%20b" == placed.redirect_url == recorded.redirect_url
    assert ({"result", "requestId"}, list) == (set(placed.document), type(placed.document["result"]))
    assert ("paid", None) == (paid.state, paid.redirect_url)
    inside = failures == "200"
    assert [
        ("NONE", 200 if inside else 404),
        ("NOT_ENOUGH", 200 if inside else 422),
        ("BAD", 200 if inside else 404),
    ] == told


@pytest.mark.parametrize(
    ("answer", "document"),
    [
        ({"code": "errors.1.code", "message": "errors.1.text"}, {"errors": [{}, {"code": "N", "text": "no"}]}),
        ({"code": "errors.0", "message": "errors.1"}, {"errors": ["N", "no"]}),
        ({"code": "0.code", "message": "0.text"}, {"0": {"code": "N", "text": "no"}}),
        ({"code": "a.0.0", "message": "a.0.1"}, {"a": [["N", "no"]]}),
        ({"code": "a.0", "message": "b.0"}, {"a": ["N"], "b": ["no"]}),
    ],
)
def test_numbers_in_paths(answer: dict[str, str], document: dict[str, Any]) -> None:
    """A number in a path is the position in a list, which begins with empty objects; it stands at no top level."""
    shape = AnswerShape(**answer, ok=(0,), request_id="header:X-Id")  # type: ignore[arg-type] # paths
    dialect = Dialect(Profile(answer=shape, codes=ResultCodes(absent=("N",))))
    refused = dialect.build_refusal(RefusedError("absent", "no"), None, "r")

    assert document == refused.document


@pytest.mark.parametrize(
    ("moment", "written"),
    [
        ("2026-11-22T15:30:00.789Z", "2026-11-22 10:30:00"),
        ("2026-11-01T05:30:00Z", "2026-11-01 01:30:00"),
        ("2026-11-01T06:30:00Z", "2026-11-01 01:30:00-05:00"),
    ],
)
def test_time_of_a_zone(moment: str, written: str) -> None:
    """With `timezone`, a time has no offset and no fraction of a second, but a repeated hour has its offset."""
    shape = evolve(PROFILE.notification, timezone="America/Toronto")
    dialect = Dialect(evolve(PROFILE, notification=shape))
    body = dialect.build_notification(EVENTS[0], datetime.fromisoformat(moment))

    assert body is not None
    assert written == json.loads(body)["timestamp"]


IN_TWO_PLACES: Final = {"code": ["why", "result"], "ok": ["YES"], "request_id": "header:X-Id"}


@pytest.mark.parametrize(
    ("answer", "done", "refused"),
    [
        ({"message": "words"}, {"result": "YES", "words": "done"}, {"why": "N", "words": "no"}),
        ({"message": ["words", "text"]}, {"result": "YES"}, {"why": "N", "words": "no"}),
        (
            {"message": "why.words", "code": ["why.code", "result"]},
            {"result": "YES"},
            {"why": {"code": "N", "words": "no"}},
        ),
        ({"message": ["words", "text"], "code": "result"}, {"result": "YES"}, {"result": "N", "words": "no"}),
        ({"message": "words", "code": "result"}, {"result": "YES", "words": "done"}, {"result": "N", "words": "no"}),
        ({"message": "words", "code_optional": True}, {}, {"why": "N", "words": "no"}),
    ],
)
def test_code_of_a_success_stands_in_the_last_place(answer: Any, done: Any, refused: Any) -> None:
    """Of several places, a success has its code in the last, and a refusal in the first.

    Only refusals have a message if there are several places for it, or if it stands in an object with their own code.
    """
    shape = AnswerShape(**IN_TWO_PLACES | answer)
    dialect = Dialect(Profile(answer=shape, codes=ResultCodes(absent=("N",))))

    assert done == dialect.build_success(PLACE_ORDER, {}, {}, "r").document
    assert refused == dialect.build_refusal(RefusedError("absent", "no"), None, "r").document


ENVELOPED: Final = """
bearer = ["orders.place", "orders.query"]
signed = []
merchant = []
constants."orders.place".order.shop = "S1"
endpoints."orders.query" = {method = "GET", path = "/orders/{out_trade_no}"}
fields."orders.place" = {out_trade_no = "order.no", total_amt = "order.sum", currency = "order.currency"}
[answer]
order_status = "order.state"
redirect_template = "https://pay.example/{order.id}/{order.shop}/{order.no}"
[states.order]
pending = ["OPEN"]
"""
"""A service whose requests and responses are one object, `order`."""


async def test_envelope_of_requests_and_responses() -> None:
    """The service gives its part of an address beside what requests have, and names orders as their writes do."""
    async with Sandbox(Profile.from_toml(ENVELOPED)) as sandbox, sandbox.session() as pay:
        placed = await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        found = await pay.orders.query("T1")

    assert f"https://pay.example/{placed.get('order.id')}/S1/T1" == placed.redirect_url
    assert {"state": "OPEN", "no": "T1", "sum": 450, "currency": "CAD"} == found["order"]


@pytest.mark.parametrize(
    ("message", "document"),
    [
        ("texts.0", {"texts": ["no"], "field": "f"}),
        ("a.0.0", {"a": [["no"]], "field": "f"}),
        ("errors.0.text", {"errors": [{"text": "no", "field": "f"}]}),
    ],
)
def test_field_beside_a_list_of_messages(message: str, document: dict[str, Any]) -> None:
    """The name of a refused field stands beside the message, or beside its list."""
    answer = AnswerShape(message=message, request_id="header:X-Id")
    dialect = Dialect(Profile(answer=answer, sandbox=SandboxShape(failures="status")))

    assert document == dialect.build_refusal(RefusedError("absent", "no", field="f"), None, "r").document


async def test_number_in_an_address_of_parts() -> None:
    """The customer finds an order by an address whose template has nothing but the order's number."""
    profile = answering(redirect_url="", redirect_template="https://pay.example/{outTradeNo}/{totalAmt}")
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        for number in ("T1", "450"):
            placed = await pay.orders.place(out_trade_no=number, total_amt=450, currency="CAD")
            await sandbox.customer.authorize(str(placed.redirect_url))

        assert ["paid", "paid"] == [sandbox.ledger.order_state(each) for each in ("T1", "450")]


def test_code_that_another_operation_reads_otherwise() -> None:
    """A general code with another meaning in an operation's own list is not sent by that operation."""
    codes = ResultCodes(absent=("A", "B"), by_operation={"refunds.create": {"retryable": ["LATER", "A"]}})
    told = words(codes=codes)

    assert ("A", "B") == (told.code("absent"), told.code("absent", "refunds.create"))
    assert (None, "LATER") == (told.code("busy"), told.code("busy", "refunds.create"))


def test_named_code_that_an_operation_does_not_read_so() -> None:
    """A code that `[sandbox.codes]` names is sent, unless an operation lists others for it and reads it otherwise."""
    codes, shape = (
        ResultCodes(by_operation={"refunds.create": {"absent": ["GONE"]}}),
        SandboxShape(codes={"absent": "N"}),
    )
    unread, read = words(codes=codes, sandbox=shape), words(codes=evolve(codes, absent=("N",)), sandbox=shape)

    assert ("N", "GONE") == (unread.code("absent", "orders.query"), unread.code("absent", "refunds.create"))
    assert ("N", "N") == (read.code("absent", "orders.query"), read.code("absent", "refunds.create"))


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
