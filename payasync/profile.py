"""What the service does: one field for each point that its document leaves open.

A live session has no answer of its own for an open point. A call that needs one raises
`NotConfiguredError` before any I/O, naming the field and what to put there.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from attrs import Factory, field, frozen

from payasync.errors import ConfigurationError, NotConfiguredError
from payasync.operations import OPERATIONS, Auth, names
from payasync.shapes import (
    Accept,
    AnswerShape,
    HttpCodes,
    NotificationShape,
    Parameter,
    Recovery,
    ResultCodes,
    States,
)
from payasync.signing import SignatureScheme

NONCE: Final = "nonceStr"
SIGN: Final = "sign"
MERCHANT: Final = "merchantId"
RESERVED: Final = frozenset({NONCE, SIGN, MERCHANT})
"""Wire names that only the session itself may set."""

OPEN_FIELDS: Final = {
    "return_url": "the wire name of the return URL",
    "frequency": "the wire name of a subscription's billing frequency",
    "start_date": "the wire name of a subscription's start date",
    "subscription_amount": "the wire name of a subscription's amount",
    "customer": "the wire name of a subscription's customer details",
    "subscription_id": "the wire name of a subscription's number",
}
"""Arguments whose wire names the document does not show (spec: Endpoints, gaps)."""

_NAMES: Final = frozenset(operation.name for operation in OPERATIONS)


def _tables(given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {operation: dict(constants) for operation, constants in given.items()}


@frozen(kw_only=True)
class Profile:
    """What this service does, as a value; equal in Python and in TOML.

    What the document states is the default, so `Profile()` can already do `payments.create`.

    Args:
        name: For people.
        bearer: Operations that carry `Authorization: Bearer` (spec: Authentication, 2 and 5).
        signed: Operations that carry `nonceStr` and `sign` (spec: Authentication, 3 and 5).
        merchant: Operations that carry `merchantId`.
        identifier: The pattern that order, refund and subscription numbers must match as a whole.
        amount_unit: `minor` or `major`: said in docs and audit; amounts are never converted.
        signature: The scheme: a `SortedPairs`, or any object of the shape of `SignatureScheme`.
        fields: Wire names of the arguments that the document does not show: `return_url`, `frequency`,
            `start_date`, `subscription_amount`, `customer` and `subscription_id`.
        formats: `start_date`: how the date is written, as for `strftime`.
        constants: Fields sent with every operation (`"*"`), or with one by its name.
        headers: Headers sent with every operation.
        accept: What the service takes.
        payment_status: How endpoint 6 takes its identifier (TOML: `[status.payment]`).
        refund_status: How endpoint 7 takes its identifier (TOML: `[status.refund]`).
        answer: Where things stand in answers.
        states: What the service's states mean.
        codes: What result codes mean.
        http: What HTTP statuses mean.
        recovery: When a write may be sent a second time.
        notification: What notifications look like.

    Raises:
        ConfigurationError: An operation or a field that does not exist, or parts that contradict each other.
    """

    name: str = ""
    bearer: tuple[str, ...] = field(default=names(Auth.BEARER), converter=tuple)
    signed: tuple[str, ...] = field(default=names(Auth.SIGNED), converter=tuple)
    merchant: tuple[str, ...] = field(default=names(Auth.SIGNED), converter=tuple)
    identifier: str = "[A-Za-z0-9_-]{1,64}"
    amount_unit: Literal["", "minor", "major"] = ""
    signature: SignatureScheme | None = None
    fields: Mapping[str, str] = field(default=Factory(dict), converter=dict)
    formats: Mapping[str, str] = field(default=Factory(dict), converter=dict)
    constants: Mapping[str, Mapping[str, Any]] = field(default=Factory(dict), converter=_tables)
    headers: Mapping[str, str] = field(default=Factory(dict), converter=dict)
    accept: Accept = Accept()
    payment_status: Parameter | None = None
    refund_status: Parameter | None = None
    answer: AnswerShape = AnswerShape()
    states: States = States()
    codes: ResultCodes = ResultCodes()
    http: HttpCodes = HttpCodes()
    recovery: Recovery = Recovery()
    notification: NotificationShape = NotificationShape()

    def __attrs_post_init__(self) -> None:
        for key in ("bearer", "signed", "merchant"):
            _known(key, getattr(self, key), _NAMES)
        _known("fields", self.fields, OPEN_FIELDS)
        _known("formats", self.formats, {"start_date"})
        _known("constants", self.constants, _NAMES | {"*"})
        for operation, constants in self.constants.items():
            if taken := RESERVED.intersection(constants):
                where = f"constants.{operation}"
                raise ConfigurationError(f"{where} must not set {', '.join(sorted(taken))}: payasync does", field=where)
        for name, value in self.headers.items():
            check_header("headers", name, value)
        try:
            re.compile(self.identifier)
        except re.error:
            bad = True
        else:
            bad = False
        if bad:
            raise ConfigurationError(f"identifier is no regular expression: {self.identifier!r}", field="identifier")

    def wire_name(self, argument: str) -> str:
        """Return the wire name of an argument that the document does not show.

        Raises:
            NotConfiguredError: The profile does not answer it.
        """
        name = self.fields.get(argument)
        if not name:
            raise not_configured(f"fields.{argument}", OPEN_FIELDS[argument])
        return name


def not_configured(point: str, put: str) -> NotConfiguredError:
    """Return the error for an open point, which says what to put there."""
    return NotConfiguredError(
        f"{point} is open: the service's document does not show it. Put {put} into the profile, as {point}",
        field=point,
    )


def check_header(where: str, name: object, value: object) -> None:
    """Refuse a header that could break the request apart: visible ASCII only.

    Raises:
        ConfigurationError: It is not.
    """
    fine = isinstance(name, str) and isinstance(value, str) and _TOKEN.fullmatch(name) and _VISIBLE.fullmatch(value)
    if not fine:
        raise ConfigurationError(f"{where}: {name!r} must be a header of visible ASCII characters", field=where)


_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VISIBLE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


def _known(key: str, given: Iterable[str], allowed: Iterable[str]) -> None:
    allowed = sorted(allowed)
    for name in given:
        if name not in allowed:
            raise ConfigurationError(f"{key} knows no {name!r}; allowed are {', '.join(allowed)}", field=key)
