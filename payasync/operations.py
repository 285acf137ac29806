"""The ten endpoints of the service's document, as data.

Which of them carry Bearer, and which a signature, is what the document says (Authentication, 2 and 3);
of 6 to 10 it says nothing. A profile starts from here, and may say more.
"""

import enum
import re
from functools import cached_property
from typing import Final
from urllib.parse import unquote

from attrs import frozen

from payasync.errors import InvalidArgumentError


class Auth(enum.Enum):
    """How the document says that an endpoint is authenticated."""

    BEARER = "bearer"
    SIGNED = "signed"
    NOT_SHOWN = "not shown"


class Kind(enum.Enum):
    """What is safe when an answer is lost."""

    READ = "read"
    """Asking again changes nothing."""
    KEYED = "keyed"
    """A write named by the merchant's own number, where it is given: it can be asked about."""
    UNKEYED = "unkeyed"
    """A write that nothing names: it must never be sent twice."""


@frozen(slots=False)
class Operation:
    """One endpoint.

    Attributes:
        name: As users write it: namespace and method.
        method: The HTTP method.
        path: Below the base URL.
        auth: What the document says.
        kind: What is safe when an answer is lost.
        reference: The argument that names the order, refund or subscription.
    """

    name: str
    method: str
    path: str
    auth: Auth
    kind: Kind
    reference: str | None = None

    @cached_property
    def has_body(self) -> bool:
        """Whether the fields travel in a JSON body; otherwise they are in the query."""
        return self.method not in _BODILESS

    @cached_property
    def read(self) -> bool:
        """Whether asking again changes nothing."""
        return self.kind is Kind.READ


_BODILESS: Final = frozenset({"GET", "DELETE"})

CREATE_PAYMENT: Final = Operation("payments.create", "POST", "/v1/payments", Auth.BEARER, Kind.UNKEYED)
PLACE_ORDER: Final = Operation("orders.place", "POST", "/payment/unifiedorder", Auth.SIGNED, Kind.KEYED, "out_trade_no")
QUERY_ORDER: Final = Operation("orders.query", "POST", "/payment/orderquery", Auth.SIGNED, Kind.READ, "out_trade_no")
CLOSE_ORDER: Final = Operation("orders.close", "POST", "/payment/closeorder", Auth.SIGNED, Kind.KEYED, "out_trade_no")
CREATE_REFUND: Final = Operation("refunds.create", "POST", "/payment/refund", Auth.SIGNED, Kind.KEYED, "out_refund_no")
QUERY_PAYMENT: Final = Operation("payments.status", "GET", "/payment/status", Auth.NOT_SHOWN, Kind.READ, "identifier")
QUERY_REFUND: Final = Operation(
    "refunds.status", "GET", "/payment/refund/status", Auth.NOT_SHOWN, Kind.READ, "identifier"
)
CREATE_SUBSCRIPTION: Final = Operation(
    "subscriptions.create", "POST", "/subscriptions/create", Auth.NOT_SHOWN, Kind.UNKEYED
)
UPDATE_SUBSCRIPTION: Final = Operation(
    "subscriptions.update", "POST", "/subscriptions/update", Auth.NOT_SHOWN, Kind.UNKEYED, "subscription_id"
)
CANCEL_SUBSCRIPTION: Final = Operation(
    "subscriptions.cancel", "POST", "/subscriptions/cancel", Auth.NOT_SHOWN, Kind.UNKEYED, "subscription_id"
)

OPERATIONS: Final = (
    CREATE_PAYMENT,
    PLACE_ORDER,
    QUERY_ORDER,
    CLOSE_ORDER,
    CREATE_REFUND,
    QUERY_PAYMENT,
    QUERY_REFUND,
    CREATE_SUBSCRIPTION,
    UPDATE_SUBSCRIPTION,
    CANCEL_SUBSCRIPTION,
)
"""In the order of the document's table."""


def names(auth: Auth) -> tuple[str, ...]:
    """Return the operations that the document authenticates so."""
    return tuple(operation.name for operation in OPERATIONS if operation.auth is auth)


_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)+")


def custom(method: str, path: str, *, read: bool) -> Operation:
    """Return an endpoint that the document does not show.

    Raises:
        InvalidArgumentError: The method or the path is none.
    """
    if method not in _METHODS:
        raise InvalidArgumentError(
            f"method must be one of {', '.join(_METHODS)}, not {method!r}",
            field="method",
            rule="an HTTP method in capitals",
            value=method,
        )
    if not isinstance(path, str) or not _PATH.fullmatch(path) or {".", ".."}.intersection(unquote(path).split("/")):
        raise InvalidArgumentError(
            f"path must be a path below the base URL, such as /payment/bill, not {path!r}",
            field="path",
            rule="a path below the base URL",
            value=path,
        )
    return Operation(f"{method} {path}", method, path, Auth.NOT_SHOWN, Kind.READ if read else Kind.UNKEYED)
