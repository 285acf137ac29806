"""The parts of a profile: each says one thing that the service's document leaves open.

Every part is a frozen value whose arguments are named as the keys of its TOML table. What the document
states is the default; what it leaves open is empty.
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
"""Arguments whose wire names the document does not show (spec: Endpoints, gaps)."""

Code = str | int
"""A result code or a state as the service sends it; compared by type and value."""

Kind: TypeAlias = Literal["payment", "refund", "subscription"]
"""Of a notification."""
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
REFUSED: Final = 400
"""The HTTP status that refuses a notification, where the profile names none."""

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
    """Return the field of a dotted path, which is open until it is given."""
    return field(default="", validator=must_be(_IN_THE_DOCUMENT, _is_path))


def _a_compared_path() -> Any:
    """Return the field of a dotted path that has a default of its own until it is given."""
    return field(default=None, validator=must_be(f"{_IN_THE_DOCUMENT}; or empty, to compare nothing", _is_path))


@frozen(kw_only=True, field_transformer=check_types("accept"))
class Accept:
    """What the service takes; anything else is refused before any I/O.

    Args:
        currency: Currency codes; empty: any.
        scene_type: Scene types; empty: any.
        amount: The least and the greatest amount; empty: 1 to 2**53-1.
        required: By operation, the arguments that it demands beyond the document's, and the fields of `extra`.
        length: By argument that is a text, the greatest number of characters.
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
"""What is accepted where the profile does not say."""


@frozen(field_transformer=check_types("status"))
class Parameter:
    """How endpoint 6 or 7 takes its identifier.

    Args:
        name: Its wire name; the header's name, where it is a header.
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
    """Where things stand in the service's answers: dotted paths into the JSON document.

    Args:
        data: The payload inside an envelope; empty: the whole document.
        code: A result code; empty: HTTP 2xx is success.
        ok: The codes that mean success; a text is not a number: `0` is not `"0"`.
        message: The service's words.
        request_id: A path, or `header:` and a name.
        payment_id: Relative to `data`, as the next six.
        payment_status: The state of a payment.
        redirect_url: Where the customer goes (spec: Endpoints, rule 2).
        order_status: The state of an order.
        refund_status: The state of a refund.
        subscription_id: The service's number of a subscription; endpoints 9 and 10 compare it, as `out_trade_no` below.
        subscription_status: The state of a subscription.
        signature: Set, responses are verified over the object that holds it.
        refusals_signed: Whether a failure is signed, too; `None`: open, so that no unsigned "not found" is final.
        out_trade_no: Where a response names the order's number, relative to `data` as the next five. Each is compared
            with the request. `None`: read at its wire name. Empty: not compared. Given: a success must name it.
        out_refund_no: The refund's number.
        total_amt: The total amount of the order. Endpoints 1 and 6 compare it here and under their own wire name
            `amount`, and demand it at neither.
        refund_amt: The amount of the refund.
        currency: The currency's code; upper and lower case are equal.
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
    """Our names of states, and the service's values that mean them; these give `.state`.

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
        """Return our name of a state that the service sent, or `None` where the profile has none."""
        table: Mapping[str, tuple[Code, ...]] = getattr(self, thing)
        return next((ours for ours, theirs in table.items() if among(value, theirs)), None)


def _check_states(thing: str, table: Mapping[str, tuple[Code, ...]], allowed: tuple[str, ...]) -> None:
    where = f"states.{thing}"
    if unknown := sorted(set(table).difference(allowed)):
        raise ConfigurationError(
            f"{where} knows no {', '.join(unknown)}; allowed are {', '.join(allowed)}", field=f"{where}.{unknown[0]}"
        )
    seen: list[Code] = []
    for name, value in ((name, value) for name, values in table.items() for value in values):
        if among(value, seen):
            raise ConfigurationError(f"{where} gives {value!r} two meanings: keep one", field=f"{where}.{name}")
        seen.append(value)


def among(value: object, allowed: "tuple[Code, ...] | list[Code]") -> bool:
    """Return whether a value is one of the codes, by type and value: `0` is not `False`, nor `"0"`."""
    for code in allowed:  # noqa: SIM110 - each answer passes here, and a generator takes twice as long
        if value == code and isinstance(code, type(value)):
            return True
    return False


@frozen(kw_only=True, field_transformer=check_types("codes"))
class ResultCodes:
    """Result codes, or the service's messages, by what they mean.

    Args:
        not_executed: It was refused, and nothing was done.
        retryable: It may be tried again, as after a 5xx.
        duplicate: The number was used before.
        absent: The service knows no such order or refund.
    """

    not_executed: tuple[Code, ...] = field(default=(), converter=to_tuple)
    retryable: tuple[Code, ...] = field(default=(), converter=to_tuple)
    duplicate: tuple[Code, ...] = field(default=(), converter=to_tuple)
    absent: tuple[Code, ...] = field(default=(), converter=to_tuple)


@frozen(kw_only=True, field_transformer=check_types("http"))
class HttpCodes:
    """What HTTP statuses mean where no listed code says more.

    Args:
        not_executed: 4xx, but for 429, that mean that nothing was done.
        absent: 4xx, but for 429, that mean, on a query, that there is no such order or refund.
        duplicate: 4xx, but for 429, that mean that the number was used before.
        rate_limit_precedes_execution: A 429 was not executed.
    """

    not_executed: tuple[int, ...] = field(
        default=(400, 401, 403, 404, 405, 413, 415, 422), converter=to_tuple, validator=_REFUSALS
    )
    absent: tuple[int, ...] = field(default=(), converter=to_tuple, validator=_REFUSALS)
    duplicate: tuple[int, ...] = field(default=(409,), converter=to_tuple, validator=_REFUSALS)
    rate_limit_precedes_execution: bool = False


@frozen(kw_only=True, field_transformer=check_types("recovery"))
class Recovery:
    """When a write may be sent a second time.

    Args:
        quarantine: Seconds after which an absent answer is final; `None`: nothing is sent twice.
    """

    quarantine: float | None = field(
        default=None,
        validator=must_be("a number of seconds, 0 or more", lambda value: value is None or 0 <= value < math.inf),
    )


@frozen(kw_only=True, field_transformer=check_types("notification"))
class NotificationShape:
    """What a notification looks like, and which answer acknowledges it (spec: Events).

    Args:
        verification: `body`, `standard-webhooks` or `none`; empty: open.
        data: Path of the payload.
        signature: Path of the signature, where it stands in the body.
        kind: Path of an event name; empty: the receiver's route says the kind.
        kinds: Our kinds, and the service's event names that mean them.
        time: Path of a timestamp.
        tolerance: Seconds that the timestamp may be off, both ways.
        id: By kind, the paths that together identify one event.
        out_trade_no: Relative to `data`, as the next two: what a confirmation asks about.
        out_refund_no: The refund's number.
        subscription_id: The subscription's number.
        volatile: Fields that a redelivery may change: a name, wherever it stands, or a dotted path.
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
