"""The ten endpoints of the common interface, and the arguments of each, as data."""

import enum
import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from attrs import field, frozen

from payasync.errors import InvalidArgumentError


class AuthKind(enum.Enum):
    """How the document says that an endpoint is authenticated."""

    BEARER = "bearer"
    SIGNED = "signed"
    NOT_SHOWN = "not shown"


class Kind(enum.Enum):
    """What is safe when a response is lost."""

    READ = "read"
    """Asking again changes nothing."""
    KEYED = "keyed"
    """A write named by the merchant's own number, where it is given: it can be asked about."""
    UNKEYED = "unkeyed"
    """A write that nothing names: without an idempotency key, it must never be sent twice."""


@frozen(slots=False)
class Operation:
    """One endpoint. Two with the same name are equal, because a profile may change the method and the path.

    Attributes:
        name: The namespace and the method, such as `orders.place`.
        method: The HTTP method.
        path: The path below the base URL, with arguments in braces.
        auth: How the common interface authenticates it.
        kind: What is safe after a lost response.
        reference: The argument that names the order, refund or subscription.
        place: The place of the arguments: `body`, `query`, `path` (which appends one) or `header`. Empty: the place of
            the other fields, which is the body, or for GET and DELETE the query.
    """

    name: str
    method: str = field(eq=False)
    path: str = field(eq=False)
    auth: AuthKind = field(eq=False)
    kind: Kind = field(eq=False)
    reference: str | None = field(default=None, eq=False)
    place: str = field(default="", eq=False)

    @cached_property
    def has_body(self) -> bool:
        """Whether fields without another place are in a JSON body; otherwise they are in the query."""
        return self.place == "body" or (self.place != "query" and self.method not in {"GET", "DELETE"})

    @cached_property
    def in_path(self) -> tuple[str, ...]:
        """The arguments in the path."""
        return tuple(BRACES.findall(self.path))

    @cached_property
    def read(self) -> bool:
        """Whether asking again changes nothing."""
        return self.kind is Kind.READ


BRACES: Final = re.compile(r"\{(\w*)\}")

CREATE_PAYMENT: Final = Operation("payments.create", "POST", "/v1/payments", AuthKind.BEARER, Kind.UNKEYED)
PLACE_ORDER: Final = Operation(
    "orders.place", "POST", "/payment/unifiedorder", AuthKind.SIGNED, Kind.KEYED, "out_trade_no"
)
QUERY_ORDER: Final = Operation(
    "orders.query", "POST", "/payment/orderquery", AuthKind.SIGNED, Kind.READ, "out_trade_no"
)
CLOSE_ORDER: Final = Operation(
    "orders.close", "POST", "/payment/closeorder", AuthKind.SIGNED, Kind.KEYED, "out_trade_no"
)
CREATE_REFUND: Final = Operation(
    "refunds.create", "POST", "/payment/refund", AuthKind.SIGNED, Kind.KEYED, "out_refund_no"
)
QUERY_PAYMENT: Final = Operation(
    "payments.status", "GET", "/payment/status", AuthKind.NOT_SHOWN, Kind.READ, "identifier"
)
QUERY_REFUND: Final = Operation(
    "refunds.status", "GET", "/payment/refund/status", AuthKind.NOT_SHOWN, Kind.READ, "identifier"
)
CREATE_SUBSCRIPTION: Final = Operation(
    "subscriptions.create", "POST", "/subscriptions/create", AuthKind.NOT_SHOWN, Kind.UNKEYED
)
UPDATE_SUBSCRIPTION: Final = Operation(
    "subscriptions.update", "POST", "/subscriptions/update", AuthKind.NOT_SHOWN, Kind.UNKEYED, "subscription_id"
)
CANCEL_SUBSCRIPTION: Final = Operation(
    "subscriptions.cancel", "POST", "/subscriptions/cancel", AuthKind.NOT_SHOWN, Kind.UNKEYED, "subscription_id"
)

MAY_HAVE_NO_BODY: Final = (CLOSE_ORDER, UPDATE_SUBSCRIPTION, CANCEL_SUBSCRIPTION)
"""Operations that end or change something: a success may be a 204. A success of any other operation has a body."""


@lru_cache(maxsize=1024)
def camel_case(name: str) -> str:
    """Return the wire name of an argument that the document shows: `total_amt` is `totalAmt`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


class Argument(NamedTuple):
    """One argument of a request.

    Attributes:
        name: As users write it.
        point: The key of its wire name in the profile's `fields`, if the document does not show it.
        text: Whether it is a text, so that it has a length.
        required: Every call gives it.
    """

    name: str
    point: str = ""
    text: bool = True
    required: bool = False

    @property
    def wire(self) -> str:
        """Its wire name, if the document shows it. The profile gives that of endpoints 6 and 7's identifier."""
        return "" if self.point or self.name == "identifier" else camel_case(self.name)


_CURRENCY: Final = Argument("currency", required=True)
_TOTAL_AMT: Final = Argument("total_amt", text=False, required=True)
_OUT_TRADE_NO: Final = Argument("out_trade_no", required=True)
_NOTIFY_URL: Final = Argument("notify_url")
_IDENTIFIER: Final = Argument("identifier", required=True)
_SUBSCRIPTION_ID: Final = Argument("subscription_id", point="subscription_id", required=True)
_SUBSCRIPTION: Final = (
    Argument("frequency", point="frequency"),
    Argument("amount", point="subscription_amount", text=False),
    Argument("start_date", point="start_date", text=False),
    Argument("customer", point="customer", text=False),
)

ENDPOINTS: Final[Mapping[Operation, tuple[Argument, ...]]] = {
    CREATE_PAYMENT: (Argument("amount", text=False, required=True), _CURRENCY, Argument("description")),
    PLACE_ORDER: (
        _TOTAL_AMT,
        _CURRENCY,
        Argument("subject"),
        Argument("body"),
        _NOTIFY_URL,
        Argument("scene_type"),
        Argument("return_url", point="return_url"),
        _OUT_TRADE_NO._replace(required=False),
    ),
    QUERY_ORDER: (_OUT_TRADE_NO,),
    CLOSE_ORDER: (_OUT_TRADE_NO,),
    CREATE_REFUND: (
        _OUT_TRADE_NO,
        Argument("out_refund_no", required=True),
        _TOTAL_AMT,
        Argument("refund_amt", text=False, required=True),
        Argument("refund_desc"),
        _NOTIFY_URL,
    ),
    QUERY_PAYMENT: (_IDENTIFIER,),
    QUERY_REFUND: (_IDENTIFIER,),
    CREATE_SUBSCRIPTION: tuple(each._replace(required=True) for each in _SUBSCRIPTION),
    UPDATE_SUBSCRIPTION: (_SUBSCRIPTION_ID, *_SUBSCRIPTION),
    CANCEL_SUBSCRIPTION: (_SUBSCRIPTION_ID,),
}
"""The endpoints in the order of the document's table, each with its arguments but `extra`."""

FURTHER: Final[Mapping[str, tuple[Argument, ...]]] = {QUERY_REFUND.name: (_OUT_TRADE_NO._replace(required=False),)}
"""Arguments that the document does not give an endpoint, and that a service may want there."""

OPERATIONS: Final = tuple(ENDPOINTS)
BY_NAME: Final = {operation.name: operation for operation in OPERATIONS}
ARGUMENTS: Final = {operation.name: arguments for operation, arguments in ENDPOINTS.items()}
TEXTS: Final = frozenset(each.name for arguments in ARGUMENTS.values() for each in arguments if each.text)
"""The arguments that are texts."""

ORDER_STATES: Final = ("pending", "paid", "closed", "failed", "expired", "refunded")
REFUND_STATES: Final = ("processing", "succeeded", "failed")
SUBSCRIPTION_STATES: Final = ("scheduled", "active", "past_due", "cancelled")
"""Our names of the states of what the endpoints are about; those of a payment are the ones of an order."""


def names_with(auth: AuthKind) -> tuple[str, ...]:
    """Return the names of the operations that the document authenticates in this way."""
    return tuple(operation.name for operation in OPERATIONS if operation.auth is auth)


METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_PATH: Final = r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)+"


def is_path(path: str) -> bool:
    """Return whether a text is a path below a base URL."""
    return bool(re.fullmatch(_PATH, path)) and not {".", ".."}.intersection(unquote(path).split("/"))


def custom_operation(method: str, path: str, *, read: bool) -> Operation:
    """Return an endpoint that the document does not show.

    Raises:
        InvalidArgumentError: The method is not one of the five, or the path is no path below the base URL.
    """
    if method not in METHODS:
        why = f"method must be one of {', '.join(METHODS)}, not {method!r}"
        raise InvalidArgumentError(why, field="method", rule="an HTTP method in capitals", value=method)
    if not isinstance(path, str) or not is_path(path):
        rule = "a path below the base URL"
        why = f"path must be {rule}, such as /payment/bill, not {path!r}"
        raise InvalidArgumentError(why, field="path", rule=rule, value=path)
    return Operation(f"{method} {path}", method, path, AuthKind.NOT_SHOWN, Kind.READ if read else Kind.UNKEYED)
