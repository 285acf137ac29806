"""`Profile`: one field for each point that the common interface leaves open.

A session has no default for an open point. A call that needs the point raises `NotConfiguredError` before any I/O,
with the name of the field and the value to put there.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attrs import Factory, evolve, field, frozen

from payasync.endpoints import AuthKind, names_with
from payasync.profile.consistency import check_profile
from payasync.profile.dates import tells_dates_apart
from payasync.profile.schema import (
    OPEN_FIELDS,
    Accept,
    AnswerShape,
    Auth,
    Endpoint,
    HttpCodes,
    Idempotency,
    NotificationShape,
    Parameter,
    Recovery,
    ResultCodes,
    SandboxShape,
    States,
    asks,
    copy_json,
)
from payasync.profile.wire_names import (
    IDENTIFIER,
    IDENTIFIER_OF,
    NUMBER_OF,
    given_name,
    guarded_names,
    names_of,
    wire_name,
)
from payasync.settings import check_types, each_must_be, must_be, not_configured, read_guarded, to_dict, to_tuple
from payasync.signing.schemes import FREE_TEXT, Scheme, SortedPairs

if TYPE_CHECKING:
    from payasync.profile.audit import Point


def _is_pattern(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


@frozen(kw_only=True, field_transformer=check_types(""))
class Profile:
    """What a service does, in Python or in TOML.

    The defaults are what the common interface states, so `Profile()` is enough for `payments.create`.

    Args:
        name: A name for people.
        bearer: Operations that carry the headers of `auth`: `Authorization: Bearer`
            (docs/reference/service.md#authentication).
        signed: Operations that carry `nonceStr` and `sign` (docs/reference/service.md#authentication).
        merchant: Operations that carry `merchantId`.
        identifier: The pattern that order, refund and subscription numbers must match as a whole.
        amount_unit: `minor` or `major`, shown by the audit. Amounts are never converted.
        signature: The scheme: a `SortedPairs`, a `Template`, or any object with the methods of `SignatureScheme` or of
            `RequestScheme`.
        endpoints: Endpoints that differ from the common interface, by the operation's name.
        fields: Wire names of arguments, and of `nonce`, `sign` and `merchant_id`; for one operation in a table under
            its name. A dotted name nests. The common interface has none for `return_url`, `frequency`,
            `start_date`, `subscription_amount`, `customer` and `subscription_id`.
        formats: The format of `start_date`, as for `strftime`.
        constants: Fields sent with every operation (`"*"`), or with one operation by its name. None may be a required
            argument of the operation, or a value that `signature` cannot sign.
        headers: Headers sent with every operation.
        auth: The headers that the operations in `bearer` carry.
        accept: The values that the service accepts.
        payment_status: How endpoint 6 takes its identifier (TOML: `[status.payment]`).
        refund_status: How endpoint 7 takes its identifier (TOML: `[status.refund]`).
        answer: The places of values in responses.
        states: The meanings of the service's states.
        codes: The meanings of result codes.
        http: The meanings of HTTP statuses.
        recovery: The condition under which a write may be sent a second time.
        idempotency: How the service takes an idempotency key.
        notification: The form of notifications.
        sandbox: How the sandbox plays this service. A session ignores it.

    Raises:
        ConfigurationError: An operation or a field does not exist, or parts contradict each other.
    """

    name: str = ""
    bearer: tuple[str, ...] = field(default=names_with(AuthKind.BEARER), converter=to_tuple)
    signed: tuple[str, ...] = field(default=names_with(AuthKind.SIGNED), converter=to_tuple)
    merchant: tuple[str, ...] = field(default=names_with(AuthKind.SIGNED), converter=to_tuple)
    identifier: str = field(default="[A-Za-z0-9_-]{1,64}", validator=must_be("a regular expression", _is_pattern))
    amount_unit: Literal["", "minor", "major"] = field(
        default="", metadata=asks("minor or major: the unit that amounts are counted in")
    )
    signature: Scheme | None = None
    endpoints: Mapping[str, Endpoint] = field(default=Factory(dict), converter=to_dict)
    fields: Mapping[str, str | Mapping[str, str]] = field(default=Factory(dict), converter=to_dict)
    formats: Mapping[str, str] = field(
        default=Factory(dict),
        converter=to_dict,
        validator=each_must_be("a format that writes any two dates differently, as %Y-%m-%d does", tells_dates_apart),
    )
    constants: Mapping[str, Mapping[str, Any]] = field(default=Factory(dict), converter=copy_json)
    headers: Mapping[str, str] = field(default=Factory(dict), converter=to_dict)
    auth: Auth = Auth()
    accept: Accept = Accept()
    payment_status: Parameter | None = field(default=None, metadata=asks(IDENTIFIER, ("payments.status",)))
    refund_status: Parameter | None = field(
        default=None, metadata=asks(IDENTIFIER, ("refunds.status", "refunds.create"))
    )
    answer: AnswerShape = AnswerShape()
    states: States = States()
    codes: ResultCodes = ResultCodes()
    http: HttpCodes = HttpCodes()
    recovery: Recovery = Recovery()
    idempotency: Idempotency = Idempotency()
    notification: NotificationShape = NotificationShape()
    sandbox: SandboxShape = SandboxShape()
    scheme: Scheme | None = field(init=False, default=None, eq=False, repr=False)
    """The signature scheme; of a `SortedPairs`, options that are not given follow the names in `fields`."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "scheme", self._make_scheme())  # not cached later: each call reads it
        for query, (write, number) in NUMBER_OF.items():
            key, name = IDENTIFIER_OF[query], wire_name(self, write, number)
            if name and getattr(self, key) is None and f"{{{number}}}" in self.endpoints.get(query, Endpoint()).path:
                object.__setattr__(self, key, Parameter(name))
        check_profile(self)

    @cached_property
    def _names(self) -> dict[str, frozenset[str]]:
        """What `names_of` has returned by argument: each notification needs several. No field, so no pickle has it."""
        return {}

    def _make_scheme(self) -> Scheme | None:
        scheme = self.signature
        if not isinstance(scheme, SortedPairs) or not self.fields:
            return scheme
        exclude, allowed = scheme.exclude, scheme.allow_delimiters
        if exclude == SortedPairs().exclude:
            exclude = tuple(sorted(names_of(self, "sign")))
        if allowed == FREE_TEXT:
            texts = ("subject", "body", "description", "refund_desc", "notify_url", "return_url")
            names = {name.partition(".")[0] for each in texts for name in names_of(self, each)}
            allowed = tuple(sorted({*names, *FREE_TEXT} - guarded_names(self)))
        return evolve(scheme, exclude=exclude, allow_delimiters=allowed)

    @classmethod
    def from_file(cls, path: str | Path) -> "Profile":
        """Read a profile from a TOML file.

        Raises:
            ConfigurationError: The file cannot be read, is not TOML, or has a key that is unknown or wrong.
        """
        from payasync.profile.toml import read_text  # noqa: PLC0415 - a profile in Python needs no TOML

        return read_text(cls, read_guarded("profile", path), where=str(path))

    @classmethod
    def from_toml(cls, text: str) -> "Profile":
        """Read a profile from a TOML text.

        Raises:
            ConfigurationError: It is not TOML, or has a key that is unknown or wrong.
        """
        from payasync.profile.toml import read_text  # noqa: PLC0415 - as above

        return read_text(cls, text)

    def to_toml(self) -> str:
        """Return the profile's TOML form, from which `from_toml` makes an equal one.

        Raises:
            ConfigurationError: The profile holds a value that TOML cannot, such as a scheme of your own.
        """
        from payasync.profile.toml import write_toml  # noqa: PLC0415 - as above

        return write_toml(self)

    def audit(self) -> "tuple[Point, ...]":
        """Return each point that the common interface leaves open: its status, and which methods need it."""
        from payasync.profile.audit import list_points  # noqa: PLC0415 - a payment needs no audit

        return tuple(list_points(self))

    def wire_name(self, argument: str) -> str:
        """Return the wire name of an argument whose name the common interface does not define.

        Raises:
            NotConfiguredError: The profile does not give the name.
        """
        name = given_name(self, "", argument)
        if not name:
            raise not_configured(f"fields.{argument}", OPEN_FIELDS[argument])
        return name
