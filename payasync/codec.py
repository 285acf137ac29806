"""Names and places: a request becomes a call by the profile, and a call becomes bytes."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from payasync import acceptance, documents
from payasync.calls import Call
from payasync.credentials import Credentials
from payasync.errors import InvalidArgumentError, PayasyncError
from payasync.operations import QUERY_PAYMENT, QUERY_REFUND, Operation
from payasync.profile import MERCHANT, SIGNING, Profile, not_configured
from payasync.requests import Request, check_object
from payasync.responses import Response
from payasync.shapes import Parameter
from payasync.writers import Writer, writer

Writers: TypeAlias = dict[type[Request[Response]], Writer]


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
            written = self._writer(type(request))
            given = written.fields(request, self._profile)
            _check_unused("extra", request.extra, written.names.values(), "is an argument: give it as such")
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
            _check_unused("fields", given, SIGNING, "is set by payasync itself")
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
        reserved = [*given, *own, *(SIGNING if operation.name in self._profile.signed else ())]
        _check_unused("extra", extra, reserved, "is set by payasync itself")
        constants = self._profile.constants
        return {**own, **constants.get("*", {}), **constants.get(operation.name, {}), **given, **extra}

    def _writer(self, kind: type[Request[Response]]) -> Writer:
        found = self._writers.get(kind)
        if found is None:
            found = self._writers[kind] = writer(kind, self._profile)
        return found


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
