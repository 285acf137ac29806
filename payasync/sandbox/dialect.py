"""Between the sandbox and the wire: requests in and answers out, in the words of a profile.

With its vocabulary and its payloads it alone knows a wire name, a code, or where something stands.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeGuard, get_args

from attrs import evolve, frozen

from payasync.errors import ConfigurationError
from payasync.operations import Operation
from payasync.profile import MERCHANT, NONCE, SIGN, Profile
from payasync.sandbox import acceptance
from payasync.sandbox.arguments import ARGUMENTS
from payasync.sandbox.checks import Sort, checks
from payasync.sandbox.paths import beside, put
from payasync.sandbox.payloads import Payloads
from payasync.sandbox.values import Arguments, RefusedError
from payasync.sandbox.vocabulary import STATUSES, Vocabulary
from payasync.shapes import Code, NotificationShape

_HEADER: Final = "header:"
_NUMBERS: Final = frozenset({"out_trade_no", "out_refund_no", "identifier", "subscription_id"})

Failures = Literal["", "status", "200"]
"""How refusals are told: by the HTTP status, or inside HTTP 200; empty: as the profile suggests."""

INSIDE: Final = frozenset({401, 403, 404, 409, 422})
"""What a service that answers 200 to all that it has understood says by its result code alone."""


@frozen(kw_only=True)
class Incoming:
    """A request that has been read.

    Attributes:
        operation: What it asks for.
        fields: All it carries, by wire names: what is signed.
        arguments: What counts, by our names, checked.
    """

    operation: Operation
    fields: Mapping[str, Any]
    arguments: Arguments

    @property
    def nonce(self) -> str:
        """The random text of a signed request."""
        return str(self.fields[NONCE])

    @property
    def signature(self) -> str:
        """The signature of a signed request."""
        return str(self.fields[SIGN])

    @property
    def merchant_id(self) -> str:
        """The merchant's number."""
        return str(self.fields[MERCHANT])

    @property
    def fingerprint(self) -> str:
        """Equal for requests that are equal but for nonce and signature."""
        told = {name: value for name, value in self.fields.items() if name not in {NONCE, SIGN}}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


@frozen(kw_only=True)
class Outgoing:
    """An answer before it is sent.

    Attributes:
        status: The HTTP status.
        code: The result code, wherever it stands in the document.
        headers: That belong to the answer.
        document: The JSON.
        refused: The request was not done.
    """

    status: int
    code: Code
    headers: Mapping[str, str]
    document: Mapping[str, Any]
    refused: bool = False


class Dialect:
    """Reads and writes what goes over the wire, as a profile says.

    Args:
        profile: The service's; what it leaves open is as in the sandbox's own.
        failures: How refusals are told. Empty: inside HTTP 200 where the profile has a result code and says
            of no HTTP status that nothing was done (`http.not_executed = []`), else by the status.
    """

    def __init__(self, profile: Profile, failures: Failures = "") -> None:
        self._words: Final = Vocabulary(profile)
        self._inside: Final = (failures or _suggested(profile)) == "200"
        self.payloads: Final = Payloads(self._words)
        self._checks = checks(profile.identifier, self._words.date_format)

    @property
    def words(self) -> Vocabulary:
        """The profile's words, with no point open."""
        return self._words

    @property
    def failures_inside(self) -> bool:
        """Whether refusals are told inside HTTP 200."""
        return self._inside

    @property
    def acknowledged(self) -> NotificationShape:
        """What a notification looks like, and which answer acknowledges it."""
        return self._words.notification

    def place(self, operation: Operation) -> str:
        """Return where an endpoint's identifier stands: `query`, `path`, `header`, or nowhere."""
        parameter = self._words.parameter(operation)
        return parameter.place if parameter else ""

    def located(
        self, operation: Operation, query: Mapping[str, str], headers: Mapping[str, str], rest: str
    ) -> dict[str, Any]:
        """Return the fields of a request without a body (spec: endpoints 6 and 7).

        Args:
            operation: Which.
            query: The query's fields.
            headers: The request's.
            rest: What follows the endpoint's path.
        """
        parameter = self._words.parameter(operation)
        if parameter is None or parameter.place == "query":
            return dict(query)
        found = rest if parameter.place == "path" else headers.get(parameter.name, "")
        return {**query, parameter.name: found} if found else dict(query)

    def read(self, operation: Operation, fields: Mapping[str, Any], headers: Mapping[str, str]) -> Incoming:
        """Return a request whose fields are checked; unknown ones count for the signature only.

        Args:
            operation: What it asks for.
            fields: All that it carries.
            headers: The request's, found by names in any case.

        Raises:
            RefusedError: A field is missing, or it is not what it must be.
        """
        profile = self._words.profile
        for name in self._identity(operation):
            self._checked(name, "sign" if name == SIGN else "word", fields)
        acceptance.check_headers(profile.headers, headers)
        names = {self._words.argument_name(operation, argument) for argument in ARGUMENTS[operation]}
        for name, value in acceptance.constants(profile, operation).items():
            # What the caller gives goes before a constant of the same name.
            if name not in names:
                acceptance.check_constant(name, value, fields, as_text=not operation.has_body)
        arguments = self._arguments(operation, fields)
        return Incoming(operation=operation, fields=fields, arguments=arguments)

    def _arguments(self, operation: Operation, fields: Mapping[str, Any]) -> Arguments:
        accept, taken = self._words.profile.accept, dict[str, Any]()
        demanded = set(accept.required.get(operation.name, ()))
        for argument in ARGUMENTS[operation]:
            name = self._words.argument_name(operation, argument)
            if name in fields or argument.required or argument.name in demanded:
                taken[argument.name] = self._checked(name, argument.sort, fields)
                acceptance.check_value(accept, argument, name, fields[name])
            demanded.discard(argument.name)
        for name in sorted(demanded - fields.keys()):
            raise RefusedError("invalid", f"{name} is missing", field=name)
        return taken

    def named(self, operation: Operation, fields: Mapping[str, Any]) -> dict[str, str]:
        """Return the numbers by which a request names orders, refunds and subscriptions, by our names for them.

        What is no number is left out.
        """
        found = {
            argument.name: fields.get(self._words.argument_name(operation, argument))
            for argument in ARGUMENTS[operation]
            if argument.name in _NUMBERS
        }
        return {name: number for name, number in found.items() if self._is_number(number)}

    def _is_number(self, value: object) -> TypeGuard[str]:
        try:
            self._checks["identifier"](value)
        except ValueError:
            return False
        return True

    def _identity(self, operation: Operation) -> tuple[str, ...]:
        profile = self._words.profile
        merchant = (MERCHANT,) if operation.name in profile.merchant else ()
        return (*merchant, NONCE, SIGN) if operation.name in profile.signed else merchant

    def _checked(self, name: str, sort: Sort, fields: Mapping[str, Any]) -> Any:
        if name not in fields:
            raise RefusedError("invalid", f"{name} is missing", field=name)
        try:
            return self._checks[sort](fields[name])
        except ValueError as error:
            message = f"{name} must be {error}"
        raise RefusedError("invalid", message, field=name)

    def answer(self, payload: Mapping[str, Any], request_id: str) -> Outgoing:
        """Return the answer to a request that was done."""
        document: dict[str, Any] = {}
        put(document, self._words.answer.data, dict(payload))
        return self._complete(document, 200, self._words.answer.ok[0], "done", request_id)

    def refusal(self, refused: RefusedError, operation: Operation | None, request_id: str) -> Outgoing:
        """Return the answer to a request that was not done."""
        document: dict[str, Any] = {}
        if field := refused.field or self._argument_name(operation, refused.argument):
            put(document, beside(self._words.answer.message, "field"), field)
        status = refused.status or STATUSES[refused.why]
        if self._inside and operation and status in INSIDE:
            status = 200
        elif not refused.status:
            status = self._words.status(refused.why)
        code, message = self._words.code(refused.why), self._words.said(refused)
        return evolve(self._complete(document, status, code, message, request_id), refused=True)

    def _argument_name(self, operation: Operation | None, name: str) -> str:
        arguments = ARGUMENTS[operation] if operation else ()
        return next(
            (self._words.argument_name(operation, one) for one in arguments if operation and one.name == name), ""
        )

    def _complete(self, document: dict[str, Any], status: int, code: Code, message: str, request_id: str) -> Outgoing:
        answer, headers = self._words.answer, dict[str, str]()
        put(document, answer.code, code)
        put(document, answer.message, message)
        if answer.request_id.startswith(_HEADER):
            headers[answer.request_id.removeprefix(_HEADER)] = request_id
        else:
            put(document, answer.request_id, request_id)
        return Outgoing(status=status, code=code, headers=headers, document=document)


def checked_failures(failures: Failures) -> Failures:
    """Return how refusals are told.

    Raises:
        ConfigurationError: It is no such way.
    """
    if failures not in get_args(Failures):
        raise ConfigurationError(f'failures must be "status" or "200", not {failures!r}', field="failures")
    return failures


def _suggested(profile: Profile) -> Failures:
    return "200" if profile.answer.code and not profile.http.not_executed else "status"
