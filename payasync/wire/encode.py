"""A request becomes a call by the profile, and a call becomes bytes."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias, get_args
from urllib.parse import quote

from attrs import define, field, fields, fields_dict, frozen
from cattrs import Converter
from cattrs.fns import identity
from cattrs.gen import make_dict_unstructure_fn, override

from payasync import strict_json
from payasync.credentials import Credentials
from payasync.endpoints import ARGUMENTS, QUERY_PAYMENT, QUERY_REFUND, Operation, camel_case
from payasync.errors import InvalidArgumentError, PayasyncError
from payasync.profile.profile import Profile, not_configured
from payasync.profile.schema import ANYTHING, IDENTIFIER, MERCHANT, SIGNING, Parameter
from payasync.profile.signed_fields import proof_names, proof_paths
from payasync.settings import Timeouts, is_header
from payasync.signing.schemes import SignatureScheme, SortedPairs
from payasync.strict_json import ABSENT
from payasync.wire.call import Call, Expected, Progress
from payasync.wire.match import comparison_of
from payasync.wire.request import Request
from payasync.wire.response import Response
from payasync.wire.validators import NOTHING, check_accepted, check_object, invalid_argument

IDENTIFIERS: Final = ("out_trade_no", "out_refund_no", "subscription_id", "identifier")

Kind: TypeAlias = type[Request[Response]]
Refused: TypeAlias = tuple[tuple[frozenset[str], str], ...]
Writer: TypeAlias = Callable[[Request[Response]], dict[str, Any]]
ProofCheck: TypeAlias = Callable[[Mapping[str, Any]], None]

_ARGUMENT: Final = "is an argument: give it as such"
_SET: Final = "is set by payasync itself"
_OWN_KEY: Final = "give a key of the service's own as credentials.service_keys"
_PROOF: Final = (
    "no request may say, because a response or a notification is recognised by it: leave it out, or "
    f"{_OWN_KEY} if the service has one"
)


def wire_names(kind: Kind, profile: Profile) -> dict[str, str]:
    """Return the wire names of a kind of request; an argument without one keeps its own."""
    points = {each.name: each.point for each in ARGUMENTS.get(kind.operation.name, ()) if each.point}
    arguments = [each.name for each in fields(kind) if each.name != "extra"]
    return {
        name: (profile.fields.get(points[name]) or name) if name in points else camel_case(name) for name in arguments
    }


def make_writer(kind: Kind, profile: Profile) -> Writer:
    """Return a function that writes the arguments of a request that were given, under their wire names.

    It raises `NotConfiguredError` if the profile does not give the name of one, or how a date is written.
    """
    overrides: dict[str, Any] = {name: override(rename=wire) for name, wire in wire_names(kind, profile).items()}
    for each in ARGUMENTS.get(kind.operation.name, ()):
        if each.point and not profile.fields.get(each.point):
            overrides[each.name] = override(unstruct_hook=partial(_refuse_unnamed, profile, each.point))
    overrides["extra"] = override(omit=True)
    converter = Converter()
    converter.register_unstructure_hook_func(lambda _: True, identity)  # checked already: it is JSON
    converter.register_unstructure_hook_func(_is_date, partial(_write_date, profile))
    return make_dict_unstructure_fn(kind, converter, _cattrs_omit_if_default=True, **overrides)


def _refuse_unnamed(profile: Profile, point: str, _: object) -> str:
    return profile.wire_name(point)  # it raises: the profile gives no name


def _is_date(kind: Any) -> bool:
    return kind is date or date in get_args(kind)


def _write_date(profile: Profile, value: date) -> str:
    form = profile.formats.get("start_date")
    if not form:
        raise not_configured("formats.start_date", "how the date is written, such as %Y-%m-%d")
    return value.strftime(form)


def make_proof_check(scheme: SignatureScheme | None, forbidden: frozenset[str]) -> ProofCheck | None:
    """Return a function that refuses texts that could be read as a field by which the service is recognised.

    It looks where the scheme lets the separator and `=` stand.

    Args:
        scheme: The scheme.
        forbidden: Such fields, of responses and notifications. Without any, a request that is sent back cannot pass
            for one.
    """
    if not forbidden or not isinstance(scheme, SortedPairs):
        return None
    names = [name for name in scheme.allow_delimiters if name not in scheme.exclude]
    search = re.compile("|".join(re.escape(f"{scheme.separator}{name}=") for name in sorted(forbidden))).search

    def check(fields: Mapping[str, Any]) -> None:
        for name in names:
            value = fields.get(name, "")
            nested = isinstance(value, dict | list)
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":")) if nested else value
            if isinstance(text, str) and "=" in text and (found := search(text)):
                rule = f"free of {found[0]!r}"
                raise InvalidArgumentError(
                    f"{name} must be {rule}, because a response or a notification is recognised by such a field, and a "
                    f"request that is sent back must not pass for one. Change the text, or {_OWN_KEY} if the service "
                    "has one",
                    field=name,
                    rule=rule,
                    value=found[0],
                )

    return check


@frozen
class Template:
    """What all requests of one kind have in common, for one merchant: worked out once.

    Attributes:
        write: Gives the arguments their wire names.
        identifiers: The numbers among the arguments, which must match the profile's pattern.
        blank: The call, with those fields only that every call of the kind carries.
        refused: The names that `extra` may not hold, with why.
    """

    write: Writer
    identifiers: tuple[str, ...]
    blank: Call
    refused: Refused


class Codec:
    """Turns requests into calls, for one merchant of one service.

    Args:
        profile: Gives the names that the document does not show.
        credentials: Give the merchant's number.
        writers: Made already for this profile, and shared.

    Raises:
        ConfigurationError: A request that is sent back would pass for a signed response.
    """

    def __init__(self, profile: Profile, credentials: Credentials, writers: dict[Kind, Writer] | None = None) -> None:
        self._profile = profile
        self._is_identifier = re.compile(profile.identifier).fullmatch
        self._merchant_id = credentials.merchant_id
        self._proofs = proof_paths(profile, credentials)
        self._proof_names = proof_names(profile, credentials)
        self._check_proofs = make_proof_check(profile.signature, self._proof_names)
        constants = (value for table in profile.constants.values() for value in table.values())
        self._nested = any(isinstance(value, dict | list) for value in constants)
        self._writers: dict[Kind, Writer] = {} if writers is None else writers
        self._templates: dict[Kind, Template] = {}

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

        What the caller gives goes before the profile's constants.

        Raises:
            InvalidArgumentError: The profile says that the service does not take it, or `extra` holds what is set
                otherwise.
            NotConfiguredError: It needs a point that the profile leaves open.
        """
        kind, profile = type(request), self._profile
        try:
            template = self._templates.get(kind) or self._make_template(kind)
            for name in template.identifiers:
                value = getattr(request, name)
                if value is not ABSENT and not self._is_identifier(value):
                    rule = f"an identifier that matches {profile.identifier} (the profile's `identifier`)"
                    raise invalid_argument(name, rule, value)
            if profile.accept is not ANYTHING:
                check_accepted(request, profile.accept)
            blank, fields = template.blank, template.write(request)
            if blank.parameter:
                fields = {blank.parameter.name: fields["identifier"]}
            if request.extra is not NOTHING:
                _check_unused("extra", request.extra, template.refused)
                fields |= request.extra
            call = blank.derived(
                fields=self._complete(blank, fields),
                reference=request.reference,
                timeouts=timeouts,
                deadline=deadline,
                intent=intent,
                progress=Progress(),
            )
            if not blank.operation.has_body:
                encode(call)  # refuses what can be placed neither in the query nor in a header
        except PayasyncError as error:
            error.add(operation=request.operation.name, reference=request.reference)
            raise
        return call

    def custom(self, operation: Operation, given: Mapping[str, Any], *, bearer: bool, signed: bool) -> Call:
        """Return a call to an endpoint that the document does not show, with wire names as they are given.

        Raises:
            InvalidArgumentError: A field that cannot be sent, or that only the session may set.
        """
        check_object("fields", given, operation)
        if signed:
            _check_unused("fields", given, ((frozenset(SIGNING), _SET), (self._proof_names, _PROOF)))
        blank = self._blank(operation, bearer=bearer, signed=signed)
        call = blank.derived(fields=self._complete(blank, strict_json.copy_plain(given)), progress=Progress())
        if not operation.has_body:
            encode(call)
        return call

    def _complete(self, blank: Call, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a caller gives, with the fields that every such call carries."""
        always = strict_json.copy_plain(blank.fields) if self._nested else blank.fields
        fields = {**always, **given}
        if self._check_proofs and blank.signed:
            self._check_proofs(fields)
        return fields

    def _blank(self, operation: Operation, *, bearer: bool, signed: bool, parameter: Parameter | None = None) -> Call:
        """Return a call with those fields only that every call to an endpoint carries."""
        profile, constants = self._profile, self._profile.constants
        merchant = {MERCHANT: self._merchant_id} if operation.name in profile.merchant else {}
        return Call(
            operation=operation,
            profile=profile,
            fields={**merchant, **constants.get("*", {}), **constants.get(operation.name, {})},
            parameter=parameter,
            bearer=bearer,
            signed=signed,
            expected=Expected(comparison_of(operation, profile), self._proofs),
        )

    def _make_template(self, kind: Kind) -> Template:
        operation, profile = kind.operation, self._profile
        point = {QUERY_PAYMENT: "payment_status", QUERY_REFUND: "refund_status"}.get(operation)
        parameter: Parameter | None = getattr(profile, point) if point else None
        if point and parameter is None:
            table = f"status.{point.removesuffix('_status')}"
            raise not_configured(point, f"{IDENTIFIER} (TOML: [{table}])")
        if kind not in self._writers:
            self._writers[kind] = make_writer(kind, profile)
        bearer, signed = operation.name in profile.bearer, operation.name in profile.signed
        blank = self._blank(operation, bearer=bearer, signed=signed, parameter=parameter).as_template()
        ours = {*(SIGNING if signed else ()), *([parameter.name] if parameter else ())}
        if operation.name in profile.merchant:
            ours.add(MERCHANT)
        template = self._templates[kind] = Template(
            write=self._writers[kind],
            identifiers=tuple(name for name in IDENTIFIERS if name in fields_dict(kind)),
            blank=blank,
            refused=(
                (frozenset(wire_names(kind, profile).values()), _ARGUMENT),
                (frozenset(ours), _SET),
                (self._proof_names if signed else frozenset(), _PROOF),
            ),
        )
        return template


def _check_unused(argument: str, given: Mapping[str, Any], refused: Refused) -> None:
    for names, why in refused:
        if clash := sorted(given.keys() & names):
            raise InvalidArgumentError(
                f"{argument} must not hold {', '.join(clash)}, which {why}",
                field=argument,
                rule=f"without {', '.join(clash)}",
                value=clash,
            )


@define
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


def encode(call: Call) -> Encoded:
    """Return what a call looks like on the wire: a JSON body, or for a GET its query (docs/service.md#overview).

    The identifier of endpoints 6 and 7 goes where the profile's `Parameter` says.

    Raises:
        InvalidArgumentError: A nested value in a query, or an identifier that its place cannot hold.
    """
    path, parameter = call.operation.path, call.parameter
    if call.operation.has_body:
        return Encoded(path, NOTHING, NOTHING, strict_json.dumps(call.fields))
    query = {name: _query_text(call, name, value) for name, value in call.fields.items()}
    if parameter is None or parameter.place == "query":
        return Encoded(path, query, NOTHING, b"")
    identifier = query.pop(parameter.name)
    if parameter.place == "header":
        if not is_header(parameter.name, identifier):
            rule = "of visible ASCII characters: it travels in a header"
            raise invalid_argument("identifier", rule, identifier, call.operation)
        return Encoded(path, query, {parameter.name: identifier}, b"")
    if identifier in {".", ".."}:
        raise invalid_argument(
            "identifier", "no step between folders: it travels in the path", identifier, call.operation
        )
    return Encoded(f"{path}/{quote(identifier, safe='')}", query, NOTHING, b"")


def _query_text(call: Call, name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    raise InvalidArgumentError(
        f"{name} must be a text or an integer: it travels in the query",
        field=name,
        rule="a text or an integer",
        operation=call.operation.name,
    )
