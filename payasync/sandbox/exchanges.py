"""What requests sent and what the sandbox sent back, for people who look for a mistake; without keys."""

import json
import re
import shlex
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
_VARIABLES: Final = {
    "secret_key": "${PAYASYNC_SECRET_KEY:?}",
    "public_key": "${PAYASYNC_PUBLIC_KEY:?}",
    "merchant_id": "${PAYASYNC_MERCHANT_ID:?}",
    "basic": """$(printf %s "${PAYASYNC_PUBLIC_KEY:?}:${PAYASYNC_SECRET_KEY:?}" | base64 | tr -d '\\n')""",
    "basic_user": """$(printf %s "${PAYASYNC_SECRET_KEY:?}:" | base64 | tr -d '\\n')""",
}
"""What bash puts into a header of the profile's `auth`."""
_OF_CURL: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "expect"})
"""Headers that belong to a connection: curl sends its own."""
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {ord("'"), ord("\\")}
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
    target, headers, body = _mask_exchange(exchange, names)
    lines = [f"{exchange.method} {target}", *(f"{name}: {value}" for name, value in headers)]
    return _join(lines, "<The body was not read.>" if body is None else body)


def format_curl(exchange: Exchange, names: WireNames, url: str) -> str:
    """Return a command for bash that sends a request again, with the merchant's keys from the environment.

    Args:
        exchange: The request. What `format_request` masks is masked here, too.
        names: Those of the profile.
        url: Where the sandbox listens.

    Returns:
        The command; empty if the body was not read, is too long to show, or holds a byte that no word of bash can.
    """
    target, headers, masked = _mask_exchange(exchange, names)
    body, auth = masked or "", {name.lower(): value for name, value in names.profile.auth.all_headers.items()}
    if len(body) > MAX_SHOWN or "\0" in body or (masked is None and exchange.method not in {"GET", "HEAD"}):
        return ""
    words = ["curl --head" if exchange.method == "HEAD" else f"curl --request {_quote(exchange.method)}"]
    # Without these, curl would expand brackets and shorten a path.
    words[0] += " --globoff" * any(each in target for each in "[]{}") + " --path-as-is" * ("/." in target)
    words[0] += f" {_quote(url + target)}"
    for (name, value), (_, sent) in zip(headers, exchange.headers, strict=True):
        template = auth.get(name.lower(), "")
        if template and sent.lower().startswith(template.partition("{")[0].lower()):
            words.append(f'--header "{name}: {_escape(template).format(**_VARIABLES)}"')
        elif name.lower() not in _OF_CURL:
            words.append(f"--header {_quote(f'{name}: {value}' if value else f'{name};')}")
    if body:
        if not any(name.lower() == "content-type" for name, _ in headers):
            words.append("--header 'Content-Type:'")  # else curl says that it is a form
        words.append(f"--data-raw {_quote(body)}")
    return " \\\n  ".join(words)


def _mask_exchange(exchange: Exchange, names: WireNames) -> tuple[str, list[tuple[str, str]], str | None]:
    """Return the target, the headers and the body of a request as they are shown."""
    operations = [exchange.operation] if exchange.operation else [*names.arguments]
    signatures = {names.name(each, "sign") for each in operations} if exchange.signed is None else set[str]()
    arguments = (pair for operation in operations for pair in names.arguments[operation].items())
    customer = {name.partition(".")[0] for name, argument in arguments if argument.name == "customer"}
    keys = {name.lower() for name in names.profile.auth.all_headers}
    signed = names.signature.all_headers if isinstance(names.signature, Template) else {}
    signing = {name.lower() for name, value in signed.items() if "{signature}" in value}
    path, question, query = exchange.target.partition("?")
    pairs = "&".join(_mask_pair(pair, signatures) for pair in query.split("&"))
    headers = list[tuple[str, str]]()
    for name, value in exchange.headers:
        is_known = name.lower() in signing and exchange.signed is not None
        is_key = name.lower() in keys | signing or _KEYS.search(name)
        headers.append((name, _mask_key(value) if is_key and not is_known else value))
    body = None if exchange.body is None else _mask_body(exchange.body, signatures, customer)
    return f"{path}{question}{pairs}", headers, body


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
    # What is not UTF-8 cannot be on a page.
    return _SURROGATES.sub("\ufffd", "\n".join([*lines, "", body]).rstrip("\n"))


def _quote(text: str) -> str:
    """Return a text as one word of bash."""
    if all(each.isprintable() or each in "\n\t" for each in text):
        return shlex.quote(text)
    raw = text.encode(errors="surrogateescape")
    return "$'" + "".join(chr(each) if each in _PLAIN else f"\\x{each:02x}" for each in raw) + "'"


def _escape(text: str) -> str:
    """Return a text for inside double quotes, where bash would expand it."""
    return re.sub(r'[\\"$`]', r"\\\g<0>", text).replace("!", "\"'!'\"")


def _mask_pair(pair: str, signatures: Iterable[str]) -> str:
    name, sign, value = pair.partition("=")
    return f"{name}{sign}{mask(value)}" if unquote_plus(name) in signatures else pair


def _mask_key(value: str) -> str:
    """Return what is shown of a header with a key: its scheme, such as Bearer, and nothing else."""
    scheme, space, key = value.partition(" ")
    return f"{scheme} {mask(key)}" if space and scheme.isalpha() else mask(value)


def _mask_body(body: bytes, signatures: Iterable[str], customer: Iterable[str]) -> str:
    """Return a body as it was sent, or as JSON if something in it is masked."""
    text, document = body.decode(errors="surrogateescape"), loads(body)
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
