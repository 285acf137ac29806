"""A sandbox's dialect: it reads requests, and writes responses and notifications, as the profile says."""

import json
from collections.abc import Awaitable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import Idempotency, NotificationShape, Profile, RetryPolicy, SandboxShape, errors
from payasync.endpoints import OPERATIONS, PLACE_ORDER, QUERY_PAYMENT, Operation
from payasync.journal import SqliteJournal
from payasync.profile.schema import (
    KINDS,
    REFUSALS,
    Accept,
    AnswerShape,
    Endpoint,
    HttpCodes,
    Parameter,
    Recovery,
    ResultCodes,
)
from payasync.resources.orders import PlaceOrder
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.dialect import SAMPLES as EVENTS
from payasync.sandbox.dialect import Dialect, WireNames
from payasync.sandbox.model import Refund, RefusedError
from payasync.sandbox.openapi import describe_service
from payasync.sandbox.signatures import ServiceSigner, make_keys
from payasync.strict_json import at
from tests.building import codec
from tests.sandbox.world import SAMPLES, refund
from tests.test_services import SERVICES, profile_of

FIR: Final = Path(__file__).parents[2] / "examples" / "custom_profile" / "fir.toml"


def words(**parts: Any) -> WireNames:
    """Return the wire names of a profile with these parts."""
    return WireNames(Profile(**parts))


def test_answered_points_stay_where_they_are() -> None:
    """An open point is left out if its own place would overwrite a point that the profile answers."""
    points = ("code", "message", "request_id", "payment_id", "payment_status", "order_status", "refund_status")
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"order_status": "code"}, {"code"}),
        ({"order_status": "code.state"}, {"code"}),
        ({"data": "code"}, {"code"}),
        ({"data": "message.inner"}, {"message"}),
        ({"payment_id": "status"}, {"order_status", "payment_status", "refund_status"}),
        ({"data": "x", "payment_id": "code"}, set()),
        ({"refund_status": "paymentId"}, {"payment_id"}),
        ({"order_status": "status"}, set()),
        ({"request_id": "header:code"}, set()),
    ]
    for given, left_out in cases:
        shape = words(answer=AnswerShape(**given)).answer

        assert left_out == {point for point in points if not getattr(shape, point)}, given


def test_codes_that_stand_in_messages() -> None:
    """If a code has no place of its own but the profile lists codes, the message of a refusal is the code."""
    codes = ResultCodes(absent=("NO_ORDER",))
    for shape, texts in (
        (AnswerShape(message="m"), ["NO_ORDER", "it is wrong"]),
        (AnswerShape(message="m", code="m", code_optional=True), ["NO_ORDER", "it is wrong"]),
        (AnswerShape(message="m", code="c", ok=[0]), ["it is wrong"] * 2),
    ):
        dialect = Dialect(Profile(answer=shape, codes=codes))
        refusals = (RefusedError(why, "it is wrong") for why in ("absent", "invalid"))

        assert texts == [dialect.build_refusal(each, PLACE_ORDER, "r").document["m"] for each in refusals]
    assert "it is wrong" == words(codes=codes).message(RefusedError("absent", "it is wrong"))


def test_refund_is_described_as_it_was_made() -> None:
    """Both amounts of a refund have the names that the refund itself gave them."""
    fields = {"total_amt": "amount", "refunds.create": {"total_amt": "paid", "refund_amt": "amount"}}
    refund = Refund(out_refund_no="R", refund_id="N", out_trade_no="T", total_amt=450, refund_amt=200, fingerprint="")
    described = Dialect(Profile(fields=fields)).describe_refund(refund)

    assert (450, 200) == (described["paid"], described["amount"])


async def test_service_that_takes_less() -> None:
    """If the profile gives an argument an empty name, it is neither sent nor demanded, nor compared after a loss."""
    fields = {**PROFILE.fields, "refunds.create": {"total_amt": ""}, "orders.place": {"currency": ""}}
    required = {"refunds.create": ("total_amt", "shop"), "orders.place": ("currency",)}
    profile = evolve(PROFILE, fields=fields, accept=Accept(currency=("CAD",), required=required))
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        for operation in ("refunds.create", "orders.place"):
            sandbox.faults.reset_after_commit(operation)
        placed = await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        await sandbox.customer.authorize("T1")
        refunded = await pay.send(refund(extra={"shop": "one"}))

        assert ("pending", "succeeded") == (placed.state, refunded.state)
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
        with pytest.raises(errors.ServiceError) as caught:
            await pay.subscriptions.cancel("S0")

    assert ("active", "cancelled") == (made.state, ended.state)
    assert caught.value.response is not None
    assert caught.value.response.request_id not in {None, "S0"}


@pytest.mark.parametrize("word", ["closed", "expired", "failed"])
async def test_service_with_one_word_for_the_ends_without_payment(word: str) -> None:
    """If the profile has a word for only one of *closed*, *expired* and *failed*, the sandbox uses it for all."""
    states = evolve(PROFILE.states, order={"pending": ("OPEN",), "paid": ("PAID",), word: ("OVER",)})
    async with Sandbox(evolve(PROFILE, states=states), clock="frozen") as sandbox, sandbox.session() as pay:
        for number in ("T1", "T2", "T3"):
            await sandbox.given.pending_order(out_trade_no=number)
        for _ in range(3):
            await sandbox.customer.decline("T1")
        await pay.orders.close("T2")
        await sandbox.clock.advance(hours=1)

        assert [word] * 3 == [(await pay.orders.query(number)).state for number in ("T1", "T2", "T3")]


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


def test_codes_by_what_they_mean() -> None:
    """A refusal has the code that the profile names for it, or that means the same alone. Else it has none."""
    cases: list[tuple[ResultCodes, Any, Any]] = [
        (ResultCodes(), {}, {}),
        (LISTED, {}, {"busy": "BUSY", "duplicate": 77, "absent": 0}),
        (LISTED, {"duplicate": 78, "busy": "LATER"}, {"busy": "LATER", "duplicate": 78, "absent": 0}),
        (ResultCodes(), OF_THEIR_OWN, OF_THEIR_OWN),
        (BY_KEYS, {}, {"unauthenticated": "SIGN", "bad_signature": "SIGN"}),
        (BY_KEYS, {"unauthenticated": "KEY"}, {"unauthenticated": "KEY", "bad_signature": "SIGN"}),
    ]
    for codes, named, expected in cases:
        names = words(codes=codes, sandbox=SandboxShape(codes=named))

        assert expected == {why: code for why in REFUSALS if (code := names.code(why)) is not None}


def test_refusal_without_a_code() -> None:
    """If the profile names no code for a refusal, its HTTP status tells it, and the document has no code."""
    dialect = Dialect(Profile(answer=AnswerShape(code="code", ok=["OK"], message="why"), codes=LISTED))
    wrong, gone = (
        dialect.build_refusal(RefusedError(why, "no"), PLACE_ORDER, "r") for why in ("bad_signature", "absent")
    )

    assert (401, {"why", "requestId"}) == (wrong.status, set(wrong.document))
    assert (404, 0) == (gone.status, gone.document["code"])


def test_status_means_to_the_profile_what_happened() -> None:
    """A refusal that its code does not tell has a status that the profile reads as its reason."""
    state, keys = ("wrong_state",), ("bad_signature", "unauthenticated", "absent")
    cases: list[tuple[dict[str, Any], tuple[str, ...], list[int]]] = [
        # 409 means a used number to this profile, so it cannot tell a wrong state.
        ({}, state, [422]),
        ({"sandbox": SandboxShape(failures="status", codes={"wrong_state": "STATE"})}, state, [409]),
        ({"http": HttpCodes(not_executed=(400, 409))}, state, [409]),
        ({"http": HttpCodes(not_executed=(403, 400))}, state, [403]),
        ({"http": HttpCodes(not_executed=())}, state, [409]),
        ({"http": HttpCodes(not_executed=(422,)), "codes": BY_KEYS}, keys[:1], [401]),
        ({"http": HttpCodes(not_executed=(422,))}, keys[:1], [422]),
        ({"http": HttpCodes(unauthenticated=(401, 403))}, keys, [401, 401, 404]),
        ({"http": HttpCodes(unauthenticated=(403,))}, keys, [403, 403, 404]),
        ({"http": HttpCodes(unauthenticated=())}, keys, [401, 401, 404]),
    ]
    for parts, reasons, statuses in cases:
        names = words(**{"codes": ResultCodes(not_executed=("STATE",)), **parts})

        assert statuses == [names.status(why) for why in reasons], parts  # type: ignore[arg-type] # reasons


def test_names_of_events() -> None:
    """Event names follow the sandbox's own order. The last name is used for the rest, except for orders."""
    kinds = {"payment": ["p1", "p2"], "refund": ["r1"], "subscription": ["s1", "s2", "s3"]}
    names = words(notification=NotificationShape(verification="none", kind="k", kinds=kinds))
    ends = [names.event("payment", name) for name in ("paid", "failed", "closed", "expired")]
    steps = [names.event("subscription", name) for name in ("renewed", "past_due", "cancelled", "started")]

    assert ["p1", "p2", None, None] == ends
    assert ["r1", "r1"] == [names.event("refund", name) for name in ("succeeded", "failed")]
    assert ["s1", "s2", "s3", "s1"] == steps


ORDER = {"outTradeNo": "T1", "totalAmt": 450, "currency": "CAD"}
BARE: Any = {"signed": [], "merchant": [], "bearer": []}


def refused(profile: Profile, operation: Operation, fields: dict[str, Any]) -> str | None:
    """Return the field for which a request is refused, or `None` if it is accepted."""
    try:
        Dialect(profile).read(operation, fields, {})
    except RefusedError as error:
        return error.field
    return None


NESTED: Final = {"a": 1, "b": [2]}


def test_fields_are_those_of_the_profile() -> None:
    """A request must hold the constants of its operation, required fields, and amounts within their bounds.

    Constants have equal JSON types and values. Beside nested arguments, each one is compared by itself.
    """
    one = {"*": {"v": 1}}
    own = {**one, "orders.place": {"v": 2}}
    shared = {"of": {"scale": 2, "value": 450}, "unit": "CAD", "kind": "gross"}
    cases: list[tuple[dict[str, Any], dict[str, Any], str | None]] = [
        ({"constants": one}, {"v": 1}, None),
        # To JSON Schema, 1.0 is the integer 1. To Python, 1 is true, too.
        ({"constants": one}, {"v": 1.0}, None),
        ({"constants": {"*": {"v": [{"a": 1.0}]}}}, {"v": [{"a": 1}]}, None),
        *(({"constants": one}, {"v": value}, "v") for value in (2, "1", True, 1.5, None, [1])),
        ({"constants": {"orders.place": {"v": NESTED}}}, {"v": {"b": [2], "a": 1}}, None),
        ({"constants": {"orders.place": {"v": NESTED}}}, {"v": {"a": 1, "b": [3]}}, "v"),
        ({"constants": {"orders.place": {"v": NESTED}}}, {}, "v"),
        # The table of one operation goes before the one for all.
        ({"constants": own}, {"v": 2}, None),
        ({"constants": own}, {"v": 1}, "v"),
        # A caller may give an argument in place of a constant of its name.
        ({"constants": {"*": {"sceneType": "JSAPI"}}}, {"sceneType": "H5"}, None),
        ({"constants": {"*": {"sceneType": "JSAPI"}}}, {}, None),
        (SHARED, {"sum": shared}, None),
        (SHARED, {"sum": {**shared, "kind": "net"}}, "sum.kind"),
        (SHARED, {"sum": {**shared, "of": {"value": 450}}}, "sum.of.scale"),
        (SHARED, {"sum": {**shared, "unit": 1}}, "sum.unit"),
        (IN_A_LIST, {"items": [{"count": 1, "price": 450}]}, None),
        (IN_A_LIST, {"items": [{"count": 2, "price": 450}]}, "items.0.count"),
        # Required fields of `extra` may have any value.
        (EXTRA, {}, "subject"),
        (EXTRA, {"subject": "x"}, "deviceNo"),
        (EXTRA, {"subject": "x", "deviceNo": ""}, None),
        *(({"accept": Accept(amount=(2, 9))}, {"totalAmt": amount}, "totalAmt") for amount in (1, 10)),
        *(({"accept": Accept(amount=(2, 9))}, {"totalAmt": amount}, None) for amount in (2, 9)),
    ]
    for parts, fields, field in cases:
        assert field == refused(Profile(**BARE, **parts), PLACE_ORDER, {**ORDER, **fields}), (parts, fields)
    # In a query, a constant is compared as text.
    queried = Profile(**BARE, constants=one)
    assert [None, "v", "v"] == [
        refused(queried, QUERY_PAYMENT, {"outTradeNo": "T1", "v": value}) for value in ("1", "2", "")
    ]


SHARED: Final = {
    "constants": {"orders.place": {"sum": {"of": {"scale": 2}, "kind": "gross"}}},
    "fields": {"orders.place": {"total_amt": "sum.of.value", "currency": "sum.unit"}},
}
IN_A_LIST: Final = {
    "constants": {"orders.place": {"items": [{"count": 1}]}},
    "fields": {"orders.place": {"total_amt": "items.0.price"}},
}
EXTRA: Final = {"accept": Accept(required={"orders.place": ["deviceNo", "subject"]})}


CODED: Final = evolve(PROFILE, http=HttpCodes())
UNLISTED: Final = HttpCodes(not_executed=())
UNREADABLE: Final = (400, 405, 413, 415)
"""What stands for a request that cannot be read, also where other failures stand inside HTTP 200."""


def test_way_in_which_refusals_are_sent() -> None:
    """The setting of the sandbox decides, then the profile's key, then whether the profile lists statuses."""
    refusals = [
        (RefusedError("wrong_state", "no"), PLACE_ORDER),
        (RefusedError("duplicate", "no"), PLACE_ORDER),
        *((RefusedError("invalid", "no", status=each), PLACE_ORDER) for each in UNREADABLE),
        (RefusedError("absent", "no"), None),
        (RefusedError("busy", "no"), PLACE_ORDER),
    ]
    cases: list[tuple[Any, Any, HttpCodes, int]] = [
        ("", "", HttpCodes(), 409),
        ("", "", UNLISTED, 200),
        ("", "status", UNLISTED, 409),
        ("", "200", HttpCodes(), 200),
        ("status", "200", UNLISTED, 409),
        ("200", "status", HttpCodes(), 200),
    ]
    for setting, key, http, status in cases:
        dialect = Dialect(evolve(CODED, http=http, sandbox=evolve(CODED.sandbox, failures=key)), setting)
        sent = [dialect.build_refusal(error, operation, "r").status for error, operation in refusals]

        assert [status, status, *UNREADABLE, 404, 503] == sent, (setting, key)


NAMED: Final = PROFILE.sandbox.codes


NUMBERED: Final = ("orders.query", "orders.close", "payments.status", "refunds.status")
OWN: Final[dict[str, dict[str, list[str]]]] = {
    "orders.place": {"duplicate": ["TAKEN"]},
    "refunds.create": {"duplicate": ["USED"], "absent": ["NONE"]},
    **{name: {"absent": ["NONE"]} for name in (*NUMBERED, "subscriptions.update", "subscriptions.cancel")},
}
"""The codes of each operation that can be refused because of a number."""


def coded(without: set[str]) -> Profile:
    """Return a profile whose refusals are inside HTTP 200, without the codes of some."""
    named = {name: code for name, code in NAMED.items() if name not in without}
    return evolve(CODED, codes=ResultCodes(), sandbox=SandboxShape(failures="200", codes=named))


def test_all_codes_that_are_missing_are_named() -> None:
    """Each refusal inside HTTP 200 needs a code, and a place for it. One error names all that are missing."""
    own = {"codes": ResultCodes(by_operation={name: OWN[name] for name in OWN if name != "orders.query"})}
    written = {"codes": ResultCodes(by_operation=OWN), "idempotency": Idempotency(header="Idempotency-Key")}
    cases: list[Any] = [
        *(({why}, {}, [why]) for why in REFUSALS if why != "busy"),
        ({"nonce_used", "invalid", "absent"}, {}, ["invalid", "nonce_used", "absent"]),
        ({"duplicate", "absent"}, own, ["absent"]),
        ({"duplicate"}, written, ["duplicate"]),
    ]
    for without, parts, missing in cases:
        keys = [f"sandbox.codes.{why}" for why in missing]
        with pytest.raises(errors.ConfigurationError, match=f"^the sandbox needs {', '.join(keys)}, because") as caught:
            Sandbox(evolve(coded(without), **parts))

        assert keys[0] == caught.value.field
    with pytest.raises(errors.ConfigurationError, match=r"answer\.code or answer\.message must be given"):
        Sandbox(Profile(sandbox=SandboxShape(codes=NAMED)), failures="200")


def test_refusal_that_never_stands_inside_200_needs_no_code() -> None:
    """A refusal needs no code if it has a status of its own, never happens, or has the code of its meaning."""
    cases: list[tuple[set[str], dict[str, Any]]] = [
        ({"busy"}, {}),
        ({"duplicate", "absent"}, {"codes": ResultCodes(by_operation=OWN)}),
        ({"bad_signature", "nonce_used"}, {"signed": []}),
        ({"bad_signature", "nonce_used", "unauthenticated"}, BARE),
        ({"duplicate", "absent"}, {"codes": ResultCodes(duplicate=("USED",), absent=("NONE",))}),
    ]
    for without, parts in cases:
        profile = evolve(coded(without), **{"codes": PROFILE.codes, **parts})

        assert profile == Sandbox(profile).profile


def test_two_operations_have_two_addresses() -> None:
    """A sandbox whose profile gives two operations one method and path is refused, because one would never be done."""
    asked, named = Endpoint(path="/orders/ask"), Endpoint(method="GET", path="/o/{out_trade_no}")
    for changed, endpoints in (
        ("orders.close", {"orders.query": asked, "orders.close": asked}),
        ("orders.close", {"orders.query": named, "orders.close": Endpoint(method="GET", path="/o/{merchant_id}")}),
        ("orders.close", {"orders.query": Endpoint(method="GET", path="/o", place="path"), "orders.close": named}),
        ("orders.query", {"orders.query": Endpoint(path="/payment/closeorder")}),
    ):
        with pytest.raises(errors.ConfigurationError, match=r'^endpoints\."orders.*could not tell their') as caught:
            Dialect(Profile(endpoints=endpoints))

        assert f"endpoints.{changed}" == caught.value.field


def test_notifications_hold_what_the_profile_names() -> None:
    """A notification has merchant, times, constants and what tells its kind, which holds the state if nothing else."""
    moment, text = datetime(2027, 1, 31, tzinfo=UTC), "2027-01-31T00:00:00.000Z"
    shape = NotificationShape(
        verification="none",
        data="data",
        merchant_id="shop.id",
        must={"livemode": True, "shop.id": "other"},
        time="sent",
        event_time="data.paid",
        tells={kind: f"kind.{kind}" for kind in KINDS},
    )
    for event in EVENTS:
        body = Dialect(evolve(PROFILE, notification=shape)).build_notification(event, moment)
        document = json.loads(body or "")
        data, thing = document["data"], "order" if event.kind == "payment" else event.kind

        assert ({"id": "SANDBOX"}, True) == (data["shop"], data["livemode"])
        assert (text, text) == (document["sent"], data["paid"])
        assert {event.kind: words().state(thing, event.subject.state)} == data["kind"]


def test_notifications_have_their_own_unit() -> None:
    """Amounts in notifications have the unit of `notification.amounts`, or without it that of responses."""
    cases: list[tuple[Any, Any, object]] = [
        ("major", "", "0.01"),
        ("major", "as sent", 1),
        ("as sent", "major", "0.01"),
    ]
    for responses, notifications, expected in cases:
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


def test_what_a_success_cannot_omit() -> None:
    """A profile whose sandbox would send a 204 that a session does not believe is refused."""
    for operation, paths, answer in (
        ("orders.place", ["*"], AnswerShape()),
        ("orders.close", ["*", "a"], AnswerShape()),
        ("orders.close", ["*"], AnswerShape(code="code", ok=("OK",))),
        ("orders.close", ["*"], AnswerShape(signature="sign")),
        ("orders.close", ["*"], AnswerShape(must={"live": True})),
        ("orders.shut", ["a"], AnswerShape()),
    ):
        with pytest.raises(errors.ConfigurationError) as caught:
            Profile(answer=answer, sandbox=SandboxShape(omits={operation: paths}))

        assert f"sandbox.omits.{operation}" == caught.value.field


GATEWAY: Final = evolve(
    PROFILE,
    bearer=(),
    signed=(),
    merchant=(),
    payment_status=Parameter("no"),
    endpoints={each.name: Endpoint(method="POST", path="/gateway") for each in OPERATIONS},
    constants={each.name: {"service": each.name} for each in OPERATIONS},
)


async def test_constants_tell_operations_at_one_address_apart() -> None:
    """All operations may have one address if a constant names each; a fault meets only its own operation."""
    async with Sandbox(profile=GATEWAY) as sandbox, sandbox.session(retry=RetryPolicy(attempts=1, quota=0)) as pay:
        for operation, sample in SAMPLES.items():
            sandbox.faults.server_error(operation, status=502)
            with pytest.raises((errors.OutcomeUnknownError, errors.NoAnswerError), match="502"):
                await pay.send(sample)
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        await pay.send(SAMPLES["refunds.create"])
        assert "R1" == (await pay.send(SAMPLES["refunds.status"])).get("outRefundNo")


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
        with pytest.raises(errors.ServiceError, match="outTradeNo is missing"):
            await pay.request("POST", "/ask", fields={})
    schemas = described["content"]["application/json"]["schema"]["anyOf"]
    assert [["outTradeNo"], ["id"]] == [each["required"] for each in schemas]


async def test_one_path_with_and_without_an_argument() -> None:
    """Two operations may share a path if one of them has its argument behind it."""
    endpoints = {"orders.query": Endpoint(method="GET", path="/orders"), "payments.status": Endpoint(path="/orders")}
    profile = evolve(GATEWAY, constants={}, payment_status=Parameter("no", "path"), endpoints=endpoints)
    async with Sandbox(profile=profile) as sandbox, sandbox.session() as pay:
        await sandbox.given.pending_order(out_trade_no="T1")
        states = [(await pay.orders.query("T1")).state, (await pay.payments.status("T1")).state]

    assert ["pending", "pending"] == states


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


async def test_successes_name_what_they_are_about() -> None:
    """If the profile says where a response names its order, amounts or merchant, each success names them there."""
    own_names = {"outTradeNo", "outRefundNo", "totalAmt", "refundAmt", "currency", "merchantId"}
    for name, expected in CALLS.items():
        async with Sandbox(ABOUT) as sandbox, sandbox.session(retry=FAST) as pay:
            if name == "orders.close":
                await sandbox.given.pending_order(out_trade_no="T1")
            elif name != "orders.place":
                await sandbox.given.paid_order(out_trade_no="T1")
            if name == "refunds.status":
                await pay.send(SAMPLES["refunds.create"])
            document = (await pay.send(SAMPLES[name])).document
        found = {**document, **document.get("about", {}), **document["money"]}

        assert expected == {part: found[part] for part in expected}, name
        assert ("amount" in expected) is ("amount" in document)
        assert not own_names & set(document)


SIGNED: Final = evolve(answering(signature="sign"), recovery=Recovery(quarantine=0.0))


@pytest.mark.parametrize("said", [True, False, None])
async def test_refusals_are_signed_as_the_profile_says(*, said: bool | None) -> None:
    """Refusals are signed only if the profile says so. Unless it leaves that open, an "absent" is final."""
    profile = evolve(SIGNED, answer=evolve(SIGNED.answer, refusals_signed=said))
    async with Sandbox(profile) as sandbox, sandbox.session(retry=FAST) as pay:
        with pytest.raises(errors.ServiceError) as caught:
            await pay.orders.query("T9")
        number = await sandbox.given.paid_order(total_amt=450)
        sandbox.faults.reset_before("refunds.create")
        refund: Any = {"out_trade_no": number, "out_refund_no": "R1", "total_amt": 450, "refund_amt": 1}
        if said is None:
            with pytest.raises(errors.OutcomeUnknownError):
                await pay.refunds.create(**refund)
        else:
            assert "sign" in (await pay.refunds.create(**refund)).document
            asked = [len(sandbox.ledger.calls(name)) for name in ("refunds.create", "refunds.status")]
            assert [1, 1] == asked

    assert caught.value.response is not None
    document: Any = caught.value.response.document
    assert ("SBX_NOT_FOUND", bool(said)) == (document["code"], "sign" in document)


async def test_refusals_of_a_paid_order_have_their_own_codes() -> None:
    """A paid order is not closed, only a paid one is refunded, and one code is for each amount that does not fit."""
    apart = evolve(PROFILE, sandbox=evolve(PROFILE.sandbox, codes={why: why.upper() for why in REFUSALS}))
    async with Sandbox(apart) as sandbox, sandbox.session(retry=FAST) as pay:
        await sandbox.given.paid_order(out_trade_no="T1")
        await sandbox.given.pending_order(out_trade_no="T2")
        await pay.send(refund(out_refund_no="R0", refund_amt=1))
        codes = [
            await code_of(pay.orders.close("T1")),
            await code_of(pay.send(refund(total_amt=449))),
            await code_of(pay.send(refund(out_refund_no="R2", refund_amt=450))),
            await code_of(pay.send(refund(out_trade_no="T2", out_refund_no="R3"))),
        ]

    assert ["ALREADY_PAID", "REFUND_MISMATCH", "REFUND_MISMATCH", "WRONG_STATE"] == codes


async def code_of(call: Awaitable[object]) -> object:
    """Return the result code with which a call is refused."""
    with pytest.raises(errors.PayasyncError) as caught:
        await call
    return getattr(caught.value, "code", None)


SCHEME: Final[Any] = PROFILE.signature
CONSTANTS: Final = {"signType": "RSA", "about": {"versions": [1, True]}}


def constant(**points: Any) -> Profile:
    """Return the sandbox's profile with constants and other points of a response."""
    return evolve(answering(**points), sandbox=evolve(PROFILE.sandbox, constants=CONSTANTS))


async def test_constants_stand_in_what_is_signed() -> None:
    """Each response has the profile's constants: in the signed object if there is one, else in the document."""
    inside: Any = {"data": "in.data", "signature": "in.sign"}
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({}, "", ""),
        ({"data": "in.data"}, "", ""),
        ({"signature": "sign", "refusals_signed": True}, "", ""),
        ({**inside, "code": "in.code", "refusals_signed": True}, "in", "in"),
        ({**inside, "refusals_signed": False}, "in", ""),
    ]
    for points, success, refusal in cases:
        nested = evolve(constant(**points), signature=evolve(SCHEME, nested="json", booleans="json"))
        async with Sandbox(nested) as sandbox, sandbox.session(retry=FAST) as pay:
            made = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
            with pytest.raises(errors.ServiceError) as caught:
                await pay.orders.query("T9")

        assert caught.value.response is not None
        holders = at(made.document, success), at(caught.value.response.document, refusal)
        assert [CONSTANTS] * 2 == [{name: holder[name] for name in CONSTANTS} for holder in holders]


async def test_constants_stand_in_notifications() -> None:
    """Each notification has the profile's constants, where its signature covers them."""
    shape = evolve(PROFILE.notification, data="event.data", kind="kind", time="event.data.at")
    signed = [evolve(shape, verification="body", signature=path) for path in ("sign", "event.data.sign")]
    scheme = evolve(SCHEME, nested="json", booleans="json", numbers="text")
    for each, above in zip((shape, *signed), ("", "", "event.data"), strict=True):
        profile = evolve(constant(), notification=each, signature=scheme)
        async with Sandbox(profile) as sandbox, sandbox.receiver() as receiver:
            await sandbox.given.paid_order(notify_url=receiver.url)
            holder = at((await receiver.next()).document, above)

        assert CONSTANTS == {name: holder[name] for name in CONSTANTS}


def test_constant_that_cannot_be_signed() -> None:
    """If the scheme cannot sign a constant that the service would sign, the error names the constant."""
    for value, why in (
        *((value, "stands in what the service signs") for value in ({"a": 1}, True, 1.5)),
        *((text, "list flag in signature.allow_delimiters") for text in ("a=b", "a&b")),
    ):
        shape = SandboxShape(constants={"signType": "RSA", "flag": value})
        profile = evolve(answering(signature="sign"), sandbox=shape)
        with pytest.raises(errors.ConfigurationError, match=why) as caught:
            ServiceSigner(Dialect(profile), make_keys(profile))

        assert "sandbox.constants.flag" == caught.value.field


async def test_signed_constant_that_may_hold_a_delimiter() -> None:
    """A signed constant may hold a delimiter if `allow_delimiters` lists it. A constant replaces no value."""
    scheme, url = evolve(SCHEME, allow_delimiters=("help",)), "https://pay.example/?a=b&c=d"
    shape = SandboxShape(constants={"help": url, "outTradeNo": "T0", "currency": "XXX"})
    profile = evolve(answering(signature="sign", data=""), signature=scheme, sandbox=shape)
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        document = (await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")).document

    assert (url, "T1", "CAD") == (document["help"], document["outTradeNo"], document["currency"])


async def test_signature_of_a_response_covers_the_arguments_in_its_path() -> None:
    """If the path of an endpoint has arguments and is signed, responses are signed over the path as it was sent."""
    scheme = evolve(SCHEME, append_path=True)
    endpoints = {"orders.query": Endpoint(method="GET", path="/v2/{merchant_id}/orders/{out_trade_no}")}
    profile = evolve(answering(signature="sign", refusals_signed=True), signature=scheme, endpoints=endpoints)
    async with Sandbox(profile) as sandbox, sandbox.session(retry=FAST) as pay:
        await sandbox.given.pending_order(out_trade_no="T1")

        assert "pending" == (await pay.orders.query("T1")).state
        assert "SBX_NOT_FOUND" == await code_of(pay.orders.query("T9"))


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
    async with (
        Sandbox(Profile.from_toml(ODD), failures=failures, refunds="succeed") as sandbox,
        SqliteJournal(tmp_path / "pay.db") as journal,
        sandbox.session(journal=journal, retry=FAST) as pay,
    ):
        request = PlaceOrder(out_trade_no="T1", total_amt=450, currency="CAD", subject="a b")
        placed, recorded = await pay.send(request), await pay.send(request)
        await sandbox.customer.authorize(str(placed.redirect_url))
        paid = await pay.orders.query("T1")
        refusals = list[Any]()
        for call in (
            pay.orders.query("T9"),
            pay.send(refund(total_amt=451, refund_amt=451)),
            pay.send(refund(out_trade_no="T9", out_refund_no="R2")),
        ):
            with pytest.raises(errors.ServiceError) as caught:
                await call
            refusals.append((caught.value.code, caught.value.http_status))

    address = f"https://pay.example/p?no={placed.get('gateway.no')}&amount=450&note=a%20b"
    assert address == placed.redirect_url == recorded.redirect_url
    assert ({"result", "requestId"}, list) == (set(placed.document), type(placed.document["result"]))
    assert ("paid", None) == (paid.state, paid.redirect_url)
    statuses = [200] * 3 if failures == "200" else [404, 422, 404]
    assert [*zip(("NONE", "NOT_ENOUGH", "BAD"), statuses, strict=True)] == refusals


def test_numbers_in_paths() -> None:
    """A number in a path is the position in a list, which begins with empty objects; it stands at no top level.

    The name of a refused field stands beside the message, or beside its list.
    """
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("e.1.code", "e.1.text", {"e": [{}, {"code": "N", "text": "no", "field": "f"}]}),
        ("e.0", "e.1", {"e": ["N", "no"], "field": "f"}),
        ("0.code", "0.text", {"0": {"code": "N", "text": "no", "field": "f"}}),
        ("a.0.0", "a.0.1", {"a": [["N", "no"]], "field": "f"}),
        ("a.0", "b.0", {"a": ["N"], "b": ["no"], "field": "f"}),
    ]
    for code, message, document in cases:
        shape = AnswerShape(code=code, message=message, ok=(0,), request_id="header:X-Id")
        dialect = Dialect(Profile(answer=shape, codes=ResultCodes(absent=("N",))), "status")

        assert document == dialect.build_refusal(RefusedError("absent", "no", field="f"), None, "r").document


def test_time_of_a_zone() -> None:
    """With `timezone`, a time has no offset and no fraction of a second, but a repeated hour has its offset."""
    shape = evolve(PROFILE.notification, timezone="America/Toronto")
    dialect = Dialect(evolve(PROFILE, notification=shape))
    for moment, written in (
        ("2026-11-22T15:30:00.789Z", "2026-11-22 10:30:00"),
        ("2026-11-01T05:30:00Z", "2026-11-01 01:30:00"),
        ("2026-11-01T06:30:00Z", "2026-11-01 01:30:00-05:00"),
    ):
        body = dialect.build_notification(EVENTS[0], datetime.fromisoformat(moment))

        assert written == json.loads(body or "")["timestamp"]


def test_code_of_a_success_stands_in_the_last_place() -> None:
    """Of several places, a success has its code in the last, and a refusal in the first.

    Only refusals have a message if there are several places for it, or if it stands in an object with their own code.
    """
    nested: dict[str, Any] = {"message": "why.words", "code": ["why.code", "result"]}
    own, one = {"why": "N", "words": "no"}, {"result": "N", "words": "no"}
    cases: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        ({"message": "words"}, {"result": "YES", "words": "done"}, own),
        ({"message": ["words", "text"]}, {"result": "YES"}, own),
        (nested, {"result": "YES"}, {"why": {"code": "N", "words": "no"}}),
        ({"message": ["words", "text"], "code": "result"}, {"result": "YES"}, one),
        ({"message": "words", "code": "result"}, {"result": "YES", "words": "done"}, one),
        ({"message": "words", "code_optional": True}, {}, own),
    ]
    for answer, done, refused in cases:
        shape = evolve(AnswerShape(code=["why", "result"], ok=["YES"], request_id="header:X-Id"), **answer)
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


def test_code_that_an_operation_reads_otherwise() -> None:
    """An operation does not send a general or a named code that has another meaning in its own list."""
    codes = ResultCodes(absent=("A", "B"), by_operation={"refunds.create": {"retryable": ["LATER", "A"]}})
    general = words(codes=codes)
    own, shape = ResultCodes(by_operation={"refunds.create": {"absent": ["GONE"]}}), SandboxShape(codes={"absent": "N"})
    unread, read = words(codes=own, sandbox=shape), words(codes=evolve(own, absent=("N",)), sandbox=shape)

    assert ("A", "B") == (general.code("absent"), general.code("absent", "refunds.create"))
    assert (None, "LATER") == (general.code("busy"), general.code("busy", "refunds.create"))
    assert [("N", "GONE"), ("N", "N")] == [
        (names.code("absent", "orders.query"), names.code("absent", "refunds.create")) for names in (unread, read)
    ]


UNCODED: Final = evolve(
    answering(code="", ok=()),
    codes=ResultCodes(),
    http=HttpCodes(duplicate=(410, 409), not_executed=(404, 422), absent=(404,)),
)


async def test_used_number_gets_a_status_of_the_profile() -> None:
    """Without codes, a used number gets a status of the profile: 409 if that is listed, or if none is."""
    for statuses, expected in (((409,), 409), ((410,), 410), ((423, 410), 423), ((410, 409), 409), ((), 409)):
        profile = evolve(UNCODED, http=evolve(UNCODED.http, duplicate=statuses))
        kind: type[Exception] = errors.DuplicateError if statuses else Exception
        async with Sandbox(profile) as sandbox, sandbox.session(retry=FAST) as pay:
            await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
            with pytest.raises(kind):
                await pay.orders.place(total_amt=451, currency="CAD", out_trade_no="T1")

            assert [200, expected] == [each.status for each in sandbox.ledger.calls("orders.place")]


def test_used_nonce_is_a_duplicate() -> None:
    """No profile that we show says that a request with a used nonce was not carried out: a hop may send it twice."""
    shown = [PROFILE, Profile.from_toml(FIR.read_text(encoding="utf-8")), *map(profile_of, SERVICES)]
    for profile in shown:
        code = WireNames(profile).code("nonce_used")
        meanings = {profile.codes.meaning(each, [code]) for each in profile.signed if code}

        assert {"duplicate"} >= meanings, profile.name
