"""A request becomes a call by the profile, and a call becomes bytes."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from math import inf
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from attrs import define, field, fields_dict, frozen

from payasync import documents
from payasync.credentials import Credentials
from payasync.documents import ABSENT
from payasync.endpoints import QUERY_PAYMENT, QUERY_REFUND, Operation
from payasync.errors import InvalidArgumentError, PayasyncError
from payasync.profile.profile import Profile, not_configured
from payasync.profile.schema import ANYTHING, MERCHANT, SIGNING, Accept, Parameter
from payasync.profile.signed_fields import proof_names, proofs
from payasync.settings import Timeouts, is_header
from payasync.signing.schemes import SignatureScheme, SortedPairs
from payasync.wire.call import Call, Expected, Progress
from payasync.wire.match import compared
from payasync.wire.names import Writer, writer
from payasync.wire.request import NOTHING, Request, check_object, invalid
from payasync.wire.response import Response

IDENTIFIERS: Final = ("out_trade_no", "out_refund_no", "subscription_id", "identifier")
AMOUNTS: Final = ("amount", "total_amt", "refund_amt")


def check_acceptance(request: Request[Response], profile: Profile) -> None:
    """Refuse what the profile says that the service does not take.

    Raises:
        InvalidArgumentError: The field, the rule and the value.
    """
    kind: type = type(request)
    for name, matches in _identifiers(kind, profile.identifier):
        value = getattr(request, name)
        if value is not ABSENT and not matches(value):
            raise invalid(name, f"an identifier that matches {profile.identifier} (the profile's `identifier`)", value)
    if profile.accept is not ANYTHING:
        _check_accepted(request, profile.accept)


@cache
def _identifiers(kind: type, pattern: str) -> tuple[tuple[str, Callable[[str], object]], ...]:
    return tuple((name, re.compile(pattern).fullmatch) for name in IDENTIFIERS if name in fields_dict(kind))


def _check_accepted(request: Request[Response], accept: Accept) -> None:
    for name in accept.required.get(request.operation.name, ()):
        is_argument = name in fields_dict(type(request))
        if (getattr(request, name) if is_argument else request.extra.get(name, ABSENT)) is ABSENT:
            where = "" if is_argument else " in extra"
            raise InvalidArgumentError(
                f"{name} is missing{where}: this service requires it for {request.operation.name} (accept.required)",
                field=name,
                rule="required by this service",
            )
    for name, allowed in (("currency", accept.currency), ("scene_type", accept.scene_type)):
        value = getattr(request, name, ABSENT)
        if allowed and value is not ABSENT and value not in allowed:
            raise invalid(name, f"one of {', '.join(allowed)} (accept.{name})", value)
    if accept.amount:
        _check_amounts(request, *accept.amount)
    for name, most in accept.length.items():
        value = getattr(request, name, ABSENT)
        if isinstance(value, str) and len(value) > most:
            raise invalid(name, f"at most {most} characters long (accept.length)", value)


def _check_amounts(request: Request[Response], least: int, most: int) -> None:
    for name in AMOUNTS:
        value = getattr(request, name, ABSENT)
        if value is not ABSENT and not least <= value <= most:
            raise invalid(name, f"from {least} to {most} (accept.amount)", value)


Kind: TypeAlias = type[Request[Response]]
Writers: TypeAlias = dict[Kind, Writer]
Refused: TypeAlias = tuple[tuple[frozenset[str], str], ...]

_ARGUMENT: Final = "is an argument: give it as such"
_SET: Final = "is set by payasync itself"
_OWN_KEY: Final = "give a key of the service's own as credentials.service_keys"
_PROOF: Final = (
    f"no request may say, because a response is recognised by it: leave it out, or {_OWN_KEY} if the service has one"
)


@frozen
class Splits:
    """What stands in a text, and could be read as a field by which a response is recognised.

    Attributes:
        names: The fields in whose values the scheme lets the separator and `=` stand.
        search: Finds such a field in a text.
    """

    names: tuple[str, ...]
    search: Callable[[str], "re.Match[str] | None"]

    def check(self, fields: Mapping[str, Any]) -> None:
        """Refuse a text that could be sent back as part of a response.

        Raises:
            InvalidArgumentError: The field and the rule.
        """
        for name in self.names:
            value = fields.get(name, "")
            text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
            if isinstance(text, str) and "=" in text and (found := self.search(text)):
                rule = f"free of {found[0]!r}"
                raise InvalidArgumentError(
                    f"{name} must be {rule}, because a response is recognised by such a field, and a request that is "
                    f"sent back must not pass for one. Change the text, or {_OWN_KEY} if the service has one",
                    field=name,
                    rule=rule,
                    value=found[0],
                )


def _splits(scheme: SignatureScheme | None, forbidden: frozenset[str]) -> Splits | None:
    if not forbidden or not isinstance(scheme, SortedPairs):
        return None
    names = tuple(name for name in scheme.allow_delimiters if name not in scheme.exclude)
    return Splits(
        names, re.compile("|".join(re.escape(f"{scheme.separator}{name}=") for name in sorted(forbidden))).search
    )


@frozen
class Form:
    """What all requests of one kind have in common, for one merchant: worked out once.

    Attributes:
        writer: Gives the arguments their wire names.
        blank: The call, with those fields only that every call of the kind carries.
        refused: The names that `extra` may not hold, with why.
        nested: Some of these fields hold others, so that each call needs its own.
        splits: What the texts may not hold, where a request that is sent back must not pass for a response.
    """

    writer: Writer
    blank: Call
    refused: Refused
    nested: bool
    splits: Splits | None

    def fields(self, request: Request[Response]) -> dict[str, Any]:
        """Return all fields of a request: what the caller gives goes before the profile's constants.

        Raises:
            InvalidArgumentError: `extra` holds what is not its to say.
            NotConfiguredError: The profile does not answer the wire name of an argument that was given.
        """
        given = self.writer.fields(request)
        if self.blank.parameter:
            given = {self.blank.parameter.name: given["identifier"]}
        if request.extra is not NOTHING:
            _check_unused("extra", request.extra, self.refused)
            given |= request.extra
        always = documents.copy_plain(self.blank.fields) if self.nested else self.blank.fields
        fields = {**always, **given}
        if self.splits:
            self.splits.check(fields)
        return fields


class Codec:
    """Turns requests into calls, for one merchant of one service.

    Args:
        profile: Gives the names that the document does not show.
        credentials: Give the merchant's number.
        writers: Made already for this profile, and shared.

    Raises:
        ConfigurationError: A request that is sent back would pass for a signed response.
    """

    def __init__(self, profile: Profile, credentials: Credentials, writers: "Writers | None" = None) -> None:
        self._profile = profile
        self._merchant_id = credentials.merchant_id
        self._proofs = proofs(profile, credentials)
        self._proof_names = proof_names(profile, self._proofs)
        self._splits = _splits(profile.signature, self._proof_names)
        self._writers: Writers = {} if writers is None else writers
        self._forms: dict[Kind, Form] = {}

    def for_merchant(self, credentials: Credentials) -> "Codec":
        """Return the codec of another merchant; it writes in the same way."""
        return Codec(self._profile, credentials, self._writers)

    def call(
        self,
        request: Request[Response],
        timeouts: Timeouts = Timeouts(),
        deadline: float = inf,
        intent: str | None = None,
    ) -> Call:
        """Return the call that a request stands for: wire names, constants and `extra` in place.

        Raises:
            InvalidArgumentError: The profile says that the service does not take it.
            NotConfiguredError: It needs a point that the profile leaves open.
        """
        kind = type(request)
        try:
            check_acceptance(request, self._profile)
            form = self._forms.get(kind) or self._form(kind)
            fields = form.fields(request)
        except PayasyncError as error:
            error.add(operation=request.operation.name, reference=request.reference)
            raise
        return form.blank.derived(
            fields=fields,
            reference=request.reference,
            timeouts=timeouts,
            deadline=deadline,
            intent=intent,
            progress=Progress(),
        )

    def custom(self, operation: Operation, given: Mapping[str, Any], *, bearer: bool, signed: bool) -> Call:
        """Return a call to an endpoint that the document does not show, with wire names as they are given.

        Raises:
            InvalidArgumentError: A field that cannot be sent, or that only the session may set.
        """
        check_object("fields", given, operation)
        if signed:
            _check_unused("fields", given, ((frozenset(SIGNING), _SET), (self._proof_names, _PROOF)))
        plain = documents.copy_plain(given)
        _check_unused("extra", plain, ((frozenset(self._own(operation)), _SET),))
        complete = {**self._always(operation), **plain}
        if signed and self._splits:
            self._splits.check(complete)
        return Call(
            operation=operation,
            profile=self._profile,
            fields=complete,
            bearer=bearer,
            signed=signed,
            expected=self._expected(operation),
        )

    def _form(self, kind: Kind) -> Form:
        if kind not in self._writers:
            self._writers[kind] = writer(kind, self._profile)
        operation, profile = kind.operation, self._profile
        blank = Call(
            operation=operation,
            profile=profile,
            fields=self._always(operation),
            parameter=self._parameter(operation),
            bearer=operation.name in profile.bearer,
            signed=operation.name in profile.signed,
            expected=self._expected(operation),
        ).derived()  # CPython reads the attributes of a derived call in a quarter of the time
        nested = any(isinstance(value, dict | list) for value in blank.fields.values())
        splits = self._splits if blank.signed else None
        form = self._forms[kind] = Form(self._writers[kind], blank, self._refused(kind, blank), nested, splits)
        return form

    def _refused(self, kind: Kind, blank: Call) -> Refused:
        """Return the names that `extra` may not hold, with why."""
        ours = {*self._own(blank.operation), *(SIGNING if blank.signed else ())}
        if blank.parameter:
            ours.add(blank.parameter.name)
        return (
            (frozenset(self._writers[kind].names.values()), _ARGUMENT),
            (frozenset(ours), _SET),
            (self._proof_names if blank.signed else frozenset(), _PROOF),
        )

    def _expected(self, operation: Operation) -> Expected:
        return Expected(compared(operation, self._profile), self._proofs)

    def _parameter(self, operation: Operation) -> Parameter | None:
        """Return how endpoints 6 and 7 take their identifier (spec: Endpoints, gaps)."""
        if operation is QUERY_PAYMENT:
            return self._profile.payment_status or _open_parameter("payment_status")
        if operation is QUERY_REFUND:
            return self._profile.refund_status or _open_parameter("refund_status")
        return None

    def _own(self, operation: Operation) -> dict[str, str]:
        return {MERCHANT: self._merchant_id} if operation.name in self._profile.merchant else {}

    def _always(self, operation: Operation) -> dict[str, Any]:
        constants = self._profile.constants
        return {**self._own(operation), **constants.get("*", {}), **constants.get(operation.name, {})}


def _check_unused(argument: str, given: Mapping[str, Any], refused: Refused) -> None:
    for names, why in refused:
        if clash := sorted(given.keys() & names):
            raise InvalidArgumentError(
                f"{argument} must not hold {', '.join(clash)}, which {why}",
                field=argument,
                rule=f"without {', '.join(clash)}",
                value=clash,
            )


def _open_parameter(point: str) -> Parameter:
    thing = point.removesuffix("_status")
    raise not_configured(point, f"the name and the place of its identifier (TOML: [status.{thing}])")


_NOTHING: Final[Mapping[str, str]] = {}


@define
class Outgoing:
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


def encode(call: Call) -> Outgoing:
    """Return what a call looks like on the wire: a JSON body, or for a GET its query (spec: Endpoints, rule 7).

    Raises:
        InvalidArgumentError: A nested value in a query.
    """
    if call.operation.has_body:
        return Outgoing(call.operation.path, _NOTHING, _NOTHING, documents.dumps(call.fields))
    return place(call)


def place(call: Call) -> Outgoing:
    """Return a call without a body, its identifier where the profile's `Parameter` says (spec: endpoints 6 and 7)."""
    query = {name: _query_text(name, value) for name, value in call.fields.items()}
    path, parameter = call.operation.path, call.parameter
    if parameter is None or parameter.place == "query":
        return Outgoing(path, query, {}, b"")
    identifier = query.pop(parameter.name)
    if parameter.place == "header":
        if not is_header(parameter.name, identifier):
            raise invalid("identifier", "of visible ASCII characters: it travels in a header", identifier)
        return Outgoing(path, query, {parameter.name: identifier}, b"")
    if identifier in {".", ".."}:
        raise invalid("identifier", "no step between folders: it travels in the path", identifier)
    return Outgoing(f"{path}/{quote(identifier, safe='')}", query, {}, b"")


def _query_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    raise InvalidArgumentError(
        f"{name} must be a text or an integer: it travels in the query", field=name, rule="a text or an integer"
    )
