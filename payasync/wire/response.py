"""The service's responses, lightly typed, because their fields are not shown (docs/reference/service.md#responses)."""

import logging
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Final, Self, TypeVar
from urllib.parse import quote

from attrs import define, field
from yarl import URL

import payasync.profile  # noqa: TC001 - `typing.get_type_hints` finds the annotations here
from payasync.clocks import utc_now
from payasync.errors import InvalidArgumentError
from payasync.settings import is_loopback, not_configured
from payasync.signing.templates import fill_parts, parts_of
from payasync.strict_json import ABSENT, MAX_DEPTH, Paths, at, first_at, paths_of
from payasync.wire.call import Call, Reply

T = TypeVar("T")

logger: Final = logging.getLogger("payasync")


@define(repr=False, unsafe_hash=True)
class Response:
    """A response of the service, read by the call's profile."""

    # Properties cannot be set; freezing the private attributes, too, would double the time to make one.

    _reply: Reply
    _shape: "payasync.profile.AnswerShape" = field(eq=False)
    _states: "payasync.profile.States" = field(eq=False)
    _sent: Mapping[str, Any] | None = field(default=None, eq=False)
    """The fields of the request, if the customer's address is made of them."""
    _operation: str | None = field(default=None, eq=False)
    _reference: str | None = field(default=None, eq=False)
    _schemes: tuple[str, ...] = field(default=(), eq=False)
    """The schemes of addresses that a browser may be sent to."""

    thing: ClassVar[str] = ""
    """The table of the profile's `states` that applies to this response."""

    @classmethod
    def of(cls, call: Call, reply: Reply) -> Self:
        """Return what a reply to a call says."""
        answer = call.profile.answer
        sent = call.fields if answer.redirect_template else None
        schemes = call.profile.accept.redirect_schemes
        return cls(reply, answer, call.profile.states, sent, call.operation.name, call.reference, schemes)

    @property
    def http_status(self) -> int:
        """Its HTTP status."""
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers, by names in any case."""
        return self._reply.headers

    @property
    def body(self) -> bytes:
        """Its bytes, as they were received. If they repeat a key of the merchant, the key is masked."""
        return self._reply.body

    @property
    def document(self) -> Any:
        """The decoded JSON, or `None` if there is none."""
        document = self._reply.document
        return None if document is ABSENT else document

    @property
    def data(self) -> Any:
        """The payload inside the profile's envelope, else the document."""
        return self.document if self._payload is ABSENT else self._payload

    @property
    def _payload(self) -> Any:
        """What the profile's paths start in: without the envelope that the profile names, it is `ABSENT`."""
        document, path = self._reply.document, self._shape.data
        return at(document, path) if path else document

    @property
    def elapsed(self) -> float:
        """Seconds that the call took."""
        return self._reply.elapsed

    @property
    def request_id(self) -> str | int | None:
        """The service's number of the request, if the profile says where it is."""
        path, _, header = self._shape.request_id.partition(":")
        return self._reply.headers.get(header) if header else scalar_at(self._reply.document, path)

    @property
    def attempts(self) -> int:
        """How many attempts began for this call, including queries about a lost response."""
        return self._reply.attempts

    @property
    def recovered(self) -> bool:
        """Whether it is the response of a query, after the call's own response was lost."""
        return self._reply.recovered

    @property
    def age(self) -> float:
        """How many seconds before the query a cache may have had the response; 0 if none had it, or it is unknown."""
        return self._reply.age

    def __repr__(self) -> str:
        # Its data may hold a signature, or a customer's details.
        state = "" if self.state is None else f" {self.state!r}"
        return f"<{type(self).__name__} {self.http_status}{state}>"

    def __getitem__(self, name: str) -> Any:
        """Return one field of `data`.

        Raises:
            KeyError: There is no such field.
        """
        found = self.data.get(name, ABSENT) if isinstance(self.data, Mapping) else ABSENT
        if found is ABSENT:
            raise KeyError(name)
        return found

    def get(self, path: str, default: Any = None) -> Any:
        """Return the value at a dotted path in `data`, or the default."""
        return at(self.data, path, default)

    def to(self, kind: type[T]) -> T:
        """Return `data` as an attrs class, strictly: no text becomes a number, and `"false"` is not true.

        Raises:
            InvalidArgumentError: The data does not fit the class; the message says where. Its `sent` is true, because
                the service responded.
        """
        from payasync.wire.structure import structure_as  # noqa: PLC0415 - few need cattrs, and it loads slowly

        try:
            return structure_as(self.data, kind, "the response")
        except InvalidArgumentError as error:
            error.add(**self._facts())
            raise

    @property
    def state(self) -> str | None:
        """The state in payasync's words, or `None` if the profile does not list the service's value."""
        path = getattr(self._shape, f"{self.thing}_status", "")
        return self._states.name(self.thing, at(self._payload, path)) if path else None

    def _located(self, name: str) -> str | int | None:
        path = getattr(self._shape, name)
        if not path:
            error = not_configured(f"answer.{name}", f"the path, inside the response's data, of its {name}")
            advice = f"Only reading {name} needs this key: this error does not say that the request failed"
            error.args = (f"{error.args[0]}. The service responded to the request. {advice}",)
            error.add(**self._facts())
            raise error
        value = at(self._payload, path)
        return value if isinstance(value, str) or type(value) is int else None

    def _address(self) -> str | None:
        template = self._shape.redirect_template
        found = _fill_address(template, self._payload, self._sent or {}) if template else self._located("redirect_url")
        if not isinstance(found, str):
            return None
        usual = _USUAL.fullmatch(found)
        if (usual and usual[1] in self._schemes) or _is_for_browser(found, self._schemes):
            return found
        if found:
            key = "answer.redirect_template" if template else "answer.redirect_url"
            name, number = self._operation, self._reference
            facts = {"operation": name, "reference": number, "field": key}
            logger.warning(
                _REFUSED,
                facts,
                extra={"event_name": "address_refused", "operation": name, "reference": number, "field": key},
            )
        return None

    def _facts(self) -> dict[str, Any]:
        """Return what an error about reading this response says of its call."""
        about = {"operation": self._operation, "reference": self._reference}
        return {**about, "attempts": self.attempts, "sent": True, "response": self}


def scalar_at(document: Any, paths: Paths) -> str | int | None:
    """Return the text or the integer at a path; `None` if the path is empty, or holds something else."""
    value = first_at(document, paths) if paths else None
    return value if isinstance(value, str) or type(value) is int else None


def describe_unusable(reply: Reply, shape: "payasync.profile.AnswerShape") -> str:
    """Return what makes a response unusable, or an empty text if that is unknown.

    Args:
        reply: A response that is not recognised.
        shape: The profile's `[answer]`.
    """
    text = reply.body.decode(errors="ignore").strip()
    flaws = {
        "a response that is compressed, which payasync did not ask for and cannot unpack": reply.compressed,
        "a response that is not UTF-8": text.encode() != reply.body.strip(),
        "an empty response": not text,
        "an HTML page": text.startswith("<"),
        f"a response that is not JSON of at most {MAX_DEPTH} levels": reply.document is ABSENT,
        f"JSON without a known code (answer.code in the profile: {' or '.join(paths_of(shape.code))})": shape.code,
    }
    return next((words for words, found in flaws.items() if found), "")


class PaymentResponse(Response):
    """A response about a payment: endpoints 1 and 6."""

    __slots__ = ()
    thing = "payment"

    @property
    def payment_id(self) -> str | int | None:
        """The service's number of the payment.

        Raises:
            NotConfiguredError: The profile does not say where it is. `sent` is true: the service responded.
        """
        return self._located("payment_id")

    @property
    def payment_status(self) -> str | int | None:
        """Its state, as the service sent it.

        Raises:
            NotConfiguredError: The profile does not say where it is. `sent` is true: the service responded.
        """
        return self._located("payment_status")

    @property
    def redirect_url(self) -> str | None:
        """Where the customer goes to authorize; `None` if the response has no address for a browser.

        Raises:
            NotConfiguredError: The profile does not say where it is. `sent` is true: the service responded.
        """
        return self._address()


class OrderResponse(Response):
    """A response about an order: endpoints 2, 3 and 4."""

    __slots__ = ()
    thing = "order"

    @property
    def redirect_url(self) -> str | None:
        """Where the customer goes to authorize (docs/reference/service.md#orders).

        `None` if the response has no address for a browser: an absolute one without a user, of a scheme in the
        profile's `accept.redirect_schemes`. If the profile has a `redirect_template`, it is made of its parts.

        Raises:
            NotConfiguredError: The profile does not say where it is. `sent` is true: the service responded.
        """
        return self._address()

    @property
    def order_status(self) -> str | int | None:
        """Its state, as the service sent it.

        Raises:
            NotConfiguredError: The profile does not say where it is. `sent` is true: the service responded.
        """
        return self._located("order_status")


_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\\/?#@]+([/?#][^\s\\]*)?")
_USUAL: Final = re.compile(r"([a-z]+)://[A-Za-z0-9]+(?:[.-][A-Za-z0-9]+)*(?:[/?#][!-\[\]-~]*)?")
"""Finds most absolute addresses, and their scheme: yarl takes several times as long, and keeps addresses."""
_REFUSED: Final = (
    "redirect_url of %(operation)s is None: the address at %(field)s is not absolute, has a user, a control character, "
    "white space or a backslash, or is of no scheme in accept.redirect_schemes"
)


def _is_for_browser(address: str, schemes: tuple[str, ...]) -> bool:
    """Return whether a browser may be sent to an address: it is absolute, and hides neither a user nor a character."""
    try:
        url = URL(address if _ABSOLUTE.fullmatch(address) and address.isprintable() else "")
        return bool(url.host) and (url.scheme in schemes or (url.scheme == "http" and is_loopback(url)))
    except ValueError:  # reading the host raises it, too
        return False


def _fill_address(template: str, data: Any, sent: Mapping[str, Any]) -> str | None:
    """Return the address that a template stands for, or `None` if neither the payload nor the request has a part."""
    values: dict[str, str] = {}
    for path in parts_of(template):
        value = scalar_at(data, path)
        value = scalar_at(sent, path) if value is None else value
        if value is None:
            return None
        values[path] = quote(str(value), safe="")
    return fill_parts(template, values)


class RefundResponse(Response):
    """A response about a refund: endpoints 5 and 7."""

    __slots__ = ()
    thing = "refund"

    @property
    def refund_status(self) -> str | int | None:
        """Its state, as the service sent it.

        Raises:
            NotConfiguredError: The profile does not say where it is. `sent` is true: the service responded.
        """
        return self._located("refund_status")


class SubscriptionResponse(Response):
    """A response about a subscription: endpoints 8, 9 and 10."""

    __slots__ = ()
    thing = "subscription"

    @property
    def subscription_id(self) -> str | int | None:
        """The service's number of the subscription.

        Raises:
            NotConfiguredError: The profile does not say where it is. `sent` is true: the service responded.
        """
        return self._located("subscription_id")

    @property
    def subscription_status(self) -> str | int | None:
        """Its state, as the service sent it.

        Raises:
            NotConfiguredError: The profile does not say where it is. `sent` is true: the service responded.
        """
        return self._located("subscription_status")


LONGEST_RETRY_AFTER: Final = 86_400.0
"""Seconds to which a longer wait is cut."""


def parse_retry_after(value: str | None, now: Callable[[], datetime] = utc_now) -> float | None:
    """Return the seconds that a service asked to wait, a day at most, or `None` if it did not say, or not clearly.

    Args:
        value: The header, as it came.
        now: The wall clock, which a date is measured against.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdecimal():
        return min(float(text), LONGEST_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max(0.0, (moment - now()).total_seconds()), LONGEST_RETRY_AFTER)
