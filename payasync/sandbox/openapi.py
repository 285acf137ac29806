"""`/openapi.json`: the ten endpoints as the sandbox serves them, for the profile in force.

It holds no secret: who reads it may be anybody.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from payasync.operations import OPERATIONS, Operation
from payasync.sandbox.arguments import ARGUMENTS
from payasync.sandbox.dialect import INSIDE, Dialect
from payasync.sandbox.openapi_schemas import TEXT, Schema, carried, done, refused
from payasync.sandbox.receiving import MAX_ADDRESS, MAX_BODY
from payasync.sandbox.values import Why
from payasync.sandbox.vocabulary import STATUSES, Vocabulary
from payasync.shapes import Code
from payasync.signing import SortedPairs
from payasync.version import VERSION

PATH: Final = "/openapi.json"
MARK: Final = "X-Payasync-Sandbox"

_DESCRIPTION: Final = (
    "The service's document leaves much open: what it leaves open is the sandbox's own choice, or that of the "
    "profile that it was started with. Do not take any of it for the service's."
)
_REASONS: Final[Mapping[int, str]] = {
    400: "Malformed: the body is no JSON object, or a name stands twice.",
    401: "The token or the signature is not the merchant's.",
    403: "No such merchant, or the nonce was used before.",
    404: "There is no such thing.",
    409: "The state does not allow it, or the number was used before.",
    413: f"The body has more than {MAX_BODY} bytes.",
    414: f"The address has more than {MAX_ADDRESS} characters.",
    415: "The body is not application/json, or it is compressed.",
    422: "A field is missing, or it is not what it must be.",
    429: "Too many requests.",
    500: "The sandbox failed.",
    503: "The sandbox is busy: try again later.",
}
_MARKED: Final[Mapping[str, Any]] = {MARK: {"required": True, "schema": {"const": "1"}}}
_PLAIN: Final[Mapping[str, Any]] = {"text/plain": {"schema": TEXT}}
_USED: Final = "The number was used before."
_OTHER_CODES: Final[Mapping[int, tuple[Why, ...]]] = {
    **dict.fromkeys((400, 413, 414, 415), ("invalid",)),
    **dict.fromkeys((429, 500), ("busy",)),
    403: ("unauthenticated",),
}
"""What is told by these statuses beside what has them by itself."""


def document(dialect: Dialect) -> dict[str, Any]:
    """Return the OpenAPI document of a sandbox that speaks a dialect."""
    words = dialect.words
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths[_path(words, operation)] = {operation.method.lower(): _operation(dialect, operation)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "payasync sandbox", "version": VERSION, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": "The secret key."}}
        },
    }


def _path(words: Vocabulary, operation: Operation) -> str:
    parameter = words.parameter(operation)
    if parameter and parameter.place == "path":
        return f"{operation.path}/{{{parameter.name}}}"
    return operation.path


def _operation(dialect: Dialect, operation: Operation) -> dict[str, Any]:
    words, profile = dialect.words, dialect.words.profile
    told: dict[str, Any] = {
        "operationId": operation.name,
        "parameters": list(_parameters(words, operation)),
        "responses": _responses(dialect, operation),
        "security": [{"bearer": list[str]()}] if operation.name in profile.bearer else [],
    }
    if operation.name in profile.signed:
        told["description"] = _signing(words)
    if operation.has_body:
        properties, required = carried(words, operation)
        schema = {"type": "object", "properties": properties, "required": required}
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return told


def _parameters(words: Vocabulary, operation: Operation) -> Iterator[dict[str, Any]]:
    for name, value in words.profile.headers.items():
        yield {"name": name, "in": "header", "required": True, "schema": {"const": value}}
    if operation.has_body:
        return
    properties, required = carried(words, operation)
    parameter = words.parameter(operation)
    for name, schema in properties.items():
        where = parameter.place if parameter and name == parameter.name else "query"
        yield {"name": name, "in": where, "required": name in required, "schema": schema}


def _signing(words: Vocabulary) -> str:
    options = words.signature
    if not isinstance(options, SortedPairs):
        return "sign is made, and checked, by a scheme of the merchant's own."
    put = {
        "except": ", ".join(options.exclude),
        "joined by": options.separator,
        "empty texts": "left out" if options.skip_empty else "included",
        "null": "left out" if options.skip_null else "as null",
        "true and false": "as in JSON" if options.booleans == "json" else "refused",
        "nested values": {"refuse": "refused", "json": "as compact JSON", "omit": "left out"}[options.nested],
    }
    text = f"name=value of all fields, in the ASCII order of their names ({_listed(put)})"
    if options.key_param:
        text += f", then {options.separator}{options.key_param}=<signing key>"
    if options.append_path:
        text += ", then the path above, without an identifier"
    if options.prehash:
        text += (
            f"; of this the SHA-256, {'its 32 bytes' if options.prehash == 'sha256' else 'in lower-case hexadecimal'}"
        )
    return f"sign is {options.algorithm} in {options.encoding} of: {text}."


def _listed(facts: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in facts.items())


def _responses(dialect: Dialect, operation: Operation) -> dict[str, Any]:
    words = dialect.words
    success, refusals = done(words, operation), dict[str, Any]()
    inside = list[Code]()
    for status in _statuses(dialect, operation):
        codes = [words.code(why) for why in _whys(dialect, status)]
        if dialect.failures_inside and status in INSIDE:
            inside += codes
        else:
            refusals[str(status)] = _response(words, _REASONS.get(status, _USED), refused(words, codes), status)
    refusals["421"] = {
        "description": "The Host header names another host than the sandbox's.",
        "headers": _MARKED,
        "content": _PLAIN,
    }
    schema: Schema = {"oneOf": [success, refused(words, inside)]} if inside else success
    return {"200": _response(words, "Done, or refused." if inside else "Done.", schema, 200), **refusals}


def _whys(dialect: Dialect, status: int) -> tuple[Why, ...]:
    """Return what a status says; inside HTTP 200 a refusal keeps the place of its usual one."""
    placed = STATUSES.__getitem__ if dialect.failures_inside else dialect.words.status
    return (*_OTHER_CODES.get(status, ()), *(why for why in STATUSES if placed(why) == status))


def _statuses(dialect: Dialect, operation: Operation) -> Iterator[int]:
    words, profile = dialect.words, dialect.words.profile
    bearer, signed = operation.name in profile.bearer, operation.name in profile.signed
    there = {401: bearer or signed, 403: signed or operation.name in profile.merchant}
    there |= dict.fromkeys((413, 415), operation.has_body)
    numbers = [each.required for each in ARGUMENTS[operation] if each.sort == "identifier"]
    there |= {404: any(numbers), 409: operation.has_body and bool(numbers)}
    yield from (status for status in _REASONS if there.get(status, True))
    used = words.status("duplicate")
    if there[409] and used not in _REASONS and not dialect.failures_inside:
        yield used


def _response(words: Vocabulary, description: str, schema: Schema, status: int) -> dict[str, Any]:
    headers = dict[str, Any](_MARKED)
    if words.answer.request_id.startswith("header:"):
        name = words.answer.request_id.removeprefix("header:")
        headers[name] = {"required": True, "schema": TEXT}
    if status == 401:  # noqa: PLR2004 - the one status with a challenge
        headers["WWW-Authenticate"] = {"required": True, "schema": TEXT}
    return {"description": description, "headers": headers, "content": {"application/json": {"schema": schema}}}
