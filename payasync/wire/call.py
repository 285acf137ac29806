"""The values that middleware passes on: one call and its reply."""

import base64
import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any, Final, NamedTuple, Self, TypeAlias

from attrs import Factory, define, evolve, field, frozen
from multidict import CIMultiDict

import payasync.profile  # noqa: TC001 - `typing.get_type_hints` finds the annotations here
from payasync.credentials import Secret
from payasync.endpoints import Kind, Operation, camel_case
from payasync.errors import InvalidArgumentError
from payasync.evidence.comparison import Comparison
from payasync.profile.wire_names import NONCE, SIGN, parameter_of
from payasync.settings import FRAMING, Timeouts, is_header
from payasync.strict_json import ABSENT, loads


class Signature(NamedTuple):
    """The signature of an attempt that was signed before the journal stored its call.

    Attributes:
        fields: Which fields it signs, apart from the nonce.
        key: Which key it was made with.
        nonce: The nonce.
        text: The signature itself.
    """

    fields: Mapping[str, Any]
    key: Secret
    nonce: str
    text: str


class Progress:
    """How far one attempt has come.

    Attributes:
        signature: Its signature, if it was signed before it began.
        begun: Bytes of it may have left this machine.
        over: It has ended without a response, so no more bytes of it may be sent.
        used_before: The service responded that the number of the write was used before.
    """

    signature: Signature | None = None
    begun = False
    over = False
    used_before = False


class Entry(NamedTuple):
    """The place of a queued write in the session's journal.

    Attributes:
        id: The number of its intent.
        fence: The fence of a claim whose holder knows that the write was not carried out, though it may have been sent.
    """

    id: int
    fence: int | None = None


@frozen(eq=False)
class Layout:
    """What a service calls the fields of an operation, and which stand neither in the body nor in the query.

    Attributes:
        names: The wire names of the operation's arguments.
        nonce: The wire name of the nonce.
        signature: The wire name of the signature.
        in_path: The fields in the path, each with the argument whose braces it replaces.
        at_end: The field that ends the path.
        in_headers: The fields that travel as headers.
        elsewhere: Some fields stand in the path or in headers.
        nested: Some fields stand inside others.
        document_names: What the document calls the arguments.
    """

    names: Mapping[str, str]
    nonce: str = NONCE
    signature: str = SIGN
    in_path: tuple[tuple[str, str], ...] = ()
    at_end: str = ""
    in_headers: tuple[str, ...] = ()
    elsewhere: bool = Factory(lambda own: bool(own.in_path or own.at_end or own.in_headers), takes_self=True)
    nested: bool = Factory(lambda own: any("." in name for name in own.names.values()), takes_self=True)
    document_names: frozenset[str] = Factory(lambda own: frozenset(map(camel_case, own.names)), takes_self=True)


def number_key(operation: Operation, reference: str | None) -> str | None:
    """Return the key that follows from the merchant's own number of an order or a refund."""
    return f"{operation.name}:{reference}" if operation.kind is Kind.KEYED and reference is not None else None


_KEY_PREFIX: Final = "payasync-"


def derive_idempotency_key(merchant: str, operation: str, name: str, sends: int = 0) -> str:
    """Return the idempotency key of a write that has a name; the name cannot be read from it.

    It has 31 characters: services limit their keys, some to the 36 of a UUID.

    Args:
        merchant: The merchant's number.
        operation: The operation's name.
        name: The `number_key` of the write, or the caller's `intent`.
        sends: How often it was sent before, and refused. A service may repeat a refusal under the same key.
    """
    facts = json.dumps([merchant, operation, name, sends]).encode()
    return _idempotency_key(hashlib.sha256(facts).digest())


def draw_idempotency_key() -> str:
    """Return the idempotency key of a write that nothing names."""
    return _idempotency_key(os.urandom(16))


def _idempotency_key(raw: bytes) -> str:
    return _KEY_PREFIX + base64.urlsafe_b64encode(raw[:16]).decode().rstrip("=")


class Lease(NamedTuple):
    """The time in which only this process may send a write; afterwards another process may.

    Attributes:
        begun: When it began, by the clock, or a moment earlier.
        seconds: How long it lasts.
        clock: Returns seconds, and counts them while the machine is suspended, too.
        repeat_seconds: How long it lasts for all sends but the first, if an idempotency key bounds them.
    """

    begun: float
    seconds: float
    clock: Callable[[], float]
    repeat_seconds: float | None = None

    @property
    def over(self) -> bool:
        """Whether it may be over; if the clock was set back, this is unknown, so it may be."""
        return not 0 <= self.clock() - self.begun < self.seconds

    def for_repeats(self) -> "Lease":
        """Return the lease of all sends but the first."""
        seconds = self.seconds if self.repeat_seconds is None else self.repeat_seconds
        return Lease(self.begun, seconds, self.clock)


@define(eq=False)
class Encoded:
    """What goes to the transport.

    Attributes:
        path: Below the base URL, quoted.
        query: Names and texts.
        headers: That carry a parameter.
        body: JSON, or nothing.
    """

    path: str
    query: Mapping[str, str] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@frozen(kw_only=True, slots=False)
class Call:
    """One call. It is never changed: a layer that adds to it makes a new one.

    Attributes:
        operation: Which endpoint.
        profile: What the service does.
        fields: By their wire names.
        reference: The order, refund or subscription number that the call is about.
        layout: The service's names of the fields, and their places.
        bearer: It carries the headers of the profile's `auth`.
        signed: It carries `nonceStr` and `sign`.
        headers: By their names; a `Secret` is revealed only as it is sent.
        encoded: What is sent, if a signature covers its exact bytes.
        timeouts: In seconds.
        deadline: When it must end, on the event loop's clock.
        attempt: 1 for the first.
        intent: The caller's own name of what a write is for.
        entry: Its place in the journal, if it was queued there.
        expected: What a response to it must match.
        earlier_sends: How many sends of earlier calls under the same number may have had an effect; `None`: no journal
            has counted them.
        lease: The time in which this process may send it; nothing is written afterwards.
        idempotency_key: Its key, if it is a write and the profile says where the key is.
        note_used: Records in the journal that the service said "used before", within the time of the call that it
            takes. Returns whether that is durable.
        progress: How far this attempt has come; the only attribute that changes.
    """

    operation: Operation
    profile: "payasync.profile.Profile" = field(repr=False)
    fields: Mapping[str, Any] = field(repr=False)
    reference: str | None = None
    layout: Layout = field(default=Layout({}), eq=False, repr=False)
    bearer: bool = False
    signed: bool = False
    headers: Mapping[str, str | Secret] = field(default=Factory(dict), repr=False)
    encoded: Encoded | None = field(default=None, repr=False)
    timeouts: Timeouts = Timeouts()
    deadline: float = inf
    attempt: int = 1
    intent: str | None = None
    entry: Entry | None = None
    comparison: Comparison = field(default=Comparison(), eq=False, repr=False)
    earlier_sends: int | None = None
    lease: Lease | None = None
    idempotency_key: str = field(default="", repr=False)
    note_used: "Callable[[Call], Awaitable[bool]] | None" = field(default=None, repr=False)
    progress: Progress = field(default=Factory(Progress), eq=False, repr=False)

    def derived(self, /, **changes: Any) -> Self:
        """Return the call with other values under the names of its attributes."""
        # Not `attrs.evolve`, which takes four times as long: each call derives others.
        other = object.__new__(type(self))
        attributes = other.__dict__
        attributes |= self.__dict__
        attributes |= changes
        return other

    def with_fields(self, /, **fields: Any) -> Self:
        """Return the call with further fields, by their wire names."""
        return self.derived(fields={**self.fields, **fields})

    def expect_match(self, asked: Mapping[str, object] | None) -> Self:
        """Return the call with further values that a response must match, by the document's wire names.

        Args:
            asked: Those of the write that a query asks about, or of arguments that are not sent; if any.
        """
        return self.derived(comparison=evolve(self.comparison, asked=asked)) if asked else self

    def with_idempotency_key(self, key: str) -> Self:
        """Return the call with another idempotency key, in the header or the field of the profile."""
        shape = self.profile.idempotency
        if shape.header:
            return self.derived(idempotency_key=key, headers={**self.headers, shape.header: key})
        return self.derived(idempotency_key=key, fields={**self.fields, shape.field: key})

    def with_headers(self, headers: Mapping[str, str | Secret]) -> Self:
        """Return the call with further headers.

        Raises:
            InvalidArgumentError: A name or value that could break the request apart, or that frames it.
        """
        for name, value in headers.items():
            if not is_header(name, value.reveal() if isinstance(value, Secret) else value):
                words, rule = f"header {name!r} must be of visible ASCII characters", "visible ASCII"
                raise InvalidArgumentError(words, field=name, rule=rule, value=value)
            if name.lower() in FRAMING:
                rule, why = "not of the message itself", "it says where the message ends, or when it is sent"
                words = f"header {name} must not be set: {why}, which payasync does"
                raise InvalidArgumentError(words, field=name, rule=rule, value=value)
        return self.derived(headers={**self.headers, **headers})

    @property
    def read(self) -> bool:
        """Whether asking again changes nothing."""
        return self.operation.read

    @property
    def parameter(self) -> "payasync.profile.Parameter | None":
        """How endpoint 6 or 7 takes its identifier; `None` for any other endpoint."""
        return parameter_of(self.profile, self.operation.name)


@frozen(slots=False)
class Reply:
    """What came back: bytes, not yet judged.

    Attributes:
        status: The HTTP status.
        headers: Of the response, by names in any case.
        body: As it was received.
        elapsed: Seconds that the call took; 0 until it has ended.
        attempts: How many had begun when the call ended, including queries about a lost response.
        recovered: It is the response to a query that was made after the first response was lost.
        verified: Whether its signature is the service's; `None` if it has none, or was not verified.
        doubt: Why its signature could not be checked, if the profile's scheme refuses a field of it.
        age: How many seconds before a query a cache may have had the response to it.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    elapsed: float = 0.0
    attempts: int = 1
    recovered: bool = False
    verified: bool | None = None
    doubt: str = ""
    age: float = 0.0

    @property
    def document(self) -> Any:
        """The decoded JSON, or `ABSENT`."""
        # Not a `cached_property`, which takes a lock in Python 3.11.
        kept = self.__dict__
        if "document" not in kept:
            kept["document"] = ABSENT if "Content-Encoding" in self.headers and self.compressed else loads(self.body)
        return kept["document"]

    @property
    def compressed(self) -> bool:
        """Whether its body is still compressed, because payasync could not unpack it."""
        return self.headers.get("Content-Encoding", "identity").strip().lower() not in {"identity", ""}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "headers": CIMultiDict(self.headers)}  # a read-only view of them does not pickle


Send: TypeAlias = Callable[[Call], Awaitable[Reply]]
"""The inner layers and the transport, as a layer calls them."""

Layer: TypeAlias = Callable[[Call, Send], Awaitable[Reply]]
"""One layer of middleware: `async def layer(call, send)`, which returns what `send` returns."""
