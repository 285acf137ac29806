"""JSON schemas of what the sandbox takes and gives, by the words of a profile."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from payasync.coverage import COMPARED
from payasync.operations import (
    CANCEL_SUBSCRIPTION,
    CLOSE_ORDER,
    CREATE_PAYMENT,
    CREATE_REFUND,
    CREATE_SUBSCRIPTION,
    PLACE_ORDER,
    QUERY_ORDER,
    QUERY_PAYMENT,
    QUERY_REFUND,
    UPDATE_SUBSCRIPTION,
    Operation,
)
from payasync.profile import MERCHANT, NONCE, SIGN
from payasync.sandbox import acceptance, checks
from payasync.sandbox.arguments import ARGUMENTS, Argument
from payasync.sandbox.paths import beside, joined
from payasync.sandbox.periods import STEPS
from payasync.sandbox.vocabulary import Vocabulary, camel, place
from payasync.shapes import Code

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "integer"}
_WORD: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": checks.MAX_WORD}
_DIGITS: Final = {"%Y": "[1-9][0-9]{3}", "%m": "(?:0[1-9]|1[0-2])", "%d": "(?:0[1-9]|[12][0-9]|3[01])"}
"""What parts of a date look like."""
_THINGS: Final[Mapping[Operation, str]] = {
    CREATE_PAYMENT: "payment",
    PLACE_ORDER: "order",
    QUERY_ORDER: "order",
    CLOSE_ORDER: "order",
    CREATE_REFUND: "refund",
    QUERY_PAYMENT: "payment",
    QUERY_REFUND: "refund",
    CREATE_SUBSCRIPTION: "subscription",
    UPDATE_SUBSCRIPTION: "subscription",
    CANCEL_SUBSCRIPTION: "subscription",
}
_ABOUT: Final[Mapping[str, frozenset[str]]] = {
    "payment": frozenset({"out_trade_no", "total_amt", "currency"}),
    "order": frozenset({"out_trade_no", "total_amt", "currency"}),
    "refund": frozenset({"out_refund_no", "out_trade_no", "total_amt", "refund_amt"}),
    "subscription": frozenset(),
}
"""What a payload names of each thing."""
_STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "order": ("pending", "paid", "failed", "expired", "closed"),
    "payment": ("pending", "paid", "failed", "expired", "closed"),
    "refund": ("processing", "succeeded", "failed"),
    "subscription": ("scheduled", "active", "past_due", "cancelled"),
}


def carried(words: Vocabulary, operation: Operation) -> tuple[dict[str, Schema], list[str]]:
    """Return the schemas of a request's fields by their wire names, and the names of those that it must have."""
    profile, demanded = words.profile, words.profile.accept.required.get(operation.name, ())
    fields: dict[str, Schema] = {}
    if operation.name in profile.merchant:
        fields[MERCHANT] = {**_WORD, "description": "The merchant's number."}
    if operation.name in profile.signed:
        fields[NONCE] = {**_WORD, "description": "Random, and new for each request."}
        fields[SIGN] = {"type": "string", "minLength": 1, "maxLength": checks.MAX_SIGN, "description": "The signature."}
    for name, value in acceptance.constants(profile, operation).items():
        fields[name] = {"const": value if operation.has_body else str(value)}
    required = list(fields)
    arguments = {words.argument_name(operation, each): each for each in ARGUMENTS[operation]}
    for name, argument in arguments.items():
        fields[name] = _argument(words, argument)
        if (argument.required or argument.name in demanded) and name not in required:
            required.append(name)
    known = {each.name for each in arguments.values()}
    extra = [name for name in demanded if name not in known]
    return fields, [*required, *extra]


def _argument(words: Vocabulary, argument: Argument) -> Schema:
    accept = words.profile.accept
    allowed = {"currency": accept.currency, "scene_type": accept.scene_type}.get(argument.name, ())
    if allowed:
        return {"type": "string", "enum": list(allowed)}
    least, most = accept.amount or (1, checks.MAX_AMOUNT)
    schemas: dict[str, Schema] = {
        "amount": {"type": "integer", "minimum": max(least, 1), "maximum": min(most, checks.MAX_AMOUNT)},
        "text": {"type": "string", "maxLength": checks.MAX_TEXT},
        "currency": {"type": "string", "pattern": "^[A-Za-z]{3}$"},
        "word": _WORD,
        "identifier": {"type": "string", "pattern": f"^(?:{words.profile.identifier})$"},
        "url": {"type": "string", "format": "uri", "pattern": "^https?://", "maxLength": checks.MAX_URL},
        "date": _date(words.date_format),
        "frequency": {"type": "string", "pattern": f"^(?:{'|'.join(map(_any_case, STEPS))})$"},
        "flag": {"enum": [True, False, "true", "false"]},
        "customer": {"type": "object", "minProperties": 1},
    }
    schema = schemas[argument.sort]
    length = accept.length.get(argument.name)
    return schema if length is None else {**schema, "maxLength": min(length, schema.get("maxLength", length))}


def _any_case(word: str) -> str:
    return "".join(f"[{letter}{letter.upper()}]" for letter in word)


def _date(written: str) -> Schema:
    if written == "%Y-%m-%d":
        return {"type": "string", "format": "date", "description": f"From the year {checks.FIRST_YEAR} on."}
    told = {"type": "string", "description": f"A date, written as strftime has it: {written}"}
    parts = re.split(r"(%.)", written)
    if {part for part in parts if part.startswith("%")} <= _DIGITS.keys():
        told["pattern"] = f"^{''.join(_DIGITS.get(part) or re.escape(part) for part in parts)}$"
    return told


def done(words: Vocabulary, operation: Operation) -> Schema:
    """Return the schema of the answer to a request that was done."""
    told = {joined(words.answer.data, path): schema for path, schema in _payload(words, operation).items()}
    return _document({**told, **_frame(words, words.answer.ok[:1], signed=True)})


def refused(words: Vocabulary, codes: Iterable[Code]) -> Schema:
    """Return the schema of the answer to a request that was not done, for one of these reasons."""
    frame = _frame(words, codes, signed=words.answer.refusals_signed is not False)
    schema, field = _document(frame), beside(words.answer.message, "field")
    *above, name = field.split(".")
    holder = schema
    for step in above:
        holder = holder["properties"][step]
    holder["properties"][name] = {"type": "string", "description": "The field at fault."}
    return schema


def _frame(words: Vocabulary, codes: Iterable[Code], *, signed: bool) -> dict[str, Schema]:
    """Return the schemas of what stands in every answer, by their paths."""
    answer = words.answer
    frame = {place(answer, "code"): {"enum": list(dict.fromkeys(codes))}, place(answer, "message"): TEXT}
    frame |= {place(answer, "request_id"): TEXT}
    if answer.signature and signed:
        above = answer.signature.rpartition(".")[0]
        frame |= {answer.signature: TEXT, joined(above, NONCE): TEXT}
    return frame


def _payload(words: Vocabulary, operation: Operation) -> dict[str, Schema]:
    thing, answer = _THINGS[operation], words.answer
    if thing == "subscription":
        own = _subscription(words)
    elif thing == "refund":
        own = {}
    else:
        own = {answer.payment_id: TEXT}
        if operation in {CREATE_PAYMENT, PLACE_ORDER}:
            own[answer.redirect_url] = {"type": "string", "format": "uri"}
    states = [words.state(thing, state) for state in _STATES[thing]]
    return {**_about(words, operation), **own, getattr(answer, f"{thing}_status"): {"enum": states}}


def _about(words: Vocabulary, operation: Operation) -> dict[str, Schema]:
    """Return what a success always names, and what its request names, where the profile gives a path for it."""
    thing, sent = _THINGS[operation], {MERCHANT, *carried(words, operation)[1]}
    told = [name for name in COMPARED if name in _ABOUT[thing] or (camel(name) in sent and getattr(words.answer, name))]
    return {words.about(name, thing): NUMBER if name.endswith("_amt") else TEXT for name in told}


def _subscription(words: Vocabulary) -> dict[str, Schema]:
    names = {"frequency": TEXT, "subscription_amount": NUMBER, "start_date": TEXT}
    return {**{words.fields[name]: schema for name, schema in names.items()}, words.answer.subscription_id or "": TEXT}


def _document(paths: Mapping[str, Schema]) -> Schema:
    """Return the schema of a document in which all these paths are."""
    document: Schema = {"type": "object", "properties": {}, "required": []}
    for path, schema in paths.items():
        if path:
            _put(document, path.split("."), schema)
    return document


def _put(document: Schema, steps: list[str], schema: Schema) -> None:
    name, *rest = steps
    properties: dict[str, Schema] = document["properties"]
    if name not in document["required"]:
        document["required"].append(name)
    if not rest:
        properties[name] = schema
        return
    if "properties" not in properties.get(name, {}):
        properties[name] = {"type": "object", "properties": {}, "required": []}
    _put(properties[name], rest, schema)
