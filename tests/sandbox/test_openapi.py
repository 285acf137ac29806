"""`/openapi.json` describes the sandbox's behaviour, for any profile."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

import aiohttp
import jsonschema_rs
import pytest
from attrs import evolve
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.openapi import from_dict
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from payasync import Accept, AnswerShape, Auth, Endpoint, HttpCodes, Profile, ResultCodes, SandboxShape, SortedPairs
from payasync.endpoints import OPERATIONS, Argument, Operation
from payasync.profile.schema import REFUSALS
from payasync.profile.wire_names import SIGN
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.arguments import SORTS
from payasync.sandbox.dialect import Dialect
from payasync.sandbox.openapi import describe_request, describe_service
from payasync.sandbox.threaded import ThreadedSandbox
from payasync.strict_json import at
from payasync.wire.encode import encode
from tests.sandbox.foreign import Receiver
from tests.sandbox.world import SAMPLES, Reading, World

CREATE: Final = "subscriptions.create"
CHECKS: Final[list[Any]] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    positive_data_acceptance,
    negative_data_rejection,
]
NAMES: Final = [operation.name for operation in OPERATIONS]


def described(profile: Profile) -> Any:
    """Return the OpenAPI document of a profile as JSON."""
    return json.loads(json.dumps(describe_service(Dialect(profile))))


def operation_of(described: Any, name: str) -> Any:
    """Return the part of a document about an operation."""
    told = [each for path in described["paths"].values() for each in path.values()]
    return next(each for each in told if each["operationId"] == name)


def differences(described: Any, name: str, told: Reading) -> list[str]:
    """Return how a response differs from the document."""
    responses = operation_of(described, name)["responses"]
    response = responses.get(str(told.status), responses["default"])
    schema = response["content"]["application/json"]["schema"]
    wrong = [each.message for each in jsonschema_rs.Draft202012Validator(schema).iter_errors(told.document)]
    headers = {header for header, each in response["headers"].items() if each.get("required")}
    return [*wrong, *(f"{header} is missing" for header in headers if header not in told.headers)]


async def answers(world: World) -> list[tuple[str, Reading]]:
    """Return responses of many kinds, each with its operation's name."""
    told = list[tuple[str, Reading]]()
    numbers: dict[str, Any] = {}
    for name in ("refunds.status", "orders.place", "orders.query", "refunds.create", "payments.create", CREATE):
        answer = await world.reach(SAMPLES[name])
        numbers[name] = answer.data
        told.append((name, answer))
    await world.sandbox.customer.authorize("T1")
    subscription = numbers[CREATE]
    for step in (world.profile.answer.subscription_id or "").split("."):
        subscription = subscription[step]
    for name, sample in SAMPLES.items():
        known = name.startswith("subscriptions.") and name != CREATE
        request: Any = evolve(cast("Any", sample), subscription_id=subscription) if known else sample
        told += [(name, await world.reach(request)) for _ in range(2)]
        told.append((name, await world.reach(request, headers={"Authorization": "Bearer wrong"})))
        told.append((name, await world.reach(request, fields={**world.fields(request), SIGN: "wrong"})))
        if request.operation.has_body:
            told.append((name, await world.reach(request, body=b"{")))
            told.append((name, await world.reach(request, body=b"{}")))
            told.append((name, await world.reach(request, headers={"Content-Type": "text/plain"})))
            told.append((name, await world.reach(request, body=b" " * 70_000)))
    for kind in ("server_error", "rate_limited"):
        world.sandbox.faults.arm(kind)
        told.append(("orders.query", await world.reach(SAMPLES["orders.query"])))
    return told


def test_arguments_in_the_path_have_their_wire_names() -> None:
    """A path shows each argument under its own wire name, even if that is our name of another argument."""
    paths = described(
        Profile(
            endpoints={"refunds.create": Endpoint(path="/{out_refund_no}/of/{out_trade_no}")},
            fields={"out_refund_no": "out_trade_no", "out_trade_no": "order"},
        )
    )["paths"]

    assert "/{out_trade_no}/of/{order}" in paths


async def test_every_answer_is_as_documented(world: World) -> None:
    """Responses of all kinds match the served document in status, body and headers."""
    found = (await world.ask("GET", f"{world.sandbox.url}/openapi.json")).document
    told = await answers(world)

    assert [] == [(name, each.status, wrong) for name, each in told for wrong in differences(found, name, each)]
    assert {"done", "invalid", "bad_signature", "absent", "duplicate", "wrong_state", "busy"} <= {
        each.why for _, each in told
    }


DIALECTS: Final = {
    "compared": evolve(
        PROFILE,
        answer=evolve(PROFILE.answer, out_trade_no="a.no", currency="", total_amt="a.sum", merchant_id="a.shop"),
        constants={"*": {"currency": "CAD"}},
    ),
    "given currency": evolve(
        PROFILE, answer=evolve(PROFILE.answer, currency="a.unit"), constants={"*": {"currency": "CAD"}}
    ),
    "refusals not signed": evolve(PROFILE, answer=evolve(PROFILE.answer, signature="seal", refusals_signed=False)),
    "codes in failures": evolve(
        PROFILE,
        answer=evolve(
            PROFILE.answer,
            data="result.0",
            code=["errors.0.code", "code"],
            code_optional=True,
            message="errors.0.text",
            redirect_url="",
            redirect_template="https://pay.example/{gate.0}",
        ),
        codes=evolve(PROFILE.codes, by_operation={"refunds.create": {"absent": ["NO_REFUND"]}}),
    ),
    "codes in two places": evolve(
        PROFILE, answer=evolve(PROFILE.answer, code=["error.code", "result"], message=["error.text", "text"])
    ),
    "codes in a list": evolve(
        PROFILE, answer=evolve(PROFILE.answer, code="codes.0", message="texts.0", code_optional=True)
    ),
    "codes and messages in a list": evolve(
        PROFILE, answer=evolve(PROFILE.answer, code=["errors.0", "code"], message=["errors.1", "text"])
    ),
    "constants": evolve(
        PROFILE,
        answer=evolve(PROFILE.answer, data="outer.data", signature="outer.seal", refusals_signed=False),
        signature=SortedPairs(algorithm="hmac-sha256", encoding="hex", nested="json", booleans="json", numbers="text"),
        sandbox=evolve(PROFILE.sandbox, constants={"v": 1.5, "on": True, "of": [1], "no": None, "in": {"a": "b"}}),
    ),
    "constants in the document": evolve(PROFILE, sandbox=evolve(PROFILE.sandbox, constants={"signType": "RSA"})),
    "used before inside": evolve(PROFILE, http=HttpCodes(duplicate=(410,), not_executed=())),
}


@pytest.mark.parametrize("profile", DIALECTS.values(), ids=DIALECTS)
async def test_what_a_profile_may_say_of_answers_is_documented(
    profile: Profile, http: aiohttp.ClientSession, receiver: Receiver
) -> None:
    """The document follows the profile: compared points, signatures, and the status of a used number."""
    async with Sandbox(profile, clock="frozen") as running, running.session() as pay:
        told = await answers(World(running, http, receiver, pay))
    document = described(profile)

    assert [] == [
        (name, each.status, difference) for name, each in told for difference in differences(document, name, each)
    ]
    assert {"done", "absent", "duplicate", "wrong_state"} <= {each.why for _, each in told}


@pytest.mark.parametrize(
    ("codes", "expected", "required"),
    [
        ({}, None, False),
        ({"invalid": 1, "absent": "NONE"}, {"enum": [1, "NONE"]}, False),
        (dict.fromkeys(REFUSALS, "BAD"), {"enum": ["BAD"]}, True),
    ],
)
def test_codes_of_refusals_are_documented(codes: Any, expected: object, *, required: bool) -> None:
    """A refusal has one of the codes that the profile names, and always one only if the profile names all."""
    profile = Profile(answer=AnswerShape(code="code", ok=["OK"]), sandbox=SandboxShape(codes=codes))
    document = described(profile)
    for name in NAMES:
        refusal = operation_of(document, name)["responses"]["default"]["content"]["application/json"]["schema"]

        assert (expected, required) == (refusal["properties"].get("code"), "code" in refusal["required"])


def test_code_in_the_place_of_the_message_is_documented() -> None:
    """If code and message have one place, any text may stand there."""
    shape = AnswerShape(code="m", message="m", code_optional=True)
    document = described(Profile(answer=shape, codes=ResultCodes(absent=("N",))))
    refusal = operation_of(document, NAMES[0])["responses"]["default"]["content"]["application/json"]["schema"]

    assert "enum" not in refusal["properties"]["m"]
    assert "m" in refusal["required"]


KEY: Final = {"type": "apiKey", "in": "header"}


@pytest.mark.parametrize(
    ("auth", "schemes"),
    [
        (Auth(), {"Authorization": {"type": "http", "scheme": "bearer"}}),
        (Auth(value="Basic {basic_user}"), {"Authorization": {"type": "http", "scheme": "basic"}}),
        (Auth(value="Basic {basic}"), {"Authorization": {"type": "http", "scheme": "basic"}}),
        (Auth(value="{secret_key}"), {"Authorization": {**KEY, "name": "Authorization"}}),
        (
            Auth(header="X-Key", value="{public_key}", headers={"X!M": "{merchant_id}"}),
            {"X-Key": {**KEY, "name": "X-Key"}, "X_M": {**KEY, "name": "X!M"}},
        ),
    ],
)
def test_headers_with_keys_are_documented(auth: Auth, schemes: Mapping[str, Mapping[str, str]]) -> None:
    """Each header with a key is a security scheme, and each operation in `bearer` demands all of them."""
    found = described(evolve(PROFILE, auth=auth, bearer=("payments.create", "orders.query")))
    told: Any = found["components"]["securitySchemes"]
    demanded = {name: operation_of(found, name)["security"] for name in NAMES}

    assert schemes == {name: {key: each[key] for key in each if key != "description"} for name, each in told.items()}
    assert {"payments.create", "orders.query"} == {name for name, each in demanded.items() if each}
    assert [{name: [] for name in schemes}] == demanded["payments.create"] == demanded["orders.query"]


@pytest.mark.parametrize("name", NAMES)
async def test_request_is_as_documented(world: World, name: str) -> None:
    """The sandbox demands each field that the document requires, and no other one that the client sends."""
    request, told = SAMPLES[name], operation_of(described(world.profile), name)
    carried = world.fields(request)
    if not request.operation.has_body:
        call = world.codec.call(request)
        outgoing = encode(evolve(call, fields=carried))
        sent = {**outgoing.query, **outgoing.headers, **world.profile.headers}
        documented = {each["name"] for each in told["parameters"] if each["in"] != "path"}
        assert set(sent) == documented
        return
    schema = told["requestBody"]["content"]["application/json"]["schema"]
    optional = [each for each in carried if each not in schema["required"]]
    taken = [await world.reach(request, fields=world.fields(request, **{each: None})) for each in optional]
    missed = [await world.reach(request, fields=world.fields(request, **{each: None})) for each in schema["required"]]

    assert jsonschema_rs.Draft202012Validator(schema).is_valid(carried)
    assert schema["required"] == [each.field for each in missed]
    assert "invalid" not in {each.why for each in taken}


@pytest.mark.parametrize("name", ["orders.place", "payments.status"])
def test_required_field_of_extra_is_documented(name: str) -> None:
    """A field of `extra` that the profile requires is required in the document, in the body or in the query."""
    told = operation_of(described(evolve(PROFILE, accept=Accept(required={name: ["shop"]}))), name)
    body = at(told, "requestBody.content.application/json.schema.required", [])

    assert "shop" in [*body, *(each["name"] for each in told["parameters"] if each["required"])]


def test_required_number_of_a_payment_is_documented() -> None:
    """The number that a payment needs in `extra` has the form of all numbers, because the sandbox takes it as one."""
    accept = Accept(required={"payments.create": ["outTradeNo"]})
    told = operation_of(described(evolve(PROFILE, accept=accept)), "payments.create")
    schema = at(told, "requestBody.content.application/json.schema.properties.outTradeNo")

    assert f"^(?:{PROFILE.identifier})$" == schema["pattern"]


async def test_is_served_to_anybody_and_holds_no_secret(world: World) -> None:
    """`/openapi.json` needs no token, describes the ten endpoints, and contains no key."""
    told = await world.ask("GET", f"{world.sandbox.url}/openapi.json")
    credentials, text = world.sandbox.credentials, json.dumps(told.document)
    keys = [credentials.secret_key, credentials.signing_key, credentials.public_key, *credentials.notification_keys]

    assert (200, "3.1.0") == (told.status, told.document["openapi"])
    assert described(world.profile) == told.document
    paths = told.document["paths"].values()
    assert sorted(NAMES) == sorted(each["operationId"] for path in paths for each in path.values())
    assert [] == [key for key in keys if key and key.reveal() in text]


VALUES: Final[tuple[object, ...]] = (
    *(0, 1, 19, 2**53 - 1, 2**53, 10**400, -1, 0.0, 1.0, 19.0, 4.5, 1e300),
    *(True, False, None, [], {}, [1], {"a": {"b": []}}),
    *("", "a", "CAD", "cad", "CÄD", "CAD\n", "T1", "a b", "x" * 65, "x" * 129, "x" * 4097, "true", "yes", "19"),
    *("monthly", "MonthLy", "never"),
    *("2027-01-31", "0999-12-31", "1000-01-01", "2027-02-30", "2028-02-29", "2027-1-1"),
    *("http://a", "HTTPS://a.example:65535/?#", "http://a:0", "http://a:65536/", "http://a:080/", "http://a:/"),
    *("https://müller.example/ä?ö#ü", "https://u:p@[::1]:8000/n"),
    *("http://", "http://[::1", "//a", "ftp://a", "http://a/\x85", "http:a"),
)


@pytest.mark.parametrize("name", NAMES)
def test_fields_are_accepted_as_described(name: str) -> None:
    """The sandbox accepts a value of a field if, and only if, the document's schema does."""
    words = Dialect(PROFILE)
    schemas, _ = describe_request(words.names, operation_named(name))
    differing: list[tuple[str, object]] = []
    for wire, argument in words.names.arguments[name].items():
        schema = jsonschema_rs.Draft202012Validator(schemas[wire], validate_formats=True)
        differing += [(wire, value) for value in VALUES if schema.is_valid(value) != accepts(words, argument, value)]

    assert [] == differing


def operation_named(name: str) -> Operation:
    """Return an operation by its name."""
    return next(each for each in OPERATIONS if each.name == name)


def accepts(words: Dialect, argument: Argument, value: object) -> bool:
    """Return whether the sandbox accepts a value of an argument."""
    try:
        words.checks[SORTS[argument.name]](value)
    except ValueError:
        return False
    return True


UNSIGNED: Final = evolve(
    PROFILE, name="unsigned", bearer=NAMES, signed=(), merchant=(), constants={"*": {"v": 2, "w": [1.5]}}
)
"""A service whose requests a fuzzer can make: nothing in them is signed."""


@pytest.mark.long
@pytest.mark.parametrize("profile", [PROFILE, UNSIGNED], ids=lambda profile: profile.name)
def test_schemathesis(profile: Profile) -> None:
    """Generated requests are accepted if they are as described, and refused if not; no response is a 500."""
    statuses: dict[str, set[int]] = {name: set() for name in NAMES}
    with ThreadedSandbox(profile) as sandbox:
        key = sandbox.credentials.secret_key
        assert key
        headers = {"Authorization": f"Bearer {key.reveal()}"}
        for called in operations(described(profile)):
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                seen = statuses[called.definition.raw["operationId"]]
                seen |= statuses_of(called.as_strategy(generation_mode=mode), base_url=sandbox.url, headers=headers)

    assert [True, True] == [200 in statuses[name] for name in ("payments.create", CREATE)]
    assert [] == [name for name, seen in statuses.items() if len(seen) == 1 or max(seen) >= 500]


def operations(document: Any) -> list[Any]:
    """Return the operations of a document as schemathesis reads them."""
    api: Any = from_dict(document)
    return [each.ok() for each in api.get_all_operations()]


def statuses_of(cases: Any, **options: Any) -> set[int]:
    """Return the statuses of the responses to some cases, after checking the responses."""
    seen = set[int]()

    @seed(17)
    @settings(
        max_examples=12,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        database=None,
        deadline=None,
    )
    @given(case=cases)
    def drive(case: Any) -> None:
        answer = case.call(timeout=10, **options)
        case.validate_response(answer, checks=CHECKS)
        seen.add(answer.status_code)

    drive()
    return seen
