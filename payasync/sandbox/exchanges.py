"""What requests sent and what the sandbox sent back, for people who look for a mistake; without keys."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, Final
from urllib.parse import unquote_plus

from attrs import define, field

from payasync.sandbox.dialect import WireNames
from payasync.signing.schemes import Template
from payasync.strict_json import at, loads

CUSTOMER: Final = "<customer details>"
MAX_SHOWN: Final = 16_384
"""Characters of a body that are shown."""
_KEYS: Final = re.compile("auth|cookie|password|secret|signature|token|api.?key", re.IGNORECASE)
"""What the names of headers contain that may hold somebody's key or signature."""


@define(kw_only=True)
class Exchange:
    """A request and its response, as they were on the wire.

    Attributes:
        operation: The operation's name; empty for an address that is no endpoint.
        method: The request's method.
        target: Its path and query.
        headers: Its headers.
        body: Its body; `None` if it was not read.
        signed: Returns the text that its signature covers; `None` if the signature was not that of the merchant.
        response_signed: The same of the response; empty if it has no signature.
        status: The status of the response; `None` if there was none.
        response_headers: Its headers.
        response_body: Its body; `None` if a fault sent it in pieces.
    """

    operation: str = ""
    method: str
    target: str
    headers: Iterable[tuple[str, str]]
    body: bytes | None = None
    signed: Callable[[], str] | None = None
    response_signed: Callable[[], str] = str
    status: int | None = None
    response_headers: Mapping[str, str] = field(factory=dict)
    response_body: bytes | None = None


def mask(text: str) -> str:
    """Return what is shown in place of a key or a signature."""
    return f"<masked, {len(text)} characters>"


def format_request(exchange: Exchange, names: WireNames) -> str:
    """Return a request as text: without keys, signatures that are not the merchant's, and the customer's details."""
    operations = [exchange.operation] if exchange.operation else [*names.arguments]
    signatures = {names.name(each, "sign") for each in operations} if exchange.signed is None else set[str]()
    customer = {
        name.partition(".")[0]
        for operation in operations
        for name, argument in names.arguments[operation].items()
        if argument.name == "customer"
    }
    keys = {name.lower() for name in names.profile.auth.all_headers}
    signed = names.signature.all_headers if isinstance(names.signature, Template) else {}
    signing = {name.lower() for name, value in signed.items() if "{signature}" in value}
    path, question, query = exchange.target.partition("?")
    pairs = "&".join(_mask_pair(pair, signatures) for pair in query.split("&"))
    lines = [f"{exchange.method} {path}{question}{pairs}"]
    for name, value in exchange.headers:
        is_known = name.lower() in signing and exchange.signed is not None
        is_key = name.lower() in keys | signing or _KEYS.search(name)
        lines.append(f"{name}: {_mask_key(value) if is_key and not is_known else value}")
    if exchange.body is None:
        return _join(lines, "<The body was not read.>")
    return _join(lines, _mask_body(exchange.body.decode(errors="replace"), signatures, customer))


def format_response(exchange: Exchange) -> str:
    """Return a response as text."""
    if exchange.status is None:
        return "There was no response."
    lines = [str(exchange.status), *(f"{name}: {value}" for name, value in exchange.response_headers.items())]
    if exchange.response_body is None:
        return _join(lines, "<A fault sent the body in pieces.>")
    return _join(lines, exchange.response_body.decode(errors="replace"))


def _join(lines: Iterable[str], body: str) -> str:
    if len(body) > MAX_SHOWN:
        body = f"{body[:MAX_SHOWN]}… ({len(body):,} characters)"
    return "\n".join([*lines, "", body]).rstrip("\n")


def _mask_pair(pair: str, signatures: Iterable[str]) -> str:
    name, sign, value = pair.partition("=")
    return f"{name}{sign}{mask(value)}" if unquote_plus(name) in signatures else pair


def _mask_key(value: str) -> str:
    """Return what is shown of a header with a key: its scheme, such as Bearer, and nothing else."""
    scheme, space, key = value.partition(" ")
    return f"{scheme} {mask(key)}" if space and scheme.isalpha() else mask(value)


def _mask_body(text: str, signatures: Iterable[str], customer: Iterable[str]) -> str:
    """Return a body as it was sent, or as JSON if something in it is masked."""
    document = loads(text.encode())
    if not isinstance(document, dict):
        found = any(name.rpartition(".")[2] in text for name in (*signatures, *customer))
        return mask(text) if found else text
    shown = {name: CUSTOMER if name in customer else value for name, value in deepcopy(document).items()}
    for path in signatures:
        above, _, name = path.rpartition(".")
        holder: Any = at(shown, above)
        if isinstance(holder, dict) and name in holder:
            holder[name] = mask(str(holder[name]))
    return text if shown == document else json.dumps(shown, ensure_ascii=False)
