"""`/openapi.json` describes what the sandbox does, for any profile."""

import json
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
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from payasync import HttpCodes, Profile
from payasync.endpoints import OPERATIONS, Operation
from payasync.errors import PayasyncError
from payasync.profile.schema import MERCHANT, NONCE, SIGN
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.dialect import Dialect
from payasync.sandbox.openapi import describe_service
from payasync.sandbox.threaded import ThreadedSandbox
from payasync.wire.encode import Codec, encode
from tests.sandbox.foreign import Receiver
from tests.sandbox.world import SAMPLES, Told, World
from tests.scrambled import scrambled

CREATE: Final = "subscriptions.create"
MAKING: Final = ("payments.create", "orders.place", "subscriptions.create")
EXAMPLES: Final = 12
CHECKS: Final[list[Any]] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
NAMES: Final = [operation.name for operation in OPERATIONS]


def described(profile: Profile) -> Any:
    """Return the document of a profile as a reader has it."""
    return json.loads(json.dumps(describe_service(Dialect(profile))))


def operation_of(described: Any, name: str) -> Any:
    """Return what a document says of an operation."""
    told = [each for path in described["paths"].values() for each in path.values()]
    return next(each for each in told if each["operationId"] == name)


def differences(described: Any, name: str, told: Told) -> list[str]:
    """Return how a response differs from the document."""
    responses = operation_of(described, name)["responses"]
    response = responses.get(str(told.status), responses["default"])
    schema = response["content"]["application/json"]["schema"]
    wrong = [each.message for each in jsonschema_rs.Draft202012Validator(schema).iter_errors(told.document)]
    headers = {header for header, each in response["headers"].items() if each.get("required")}
    return [*wrong, *(f"{header} is missing" for header in headers if header not in told.headers)]


async def answers(world: World) -> list[tuple[str, Told]]:
    """Return responses of many kinds, each with its operation's name."""
    told = list[tuple[str, Told]]()
    numbers: dict[str, Any] = {}
    for name in ("refunds.status", "orders.place", "orders.query", "refunds.create", "payments.create", CREATE):
        answer = await world.tell(SAMPLES[name])
        numbers[name] = answer.data
        told.append((name, answer))
    await world.sandbox.customer.authorize("T1")
    subscription = numbers[CREATE]
    for step in (world.profile.answer.subscription_id or "").split("."):
        subscription = subscription[step]
    for name, sample in SAMPLES.items():
        known = name.startswith("subscriptions.") and name != CREATE
        request: Any = evolve(cast("Any", sample), subscription_id=subscription) if known else sample
        told += [(name, await world.tell(request)) for _ in range(2)]
        told.append((name, await world.tell(request, headers={"Authorization": "Bearer wrong"})))
        told.append((name, await world.tell(request, fields={**world.fields(request), SIGN: "wrong"})))
        if request.operation.has_body:
            told.append((name, await world.tell(request, body=b"{")))
            told.append((name, await world.tell(request, body=b"{}")))
            told.append((name, await world.tell(request, headers={"Content-Type": "text/plain"})))
            told.append((name, await world.tell(request, body=b" " * 70_000)))
    for kind in ("server_error", "rate_limited"):
        world.sandbox.faults.arm(kind)
        told.append(("orders.query", await world.tell(SAMPLES["orders.query"])))
    return told


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
    "used before inside": evolve(PROFILE, http=HttpCodes(duplicate=(410,), not_executed=())),
}


@pytest.mark.parametrize("profile", DIALECTS.values(), ids=DIALECTS)
async def test_what_a_profile_may_say_of_answers_is_documented(
    profile: Profile, http: aiohttp.ClientSession, receiver: Receiver
) -> None:
    """The document follows the profile: compared points, signatures, and the status of a used number."""
    async with Sandbox(profile, clock="frozen") as running, running.session() as pay:
        told = await answers(World(running, http, receiver, pay))

    assert [] == [
        (name, each.status, difference)
        for name, each in told
        for difference in differences(described(profile), name, each)
    ]
    assert {"done", "absent", "duplicate", "wrong_state"} <= {each.why for _, each in told}


@pytest.mark.parametrize("name", NAMES)
async def test_request_is_as_documented(world: World, name: str) -> None:
    """The sandbox demands each field that the document requires, and no other one that the client sends."""
    request, told = SAMPLES[name], operation_of(described(world.profile), name)
    carried = world.fields(request)
    if not request.operation.has_body:
        call = Codec(world.profile, world.sandbox.credentials).call(request)
        outgoing = encode(evolve(call, fields=carried))
        sent = {**outgoing.query, **outgoing.headers, **world.profile.headers}
        documented = {each["name"] for each in told["parameters"] if each["in"] != "path"}
        assert set(sent) == documented
        return
    schema = told["requestBody"]["content"]["application/json"]["schema"]
    optional = [each for each in carried if each not in schema["required"]]
    taken = [await world.tell(request, fields=world.fields(request, **{each: None})) for each in optional]
    missed = [await world.tell(request, fields=world.fields(request, **{each: None})) for each in schema["required"]]

    assert jsonschema_rs.Draft202012Validator(schema).is_valid(carried)
    assert schema["required"] == [each.field for each in missed]
    assert "invalid" not in {each.why for each in taken}


async def test_is_served_to_anybody_and_holds_no_secret(world: World) -> None:
    """It needs no token, names the ten endpoints, and contains no key."""
    told = await world.ask("GET", f"{world.sandbox.url}/openapi.json")
    credentials, text = world.sandbox.credentials, json.dumps(told.document)
    keys = [credentials.secret_key, credentials.signing_key, credentials.public_key, *credentials.notification_keys]

    assert (200, "3.1.0") == (told.status, told.document["openapi"])
    assert described(world.profile) == told.document
    paths = told.document["paths"].values()
    assert sorted(NAMES) == sorted(each["operationId"] for path in paths for each in path.values())
    assert [] == [key for key in keys if key and key.reveal() in text]


def str_of(profile: Profile) -> str:
    """Return a profile's name."""
    return profile.name


class Signer:
    """Gives the requests that schemathesis makes up a merchant, a nonce and a signature.

    Args:
        sandbox: Whose credentials they are.
        profile: What is signed, and how.
    """

    def __init__(self, sandbox: Any, profile: Profile) -> None:
        self._credentials = sandbox.credentials
        self._profile = profile
        self._nonces = iter(range(10**9))

    def sign(self, case: Any, operation: Operation) -> None:
        """Make a case the merchant's own, as far as it can be signed."""
        if operation.name in self._profile.bearer:
            case.headers["Authorization"] = f"Bearer {self._credentials.secret_key.reveal()}"
        carried: Any = case.body if operation.has_body else case.query
        if operation.name not in self._profile.signed or not isinstance(carried, dict):
            return
        own = {MERCHANT: self._credentials.merchant_id} if operation.name in self._profile.merchant else {}
        carried.update({**own, NONCE: f"S{next(self._nonces)}"})
        located = {} if operation.has_body else {**(case.path_parameters or {}), **self._identifier(case, operation)}
        scheme = self._profile.signature
        assert scheme
        try:
            carried[SIGN] = scheme.sign({**carried, **located}, path=operation.path, key=self._credentials.signing_key)
        except PayasyncError:
            carried[SIGN] = "cannot be signed"

    def _identifier(self, case: Any, operation: Operation) -> dict[str, Any]:
        parameters = {"payments.status": self._profile.payment_status, "refunds.status": self._profile.refund_status}
        parameter = parameters[operation.name]
        if parameter and parameter.place == "header" and case.headers.get(parameter.name):
            return {parameter.name: case.headers[parameter.name]}
        return {}


@pytest.mark.long
@pytest.mark.parametrize("profile", [PROFILE, scrambled("openapi")], ids=str_of)
def test_schemathesis(profile: Profile) -> None:
    """Responses to generated requests, valid or not, are documented, and never a 500."""
    with ThreadedSandbox(profile) as sandbox:
        signer, statuses = Signer(sandbox, profile), dict[str, set[int]]()
        api = from_dict(described(profile))
        for called in operations(api):
            operation = next(each for each in OPERATIONS if each.name == called.definition.raw["operationId"])
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                statuses.setdefault(operation.name, set()).update(_driven(called, operation, mode, signer, sandbox.url))

    assert [] == [name for name in MAKING if 200 not in statuses[name]]
    assert not [name for name, seen in statuses.items() if any(status >= 500 for status in seen)]
    assert all(len(seen) > 1 or not profile.http.not_executed for seen in statuses.values())


def operations(api: Any) -> list[Any]:
    """Return the operations of a document that schemathesis has read."""
    return [each.ok() for each in api.get_all_operations()]


def _driven(called: Any, operation: Operation, mode: GenerationMode, signer: Signer, url: str) -> set[int]:
    seen = set[int]()

    @seed(17)
    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        database=None,
        deadline=None,
    )
    @given(case=called.as_strategy(generation_mode=mode))
    def drive(case: Any) -> None:
        signer.sign(case, operation)
        answer = case.call(base_url=url, timeout=10)
        case.validate_response(answer, checks=CHECKS)
        seen.add(answer.status_code)

    drive()
    return seen
