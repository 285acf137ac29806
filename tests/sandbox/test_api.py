"""The ten endpoints over HTTP: authentication, checks, and the shape of refusals."""

import json
from typing import Any

import aiohttp
import pytest
from attrs import evolve

from payasync import Auth, AuthenticationError, Credentials
from payasync.profile.schema import Endpoint
from payasync.profile.wire_names import MERCHANT, SIGN
from payasync.sandbox import PROFILE, Sandbox
from payasync.signing.schemes import SortedPairs
from tests.sandbox.foreign import PLACE, QUERY, Foreign
from tests.sandbox.world import SAMPLES, World


async def test_every_response_is_marked(foreign: Foreign, sandbox: Sandbox) -> None:
    """Each response says that it comes from the sandbox. The ledger lists each call, and refusals have one shape."""
    responses = [
        await foreign.place("T1", subject="Coffee", body="", sceneType="JSAPI"),
        await foreign.post(QUERY, outTradeNo="T2"),
        await foreign.send("GET", "/nowhere"),
        await foreign.send("GET", PLACE),
        await foreign.send("GET", "/gateway/nobody"),
        await foreign.place("T1", 0),
    ]

    assert ["1"] * 6 == [each.headers["X-Payasync-Sandbox"] for each in responses]
    assert [
        ("orders.place", 200, "SBX_OK"),
        ("orders.query", 404, "SBX_NOT_FOUND"),
        ("orders.place", 422, INVALID),
    ] == [(call.operation, call.status, call.code) for call in sandbox.ledger.calls()]
    assert {"code", "message", "field", "requestId"} == set(responses[-1].document)
    assert "application/json" == responses[-1].headers["Content-Type"]


INVALID = "SBX_INVALID"
PLACING, QUERYING, REFUNDING = (SAMPLES[name] for name in ("orders.place", "orders.query", "refunds.create"))


async def test_headers_hold_the_merchants_keys(world: World) -> None:
    """If a header does not hold the merchant's keys, a request gets 401 (docs/reference/service.md#authentication)."""
    request = SAMPLES["payments.create"]
    forms = (None, "", "wrong", "x{}", "{} x", "{}\xe9", "Basic {}", "Bearer", "Bearer wrong", "Bearer {} x")
    for header, value in world.bearer(request.operation).items():
        for wrong in forms:
            refused = await world.reach(request, headers={header: wrong and wrong.format(value)})

            assert world.refused(401, "unauthenticated") == refused.reason, wrong
            assert (refused.status == 401) is ("WWW-Authenticate" in refused.headers)
    assert 0 == world.sandbox.ledger.payments()


@pytest.mark.parametrize(
    ("auth", "challenge", "statuses"),
    [
        (Auth(), "Bearer", {"bearer {}": 200, "BEARER  {}": 200, "{}": 401, "Bearer{}": 401, "Bearer {0} {0}": 401}),
        (Auth(value="Basic {basic}"), 'Basic realm="payasync sandbox"', {}),
        (Auth(value="Token {public_key}"), "Token", {}),
        (Auth(value="{secret_key}"), 'ApiKey header="Authorization"', {}),
        (Auth(header="X-Api-Key", value="Bearer {secret_key}"), 'ApiKey header="X-Api-Key"', {}),
    ],
)
async def test_client_and_sandbox_agree_on_headers(
    auth: Auth, challenge: str, statuses: dict[str, int], http: aiohttp.ClientSession
) -> None:
    """The client sends, and the sandbox accepts, the headers of the profile alone; a 401 names the header or scheme.

    The scheme counts in any case, as HTTP has it; the key counts exactly.
    """
    profile = evolve(PROFILE, auth=evolve(auth, headers={"X-Merchant": "{merchant_id};{public_key}"}))
    amount: Any = {"amount": 1000, "currency": "USD"}
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        own = sandbox.credentials
        made = await pay.payments.create(**amount)
        public, secret = (key.reveal() if key else "" for key in (own.public_key, own.secret_key))
        for value, status in {"": 401, **statuses}.items():
            headers = {"Authorization": value.format(secret), "X-Merchant": f"{own.merchant_id};{public}"}
            async with http.post(f"{sandbox.url}/v1/payments", json=amount, headers=headers) as response:
                shown = response.headers.get("WWW-Authenticate")

                assert (status, challenge if status == 401 else None) == (response.status, shown)
        keys: dict[str, Any] = {"secret_key": own.secret_key, "public_key": own.public_key, auth.needs[0]: "another"}
        async with sandbox.session(credentials=Credentials(own.merchant_id, **keys)) as other:
            with pytest.raises(AuthenticationError):
                await other.payments.create(**amount)

        assert ("pending", 1 + [*statuses.values()].count(200)) == (made.state, sandbox.ledger.payments())


async def test_merchant_must_be_known(world: World) -> None:
    """A signed request of an unknown merchant gets 403 (docs/reference/service.md#authentication)."""
    unknown = await world.reach(PLACING, fields=world.fields(PLACING, **{MERCHANT: "M2"}))

    assert (world.refused(403, "unauthenticated"), MERCHANT) == (unknown.reason, unknown.field)


async def test_signature_covers_unknown_fields(world: World) -> None:
    """An unknown field is accepted if it was signed, and refused if it was added later.

    If the path is signed, a signature is valid for its own endpoint only.
    """
    signed = await world.reach(PLACING, fields=world.fields(PLACING, deviceNo="7"))
    added = await world.reach(QUERYING, fields={**world.fields(QUERYING), "deviceNo": "7"})
    reused = await world.reach(SAMPLES["orders.close"], fields=world.fields(QUERYING))
    path_counts = isinstance(world.profile.signature, SortedPairs) and world.profile.signature.append_path

    assert ("done", "bad_signature") == (signed.why, added.why)
    assert reused.why == ("bad_signature" if path_counts else "done")


async def test_forged_request(world: World) -> None:
    """A changed amount is refused with 401, without the expected signature, and does not use up the nonce."""
    genuine = world.fields(PLACING)
    changed = {**genuine, "totalAmt": 451}
    forged = await world.reach(PLACING, fields=changed)
    orders = world.sandbox.ledger.orders()
    again = await world.reach(PLACING, fields=genuine)
    text = json.dumps(forged.document)
    del changed[SIGN]

    assert (world.refused(401, "bad_signature"), SIGN, 0) == (forged.reason, forged.field, orders)
    assert "done" == again.why
    assert world.signature(PLACING.operation, changed) not in text
    assert "Coffee" not in text


async def test_request_refused_by_state_uses_its_nonce(world: World) -> None:
    """A request that was refused by a state uses up its nonce: a repetition is refused later, too."""
    fields = world.fields(REFUNDING)
    await world.sandbox.given.pending_order(out_trade_no="T1")
    first = await world.reach(REFUNDING, fields=fields)
    await world.sandbox.customer.authorize("T1")
    second = await world.reach(REFUNDING, fields=fields)

    assert ("wrong_state", "nonce_used", 0) == (first.why, second.why, world.sandbox.ledger.refunded("T1"))


async def test_every_constant_and_header_of_the_profile_is_required(world: World) -> None:
    """A request without a constant or a header of the profile, or with another value, is refused by its name: 422."""
    profile, invalid = world.profile, world.refused(422, "invalid")
    constants = {**profile.constants.get("*", {}), **profile.constants.get("orders.place", {})}
    for value in (None, "another"):
        for name in constants:
            refused = await world.reach(PLACING, fields=world.fields(PLACING, **{name: value}))
            assert (invalid, name) == (refused.reason, refused.field)
        for name in profile.headers:
            refused = await world.reach(QUERYING, headers={name: value})
            assert (invalid, name) == (refused.reason, refused.field)
    assert bool(constants) == (profile is not PROFILE)


async def test_limits_of_the_profile(world: World) -> None:
    """A value outside the profile's `accept`, or a missing field that it requires, is refused by its name: 422."""
    limited = world.profile.accept != PROFILE.accept
    limits = {"currency": "XXX", "scene_type": "OTHER", "total_amt": 10**9 + 1, "subject": "x" * 31}
    for number, (argument, value) in enumerate([*limits.items(), ("subject", None)]):
        name = world.wire(argument)
        changes = {name: value, world.wire("out_trade_no"): f"T{number}"}
        response = await world.reach(PLACING, fields=world.fields(PLACING, **changes))

        expected = (world.refused(422, "invalid"), name) if limited else ((200, "done"), None)
        assert expected == (response.reason, response.field)


async def test_order_of_checks(world: World) -> None:
    """Checks run in this order: size, type, JSON, fields, signature, nonce, state."""
    await world.reach(PLACING)
    good, json_type, text = world.fields(PLACING), {"Content-Type": "application/json"}, {"Content-Type": "text/plain"}
    answers = [
        await world.reach(PLACING, body=b"x" * 65_537, headers=text),
        await world.reach(PLACING, body=b"x", headers=text),
        await world.reach(PLACING, body=b"x", headers=json_type),
        await world.reach(PLACING, fields={**good, SIGN: "x", "totalAmt": 0}),
        await world.reach(PLACING, fields={**good, SIGN: "x"}),
        await world.reach(PLACING, fields=good),
        await world.reach(PLACING, fields=good),
    ]

    assert [
        (413, "invalid"),
        (415, "invalid"),
        (400, "invalid"),
        world.refused(422, "invalid"),
        world.refused(401, "bad_signature"),
        world.refused(409, "duplicate"),
        world.refused(403, "nonce_used"),
    ] == [each.reason for each in answers]


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_amounts_outside_the_body(method: Any) -> None:
    """An amount that stands in the path or in the query is an integer, and is signed as one."""
    endpoints = {
        "orders.place": Endpoint(method=method, path="/orders/{total_amt}/{currency}"),
        "refunds.create": Endpoint(method=method, place="query"),
    }
    async with Sandbox(evolve(PROFILE, endpoints=endpoints)) as sandbox, sandbox.session() as pay:
        order = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
        await sandbox.customer.authorize(order)
        refund: Any = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}
        states = [(await pay.refunds.create(**refund)).state for _ in range(2)]

        assert (["succeeded"] * 2, 200) == (states, sandbox.ledger.refunded("T1"))


async def test_text_outside_the_body_that_is_no_amount(http: aiohttp.ClientSession) -> None:
    """A text outside the body that is no amount is refused, and named."""
    profile = evolve(PROFILE, signed=(), merchant=(), bearer=(), endpoints={"payments.create": Endpoint(method="GET")})
    async with Sandbox(profile) as sandbox:
        for text in ("0", "-1", "007", "4.5", "1e3", "x", "9" * 5000, "\u0664"):
            params = {"amount": text, "currency": "CAD"}
            async with http.get(f"{sandbox.url}/v1/payments", params=params) as response:
                assert (422, "amount") == (response.status, (await response.json())["field"])
