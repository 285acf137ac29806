"""Names and places: a request becomes a call by the profile, and a call becomes bytes."""

from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from attrs import Attribute, fields, frozen
from cattrs import Converter
from cattrs.gen import make_dict_unstructure_fn, override

from payasync import acceptance, documents
from payasync.absent import ABSENT
from payasync.calls import Call
from payasync.credentials import Credentials
from payasync.errors import InvalidArgumentError, PayasyncError
from payasync.operations import QUERY_PAYMENT, QUERY_REFUND, Operation
from payasync.profile import MERCHANT, SIGNING, Profile, is_header, not_configured
from payasync.requests import Request, check_object, invalid
from payasync.responses import Response
from payasync.shapes import Parameter

OPEN: Final = "open"
"""Metadata of an argument whose wire name the document does not show: its key in the profile's `fields`."""


Writers: TypeAlias = dict[type[Request[Response]], Callable[[Any], dict[str, Any]]]


def camel(name: str) -> str:
    """Return the wire name of an argument that the document shows: `total_amt` is `totalAmt`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


class Codec:
    """Turns requests into calls, for one merchant of one service.

    Args:
        profile: Gives the names that the document does not show.
        credentials: Give the merchant's number.
        writers: Made already for this profile, and shared.
    """

    def __init__(self, profile: Profile, credentials: Credentials, writers: "Writers | None" = None) -> None:
        self._profile = profile
        self._merchant_id = credentials.merchant_id
        self._converter = _converter(profile)
        self._writers: Writers = {} if writers is None else writers

    def for_merchant(self, credentials: Credentials) -> "Codec":
        """Return the codec of another merchant; it writes in the same way."""
        return Codec(self._profile, credentials, self._writers)

    def call(self, request: Request[Response]) -> Call:
        """Return the call that a request stands for: wire names, constants and `extra` in place.

        Raises:
            InvalidArgumentError: The profile says that the service does not take it.
            NotConfiguredError: It needs a point that the profile leaves open.
        """
        operation = request.operation
        try:
            acceptance.check(request, self._profile)
            given = self._writer(type(request))(request)
            parameter = self._parameter(operation)
            if parameter:
                given = {parameter.name: given["identifier"]}
            complete = self._completed(operation, given, request.extra)
        except PayasyncError as error:
            error.add(operation=operation.name, reference=request.reference)
            raise
        return self._call(operation, complete, reference=request.reference, parameter=parameter)

    def custom(self, operation: Operation, given: Mapping[str, Any], *, bearer: bool, signed: bool) -> Call:
        """Return a call to an endpoint that the document does not show, with wire names as they are given.

        Raises:
            InvalidArgumentError: A field that cannot be sent, or that only the session may set.
        """
        check_object("fields", given, operation)
        if signed:
            _check_free("fields", given, SIGNING)
        complete = self._completed(operation, {}, documents.plain(given))
        return Call(operation=operation, profile=self._profile, fields=complete, bearer=bearer, signed=signed)

    def _call(
        self, operation: Operation, complete: Mapping[str, Any], *, reference: str | None, parameter: Parameter | None
    ) -> Call:
        return Call(
            operation=operation,
            profile=self._profile,
            fields=complete,
            reference=reference,
            parameter=parameter,
            bearer=operation.name in self._profile.bearer,
            signed=operation.name in self._profile.signed,
        )

    def _parameter(self, operation: Operation) -> Parameter | None:
        """Return how endpoints 6 and 7 take their identifier (spec: Endpoints, gaps)."""
        if operation is QUERY_PAYMENT:
            return self._profile.payment_status or _open_parameter("payment_status")
        if operation is QUERY_REFUND:
            return self._profile.refund_status or _open_parameter("refund_status")
        return None

    def _completed(self, operation: Operation, given: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return all fields: what the caller gives goes before the profile's constants."""
        own = {MERCHANT: self._merchant_id} if operation.name in self._profile.merchant else {}
        _check_free("extra", extra, [*given, *own, *(SIGNING if operation.name in self._profile.signed else ())])
        constants = self._profile.constants
        return {**own, **constants.get("*", {}), **constants.get(operation.name, {}), **given, **extra}

    def _writer(self, kind: type[Request[Response]]) -> Callable[[Any], dict[str, Any]]:
        writer = self._writers.get(kind)
        if writer is None:
            writer = self._writers[kind] = _writer(kind, self._profile, self._converter)
        return writer


def _check_free(argument: str, given: Mapping[str, Any], taken: Iterable[str]) -> None:
    if clash := sorted(given.keys() & set(taken)):
        names = ", ".join(clash)
        raise InvalidArgumentError(
            f"{argument} must not hold {names}: an argument, or payasync itself, sets it",
            field=argument,
            rule=f"without {names}",
            value=clash,
        )


def _open_parameter(point: str) -> Parameter:
    thing = point.removesuffix("_status")
    raise not_configured(point, f"the name and the place of its identifier (TOML: [status.{thing}])")


def _converter(profile: Profile) -> Converter:
    converter = Converter()
    converter.register_unstructure_hook(date, lambda value: value.strftime(_date_format(profile)))
    return converter


def _date_format(profile: Profile) -> str:
    written = profile.formats.get("start_date")
    if not written:
        raise not_configured("formats.start_date", "how the date is written, such as %Y-%m-%d")
    return written


def _writer(
    kind: type[Request[Response]], profile: Profile, converter: Converter
) -> Callable[[Request[Response]], dict[str, Any]]:
    """Return a function that writes the arguments that were given under their wire names."""
    arguments: tuple[Attribute[Any], ...] = fields(kind)
    open_names = {each.name: each.metadata[OPEN] for each in arguments if OPEN in each.metadata}
    unanswered = {name: point for name, point in open_names.items() if not profile.fields.get(point)}
    renames: dict[str, Any] = {
        each.name: override(rename=profile.fields.get(open_names.get(each.name, ""), camel(each.name)))
        for each in arguments
        if each.name not in {"extra", "identifier"}
    }
    write = make_dict_unstructure_fn(
        kind,
        converter,
        _cattrs_omit_if_default=True,
        extra=override(omit=True),
        **renames,
    )

    def checked(request: Request[Response]) -> dict[str, Any]:
        for name, point in unanswered.items():
            if getattr(request, name) is not ABSENT:
                profile.wire_name(point)
        return write(request)

    return checked if unanswered else write


@frozen
class Outgoing:
    """What goes to the transport.

    Attributes:
        path: Below the base URL, quoted.
        query: Names and texts.
        headers: That carry a parameter.
        body: JSON, or nothing.
    """

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


def encode(call: Call) -> Outgoing:
    """Return what a call looks like on the wire: a JSON body, or for a GET its query (spec: Endpoints, rule 7).

    Raises:
        InvalidArgumentError: A nested value in a query.
    """
    if call.operation.has_body:
        return Outgoing(call.operation.path, {}, {}, documents.dumps(call.fields))
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
