"""The ten endpoints over HTTP, who may call them, and how refusals look."""

import json
from typing import Any

import pytest

from payasync.endpoints import OPERATIONS
from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.profile.schema import MERCHANT, NONCE, SIGN
from payasync.sandbox import PROFILE, Sandbox
from payasync.signing.schemes import SortedPairs
from tests.inside import set_writable, store_of
from tests.sandbox.foreign import PAY, PLACE, QUERY, Foreign
from tests.sandbox.world import SAMPLES, Told, World

PLAN = {"billingFrequency": "monthly", "amount": 900, "startDate": "2999-01-31", "customer": {"email": "a@example.com"}}


async def test_place_order(foreign: Foreign) -> None:
    """Endpoint 2 returns the order and the address of its gateway page (docs/service.md#orders)."""
    answer = await foreign.place("T1", subject="Coffee", body="", sceneType="JSAPI")

    assert (200, "SBX_OK", "T1", "SBX_PENDING", 450, "CAD") == (
        *answer.told,
        *(answer.document[name] for name in ("outTradeNo", "status", "totalAmt", "currency")),
    )
    assert answer.document["redirectUrl"].startswith(f"{foreign.sandbox.url}/gateway/")


async def test_create_payment(foreign: Foreign, sandbox: Sandbox) -> None:
    """Endpoint 1 makes a payment with numbers of its own; endpoint 6 knows it by both (docs/service.md#payments)."""
    made = await foreign.send(
        "POST", PAY, json={"amount": 1000, "currency": "USD", "description": "Invoice 42"}, headers=foreign.bearer
    )
    found = [
        await foreign.send("GET", "/payment/status", params={"outTradeNo": made.document[name]}, headers=foreign.bearer)
        for name in ("outTradeNo", "paymentId")
    ]

    assert [(200, "SBX_PENDING", 1000, made.document["paymentId"])] * 2 == [
        (one.status, *(one.document[name] for name in ("status", "amount", "paymentId"))) for one in found
    ]
    assert (1, 0) == (sandbox.ledger.payments(), sandbox.ledger.orders())


async def test_refund(foreign: Foreign, sandbox: Sandbox) -> None:
    """Endpoint 5 refunds, and endpoint 7 shows the refund (docs/service.md#refunds)."""
    number = await sandbox.given.paid_order()
    made = await foreign.refund("R1", 200, out_trade_no=number, refundDesc="cold")
    found = await foreign.send("GET", "/payment/refund/status", params={"outRefundNo": "R1"}, headers=foreign.bearer)

    assert (200, "SBX_SUCCEEDED", 200) == (made.status, made.document["status"], made.document["refundAmt"])
    assert "SBX_SUCCEEDED" == found.document["status"]
    assert (200, 1) == (sandbox.ledger.refunded(number), sandbox.ledger.refunds())


async def test_subscription(foreign: Foreign, sandbox: Sandbox) -> None:
    """Endpoints 8 to 10 create, update and cancel."""
    told = list[Any]()
    made = await foreign.send("POST", "/subscriptions/create", json=PLAN, headers=foreign.bearer)
    number = made.document["subscriptionId"]
    for path, fields in [("update", {"amount": 1000}), ("cancel", {}), ("cancel", {})]:
        answer = await foreign.send(
            "POST", f"/subscriptions/{path}", json={"subscriptionId": number, **fields}, headers=foreign.bearer
        )
        told.append((answer.status, answer.document.get("status"), answer.document.get("amount")))

    assert (200, "SBX_SCHEDULED", 900) == (made.status, made.document["status"], made.document["amount"])
    assert [(200, "SBX_SCHEDULED", 1000), (200, "SBX_CANCELLED", 1000), (409, None, None)] == told
    assert "cancelled" == sandbox.ledger.subscription_state(number)


async def test_every_answer_is_marked(foreign: Foreign, sandbox: Sandbox) -> None:
    """Each response says that it comes from the sandbox."""
    answers = [
        await foreign.place("T1"),
        await foreign.post(QUERY, outTradeNo="T2"),
        await foreign.send("GET", "/nowhere"),
        await foreign.send("GET", PLACE),
        await foreign.send("GET", "/gateway/nobody"),
    ]

    assert ["1"] * 5 == [answer.headers["X-Payasync-Sandbox"] for answer in answers]
    assert ["orders.place", "orders.query"] == [call.operation for call in sandbox.ledger.calls()]


async def test_refusals_have_one_shape(foreign: Foreign) -> None:
    """A refusal has a code, a message, the invalid field, and a request number."""
    answer = await foreign.place("T1", 0)

    assert {"code", "message", "field", "requestId"} == set(answer.document)
    assert "application/json" == answer.headers["Content-Type"]


async def test_calls_are_recorded_as_answered(foreign: Foreign, sandbox: Sandbox) -> None:
    """The ledger lists each call with its status and code."""
    await foreign.place("T1")
    await foreign.place("T1")
    await foreign.post(QUERY, outTradeNo="T1")

    assert [(200, "SBX_OK"), (409, "SBX_DUPLICATE")] == [
        (call.status, call.code) for call in sandbox.ledger.calls("orders.place")
    ]
    assert 3 == len(sandbox.ledger.calls())


async def test_request_is_one_commit(foreign: Foreign, sandbox: Sandbox) -> None:
    """A request is done and recorded in one transaction: after a kill there is all of it, or nothing."""
    commits = list[None]()
    store_of(sandbox).after_commit = lambda: commits.append(None)
    await foreign.place("T1")

    assert (1, 2, 1) == (len(commits), len(sandbox.timeline()), len(sandbox.ledger.calls()))


async def test_database_that_cannot_be_written(foreign: Foreign, sandbox: Sandbox) -> None:
    """If nothing can be written, a request fails in the shape of all refusals, and nothing of it is done."""
    set_writable(store_of(sandbox), writable=False)
    failed = await foreign.place("T1")
    with pytest.raises(ConfigurationError, match="db: the sandbox's database cannot be written"):
        await sandbox.given.paid_order()
    set_writable(store_of(sandbox), writable=True)
    placed = await foreign.place("T1")

    assert [(500, "SBX_BUSY"), (200, "SBX_OK")] == [failed.told, placed.told]
    assert 1 == sandbox.ledger.orders()


PLACING, QUERYING, REFUNDING = (SAMPLES[name] for name in ("orders.place", "orders.query", "refunds.create"))


def met(told: Told) -> tuple[int, str]:
    """Return a response's status and the meaning of its code."""
    return told.status, told.why


def without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """Return fields without one of them."""
    return {each: value for each, value in fields.items() if each != name}


@pytest.mark.parametrize("name", [operation.name for operation in OPERATIONS])
async def test_every_endpoint_accepts_the_client(world: World, name: str) -> None:
    """No endpoint refuses the names, places, constants, headers, token and signature that the client sends."""
    told = await world.tell(SAMPLES[name])

    assert told.why in {"done", "absent"}


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer wrong", "Basic {}", "{}", "Bearer {} x", "Bearer \xe9"]
)
async def test_bearer_is_the_secret_key(world: World, authorization: str | None) -> None:
    """A Bearer token must be the secret key (docs/service.md#authentication): 401."""
    key = world.sandbox.credentials.secret_key
    assert key
    header = authorization and authorization.format(key.reveal())
    told = await world.tell(SAMPLES["payments.create"], headers={"Authorization": header})

    assert world.refused(401, "unauthenticated") == met(told)
    assert ("Bearer" if told.status == 401 else None) == told.headers.get("WWW-Authenticate")
    assert 0 == world.sandbox.ledger.payments()


@pytest.mark.parametrize("name", ["orders.place", "orders.query", "orders.close", "refunds.create"])
@pytest.mark.parametrize("missing", [NONCE, SIGN, MERCHANT])
async def test_signed_requests_carry_nonce_signature_and_merchant(world: World, name: str, missing: str) -> None:
    """Endpoints 2 to 5 require all three (docs/service.md#authentication): 422 with the field's name."""
    request = SAMPLES[name]
    told = await world.tell(request, fields=without(world.fields(request), missing))

    assert (world.refused(422, "invalid"), missing) == (met(told), told.field)


async def test_merchant_must_be_known(world: World) -> None:
    """Another merchant's number is refused, even if the signature covers it: 403."""
    told = await world.tell(PLACING, fields=world.fields(PLACING, **{MERCHANT: "M2"}))

    assert (world.refused(403, "unauthenticated"), MERCHANT) == (met(told), told.field)


async def test_signature_is_over_the_exact_fields(world: World) -> None:
    """If an amount was changed after signing, the request is refused, and nothing is done: 401."""
    told = await world.tell(PLACING, fields={**world.fields(PLACING), "totalAmt": 451})

    assert (world.refused(401, "bad_signature"), SIGN, 0) == (met(told), told.field, world.sandbox.ledger.orders())


async def test_signature_covers_unknown_fields(world: World) -> None:
    """An unknown field is accepted if it was signed, and refused if it was added later."""
    signed = await world.tell(PLACING, fields=world.fields(PLACING, deviceNo="7"))
    slipped = await world.tell(QUERYING, fields={**world.fields(QUERYING), "deviceNo": "7"})

    assert ("done", "bad_signature") == (signed.why, slipped.why)


async def test_signature_of_another_endpoint(world: World) -> None:
    """If the path is signed, a signature is valid for its own endpoint only."""
    close = SAMPLES["orders.close"]
    await world.tell(PLACING)
    carried = world.fields(QUERYING)
    told = await world.tell(close, fields=carried)
    path_counts = isinstance(world.profile.signature, SortedPairs) and world.profile.signature.append_path

    assert told.why == ("bad_signature" if path_counts else "done")


async def test_expected_signature_is_not_shown(world: World) -> None:
    """The refusal of a bad signature contains neither the expected signature nor the signed text."""
    fields = {**world.fields(PLACING), "totalAmt": 451}
    told = await world.tell(PLACING, fields=fields)
    expected = world.signature(PLACING.operation, without(fields, SIGN))

    assert expected not in json.dumps(told.document)
    assert "Coffee" not in json.dumps(told.document)


async def test_nonce_is_used_once(world: World) -> None:
    """A request that was done is not done again: 403 (docs/service.md#authentication)."""
    fields = world.fields(QUERYING)
    await world.tell(PLACING)
    first, second = [await world.tell(QUERYING, fields=fields) for _ in range(2)]

    assert "done" == first.why
    assert (world.refused(403, "nonce_used"), NONCE) == (met(second), second.field)


async def test_forged_request_uses_no_nonce(world: World) -> None:
    """A forged request does not use up the nonce of a genuine one."""
    genuine = world.fields(PLACING)
    forged = await world.tell(PLACING, fields={**genuine, "totalAmt": 1})
    told = await world.tell(PLACING, fields=genuine)

    assert ("bad_signature", "done") == (forged.why, told.why)


async def test_request_refused_by_state_uses_its_nonce(world: World) -> None:
    """A request that its state refuses is not carried out if it is repeated when the state allows it."""
    fields = world.fields(REFUNDING)
    await world.sandbox.given.pending_order(out_trade_no="T1")
    first = await world.tell(REFUNDING, fields=fields)
    await world.sandbox.customer.authorize("T1")
    second = await world.tell(REFUNDING, fields=fields)

    assert ("wrong_state", "nonce_used", 0) == (first.why, second.why, world.sandbox.ledger.refunded("T1"))


async def test_every_constant_of_the_profile_is_required(world: World) -> None:
    """A request without one of the profile's constants, or with another value, is refused by its name: 422."""
    profile, told, expected = world.profile, list[Any](), list[Any]()
    for name in {**profile.constants.get("*", {}), **profile.constants.get("orders.place", {})}:
        for value in (None, "another"):
            answer = await world.tell(PLACING, fields=world.fields(PLACING, **{name: value}))
            told.append((met(answer), answer.field))
            expected.append((world.refused(422, "invalid"), name))

    assert expected == told
    assert bool(expected) == (profile is not PROFILE)


async def test_every_header_of_the_profile_is_required(world: World) -> None:
    """A request without one of the profile's headers, or with another value, is refused by its name: 422."""
    told = [
        (met(answer), answer.field)
        for name in world.profile.headers
        for value in (None, "another")
        for answer in [await world.tell(QUERYING, headers={name: value})]
    ]

    assert [(world.refused(422, "invalid"), name) for name in world.profile.headers for _ in range(2)] == told


@pytest.mark.parametrize(
    ("argument", "value"),
    [("currency", "XXX"), ("scene_type", "OTHER"), ("total_amt", 10**9 + 1), ("subject", "x" * 31)],
)
async def test_limits_of_the_profile(world: World, argument: str, value: object) -> None:
    """A value outside the profile's `accept` is refused by its name: 422."""
    name = world.wire(argument)
    told = await world.tell(PLACING, fields=world.fields(PLACING, **{name: value}))
    given = world.profile.accept != PROFILE.accept

    assert ((world.refused(422, "invalid"), name) if given else ((200, "done"), None)) == (met(told), told.field)


async def test_fields_that_the_profile_requires(world: World) -> None:
    """A field that only the profile's `accept` requires is required by its name: 422."""
    told = await world.tell(PLACING, fields=world.fields(PLACING, subject=None))
    required = "subject" in world.profile.accept.required.get("orders.place", ())
    expected = (world.refused(422, "invalid"), "subject") if required else ((200, "done"), None)

    assert expected == (met(told), told.field)


async def test_order_of_checks(world: World) -> None:
    """Checks run in this order: size, type, JSON, fields, signature, nonce, state."""
    await world.tell(PLACING)
    good, json_type, text = world.fields(PLACING), {"Content-Type": "application/json"}, {"Content-Type": "text/plain"}
    answers = [
        await world.tell(PLACING, body=b"x" * 65_537, headers=text),
        await world.tell(PLACING, body=b"x", headers=text),
        await world.tell(PLACING, body=b"x", headers=json_type),
        await world.tell(PLACING, fields={**good, SIGN: "x", "totalAmt": 0}),
        await world.tell(PLACING, fields={**good, SIGN: "x"}),
        await world.tell(PLACING, fields=good),
        await world.tell(PLACING, fields=good),
    ]

    assert [
        (413, "invalid"),
        (415, "invalid"),
        (400, "invalid"),
        world.refused(422, "invalid"),
        world.refused(401, "bad_signature"),
        world.refused(409, "duplicate"),
        world.refused(403, "nonce_used"),
    ] == [met(each) for each in answers]


async def test_unknown_path_and_wrong_method(world: World) -> None:
    """An unknown path is 404, another method 405 with the allowed one; neither has the code for "absent"."""
    path = await world.ask("POST", world.sandbox.url + "/payment/nothing")
    method = await world.ask("PUT", world.sandbox.url + PLACING.operation.path)

    assert ((404, "invalid"), (405, "invalid"), "POST") == (met(path), met(method), method.headers["Allow"])


async def test_every_answer_names_its_request(world: World) -> None:
    """Each response has its own request number at the profile's place."""
    placed = [await world.pay.send(PLACING) for _ in range(1)]
    found = [await world.pay.send(QUERYING) for _ in range(2)]

    assert 3 == len({answer.request_id for answer in (*placed, *found)})
    assert None not in {answer.request_id for answer in (*placed, *found)}


async def test_answers_are_signed_where_the_profile_says(world: World) -> None:
    """If the profile has a signature, the service's key verifies responses, and refusals unless it says otherwise."""
    answers = [await world.tell(PLACING), await world.tell(PLACING), await world.tell(PLACING, body=b"x")]
    signed = bool(world.profile.answer.signature)
    refused = signed and world.profile.answer.refusals_signed is not False

    assert [signed, refused, refused] == [_verified(world.profile, each, world) for each in answers]


def _verified(profile: Profile, told: Told, world: World) -> bool:
    above, _, name = profile.answer.signature.rpartition(".")
    holder: Any = told.document
    for step in above.split(".") if above else ():
        holder = holder.get(step, {})
    fields, scheme = dict(holder), profile.signature
    signature = fields.pop(name, "")
    (key,), path = world.sandbox.credentials.service_keys, PLACING.operation.path
    return bool(signature) and scheme is not None and scheme.verify(fields, signature, path=path, key=key)
