"""The parts of a profile; each answers questions that the common interface leaves open.

Each part is a frozen value whose arguments have the names of the keys in its TOML table. The defaults are what the
document states; a point that the document leaves open is empty. The `asks` of a field is what the audit says of it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from attrs import field, frozen, validators

from payasync.credentials import SENDER
from payasync.endpoints import ARGUMENTS, OPERATIONS, ORDER_STATES, REFUND_STATES, SUBSCRIPTION_STATES
from payasync.errors import ConfigurationError
from payasync.settings import (
    Validator,
    a_time,
    a_wait,
    check_types,
    each_must_be,
    invalid_setting,
    is_header,
    must_be,
    to_dict,
    to_dict_of_tuples,
    to_tuple,
)
from payasync.signing.templates import check_template, fill, is_place, names_in, parts_of, signatures_at, values_at
from payasync.strict_json import MAX_DEPTH, copy_plain, find_flaw, is_one_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

OPEN_FIELDS: Final = {
    "return_url": "the wire name of the return URL",
    "frequency": "the wire name of a subscription's billing frequency",
    "start_date": "the wire name of a subscription's start date",
    "subscription_amount": "the wire name of a subscription's amount",
    "customer": "the wire name of a subscription's customer details",
    "subscription_id": "the wire name of a subscription's number",
}
"""Arguments whose wire names the document does not show (docs/reference/service.md#overview)."""

Code = str | int
"""A result code or a state as the service sends it; compared by type and value."""

Values: TypeAlias = Mapping[str, tuple[Code, ...]]
"""Our names of states, each with the service's values."""

Kind: TypeAlias = Literal["payment", "refund", "subscription"]
"""The subject of a notification."""
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

Refusal: TypeAlias = Literal[
    "invalid",
    "unauthenticated",
    "bad_signature",
    "nonce_used",
    "wrong_state",
    "already_paid",
    "refund_mismatch",
    "duplicate",
    "absent",
    "busy",
]
"""Why the sandbox refuses a request."""
REFUSALS: Final[tuple[Refusal, ...]] = get_args(Refusal)
A_YEAR: Final = 366 * 86_400
"""Seconds: the longest time that the sandbox waits for an order, or before it sends a notification again."""

QUESTION: Final = "question"
"""The key of a field's `Question` in its metadata."""

_PATH: Final = "a dotted path, such as data.sign, without an empty step"
_IN_THE_DOCUMENT: Final = f"{_PATH}; a header cannot stand here"
_ONE_OR_SOME: Final = must_be(
    f"{_IN_THE_DOCUMENT}; or a list of such paths",
    lambda given: _is_path(given) if isinstance(given, str) else all(path and _is_path(path) for path in given),
)
_SECONDS: Final = validators.optional(a_wait)
_REFUSALS: Final = must_be(
    "a list of statuses from 400 to 499 without 429: what the others mean is settled",
    lambda statuses: all(400 <= status < 500 and status != 429 for status in statuses),  # noqa: PLR2004 - statuses
)


def _is_path(value: str | None) -> bool:
    return not value or ("" not in value.split(".") and not value.lower().startswith("header:"))


_IS_PATH: Final = must_be(_IN_THE_DOCUMENT, _is_path)
_IS_TIME: Final = must_be(f"{_IN_THE_DOCUMENT} (use notification.header.timestamp)", _is_path)
_COMPARED: Final = must_be(f"{_IN_THE_DOCUMENT}; or empty, to compare nothing", _is_path)
_EXPECTED: Final = [
    must_be(f"a table, with {_IN_THE_DOCUMENT}", lambda table: "" not in table and all(map(_is_path, table))),
    each_must_be(
        'a text, a finite number, true or false; a path of several steps stands in quotes: "meta.mode" = "live"',
        lambda value: isinstance(value, str | int | float) and not find_flaw(value),
    ),
]


_ADDRESS: Final = re.compile(r"https?://[^\s{}/?#@]+[/?#]([^\s{}]|\{[^\s{}]+\})*")


def _is_address_template(template: str) -> bool:
    parts = parts_of(template)
    return not template or bool(parts and all(map(_is_path, parts)) and _ADDRESS.fullmatch(template))


def _is_request_id(value: str) -> bool:
    place, colon, name = value.partition(":")
    return (place == "header" and is_header(name, "-")) if colon else _is_path(value)


def _zone_of(name: str) -> "ZoneInfo":
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - few services leave out the offset

    return ZoneInfo(name)


def _is_zone(name: str) -> bool:
    try:
        return not name or bool(_zone_of(name))
    except (ValueError, KeyError, OSError):  # OSError: the name of a folder of zones
        return False


ALL: Final = tuple(ARGUMENTS)
"""The names of all operations."""
_PAYMENTS, _ORDERS, _REFUNDS, _SUBSCRIPTIONS = (
    tuple(name for name in ALL if name.startswith(f"{thing}."))
    for thing in ("payments", "orders", "refunds", "subscriptions")
)
WITH_A_NUMBER: Final = ("orders.place", "refunds.create")
"""Writes that a query can find by the merchant's number."""
WRITES: Final = tuple(each.name for each in OPERATIONS if not each.read)
UNNAMED: Final = ("payments.create", "orders.place", *_SUBSCRIPTIONS)
"""Writes that no query can find; of `orders.place` those without a number."""


@frozen
class Question:
    """What the audit says of a point.

    Attributes:
        means: The value to give, or what is assumed.
        needed_by: The methods that fail without the value, or are less safe, or return less.
        assumed: The default is an assumption, so that the point is never open.
        changed: The point is only shown where the service differs from the document.
    """

    means: str
    needed_by: tuple[str, ...] = ALL
    assumed: bool = False
    changed: bool = False


def asks(
    means: str, needed_by: tuple[str, ...] = ALL, *, assumed: bool = False, changed: bool = False
) -> dict[str, Question]:
    """Return the metadata of a field that answers an open point."""
    return {QUESTION: Question(means, needed_by, assumed, changed)}


def _a_path(means: str, needed_by: tuple[str, ...] = ALL, *, rule: Validator = _IS_PATH, assumed: bool = False) -> Any:
    """Return a field for a dotted path, or for what its rule says; empty means open."""
    return field(default="", validator=rule, metadata=asks(means, needed_by, assumed=assumed))


def _a_compared_path(means: str, needed_by: tuple[str, ...], *, assumed: bool = True) -> Any:
    """Return a field for a dotted path to a compared value: `None` for its wire name, empty to compare nothing."""
    means = f"a response that names another {means} is refused" if assumed else means
    return field(default=None, validator=_COMPARED, metadata=asks(means, needed_by, assumed=assumed))


def _a_status(means: str) -> Any:
    """Return a field for the HTTP status that a notification is answered with."""
    rule = must_be("an HTTP status from 200 to 599", lambda status: status is None or status in range(200, 600))
    return field(default=None, validator=rule, metadata=asks(means, ()))


_UNSAFE: Final = ("blob", "data", "file", "http", "javascript", "vbscript")
"""Schemes that run code or read files in a browser; and plain http, which only loopback addresses may have."""
_SCHEMES: Final = must_be(
    f"a list of schemes in lower case, such as https, without {', '.join(_UNSAFE)}",
    lambda given: given and all(re.fullmatch(r"[a-z][a-z0-9+.-]*", each) and each not in _UNSAFE for each in given),
)
_CHECKED: Final = asks("the schemes of addresses for a browser", ("orders.place",), changed=True)
_MEANINGS: Final = "the service's values of our states"
_HELD: Final = asks("what each success must hold, by its path in the payload", assumed=True)
_ACCEPTED: Final = asks("what the service takes; empty: not checked here")


@frozen(kw_only=True, field_transformer=check_types("accept"))
class Accept:
    """The values that the service accepts; any other value is refused before any I/O.

    Args:
        currency: Currency codes; empty: any.
        scene_type: Scene types; empty: any.
        amount: The least and the greatest amount; empty: 1 to 2**53-1.
        required: By operation, further required arguments, and required fields of `extra`.
        length: By argument, the greatest number of characters of a text.
        redirect_schemes: The schemes of addresses that a browser may be sent to, such as `weixin` or `upi` besides
            `https`. On loopback, `http` is accepted, too.
    """

    currency: tuple[str, ...] = field(default=(), converter=to_tuple, metadata=_ACCEPTED)
    scene_type: tuple[str, ...] = field(default=(), converter=to_tuple, metadata=_ACCEPTED)
    amount: tuple[int, ...] = field(
        default=(),
        converter=to_tuple,
        validator=must_be(
            "[least, greatest], two integers", lambda value: len(value) in {0, 2} and sorted(value) == list(value)
        ),
        metadata=_ACCEPTED,
    )
    required: Mapping[str, tuple[str, ...]] = field(factory=dict, converter=to_dict_of_tuples, metadata=_ACCEPTED)
    length: Mapping[str, int] = field(
        factory=dict,
        converter=to_dict,
        validator=each_must_be("1 or more", lambda value: value > 0),
        metadata=_ACCEPTED,
    )
    redirect_schemes: tuple[str, ...] = field(
        default=("https",), converter=to_tuple, validator=_SCHEMES, metadata=_CHECKED
    )


@frozen(kw_only=True, field_transformer=check_types("auth"))
class Auth:
    """The headers by which the service knows the merchant, in the operations that are listed in `bearer`.

    Each value holds `{secret_key}`, `{public_key}`, `{merchant_id}`, `{basic}` or `{basic_user}`. It never holds a key
    itself. `{basic}` is `public_key:secret_key` in base64; `{basic_user}` is `secret_key:`, without a password.

    Args:
        header: The name of the header.
        value: Its value.
        headers: Further headers: their values by their names.
    """

    header: str = field(default="Authorization", metadata=asks("the header that carries the key", assumed=True))
    value: str = field(default="Bearer {secret_key}", metadata=asks("the value of that header", assumed=True))
    headers: Mapping[str, str] = field(
        factory=dict, converter=to_dict, metadata=asks("further headers that carry a key", assumed=True)
    )

    def __attrs_post_init__(self) -> None:
        _check_placeholders("auth.value", self.value)
        for name, value in self.headers.items():
            _check_placeholders(f"auth.headers.{name}", value)

    @property
    def all_headers(self) -> dict[str, str]:
        """The values of all headers, by their names."""
        return {self.header: self.value, **self.headers}

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of the keys that the headers hold."""
        found = {key for value in self.all_headers.values() for name in names_in(value) for key in SENDER[name]}
        return tuple(sorted(found, reverse=True))


def _check_placeholders(key: str, value: str) -> None:
    """Refuse a value without a placeholder, or with an unknown one. The error does not show it: it may be a key."""
    found = names_in(value)
    if not found or not SENDER.keys() >= set(found):
        allowed = " ".join(f"{{{name}}}" for name in SENDER)
        why = f"must hold one of {allowed}, and never a key itself. A header without any of them belongs in headers"
        raise invalid_setting(key, why)
    check_template(key, value, SENDER)
    if not is_header("X", value):
        raise invalid_setting(key, "must be of visible ASCII characters")


Place: TypeAlias = Literal["", "body", "query", "path", "header"]


@frozen(kw_only=True, field_transformer=check_types("endpoints"))
class Endpoint:
    """How a service's endpoint differs from the common interface. If an argument is left out, nothing differs there.

    Args:
        method: The HTTP method.
        path: The path below the base URL. It may hold arguments in braces, such as `{out_trade_no}`.
        place: The place of the arguments: `body`, `query`, `path` (appended as the last part) or `header`.
        with_: Further arguments that the endpoint needs (TOML: `with`).
        number: Whose number `orders.query` or `refunds.status` takes: `merchant` or `service`. Recovery asks with the
            merchant's. Empty: the merchant's, if it has the wire name of `orders.place` or `refunds.create`, or if the
            path has `{out_trade_no}` or `{out_refund_no}`; else the service's.
    """

    method: Literal["", "GET", "POST", "PUT", "PATCH", "DELETE"] = ""
    path: str = ""
    place: Place = ""
    with_: tuple[str, ...] = field(default=(), converter=to_tuple)
    number: Literal["", "merchant", "service"] = ""


@frozen(field_transformer=check_types("status"))
class Parameter:
    """How endpoint 6 or 7 takes its identifier: the parameter's name and place.

    Args:
        name: The wire name, or the name of the header.
        place: `query`, `path` (appended as the last part) or `header`. Empty: as `endpoints` says, or the query.
    """

    name: str
    place: Literal["", "query", "path", "header"] = ""

    def __attrs_post_init__(self) -> None:
        if not self.name:
            raise invalid_setting("status.name", "is empty: a parameter needs the name that the service gives it")


BODY: Final = "{body}"
_A_PLACE: Final = "the name of a header, or Name:key for one value of `t=1,v1=abc`"
MOST_SIGNATURES: Final = 8
"""Signatures in headers that are checked. A service sends two or three while it rotates its keys."""
_PERHAPS_IN_HEADERS: Final = must_be(_A_PLACE, lambda place: not place or is_place(place))


@frozen(kw_only=True, field_transformer=check_types("header"))
class SignedHeader:
    """How a header signs the exact bytes of a body that the service sends.

    Each place is the name of a header, or `Name:key` for one value of a header such as `t=1,v1=abc`.

    Args:
        signature: The place of the signature; several signatures may be there.
        text: The text that is signed, with `{body}`, and `{timestamp}`, `{nonce}` and `{merchant_id}` where they are
            signed. For a response, also `{method}` and `{path}` of its request.
        timestamp: The place of the time. Empty: none is signed.
        nonce: The place of the nonce, or of another number. Empty: none is signed.
        prefix: The text before the signature, such as `sha256=`.

    """

    signature: str = field(validator=must_be(_A_PLACE, is_place))
    text: str = BODY
    timestamp: str = field(default="", validator=_PERHAPS_IN_HEADERS)
    nonce: str = field(default="", validator=_PERHAPS_IN_HEADERS)
    prefix: str = field(
        default="", validator=must_be("of visible ASCII characters", lambda prefix: is_header("X", f"{prefix}x"))
    )

    def signatures(self, headers: Mapping[str, str]) -> list[str]:
        """Return the signatures in headers that are checked: none, one, or several while keys rotate."""
        return signatures_at(headers, self.signature, self.prefix)[:MOST_SIGNATURES]

    @property
    def names_request(self) -> bool:
        """Whether the method or the path of the request is signed, too."""
        return "{path}" in self.text or "{method}" in self.text

    def read(self, headers: Mapping[str, str], body: bytes, known: Mapping[str, str]) -> tuple[str, bytes]:
        """Return the timestamp, empty if there is none, and the text that is signed.

        Args:
            headers: Those that came with the body.
            body: As it was received.
            known: The merchant's number; for a response also the method and the path, if `names_request`.

        Raises:
            ValueError: A value is missing, or there twice: of two that differ, nobody could say which one was signed.
        """
        values: dict[str, str | bytes] = {**known, "body": body}
        for name, place in (("timestamp", self.timestamp), ("nonce", self.nonce)):
            found = {*values_at(headers, place)} if place else {""}
            if len(found) != 1:
                raise ValueError(f"{place} is {'there twice' if found else 'missing'}")
            values[name] = found.pop()
        return str(values["timestamp"]), fill(self.text, values)


@frozen(kw_only=True, field_transformer=check_types("answer"), cache_hash=True)
class AnswerShape:
    """The dotted paths of values in the service's responses.

    Args:
        data: The payload inside an envelope. Empty: the whole document. A response without the envelope has an empty
            payload.
        code: The result code. Empty: HTTP 2xx is success. A list of paths: the first one that is there counts.
        ok: The codes that mean success, compared by type and value: `0` is not `"0"`.
        code_optional: Whether a 2xx without a code, or with null in its place, is success: codes only in failures.
        message: The message of the service; a path or several, as `code`.
        request_id: The service's identifier of the request: a path, or `header:` and the name of a header.
        payment_id: The service's number of a payment; this path and the next six are relative to `data`.
        payment_status: The state of a payment.
        redirect_url: The page that the customer is sent to (docs/reference/service.md#orders).
        redirect_template: The address of that page, if the service gives only its parts. Names in braces are paths in
            the payload, or else wire names of the request. Their values are percent-encoded.
        order_status: The state of an order.
        refund_status: The state of a refund.
        subscription_id: The service's number of a subscription. Endpoints 9 and 10 compare it as `out_trade_no` below.
        subscription_status: The state of a subscription.
        signature: The signature of the object that holds it. Empty, and without `header`: responses are not
            verified.
        header: The signature of the whole body, if it is in a header.
        tolerance: Seconds that the timestamp in `header` may lie in the past or in the future.
        refusals_signed: Whether failures are signed too. `None`: open, and no unsigned "not found" is final.
        out_trade_no: The order's number. This path and the next five are relative to `data`, and their values are
            compared with the request. `None`: at its wire name, if it is there. Empty: not compared. Otherwise a
            success must have it.
        out_refund_no: The refund's number.
        total_amt: The total amount of the order. Endpoints 1 and 6 compare it here and at their wire name `amount`,
            and require it at neither.
        refund_amt: The amount of the refund.
        currency: The currency's code, compared without case.
        amounts: The unit of amounts in responses: as requests have them, or the major unit of the currency, as in
            "4.50" for 450.
        merchant_id: The merchant's number.
        must: What each success must hold, by paths relative to `data`, such as `{"livemode": True}`. A refusal that has
            the path must hold the same. The type counts: `1` is neither `"1"` nor `True`.
    """

    data: str = _a_path("the path of the payload inside an envelope; without it, the whole document is")
    code: str | tuple[str, ...] = field(
        default="",
        converter=to_tuple,
        validator=_ONE_OR_SOME,
        metadata=asks("the path of a result code; without it, HTTP 2xx is success", assumed=True),
    )
    ok: tuple[Code, ...] = field(default=(), converter=to_tuple)
    amounts: Literal["as sent", "major"] = field(
        default="as sent", metadata=asks("the unit of amounts in responses: as sent, or major", assumed=True)
    )
    code_optional: bool = field(
        default=False, metadata=asks("whether a 2xx without a code is success: codes only in failures", assumed=True)
    )
    message: str | tuple[str, ...] = field(
        default="", converter=to_tuple, validator=_ONE_OR_SOME, metadata=asks("the path of the service's words")
    )
    request_id: str = _a_path(
        "the path, or `header:` and the name, of the service's number of a request",
        rule=must_be(f"{_PATH} and without a colon, or header: and the name of a header", _is_request_id),
    )
    payment_id: str = _a_path("the path of the service's number of a payment", _PAYMENTS)
    payment_status: str = _a_path("the path of a payment's state", _PAYMENTS)
    redirect_url: str = _a_path("the path of the address that the customer goes to", ("orders.place",))
    redirect_template: str = _a_path(
        "that address with its parts in braces, if the service gives only these",
        ("orders.place",),
        rule=must_be(
            "an http or https URL with at least one path in braces behind its host, such as "
            "https://pay.example/p?no={gatewayNo}",
            _is_address_template,
        ),
        assumed=True,
    )
    order_status: str = _a_path("the path of an order's state", _ORDERS)
    refund_status: str = _a_path("the path of a refund's state", _REFUNDS)
    subscription_id: str | None = _a_compared_path(
        "the path of the service's number of a subscription", _SUBSCRIPTIONS, assumed=False
    )
    subscription_status: str = _a_path("the path of a subscription's state", _SUBSCRIPTIONS)
    signature: str = _a_path("the path of the signature of a response; without it, responses are not verified")
    header: SignedHeader | None = field(
        default=None, metadata=asks("the header that signs a response, over its exact body", changed=True)
    )
    tolerance: int = field(default=300, validator=a_time)
    refusals_signed: bool | None = field(default=None, metadata=asks("true or false: whether a failure is signed, too"))
    out_trade_no: str | None = _a_compared_path("outTradeNo", (*_ORDERS, *_REFUNDS))
    out_refund_no: str | None = _a_compared_path("outRefundNo", _REFUNDS)
    total_amt: str | None = _a_compared_path(
        "totalAmt (payments.create: amount)", (*_PAYMENTS, "orders.place", "orders.query", *_REFUNDS)
    )
    refund_amt: str | None = _a_compared_path("refundAmt", _REFUNDS)
    currency: str | None = _a_compared_path("currency", ("payments.create", "orders.place", "orders.query"))
    merchant_id: str | None = _a_compared_path("merchantId", ALL)
    must: Mapping[str, Any] = field(factory=dict, hash=False, converter=to_dict, validator=_EXPECTED, metadata=_HELD)

    def __attrs_post_init__(self) -> None:
        if self.code and not (self.ok or self.code_optional):
            raise invalid_setting("answer.ok", "must list the codes that mean success where answer.code is given")
        if self.code_optional and not self.code:
            raise invalid_setting("answer.code", "must be given where answer.code_optional is true")
        if self.redirect_url and self.redirect_template:
            why = "and answer.redirect_url both give the customer's address: keep one of the two"
            raise invalid_setting("answer.redirect_template", why)

    @property
    def signed(self) -> bool:
        """Whether responses have a signature, in the document or in a header."""
        return bool(self.signature or self.header)


@frozen(kw_only=True, field_transformer=check_types("states"))
class States:
    """Our names of states, which `Response.state` returns, and the values of the service that mean them.

    Args:
        order: pending, paid, closed, failed, expired and refunded.
        payment: The same names.
        refund: processing, succeeded and failed.
        subscription: scheduled, active, past_due and cancelled.
    """

    order: Values = field(factory=dict, converter=to_dict_of_tuples, metadata=asks(_MEANINGS, _ORDERS))
    payment: Values = field(factory=dict, converter=to_dict_of_tuples, metadata=asks(_MEANINGS, _PAYMENTS))
    refund: Values = field(factory=dict, converter=to_dict_of_tuples, metadata=asks(_MEANINGS, _REFUNDS))
    subscription: Values = field(factory=dict, converter=to_dict_of_tuples, metadata=asks(_MEANINGS, _SUBSCRIPTIONS))

    def __attrs_post_init__(self) -> None:
        _check_states("order", self.order, ORDER_STATES)
        _check_states("payment", self.payment, ORDER_STATES)
        _check_states("refund", self.refund, REFUND_STATES)
        _check_states("subscription", self.subscription, SUBSCRIPTION_STATES)

    def name(self, thing: str, value: object) -> str | None:
        """Return our name of a state that the service sent, or `None` if the profile has none."""
        table: Values = getattr(self, thing)
        return next((ours for ours, theirs in table.items() if is_one_of(value, theirs)), None)


def _check_states(thing: str, table: Values, allowed: tuple[str, ...]) -> None:
    where = f"states.{thing}"
    if unknown := sorted(set(table).difference(allowed)):
        raise ConfigurationError(
            f"{where} must not hold {', '.join(unknown)}; allowed are {', '.join(allowed)}",
            field=f"{where}.{unknown[0]}",
        )
    seen: list[Code] = []
    for name, value in ((name, value) for name, values in table.items() for value in values):
        if is_one_of(value, seen):
            raise ConfigurationError(f"{where} gives {value!r} two meanings: keep one", field=f"{where}.{name}")
        seen.append(value)


CODE_LISTS: Final = ("not_executed", "unauthenticated", "retryable", "duplicate", "absent")
"""The keys of `[codes]`, and of its tables for one operation."""


def copy_json(given: Any) -> Any:
    """Return a copy of a table that is JSON; any other value unchanged, for the checks to refuse."""
    return given if find_flaw(given) else copy_plain(given)


@frozen(kw_only=True, field_transformer=check_types("codes"))
class ResultCodes:
    """The meanings of result codes, or of the service's messages.

    Args:
        not_executed: The request was refused, and nothing was done.
        unauthenticated: The request was refused because of the merchant's keys or signature, and nothing was done.
        retryable: The service failed, as with a 5xx; the request may be retried.
        duplicate: The number was used before.
        absent: The service knows no such order or refund.
        by_operation: By operation, further lists under the same names, which go before the general ones (TOML: a table
            such as `[codes."refunds.create"]`).
    """

    not_executed: tuple[Code, ...] = field(
        default=(), converter=to_tuple, metadata=asks("result codes that mean that nothing was done")
    )
    unauthenticated: tuple[Code, ...] = field(
        default=(),
        converter=to_tuple,
        metadata=asks("result codes that mean that a key or signature is wrong, and nothing was done"),
    )
    retryable: tuple[Code, ...] = field(
        default=(), converter=to_tuple, metadata=asks("result codes that mean that the service failed, as a 5xx")
    )
    duplicate: tuple[Code, ...] = field(
        default=(),
        converter=to_tuple,
        metadata=asks("result codes that mean that the number was used before", (*WITH_A_NUMBER, "orders.close")),
    )
    absent: tuple[Code, ...] = field(
        default=(),
        converter=to_tuple,
        metadata=asks("result codes that mean that there is no such order or refund", WITH_A_NUMBER),
    )
    by_operation: Mapping[str, Values] = field(factory=dict, converter=to_dict_of_tuples)

    @property
    def listed(self) -> Iterable[object]:
        """All codes and messages, of all lists."""
        tables = ({key: getattr(self, key) for key in CODE_LISTS}, *self.by_operation.values())
        return (code for table in tables for codes in table.values() for code in codes)

    def meaning(self, operation: str, values: Iterable[object]) -> str | None:
        """Return the key of the list that holds one of the values; those of the operation go before the general ones.

        Args:
            operation: Its name.
            values: The code, and then the message.
        """
        for value in values if operation in self.by_operation else ():
            for key, codes in self.by_operation[operation].items():
                if is_one_of(value, codes):
                    return key
        for value in values:
            for key in CODE_LISTS:
                if is_one_of(value, getattr(self, key)):
                    return key
        return None


@frozen(kw_only=True, field_transformer=check_types("http"))
class HttpCodes:
    """The meanings of HTTP statuses that come without a listed code.

    Args:
        not_executed: 4xx statuses, not 429, which mean that nothing was done.
        absent: 4xx statuses, not 429, which mean, on a query, that there is no such order or refund.
        duplicate: 4xx statuses, not 429, which mean that the number was used before.
        unauthenticated: 4xx statuses, not 429, with which a refusal is about the merchant's keys.
        rate_limit_precedes_execution: Whether a 429 with a listed code means that nothing was done.
        uncoded: 4xx statuses that the service itself sends without a code, or without a JSON object. Any other such
            response may be a page of a gateway or a firewall, and is not believed.
    """

    not_executed: tuple[int, ...] = field(
        default=(400, 401, 403, 404, 405, 413, 415, 422),
        converter=to_tuple,
        validator=_REFUSALS,
        metadata=asks("4xx that mean that nothing was done", assumed=True),
    )
    absent: tuple[int, ...] = field(
        default=(),
        converter=to_tuple,
        validator=_REFUSALS,
        metadata=asks("statuses that mean, on a query, that there is no such order or refund", assumed=True),
    )
    duplicate: tuple[int, ...] = field(
        default=(409,),
        converter=to_tuple,
        validator=_REFUSALS,
        metadata=asks("4xx that mean that the number was used before", assumed=True),
    )
    unauthenticated: tuple[int, ...] = field(
        default=(401, 403),
        converter=to_tuple,
        validator=_REFUSALS,
        metadata=asks("4xx with which a refusal is about the merchant's keys", assumed=True),
    )
    rate_limit_precedes_execution: bool = field(
        default=False, metadata=asks("whether a 429 was not executed", assumed=True)
    )
    uncoded: tuple[int, ...] = field(
        default=(401, 405, 413, 415),
        converter=to_tuple,
        validator=must_be(
            "a list of statuses from 400 to 499",
            lambda statuses: all(400 <= status < 500 for status in statuses),  # noqa: PLR2004 - statuses
        ),
        metadata=asks("4xx that the service itself sends without a code or a JSON object", assumed=True),
    )


@frozen(kw_only=True, field_transformer=check_types("recovery"))
class Recovery:
    """The condition under which a write that a number names may be sent a second time.

    Args:
        quarantine: Seconds after which "not found" is final. `None`: it is never final, and no such write is repeated.
    """

    quarantine: float | None = field(
        default=None,
        validator=_SECONDS,
        metadata=asks(
            "seconds after which 'not found' is final; without it, no write that a number names is sent a second time",
            WITH_A_NUMBER,
        ),
    )


STANDARD_WEBHOOKS: Final = SignedHeader(
    signature="webhook-signature", timestamp="webhook-timestamp", nonce="webhook-id"
)


_LIFETIME: Final = field(
    default=None,
    validator=_SECONDS,
    metadata=asks(
        "seconds that the service keeps a key; without it, a write is repeated under its key only within its call",
        UNNAMED,
    ),
)


@frozen(kw_only=True, field_transformer=check_types("idempotency"))
class Idempotency:
    """How a service takes an idempotency key: one key for all attempts of a write.

    If payasync repeats a write under its key, it relies on the service. Within the lifetime of a key, the service must
    not carry out a second write under it.

    Args:
        header: The name of the header that carries the key. Empty: none does.
        field: The wire name of the field that carries it, in place of a header.
        lifetime: Seconds that the service keeps a key, from the first send on. Later, no write is repeated.
            `None`: open; a write without a number is then repeated only within its call.
    """

    header: str = ""
    field: str = ""
    lifetime: float | None = _LIFETIME

    @property
    def used(self) -> bool:
        """Whether the service takes a key."""
        return bool(self.header or self.field)


@frozen(kw_only=True, field_transformer=check_types("notification"))
class NotificationShape:
    """The form of notifications, and of the responses to them (docs/reference/service.md#notifications).

    Args:
        verification: `body`, `header`, `standard-webhooks` or `none`; empty: open.
        data: The path of the payload.
        signature: The path of the signature, if it is in the body.
        header: The signature, if it is in a header; or the names of the headers of Standard Webhooks.
        kind: The path of the event name, or `header:` and the name of a header. Empty: the receiver's route, or
            `tells`, gives the kind.
        kinds: The service's event names, by our kinds.
        tells: By kind, the path of a field that only notifications of this kind have; relative to `data`. Kinds whose
            events are in `kinds` may share a field, which then holds their state.
        time: The path of the time of the delivery, which is new in each delivery. The window judges it. Empty: no time
            in the body is judged.
        event_time: The path of the event's own time, which a redelivery repeats. It is shown, and never judged.
        timezone: The time zone of times without an offset, such as `America/Toronto`. A time that the clocks skip or
            repeat has the offset from before the change. Empty: such times are refused.
        tolerance: Seconds that `time` may lie in the past or in the future.
        id: By kind, the paths whose values together identify an event.
        out_trade_no: The order's number, which a confirmation asks about; relative to `data`, as the next three.
        out_refund_no: The refund's number.
        subscription_id: The subscription's number.
        merchant_id: The merchant's number. `None`: at its wire name, if it is there. Empty: not compared.
        amounts: The unit of amounts in notifications, as `AnswerShape.amounts`. Empty: the unit of responses.
        must: What each notification must hold, by paths relative to `data`, as `AnswerShape.must`.
        volatile: Fields that a redelivery may change: names, at any depth, or dotted paths.
        ack_status: The HTTP status that acknowledges.
        ack_body: The body that acknowledges.
        nack_status: The HTTP status that refuses.
        nack_body: The body that refuses.
    """

    verification: Literal["", "body", "header", "standard-webhooks", "none"] = field(
        default="", metadata=asks("how notifications are signed: body, header, standard-webhooks, or none", ())
    )
    data: str = _a_path("the path of the payload; without it, the whole body is", ())
    signature: str = _a_path("the path of the signature, where it stands in the body", ())
    header: SignedHeader | None = field(
        default=None, metadata=asks("the header of the signature, and the text that is signed", (), changed=True)
    )
    kind: str = _a_path(
        "the path, or `header:` and the name, of an event's name; without it, the receiver's route says the kind",
        (),
        rule=must_be(
            f"{_PATH}, or header: and the name of a header", lambda value: _is_path(value) or _is_request_id(value)
        ),
    )
    kinds: Mapping[str, tuple[str, ...]] = field(
        factory=dict, converter=to_dict_of_tuples, metadata=asks("the service's names of events, by our kinds", ())
    )
    tells: Mapping[str, str] = field(
        factory=dict,
        converter=to_dict,
        validator=each_must_be(_IN_THE_DOCUMENT, lambda path: path and _is_path(path)),
        metadata=asks("the path of a field that only notifications of a kind have, by our kinds", (), changed=True),
    )
    time: str = _a_path("the path of the time of the delivery, which is new in each: it is judged", (), rule=_IS_TIME)
    event_time: str = _a_path("the path of the event's own time: it is shown, and never judged", ())
    timezone: str = field(
        default="",
        validator=must_be("a time zone, such as America/Toronto (where the system has none: install tzdata)", _is_zone),
        metadata=asks("the time zone of times without an offset", (), changed=True),
    )
    tolerance: int = field(default=300, validator=a_time)
    id: Mapping[str, tuple[str, ...]] = field(
        factory=dict,
        converter=to_dict_of_tuples,
        validator=each_must_be(
            f"a list, each of it {_IN_THE_DOCUMENT}", lambda paths: all(path and _is_path(path) for path in paths)
        ),
        metadata=asks("the paths that together identify one event of a kind", ()),
    )
    out_trade_no: str = _a_path("the path of the order's number, which a confirmation asks about", ())
    out_refund_no: str = _a_path("the path of the refund's number, which a confirmation asks about", ())
    subscription_id: str = _a_path("the path of the subscription's number", ())
    merchant_id: str | None = field(
        default=None,
        validator=_COMPARED,
        metadata=asks(
            "the path of the merchant's number; a notification that names another one is held", (), assumed=True
        ),
    )
    amounts: Literal["", "as sent", "major"] = field(
        default="", metadata=asks("the unit of amounts in notifications: as sent, or major", (), assumed=True)
    )
    must: Mapping[str, Any] = field(
        factory=dict,
        converter=to_dict,
        validator=_EXPECTED,
        metadata=asks("what each notification must hold, by its path in the payload", (), assumed=True),
    )
    volatile: tuple[str, ...] = field(default=(), converter=to_tuple)
    ack_status: int | None = _a_status("the HTTP status that acknowledges a notification")
    ack_body: str = field(default="", metadata=asks("the body that acknowledges a notification", ()))
    nack_status: int | None = _a_status("the HTTP status that refuses a notification")
    nack_body: str = field(default="", metadata=asks("the body that refuses a notification", ()))

    @property
    def refusal_status(self) -> int:
        """The HTTP status that refuses a notification: 400, if none is given."""
        return self.nack_status or 400

    @property
    def kind_path(self) -> str:
        """The path of the event's name in the body; empty if there is none."""
        return "" if self.kind_header else self.kind

    @property
    def kind_header(self) -> str:
        """The name of the header that holds the event's name; empty if there is none."""
        return self.kind.removeprefix("header:") if self.kind.startswith("header:") else ""

    @property
    def zone(self) -> "ZoneInfo | None":
        """The time zone of times without an offset."""
        return _zone_of(self.timezone) if self.timezone else None

    @property
    def headers(self) -> SignedHeader:
        """The names of the headers that a signature needs; those of Standard Webhooks, if none are given."""
        return self.header or STANDARD_WEBHOOKS


def _is_wait(seconds: float) -> bool:
    return 0 < seconds <= A_YEAR


_WAIT: Final = f"above 0, and at most {A_YEAR} (a year)"


@frozen(kw_only=True, field_transformer=check_types("sandbox"))
class SandboxShape:
    """How the sandbox plays this service. A session ignores it.

    Args:
        failures: How refusals are sent: `status`, by the HTTP status, or `200`, by the result code inside HTTP 200.
            Empty: `200` if the profile has `answer.code` and `http.not_executed = []`, else `status`.
        redelivery: Seconds after each unacknowledged attempt until a notification is sent again. After the last one it
            is given up.
        order_expiry: Seconds after which a pending order expires.
        codes: Your service's code for each refusal: `invalid`, `unauthenticated`, `bad_signature`, `nonce_used`,
            `wrong_state`, `already_paid`, `refund_mismatch`, `duplicate`, `absent` and `busy`. `unauthenticated` and
            `bad_signature` default to the first code of `codes.unauthenticated`. `duplicate`, `absent` and `busy`
            default to that of `codes.duplicate`, `codes.absent` and `codes.retryable`. Any other refusal that is not
            named has its HTTP status and no code.
        constants: Fields of every success, refusal and notification. They are in the signed object if there is one,
            else in the document itself.
        omits: By operation, what its successes do not hold, by paths in the payload. `["*"]`: they are a 204.
        single_use_keys: Operations that refuse an idempotency key which was used before, even for the same request. The
            others return the first response.
    """

    failures: Literal["", "status", "200"] = ""
    redelivery: tuple[float, ...] = field(
        default=(5, 300, 1800, 7200, 18_000, 36_000),
        converter=to_tuple,
        validator=must_be(f"a list of seconds, each {_WAIT}", lambda waits: all(map(_is_wait, waits))),
    )
    order_expiry: float = field(default=1800, validator=must_be(f"a number of seconds {_WAIT}", _is_wait))
    codes: Mapping[str, Code] = field(
        factory=dict, converter=to_dict, validator=each_must_be("a code that is not empty", lambda code: code != "")
    )
    constants: Mapping[str, Any] = field(
        factory=dict,
        converter=copy_json,
        validator=each_must_be("JSON", lambda value: not find_flaw(value, MAX_DEPTH - 1)),
    )
    omits: Mapping[str, tuple[str, ...]] = field(factory=dict, converter=to_dict_of_tuples)
    single_use_keys: tuple[str, ...] = field(default=(), converter=to_tuple)


_DIGITS: Final = {
    **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF"), 0),
    **dict.fromkeys(("UGX", "VND", "VUV", "XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
}
"""Currencies whose smallest unit is not a hundredth."""


def format_amount(count: int, currency: str, unit: str) -> str:
    """Return an amount with its currency.

    Args:
        count: So many units.
        currency: Its code.
        unit: `major` where whole units of the currency are counted, else the smallest ones are.
    """
    currency = currency.upper()
    digits = 0 if unit == "major" else _DIGITS.get(currency, 2)
    whole, rest = divmod(count, 10**digits)
    return f"{whole:,}.{rest:0{digits}} {currency}" if digits else f"{whole:,} {currency}"
