"""Names and places: a request becomes a call by the profile, and a call becomes bytes."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, TypeAlias

from attrs import frozen

from payasync import acceptance, documents
from payasync.calls import Call, Expected, Progress
from payasync.coverage import proofs
from payasync.credentials import Credentials
from payasync.errors import InvalidArgumentError, PayasyncError
from payasync.match import compared
from payasync.operations import QUERY_PAYMENT, QUERY_REFUND, Operation
from payasync.profile import MERCHANT, SIGNING, Profile, not_configured
from payasync.requests import NOTHING, Request, check_object
from payasync.responses import Response
from payasync.settings import Timeouts
from payasync.shapes import Parameter
from payasync.writers import Writer, writer

Kind: TypeAlias = type[Request[Response]]
Writers: TypeAlias = dict[Kind, Writer]


@frozen
class Form:
    """What all requests of one kind have in common, for one merchant: worked out once.

    Attributes:
        writer: Gives the arguments their wire names.
        blank: The call, with those fields only that every call of the kind carries.
        reserved: The names that `extra` may not hold.
        nested: Some of these fields hold others, so that each call needs its own.
    """

    writer: Writer
    blank: Call
    reserved: frozenset[str]
    nested: bool

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
            _check_unused("extra", request.extra, self.writer.names.values(), "is an argument: give it as such")
            _check_unused("extra", request.extra, self.reserved, "is set by payasync itself")
            given |= request.extra
        always = documents.plain(self.blank.fields) if self.nested else self.blank.fields
        return {**always, **given}


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
            acceptance.check(request, self._profile)
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
            _check_unused("fields", given, SIGNING, "is set by payasync itself")
        plain = documents.plain(given)
        _check_unused("extra", plain, self._own(operation), "is set by payasync itself")
        complete = {**self._always(operation), **plain}
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
        reserved = {*self._own(operation), *(SIGNING if blank.signed else ())}
        if blank.parameter:
            reserved.add(blank.parameter.name)
        nested = any(isinstance(value, dict | list) for value in blank.fields.values())
        form = self._forms[kind] = Form(self._writers[kind], blank, frozenset(reserved), nested)
        return form

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


def _check_unused(argument: str, given: Mapping[str, Any], names: Iterable[str], why: str) -> None:
    if given and (clash := sorted(given.keys() & set(names))):
        raise InvalidArgumentError(
            f"{argument} must not hold {', '.join(clash)}, which {why}",
            field=argument,
            rule=f"without {', '.join(clash)}",
            value=clash,
        )


def _open_parameter(point: str) -> Parameter:
    thing = point.removesuffix("_status")
    raise not_configured(point, f"the name and the place of its identifier (TOML: [status.{thing}])")
