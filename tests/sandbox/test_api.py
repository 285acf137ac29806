"""The ten endpoints over HTTP: authentication, checks, and the shape of refusals."""

import json
from typing import Any, cast

import aiohttp
import pytest
from attrs import evolve

from payasync import Auth, AuthenticationError, Credentials, Session
from payasync.endpoints import OPERATIONS
from payasync.errors import ConfigurationError
from payasync.profile.schema import Endpoint
from payasync.profile.wire_names import MERCHANT, NONCE, SIGN
from payasync.sandbox import PROFILE, Sandbox
from payasync.signing.schemes import SortedPairs
from payasync.strict_json import at
from tests.inside import set_writable, store_of
from tests.sandbox.foreign import PLACE, QUERY, Foreign
from tests.sandbox.world import SAMPLES, Told, World

PLAN = {"billingFrequency": "monthly", "amount": 900, "startDate": "2999-01-31", "customer": {"email": "a@example.com"}}


async def test_place_order(foreign: Foreign) -> None:
    """Endpoint 2 returns the order and the address of its gateway page (docs/reference/service.md#orders)."""
    answer = await foreign.place("T1", subject="Coffee", body="", sceneType="JSAPI")

    assert (200, "SBX_OK", "T1", "SBX_PENDING", 450, "CAD") == (
        *answer.told,
        *(answer.document[name] for name in ("outTradeNo", "status", "totalAmt", "currency")),
    )
    assert answer.document["redirectUrl"].startswith(f"{foreign.sandbox.url}/gateway/")


async def test_every_answer_is_marked(foreign: Foreign, sandbox: Sandbox) -> None:
    """Each response says that it comes from the sandbox; the ledger lists each call with its status and code."""
    answers = [
        await foreign.place("T1"),
        await foreign.post(QUERY, outTradeNo="T2"),
        await foreign.send("GET", "/nowhere"),
        await foreign.send("GET", PLACE),
        await foreign.send("GET", "/gateway/nobody"),
    ]

    assert ["1"] * 5 == [answer.headers["X-Payasync-Sandbox"] for answer in answers]
    assert [("orders.place", 200, "SBX_OK"), ("orders.query", 404, "SBX_NOT_FOUND")] == [
        (call.operation, call.status, call.code) for call in sandbox.ledger.calls()
    ]


async def test_refusals_have_one_shape(foreign: Foreign) -> None:
    """A refusal has a code, a message, the invalid field, and a request number."""
    answer = await foreign.place("T1", 0)

    assert {"code", "message", "field", "requestId"} == set(answer.document)
    assert "application/json" == answer.headers["Content-Type"]


async def test_request_is_one_commit(foreign: Foreign, sandbox: Sandbox) -> None:
    """A request is carried out and recorded in one transaction."""
    commits = list[None]()
    store_of(sandbox).after_commit = lambda: commits.append(None)
    await foreign.place("T1")

    assert (1, 2, 1) == (len(commits), len(sandbox.timeline()), len(sandbox.ledger.calls()))


async def test_database_that_cannot_be_written(foreign: Foreign, sandbox: Sandbox) -> None:
    """If the database cannot be written, a request gets a refusal of the usual shape, and nothing is done."""
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
    """Return the status of a response and the meaning of its code."""
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
    "wrong", [None, "", "wrong", "x{}", "{} x", "{}\xe9", "Basic {}", "Bearer", "Bearer wrong", "Bearer {} x"]
)
async def test_headers_hold_the_merchants_keys(world: World, wrong: str | None) -> None:
    """If a header does not hold the merchant's keys, a request gets 401 (docs/reference/service.md#authentication)."""
    request = SAMPLES["payments.create"]
    right = world.bearer(request.operation)
    told = [
        await world.tell(request, headers={header: wrong and wrong.format(value)}) for header, value in right.items()
    ]

    assert [world.refused(401, "unauthenticated")] * len(right) == [met(each) for each in told]
    assert {each.status == 401 for each in told} == {"WWW-Authenticate" in each.headers for each in told}
    assert 0 == world.sandbox.ledger.payments()


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer {}", 200),
        ("bearer {}", 200),
        ("BEARER  {}", 200),
        ("{}", 401),
        ("Bearer{}", 401),
        ("Basic {}", 401),
        ("Bearer {0} {0}", 401),
    ],
)
async def test_scheme_of_authorization_counts_in_any_case(foreign: Foreign, authorization: str, status: int) -> None:
    """The scheme in front of the key counts in any case, as HTTP has it; the key counts exactly."""
    key = foreign.sandbox.credentials.secret_key
    assert key
    headers = {"Authorization": authorization.format(key.reveal())}
    answer = await foreign.send("POST", "/v1/payments", json={"amount": 1, "currency": "CAD"}, headers=headers)

    assert (status, None if status == 200 else "Bearer") == (answer.status, answer.headers.get("WWW-Authenticate"))


@pytest.mark.parametrize(
    ("auth", "challenge"),
    [
        (Auth(value="Basic {basic}"), 'Basic realm="payasync sandbox"'),
        (Auth(value="Token {public_key}"), "Token"),
        (Auth(value="{secret_key}"), 'ApiKey header="Authorization"'),
        (Auth(header="X-Api-Key", value="Bearer {secret_key}"), 'ApiKey header="X-Api-Key"'),
    ],
)
async def test_client_and_sandbox_agree_on_headers(auth: Auth, challenge: str, http: aiohttp.ClientSession) -> None:
    """The client sends, and the sandbox accepts, the headers of the profile alone; a 401 names the header or scheme."""
    profile = evolve(PROFILE, auth=evolve(auth, headers={"X-Merchant": "{merchant_id};{public_key}"}))
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        made = await pay.payments.create(amount=1000, currency="USD")
        url, body = f"{sandbox.url}/v1/payments", {"amount": 1000, "currency": "USD"}
        async with http.post(url, json=body) as refused:
            told = refused.status, refused.headers["WWW-Authenticate"]
        credentials = with_another_key(sandbox.credentials, auth)
        async with Session(sandbox.url, credentials=credentials, profile=profile) as other:
            with pytest.raises(AuthenticationError):
                await other.payments.create(amount=1000, currency="USD")

        assert (1, "pending") == (sandbox.ledger.payments(), made.state)
    assert (401, challenge) == told


async def test_a_code_tells_a_wrong_signature() -> None:
    """Inside HTTP 200, the first code of `codes.unauthenticated` refuses a signature: an `AuthenticationError`."""
    codes = {why: code for why, code in PROFILE.sandbox.codes.items() if why != "bad_signature"}
    profile = evolve(PROFILE, sandbox=evolve(PROFILE.sandbox, failures="200", codes=codes))
    async with Sandbox(profile) as sandbox:
        credentials = evolve(sandbox.credentials, signing_key="another key")
        async with Session(sandbox.url, credentials=credentials, profile=profile) as pay:
            with pytest.raises(AuthenticationError) as caught:
                await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")

    told = caught.value.http_status, caught.value.code, caught.value.sent
    assert (200, profile.codes.unauthenticated[0], True) == told


def with_another_key(credentials: Credentials, auth: Auth) -> Credentials:
    """Return credentials with another key in the place of one that the header holds."""
    keys: dict[str, Any] = {"secret_key": credentials.secret_key, "public_key": credentials.public_key}
    return Credentials(credentials.merchant_id, **{**keys, auth.needs[0]: "another"})


@pytest.mark.parametrize("name", ["orders.place", "orders.query", "orders.close", "refunds.create"])
@pytest.mark.parametrize("missing", [NONCE, SIGN, MERCHANT])
async def test_signed_requests_carry_nonce_signature_and_merchant(world: World, name: str, missing: str) -> None:
    """Endpoints 2 to 5 require nonce, signature and merchant, else 422 (docs/reference/service.md#authentication)."""
    request = SAMPLES[name]
    told = await world.tell(request, fields=without(world.fields(request), missing))

    assert (world.refused(422, "invalid"), missing) == (met(told), told.field)


async def test_merchant_must_be_known(world: World) -> None:
    """A signed request of an unknown merchant gets 403."""
    told = await world.tell(PLACING, fields=world.fields(PLACING, **{MERCHANT: "M2"}))

    assert (world.refused(403, "unauthenticated"), MERCHANT) == (met(told), told.field)


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


async def test_forged_request(world: World) -> None:
    """A changed amount is refused with 401, without the expected signature, and does not use up the nonce."""
    genuine = world.fields(PLACING)
    changed = {**genuine, "totalAmt": 451}
    forged = await world.tell(PLACING, fields=changed)
    orders = world.sandbox.ledger.orders()
    told = await world.tell(PLACING, fields=genuine)
    text = json.dumps(forged.document)

    assert (world.refused(401, "bad_signature"), SIGN, 0) == (met(forged), forged.field, orders)
    assert "done" == told.why
    assert world.signature(PLACING.operation, without(changed, SIGN)) not in text
    assert "Coffee" not in text


async def test_request_refused_by_state_uses_its_nonce(world: World) -> None:
    """A request that was refused by a state uses up its nonce: a repetition is refused later, too."""
    fields = world.fields(REFUNDING)
    await world.sandbox.given.pending_order(out_trade_no="T1")
    first = await world.tell(REFUNDING, fields=fields)
    await world.sandbox.customer.authorize("T1")
    second = await world.tell(REFUNDING, fields=fields)

    assert ("wrong_state", "nonce_used", 0) == (first.why, second.why, world.sandbox.ledger.refunded("T1"))


async def test_every_constant_and_header_of_the_profile_is_required(world: World) -> None:
    """A request without a constant or a header of the profile, or with another value, is refused by its name: 422."""
    profile, told = world.profile, list[Any]()
    constants = {**profile.constants.get("*", {}), **profile.constants.get("orders.place", {})}
    for value in (None, "another"):
        for name in constants:
            told.append((name, await world.tell(PLACING, fields=world.fields(PLACING, **{name: value}))))
        for name in profile.headers:
            told.append((name, await world.tell(QUERYING, headers={name: value})))

    assert [(world.refused(422, "invalid"), name) for name, _ in told] == [(met(each), each.field) for _, each in told]
    assert bool(constants) == (profile is not PROFILE)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("currency", "XXX"), ("scene_type", "OTHER"), ("total_amt", 10**9 + 1), ("subject", "x" * 31), ("subject", None)],
)
async def test_limits_of_the_profile(world: World, argument: str, value: object) -> None:
    """A value outside the profile's `accept`, or a missing field that it requires, is refused by its name: 422."""
    name = world.wire(argument)
    told = await world.tell(PLACING, fields=world.fields(PLACING, **{name: value}))
    limited = world.profile.accept != PROFILE.accept

    assert ((world.refused(422, "invalid"), name) if limited else ((200, "done"), None)) == (met(told), told.field)


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


async def test_every_answer_names_its_request(world: World) -> None:
    """Each response has its own request number at the profile's place."""
    numbers = {(await world.pay.send(request)).request_id for request in (PLACING, QUERYING, QUERYING)}

    assert 3 == len(numbers)
    assert None not in numbers


async def test_answers_are_signed_where_the_profile_says(world: World) -> None:
    """If the profile has a signature, the service's key verifies responses, and refusals if it says so."""
    answers = [await world.tell(PLACING), await world.tell(PLACING), await world.tell(PLACING, body=b"x")]
    signed = bool(world.profile.answer.signature)
    refused = signed and world.profile.answer.refusals_signed is True

    assert [signed, refused, refused] == [_verified(each, world) for each in answers]


def _verified(told: Told, world: World) -> bool:
    above, _, name = world.profile.answer.signature.rpartition(".")
    fields, scheme = (
        dict(at(told.document, above, {}) if above else told.document),
        cast("Any", world.profile.signature),
    )
    signature = fields.pop(name, "")
    (key,), path = world.sandbox.credentials.service_keys, PLACING.operation.path
    return bool(signature) and scheme.verify(fields, signature, path=path, key=key) is True


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


@pytest.mark.parametrize("text", ["0", "-1", "007", "4.5", "1e3", "x", "9" * 5000, "\u0664"])
async def test_amount_outside_the_body_that_is_none(foreign: Foreign, text: str) -> None:
    """A text outside the body that is no amount is refused, and named."""
    profile = evolve(PROFILE, signed=(), merchant=(), bearer=(), endpoints={"payments.create": Endpoint(method="GET")})
    async with Sandbox(profile) as sandbox:
        url = f"{sandbox.url}/v1/payments"
        async with foreign.http.get(url, params={"amount": text, "currency": "CAD"}) as answer:
            told = answer.status, (await answer.json())["field"]

    assert (422, "amount") == told
