"""The parts of a profile; each answers one question that the service's document leaves open.

Each part is a frozen value whose arguments have the names of the keys in its TOML table. The defaults are what the
document states; a point that the document leaves open is empty.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from attrs import Factory, field, frozen

from payasync.errors import ConfigurationError
from payasync.settings import check_types, each_must_be, is_header, must_be, to_dict, to_dict_of_tuples, to_tuple

NONCE: Final = "nonceStr"
SIGN: Final = "sign"
MERCHANT: Final = "merchantId"
SIGNING: Final = (NONCE, SIGN)
RESERVED: Final = frozenset({MERCHANT, *SIGNING})
"""Wire names that only payasync itself may set."""

OPEN_FIELDS: Final = {
    "return_url": "the wire name of the return URL",
    "frequency": "the wire name of a subscription's billing frequency",
    "start_date": "the wire name of a subscription's start date",
    "subscription_amount": "the wire name of a subscription's amount",
    "customer": "the wire name of a subscription's customer details",
    "subscription_id": "the wire name of a subscription's number",
}
"""Arguments whose wire names the document does not show (docs/service.md#overview)."""

Code = str | int
"""A result code or a state as the service sends it; compared by type and value."""

Kind: TypeAlias = Literal["payment", "refund", "subscription"]
"""The subject of a notification."""
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
REFUSED: Final = 400
"""The HTTP status that refuses a notification, if the profile gives none."""

_PATH: Final = "a dotted path, such as data.sign, without an empty step"
_IN_THE_DOCUMENT: Final = f"{_PATH}; a header cannot stand here"
_REFUSALS: Final = must_be(
    "a list of statuses from 400 to 499 without 429: what the others mean is settled",
    lambda statuses: all(400 <= status < 500 and status != 429 for status in statuses),  # noqa: PLR2004 - statuses
)
_FINAL: Final = must_be(
    "an HTTP status from 200 to 599",
    lambda status: status is None or 200 <= status < 600,  # noqa: PLR2004 - statuses
)


def _is_path(value: str | None) -> bool:
    return not value or ("" not in value.split(".") and not value.lower().startswith("header:"))


def _is_request_id(value: str) -> bool:
    place, colon, name = value.partition(":")
    return (place == "header" and is_header(name, "-")) if colon else _is_path(value)


def _a_path() -> Any:
    """Return a field for a dotted path; empty means open."""
    return field(default="", validator=must_be(_IN_THE_DOCUMENT, _is_path))


def _a_compared_path() -> Any:
    """Return a field for a dotted path to a compared value: `None` for its wire name, empty to compare nothing."""
    return field(default=None, validator=must_be(f"{_IN_THE_DOCUMENT}; or empty, to compare nothing", _is_path))


@frozen(kw_only=True, field_transformer=check_types("accept"))
class Accept:
    """The values that the service accepts; any other value is refused before any I/O.

    Args:
        currency: Currency codes; empty: any.
        scene_type: Scene types; empty: any.
        amount: The least and the greatest amount; empty: 1 to 2**53-1.
        required: By operation, further required arguments, and required fields of `extra`.
        length: By argument, the greatest number of characters of a text.
    """

    currency: tuple[str, ...] = field(default=(), converter=to_tuple)
    scene_type: tuple[str, ...] = field(default=(), converter=to_tuple)
    amount: tuple[int, ...] = field(
        default=(),
        converter=to_tuple,
        validator=must_be(
            "[least, greatest], two integers", lambda value: len(value) in {0, 2} and sorted(value) == list(value)
        ),
    )
    required: Mapping[str, tuple[str, ...]] = field(default=Factory(dict), converter=to_dict_of_tuples)
    length: Mapping[str, int] = field(
        default=Factory(dict), converter=to_dict, validator=each_must_be("1 or more", lambda value: value > 0)
    )


ANYTHING: Final = Accept()
"""The default: every value is accepted."""


@frozen(field_transformer=check_types("status"))
class Parameter:
    """How endpoint 6 or 7 takes its identifier: the parameter's name and place.

    Args:
        name: The wire name, or the name of the header.
        place: `query`, `path` (which appends `/<identifier>`) or `header`.
    """

    name: str
    place: Literal["query", "path", "header"] = "query"

    def __attrs_post_init__(self) -> None:
        if not self.name:
            raise ConfigurationError(
                "status.name is empty: a parameter needs the name that the service gives it", field="status.name"
            )


@frozen(kw_only=True, field_transformer=check_types("answer"))
class AnswerShape:
    """The dotted paths at which values stand in the service's responses.

    Args:
        data: The payload inside an envelope. Empty: the whole document.
        code: The result code. Empty: HTTP 2xx is success.
        ok: The codes that mean success, compared by type and value: `0` is not `"0"`.
        message: The message of the service.
        request_id: The service's identifier of the request: a path, or `header:` and the name of a header.
        payment_id: The service's number of a payment; this path and the next six are relative to `data`.
        payment_status: The state of a payment.
        redirect_url: The page that the customer is sent to (docs/service.md#orders).
        order_status: The state of an order.
        refund_status: The state of a refund.
        subscription_id: The service's number of a subscription. Endpoints 9 and 10 compare it as `out_trade_no` below.
        subscription_status: The state of a subscription.
        signature: The signature of the object that it stands in. Empty: responses are not verified.
        refusals_signed: Whether failures are signed too. `None`: open, and no unsigned "not found" is final.
        out_trade_no: The order's number. This path and the next five are relative to `data`, and their values are
            compared with the request. `None`: at its wire name, if it is there. Empty: not compared. Otherwise a
            success must have it.
        out_refund_no: The refund's number.
        total_amt: The total amount of the order. Endpoints 1 and 6 compare it here and at their wire name `amount`,
            and require it at neither.
        refund_amt: The amount of the refund.
        currency: The currency's code, compared without case.
        merchant_id: The merchant's number.
    """

    data: str = _a_path()
    code: str = _a_path()
    ok: tuple[Code, ...] = field(default=(), converter=to_tuple)
    message: str = _a_path()
    request_id: str = field(
        default="",
        validator=must_be(f"{_PATH} and without a colon, or header: and the name of a header", _is_request_id),
    )
    payment_id: str = _a_path()
    payment_status: str = _a_path()
    redirect_url: str = _a_path()
    order_status: str = _a_path()
    refund_status: str = _a_path()
    subscription_id: str | None = _a_compared_path()
    subscription_status: str = _a_path()
    signature: str = _a_path()
    refusals_signed: bool | None = None
    out_trade_no: str | None = _a_compared_path()
    out_refund_no: str | None = _a_compared_path()
    total_amt: str | None = _a_compared_path()
    refund_amt: str | None = _a_compared_path()
    currency: str | None = _a_compared_path()
    merchant_id: str | None = _a_compared_path()

    def __attrs_post_init__(self) -> None:
        if self.code and not self.ok:
            raise ConfigurationError(
                "answer.ok must list the codes that mean success where answer.code is given", field="answer.ok"
            )


ORDER_STATES: Final = ("pending", "paid", "closed", "failed", "expired", "refunded")
REFUND_STATES: Final = ("processing", "succeeded", "failed")
SUBSCRIPTION_STATES: Final = ("scheduled", "active", "past_due", "cancelled")


@frozen(kw_only=True, field_transformer=check_types("states"))
class States:
    """Our names of states, which `.state` returns, and the values of the service that mean them.

    Args:
        order: pending, paid, closed, failed, expired and refunded.
        payment: The same names.
        refund: processing, succeeded and failed.
        subscription: scheduled, active, past_due and cancelled.
    """

    order: Mapping[str, tuple[Code, ...]] = field(default=Factory(dict), converter=to_dict_of_tuples)
    payment: Mapping[str, tuple[Code, ...]] = field(default=Factory(dict), converter=to_dict_of_tuples)
    refund: Mapping[str, tuple[Code, ...]] = field(default=Factory(dict), converter=to_dict_of_tuples)
    subscription: Mapping[str, tuple[Code, ...]] = field(default=Factory(dict), converter=to_dict_of_tuples)

    def __attrs_post_init__(self) -> None:
        _check_states("order", self.order, ORDER_STATES)
        _check_states("payment", self.payment, ORDER_STATES)
        _check_states("refund", self.refund, REFUND_STATES)
        _check_states("subscription", self.subscription, SUBSCRIPTION_STATES)

    def name(self, thing: str, value: object) -> str | None:
        """Return our name of a state that the service sent, or `None` if the profile has none."""
        table: Mapping[str, tuple[Code, ...]] = getattr(self, thing)
        return next((ours for ours, theirs in table.items() if is_one_of(value, theirs)), None)


def _check_states(thing: str, table: Mapping[str, tuple[Code, ...]], allowed: tuple[str, ...]) -> None:
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


def is_one_of(value: object, allowed: "tuple[Code, ...] | list[Code]") -> bool:
    """Return whether a value is one of the codes, by type and value: `0` is not `False`, nor `"0"`."""
    for code in allowed:  # noqa: SIM110 - on the hot path, where a generator takes twice as long
        if value == code and isinstance(code, type(value)):
            return True
    return False


@frozen(kw_only=True, field_transformer=check_types("codes"))
class ResultCodes:
    """The meanings of result codes, or of the service's messages.

    Args:
        not_executed: The request was refused, and nothing was done.
        retryable: The service failed, as with a 5xx; the request may be retried.
        duplicate: The number was used before.
        absent: The service knows no such order or refund.
    """

    not_executed: tuple[Code, ...] = field(default=(), converter=to_tuple)
    retryable: tuple[Code, ...] = field(default=(), converter=to_tuple)
    duplicate: tuple[Code, ...] = field(default=(), converter=to_tuple)
    absent: tuple[Code, ...] = field(default=(), converter=to_tuple)


@frozen(kw_only=True, field_transformer=check_types("http"))
class HttpCodes:
    """The meanings of HTTP statuses that come without a listed code.

    Args:
        not_executed: 4xx, but for 429, that mean that nothing was done.
        absent: 4xx, but for 429, that mean, on a query, that there is no such order or refund.
        duplicate: 4xx, but for 429, that mean that the number was used before.
        rate_limit_precedes_execution: Whether a 429 means that nothing was done.
    """

    not_executed: tuple[int, ...] = field(
        default=(400, 401, 403, 404, 405, 413, 415, 422), converter=to_tuple, validator=_REFUSALS
    )
    absent: tuple[int, ...] = field(default=(), converter=to_tuple, validator=_REFUSALS)
    duplicate: tuple[int, ...] = field(default=(409,), converter=to_tuple, validator=_REFUSALS)
    rate_limit_precedes_execution: bool = False


@frozen(kw_only=True, field_transformer=check_types("recovery"))
class Recovery:
    """The condition under which a write may be sent a second time.

    Args:
        quarantine: Seconds after which "not found" is final. `None`: it is never final, and no write is repeated.
    """

    quarantine: float | None = field(
        default=None,
        validator=must_be("a number of seconds, 0 or more", lambda value: value is None or 0 <= value < math.inf),
    )


@frozen(kw_only=True, field_transformer=check_types("notification"))
class NotificationShape:
    """The form of notifications, and the responses that acknowledge and refuse them (docs/service.md#notifications).

    Args:
        verification: `body`, `standard-webhooks` or `none`; empty: open.
        data: The path of the payload.
        signature: The path of the signature, if it stands in the body.
        kind: The path of the event name. Empty: the receiver's route gives the kind.
        kinds: The service's event names, by our kinds.
        time: The path of a timestamp.
        tolerance: Seconds that the timestamp may lie in the past or in the future.
        id: By kind, the paths whose values together identify an event.
        out_trade_no: The order's number, which a confirmation asks about; relative to `data`, as the next two.
        out_refund_no: The refund's number.
        subscription_id: The subscription's number.
        volatile: Fields that a redelivery may change: names, at any depth, or dotted paths.
        ack_status: The HTTP status that acknowledges.
        ack_body: The body that acknowledges.
        nack_status: The HTTP status that refuses.
        nack_body: The body that refuses.
    """

    verification: Literal["", "body", "standard-webhooks", "none"] = ""
    data: str = _a_path()
    signature: str = _a_path()
    kind: str = _a_path()
    kinds: Mapping[str, tuple[str, ...]] = field(default=Factory(dict), converter=to_dict_of_tuples)
    time: str = _a_path()
    tolerance: int = field(default=300, validator=must_be("a number of seconds above 0", lambda value: value > 0))
    id: Mapping[str, tuple[str, ...]] = field(
        default=Factory(dict),
        converter=to_dict_of_tuples,
        validator=each_must_be(
            f"a list, each of it {_IN_THE_DOCUMENT}", lambda paths: all(path and _is_path(path) for path in paths)
        ),
    )
    out_trade_no: str = _a_path()
    out_refund_no: str = _a_path()
    subscription_id: str = _a_path()
    volatile: tuple[str, ...] = field(default=(), converter=to_tuple)
    ack_status: int | None = field(default=None, validator=_FINAL)
    ack_body: str = ""
    nack_status: int | None = field(default=None, validator=_FINAL)
    nack_body: str = ""
