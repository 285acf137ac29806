"""`/openapi.json` describes the sandbox's behaviour, for any profile."""

import json
from typing import Any, Final, cast

import aiohttp
import jsonschema_rs
import pytest
from attrs import evolve

from payasync import Accept, AnswerShape, Auth, Endpoint, HttpCodes, Profile, ResultCodes, SandboxShape, SortedPairs
from payasync.endpoints import OPERATIONS, Argument
from payasync.profile.schema import REFUSALS
from payasync.profile.wire_names import SIGN
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.arguments import SORTS
from payasync.sandbox.dialect import Dialect
from payasync.sandbox.openapi import describe_request, describe_service
from payasync.strict_json import at
from payasync.wire.encode import encode
from tests.sandbox.foreign import Receiver
from tests.sandbox.world import SAMPLES, Reading, World

CREATE: Final = "subscriptions.create"
NAMES: Final = [operation.name for operation in OPERATIONS]


def described(profile: Profile) -> Any:
    """Return the OpenAPI document of a profile as JSON."""
    return json.loads(json.dumps(describe_service(Dialect(profile))))


def operation_of(described: Any, name: str) -> Any:
    """Return the part of a document about an operation."""
    operations = [each for path in described["paths"].values() for each in path.values()]
    return next(each for each in operations if each["operationId"] == name)


def differences(described: Any, name: str, reading: Reading) -> list[str]:
    """Return how a response differs from the document."""
    responses = operation_of(described, name)["responses"]
    response = responses.get(str(reading.status), responses["default"])
    schema = response["content"]["application/json"]["schema"]
    wrong = [each.message for each in jsonschema_rs.Draft202012Validator(schema).iter_errors(reading.document)]
    headers = {header for header, each in response["headers"].items() if each.get("required")}
    return [*wrong, *(f"{header} is missing" for header in headers if header not in reading.headers)]


async def answers(world: World) -> list[tuple[str, Reading]]:
    """Return responses of many kinds, each with its operation's name."""
    found = list[tuple[str, Reading]]()
    numbers: dict[str, Any] = {}

    async def reach(name: str, request: Any = None, **changes: Any) -> None:
        found.append((name, await world.reach(request or SAMPLES[name], **changes)))

    for name in ("refunds.status", "orders.place", "orders.query", "refunds.create", "payments.create", CREATE):
        await reach(name)
        numbers[name] = found[-1][1].data
    await world.sandbox.customer.authorize("T1")
    subscription = at(numbers[CREATE], world.profile.answer.subscription_id or "")
    for name, sample in SAMPLES.items():
        known = name.startswith("subscriptions.") and name != CREATE
        request: Any = evolve(cast("Any", sample), subscription_id=subscription) if known else sample
        for _ in range(2):
            await reach(name, request)
        await reach(name, request, headers={"Authorization": "Bearer wrong"})
        await reach(name, request, fields={**world.fields(request), SIGN: "wrong"})
        if request.operation.has_body:
            for body in (b"{", b"{}", b" " * 70_000):
                await reach(name, request, body=body)
            await reach(name, request, headers={"Content-Type": "text/plain"})
    for kind in ("server_error", "rate_limited"):
        world.sandbox.faults.arm(kind)
        await reach("orders.query")
    return found


def test_arguments_in_the_path_have_their_wire_names() -> None:
    """A path shows each argument under its own wire name, even if that is our name of another argument."""
    endpoints = {"refunds.create": Endpoint(path="/{out_refund_no}/of/{out_trade_no}")}
    fields = {"out_refund_no": "out_trade_no", "out_trade_no": "order"}

    assert "/{out_trade_no}/of/{order}" in described(Profile(endpoints=endpoints, fields=fields))["paths"]


async def test_every_response_is_as_documented(world: World) -> None:
    """Responses of all kinds match the served document in status, body and headers.

    The document needs no token, describes the ten endpoints, and contains no key.
    """
    served = await world.ask("GET", f"{world.sandbox.url}/openapi.json")
    found, credentials, text = served.document, world.sandbox.credentials, json.dumps(served.document)
    keys = [credentials.secret_key, credentials.signing_key, credentials.public_key, *credentials.notification_keys]
    responses = await answers(world)

    assert [] == [(name, each.status, wrong) for name, each in responses for wrong in differences(found, name, each)]
    assert {"done", "invalid", "bad_signature", "absent", "duplicate", "wrong_state", "busy"} <= {
        each.why for _, each in responses
    }
    assert (200, "3.1.0") == (served.status, found["openapi"])
    assert described(world.profile) == found
    assert sorted(NAMES) == sorted(each["operationId"] for path in found["paths"].values() for each in path.values())
    assert [] == [key for key in keys if key and key.reveal() in text]


def answering(**points: Any) -> Profile:
    """Return the sandbox's own profile with other points of a response."""
    return evolve(PROFILE, answer=evolve(PROFILE.answer, **points))


IN_CAD: Final = {"*": {"currency": "CAD"}}
DIALECTS: Final = {
    "compared": evolve(
        answering(out_trade_no="a.no", currency="", total_amt="a.sum", merchant_id="a.shop"), constants=IN_CAD
    ),
    "given currency": evolve(answering(currency="a.unit"), constants=IN_CAD),
    "refusals not signed": answering(signature="seal", refusals_signed=False),
    "codes in failures": evolve(
        answering(
            data="result.0",
            code=["errors.0.code", "code"],
            code_optional=True,
            message="errors.0.text",
            redirect_url="",
            redirect_template="https://pay.example/{gate.0}",
        ),
        codes=evolve(PROFILE.codes, by_operation={"refunds.create": {"absent": ["NO_REFUND"]}}),
    ),
    "codes in two places": answering(code=["error.code", "result"], message=["error.text", "text"]),
    "codes in a list": answering(code="codes.0", message="texts.0", code_optional=True),
    "codes and messages in a list": answering(code=["errors.0", "code"], message=["errors.1", "text"]),
    "constants": evolve(
        answering(data="outer.data", signature="outer.seal", refusals_signed=False),
        signature=SortedPairs(algorithm="hmac-sha256", encoding="hex", nested="json", booleans="json", numbers="text"),
        sandbox=evolve(PROFILE.sandbox, constants={"v": 1.5, "on": True, "of": [1], "no": None, "in": {"a": "b"}}),
    ),
    "constants in the document": evolve(PROFILE, sandbox=evolve(PROFILE.sandbox, constants={"signType": "RSA"})),
    "used before inside": evolve(PROFILE, http=HttpCodes(duplicate=(410,), not_executed=())),
}


@pytest.mark.parametrize("profile", DIALECTS.values(), ids=DIALECTS)
async def test_responses_of_a_profile_are_documented(
    profile: Profile, http: aiohttp.ClientSession, receiver: Receiver
) -> None:
    """The document follows the profile: compared points, signatures, and the status of a used number."""
    async with Sandbox(profile, clock="frozen") as running, running.session() as pay:
        found = await answers(World(running, http, receiver, pay))
    document = described(profile)

    assert [] == [(name, each.status, wrong) for name, each in found for wrong in differences(document, name, each)]
    assert {"done", "absent", "duplicate", "wrong_state"} <= {each.why for _, each in found}


def test_codes_of_refusals_are_documented() -> None:
    """A refusal has one of the codes that the profile names, and always one only if the profile names all.

    If code and message have one place, any text may stand there.
    """
    cases: list[tuple[Any, object, bool]] = [
        ({}, None, False),
        ({"invalid": 1, "absent": "NONE"}, {"enum": [1, "NONE"]}, False),
        (dict.fromkeys(REFUSALS, "BAD"), {"enum": ["BAD"]}, True),
    ]

    def refusal(profile: Profile) -> Any:
        responses = operation_of(described(profile), "refunds.create")["responses"]
        return responses["default"]["content"]["application/json"]["schema"]

    for codes, expected, required in cases:
        schema = refusal(Profile(answer=AnswerShape(code="code", ok=["OK"]), sandbox=SandboxShape(codes=codes)))
        assert (expected, required) == (schema["properties"].get("code"), "code" in schema["required"])
    shape = AnswerShape(code="m", message="m", code_optional=True)
    schema = refusal(Profile(answer=shape, codes=ResultCodes(absent=("N",))))
    assert ("enum" in schema["properties"]["m"], "m" in schema["required"]) == (False, True)


def test_headers_with_keys_are_documented() -> None:
    """Each header with a key is a security scheme, and each operation in `bearer` demands all of them."""
    key, bearer = {"type": "apiKey", "in": "header"}, ("payments.create", "orders.query")
    basic = {"Authorization": {"type": "http", "scheme": "basic"}}
    two = Auth(header="X-Key", value="{public_key}", headers={"X!M": "{merchant_id}"})
    for auth, schemes in (
        (Auth(), {"Authorization": {"type": "http", "scheme": "bearer"}}),
        (Auth(value="Basic {basic_user}"), basic),
        (Auth(value="Basic {basic}"), basic),
        (Auth(value="{secret_key}"), {"Authorization": {**key, "name": "Authorization"}}),
        (two, {"X-Key": {**key, "name": "X-Key"}, "X_M": {**key, "name": "X!M"}}),
    ):
        document = described(evolve(PROFILE, auth=auth, bearer=bearer))
        found: Any = document["components"]["securitySchemes"]
        demanded = {name: operation_of(document, name)["security"] for name in NAMES}

        assert schemes == {
            name: {key: each[key] for key in each if key != "description"} for name, each in found.items()
        }
        assert {*bearer} == {name for name, each in demanded.items() if each}
        assert [{name: [] for name in schemes}] == demanded["payments.create"] == demanded["orders.query"]


@pytest.mark.parametrize("name", NAMES)
async def test_request_is_as_documented(world: World, name: str) -> None:
    """The sandbox demands each field that the document requires, and no other one that the client sends."""
    request, operation = SAMPLES[name], operation_of(described(world.profile), name)
    carried = world.fields(request)
    if not request.operation.has_body:
        outgoing = encode(evolve(world.codec.call(request), fields=carried))
        sent = {**outgoing.query, **outgoing.headers, **world.profile.headers}
        assert set(sent) == {each["name"] for each in operation["parameters"] if each["in"] != "path"}
        return
    schema = operation["requestBody"]["content"]["application/json"]["schema"]

    assert jsonschema_rs.Draft202012Validator(schema).is_valid(carried)
    for field in {*carried, *schema["required"]}:
        response = await world.reach(request, fields=world.fields(request, **{field: None}))
        assert (field in schema["required"]) is (response.why == "invalid"), field
        assert response.field == field or field not in schema["required"]


def test_required_field_of_extra_is_documented() -> None:
    """A field of `extra` that the profile requires is required in the document, in the body or in the query.

    The number that a payment needs in `extra` has the form of all numbers, because the sandbox takes it as one.
    """
    for name, field in (("orders.place", "shop"), ("payments.status", "shop"), ("payments.create", "outTradeNo")):
        operation = operation_of(described(evolve(PROFILE, accept=Accept(required={name: [field]}))), name)
        schema = at(operation, "requestBody.content.application/json.schema", {"required": []})

        assert field in [*schema["required"], *(each["name"] for each in operation["parameters"] if each["required"])]
        if field == "outTradeNo":
            assert f"^(?:{PROFILE.identifier})$" == schema["properties"][field]["pattern"]


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


def test_fields_are_accepted_as_described() -> None:
    """The sandbox accepts a value of a field if, and only if, the document's schema does."""
    words = Dialect(PROFILE)
    differing: list[tuple[str, object]] = []
    for operation in OPERATIONS:
        schemas, _ = describe_request(words.names, operation)
        for wire, argument in words.names.arguments[operation.name].items():
            schema = jsonschema_rs.Draft202012Validator(schemas[wire], validate_formats=True)
            accepted = (value for value in VALUES if schema.is_valid(value) != accepts(words, argument, value))
            differing += [(wire, value) for value in accepted]

    assert [] == differing


def accepts(words: Dialect, argument: Argument, value: object) -> bool:
    """Return whether the sandbox accepts a value of an argument."""
    try:
        words.checks[SORTS[argument.name]](value)
    except ValueError:
        return False
    return True
