"""`/openapi.json`: the ten endpoints as the sandbox serves them, for the profile in force."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final, get_args

from attrs import asdict

from payasync import DOCUMENTATION, __version__
from payasync.endpoints import BRACES, CREATE_PAYMENT, PLACE_ORDER, Argument, Operation
from payasync.profile.schema import Auth, Code
from payasync.sandbox import arguments
from payasync.sandbox.dialect import STATUSES, Dialect, WireNames, locate_point, set_at, sibling_path
from payasync.sandbox.model import OrderState, RefundState, RefusedError, SubscriptionState
from payasync.sandbox.rules import FREQUENCIES
from payasync.signing.schemes import SortedPairs, Template
from payasync.strict_json import ABSENT, at

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
_WORD: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": arguments.MAX_WORD}
_KEY: Final[Schema] = {"type": "string", "description": "The idempotency key, the same for all attempts."}
_DIGITS: Final = {"%Y": "[1-9][0-9]{3}", "%m": "(?:0[1-9]|1[0-2])", "%d": "(?:0[1-9]|[12][0-9]|3[01])"}
"""What parts of a date look like."""
_TYPES: Final[dict[type, str]] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "order": get_args(OrderState),
    "payment": get_args(OrderState),
    "refund": get_args(RefundState),
    "subscription": get_args(SubscriptionState),
}


def describe_request(words: WireNames, operation: Operation) -> tuple[dict[str, Schema], list[str]]:
    """Return the schemas of a request's fields by their wire names, and the names of the required ones."""
    profile, fields = words.profile, dict[str, Schema]()
    merchant, nonce, sign = (words.name(operation.name, name) for name in ("merchant_id", "nonce", "sign"))
    if operation.name in profile.merchant:
        fields[merchant] = {**_WORD, "description": "The merchant's number."}
    if words.has_fields_to_sign(operation.name):
        fields[nonce] = {**_WORD, "description": "Random, and new for each request."}
        fields[sign] = {**_WORD, "maxLength": arguments.MAX_SIGN, "description": "The signature."}
    for name, value in words.constants[operation.name].items():
        fields[name] = {"const": value if operation.has_body else str(value)}
    required, marks = list(fields), words.marks(operation.name)
    for name, argument in words.arguments[operation.name].items():
        fields[name] = _describe_argument(words, argument)
        if name in marks:
            required.append(name)
    if not operation.read and profile.idempotency.field:
        fields[profile.idempotency.field] = _KEY
    further: dict[str, Schema] = {name: {} for name in words.demanded(operation.name)}
    if number := words.required_number(operation.name):
        further[number] = _describe_number(words)
    return fields | further, [*required, *further]


def _describe_argument(words: WireNames, argument: Argument) -> Schema:
    allowed, (least, most), length = arguments.limits_of(words.profile.accept, argument.name)
    if allowed:
        return {"type": "string", "enum": list(allowed)}
    frequencies = ("".join(f"[{letter}{letter.upper()}]" for letter in word) for word in FREQUENCIES)
    schemas: dict[str, Schema] = {
        "amount": {"type": "integer", "minimum": max(least, 1), "maximum": min(most, arguments.MAX_AMOUNT)},
        "text": {"type": "string", "maxLength": arguments.MAX_TEXT},
        "currency": {"type": "string", "pattern": "^[A-Za-z]{3}$"},
        "word": _WORD,
        "identifier": _describe_number(words),
        "url": {"type": "string", "pattern": f"^(?:{arguments.URL.pattern})$", "maxLength": arguments.MAX_URL},
        "date": _describe_date(words.date_format),
        "frequency": {"type": "string", "pattern": f"^(?:{'|'.join(frequencies)})$"},
        "flag": {"enum": [True, False, "true", "false"]},
        "customer": {"type": ["object", "string"], "minProperties": 1, "minLength": 1, "maxLength": arguments.MAX_TEXT},
    }
    schema = schemas[arguments.SORTS[argument.name]]
    return schema if length is None else {**schema, "maxLength": min(length, schema.get("maxLength", length))}


def _describe_number(words: WireNames) -> Schema:
    return {"type": "string", "pattern": f"^(?:{words.profile.identifier})$"}


def _describe_date(written: str) -> Schema:
    if written == "%Y-%m-%d":
        since = f"From {arguments.FIRST_YEAR} on."
        return {"type": "string", "format": "date", "pattern": "^[1-9]", "description": since}
    schema = {"type": "string", "description": f"A date, written as strftime has it: {written}"}
    parts = re.split(r"(%.)", written)
    if {part for part in parts if part.startswith("%")} <= _DIGITS.keys():
        schema["pattern"] = f"^{''.join(_DIGITS.get(part) or re.escape(part) for part in parts)}$"
    return schema


def _describe_success(dialect: Dialect, operation: Operation) -> Schema:
    words, thing = dialect.names, operation.name.partition("s.")[0]
    payload = dialect.describe_sample(thing, "-" if operation in {CREATE_PAYMENT, PLACE_ORDER} else "")
    sent: dict[str, Any] = {words.name(operation.name, "merchant_id"): ""}
    for name in describe_request(words, operation)[1]:
        argument = words.arguments[operation.name].get(name)
        set_at(sent, name, 0 if argument and arguments.SORTS[argument.name] == "amount" else "")
    document = dialect.build_success(operation, payload, sent, "-").document
    schema, place = _describe(document, words, signed=True), locate_point(words.answer, f"{thing}_status")
    states = [words.state(thing, state) for state in _STATES[thing]]
    _set_enum(schema, place if at(document, place) is not ABSENT else "", states)
    if not words.answer.code_optional:
        _set_enum(schema, words.done_path, words.answer.ok[:1])
    return schema


def _describe_refusal(dialect: Dialect, operation: Operation) -> Schema:
    words = dialect.names
    sample = dict(dialect.build_refusal(RefusedError("invalid", "", field="-"), None, "-").document)
    codes = [words.code(why, name) for name in (operation.name, "") for why in STATUSES]
    if given := [code for code in codes if code is not None]:
        set_at(sample, words.code_path, given[0])
    schema = _describe(sample, words, signed=bool(words.answer.refusals_signed))
    if words.code_path == words.message_path and None in codes:
        given = []  # any message may stand there
    _set_enum(schema, words.code_path if given else "", given)
    optional = [sibling_path(words.message_path, "field"), *([words.code_path] if given and None in codes else [])]
    for path in filter(None, optional):
        _make_optional(schema, path)
    return schema


def _make_optional(schema: Schema, path: str) -> None:
    """Let a path be absent. A list of one entry is absent with it, and in a longer list anything may stand there."""
    above, _, step = path.rpartition(".")
    while len((holder := _schema_at(schema, above)).get("prefixItems", ())) == 1:
        above, _, step = above.rpartition(".")
    if "prefixItems" in holder:
        holder["prefixItems"][int(step)].clear()
    else:
        holder["required"].remove(step)


def _describe(sample: Mapping[str, Any], words: WireNames, *, signed: bool) -> Schema:
    """Return the schema of a response from one that has all its fields."""
    document, place = deepcopy(dict(sample)), words.answer.signature
    if place and signed:
        set_at(document, place, "")
        set_at(document, sibling_path(place, words.name(PLACE_ORDER.name, "nonce")), "")
    return _schema_of(document)


def _schema_of(value: object) -> Schema:
    if isinstance(value, list):
        return {"type": "array", "prefixItems": [_schema_of(each) for each in value], "minItems": len(value)}
    if not isinstance(value, dict):
        return {"type": _TYPES[type(value)]}
    return {
        "type": "object",
        "properties": {name: _schema_of(inner) for name, inner in value.items()},
        "required": list(value),
    }


def _set_enum(schema: Schema, path: str, values: Iterable[Code]) -> None:
    if path:
        inner = _schema_at(schema, path)
        inner.clear()
        inner["enum"] = list(dict.fromkeys(values))


def _schema_at(schema: Schema, path: str) -> Schema:
    """Return the schema of what stands at a dotted path; an empty path is the whole."""
    for step in path.split(".") if path else ():
        schema = schema["prefixItems"][int(step)] if "prefixItems" in schema else schema["properties"][step]
    return schema


PATH: Final = "/openapi.json"
MARK: Final = "X-Payasync-Sandbox"

_DESCRIPTION: Final = (
    "The common interface leaves much open: what it leaves open is the sandbox's own choice, or that of the "
    "profile that it was started with. Do not take any of it for the service's."
)
_REFUSED: Final = (
    "Refused. The status is 400 if the request cannot be read, 401 or 403 if it is not the merchant's own, 404 if "
    "there is no such thing, 405 for another method, 409 if the state or a used number forbids it, 413 or 415 for "
    "a body that is too long or of another type, 422 for a wrong field, and 5xx or 429 to try again. "
    "421, as plain text, refuses another host."
)


def describe_service(dialect: Dialect) -> dict[str, Any]:
    """Return the OpenAPI document of a sandbox that speaks a dialect."""
    words = dialect.names
    paths: dict[str, Any] = {}
    for operation in words.operations.values():
        described = _describe_operation(dialect, operation)
        methods = paths.setdefault(_describe_path(words, operation), {})
        if (first := methods.setdefault(operation.method.lower(), described)) is not described:
            _add_alternative(first, described)
    return {
        "openapi": "3.1.0",
        "info": {"title": "payasync sandbox", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"securitySchemes": _describe_security(words.profile.auth)},
    }


def _describe_path(words: WireNames, operation: Operation) -> str:
    """Return the path of an operation, with the wire names of its arguments in braces."""
    path = f"{operation.path}/{{{operation.reference}}}" if operation.place == "path" else operation.path
    return BRACES.sub(lambda found: f"{{{words.name(operation.name, found[1])}}}", path)


def _add_alternative(first: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Add to the description of an operation another one at its address, which its fields tell apart."""
    first["operationId"] += f" or {other['operationId']}"
    sides = [{(each["name"], each["in"]): each for each in side["parameters"]} for side in (first, other)]
    first["parameters"] = []
    for key, each in (sides[1] | sides[0]).items():
        found = [side[key] for side in sides if key in side]
        required = len(found) == len(sides) and all(one["required"] for one in found)
        schema = {"anyOf": [one["schema"] for one in found]}
        first["parameters"].append({**each, "required": required, "schema": schema})
    for path in ("requestBody", "responses.200", "responses.default"):
        media, its = (at(side, f"{path}.content.application/json", None) for side in (first, other))
        if media and its:
            media["schema"] = {"anyOf": [media["schema"], its["schema"]]}
    first["responses"] = {**other["responses"], **first["responses"]}


def _describe_security(auth: Auth) -> dict[str, Any]:
    """Return the security schemes of the headers that carry keys, by the names of the headers."""
    schemes: dict[str, Any] = {}
    for header, value in auth.all_headers.items():
        scheme = {"Bearer {secret_key}": "bearer", "Basic {basic}": "basic", "Basic {basic_user}": "basic"}.get(value)
        form: Schema = {"type": "apiKey", "in": "header", "name": header}
        if scheme and header.lower() == "authorization":
            form = {"type": "http", "scheme": scheme}
        schemes[re.sub("[^A-Za-z0-9._-]", "_", header)] = {**form, "description": f"{header}: {value}"}
    return schemes


def _describe_operation(dialect: Dialect, operation: Operation) -> dict[str, Any]:
    words, profile = dialect.names, dialect.names.profile
    schemes = _describe_security(profile.auth)
    described: dict[str, Any] = {
        "operationId": operation.name,
        "parameters": list(_describe_parameters(words, operation)),
        "responses": _describe_responses(dialect, operation),
        "security": [{name: list[str]() for name in schemes}] if operation.name in profile.bearer else [],
    }
    if operation.name in profile.signed:
        described["description"] = _describe_signing(words)
    if operation.has_body:
        properties, required = describe_request(words, operation)
        inside = {name: each for name, each in properties.items() if _place_of(words, operation, name) == "body"}
        schema = _describe_body(inside, required)
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return described


def _describe_parameters(words: WireNames, operation: Operation) -> Iterator[dict[str, Any]]:
    for name, value in words.profile.headers.items():
        yield {"name": name, "in": "header", "required": True, "schema": {"const": value}}
    if operation.name in words.profile.signed and isinstance(words.signature, Template):
        for name in words.signature.all_headers:
            yield {"name": name, "in": "header", "required": True, "schema": {"type": "string", "minLength": 1}}
    if not operation.read and words.profile.idempotency.header:
        yield {"name": words.profile.idempotency.header, "in": "header", "required": False, "schema": _KEY}
    properties, required = describe_request(words, operation)
    if "merchant_id" in operation.in_path:
        properties.setdefault(words.name(operation.name, "merchant_id"), _WORD)
    for name, schema in properties.items():
        where = _place_of(words, operation, name)
        if where != "body":
            yield {"name": name, "in": where, "required": name in required or where == "path", "schema": schema}


def _place_of(words: WireNames, operation: Operation, name: str) -> str:
    """Return where a field of a request stands: `path`, `header`, `body` or `query`."""
    place, argument = operation.place, words.arguments[operation.name].get(name)
    if name in {words.name(operation.name, each) for each in operation.in_path}:
        return "path"
    if argument and (place == "header" or (place == "path" and argument.name == operation.reference)):
        return place
    return "body" if operation.has_body else "query"


def _describe_body(properties: Mapping[str, Schema], required: Iterable[str]) -> Schema:
    """Return the schema of a body; a dotted name nests."""
    schema: Schema = {"type": "object", "properties": {}, "required": []}
    for name, each in properties.items():
        inner = schema
        *above, last = name.split(".")
        for step in above:
            inner = inner["properties"].setdefault(step, {"type": "object", "properties": {}, "required": []})
        inner["properties"][last] = each
    for name in required:
        inner = schema
        for step in name.split("."):
            if step not in inner["properties"]:
                break
            if step not in inner["required"]:
                inner["required"].append(step)
            inner = inner["properties"][step]
    return schema


def _describe_signing(words: WireNames) -> str:
    if isinstance(words.signature, Template):
        text, value = (json.dumps(each) for each in (words.signature.text, words.signature.value))
        form = f"{words.signature.algorithm} in {words.signature.encoding}"
        return f"The header {words.signature.header} is {value}, where signature is the {form} of {text}."
    if not isinstance(words.signature, SortedPairs):
        return "sign is made, and checked, by a scheme of the merchant's own."
    settings = asdict(words.signature, filter=lambda attribute, _: attribute.name != "allow_delimiters")
    listed = ", ".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
    page = f"{DOCUMENTATION}reference/profile.html#keys-signatures-and-numbers"
    return f"sign is made by [signature] of the profile, with {listed}. See {page}"


def _describe_responses(dialect: Dialect, operation: Operation) -> dict[str, Any]:
    success, refusal = _describe_success(dialect, operation), _describe_refusal(dialect, operation)
    headers: dict[str, Any] = {MARK: {"required": True, "schema": {"const": "1"}}}
    request_id = dialect.names.answer.request_id
    named = [request_id.removeprefix("header:")] if request_id.startswith("header:") else []
    if signed := dialect.names.answer.header:
        named += [place.partition(":")[0] for place in (signed.timestamp, signed.nonce, signed.signature) if place]
    headers |= {name: {"schema": TEXT} for name in named}
    refused = {"application/json": {"schema": refusal}, "text/plain": {"schema": TEXT}}
    default = {"description": _REFUSED, "headers": headers, "content": refused}
    if "*" in dialect.names.profile.sandbox.omits.get(operation.name, ()):
        return {"204": {"description": "Done.", "headers": headers}, "default": default}
    words, schema = "Done.", success
    if dialect.failures_inside:
        words, schema = "Done, or refused by its result code.", {"oneOf": [success, refusal]}
    done = {"description": words, "headers": headers, "content": {"application/json": {"schema": schema}}}
    return {"200": done, "default": default}
