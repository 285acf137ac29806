"""Between the sandbox and the wire: requests in and answers out, in the words of a profile.

With its vocabulary and its payloads it alone knows a wire name, a code, or where something stands.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from payasync.operations import Operation
from payasync.profile import MERCHANT, NONCE, SIGN, Profile
from payasync.sandbox.arguments import ARGUMENTS, Argument
from payasync.sandbox.checks import Sort, checks
from payasync.sandbox.paths import beside, put
from payasync.sandbox.payloads import Payloads
from payasync.sandbox.values import Arguments, RefusedError, Why
from payasync.sandbox.vocabulary import Vocabulary
from payasync.shapes import Code, NotificationShape

STATUSES: Final[Mapping[Why, int]] = {
    "invalid": 422,
    "unauthenticated": 401,
    "bad_signature": 401,
    "nonce_used": 403,
    "wrong_state": 409,
    "duplicate": 409,
    "absent": 404,
    "busy": 503,
}
"""The sandbox's own choice (spec: Errors, gaps)."""

_HEADER: Final = "header:"


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
    """

    status: int
    code: Code
    headers: Mapping[str, str]
    document: Mapping[str, Any]


class Dialect:
    """Reads and writes what goes over the wire, as a profile says.

    Args:
        profile: The service's; what it leaves open is as in the sandbox's own.
    """

    def __init__(self, profile: Profile) -> None:
        self._words = Vocabulary(profile)
        self.payloads: Final = Payloads(self._words)
        self._checks = checks(profile.identifier, self._words.date_format)

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

    def read(self, operation: Operation, fields: Mapping[str, Any]) -> Incoming:
        """Return a request whose fields are checked; unknown ones count for the signature only.

        Raises:
            RefusedError: A field is missing, or it is not what it must be.
        """
        for name in self._identity(operation):
            self._checked(name, "sign" if name == SIGN else "word", fields)
        arguments = {
            argument.name: self._checked(name, argument.sort, fields)
            for argument in ARGUMENTS[operation]
            if (name := self._name(operation, argument)) in fields or argument.required
        }
        return Incoming(operation=operation, fields=fields, arguments=arguments)

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

    def _name(self, operation: Operation, argument: Argument) -> str:
        parameter = self._words.parameter(operation)
        return parameter.name if parameter else self._words.wire_name(argument.name, argument.point)

    def answer(self, payload: Mapping[str, Any], request_id: str) -> Outgoing:
        """Return the answer to a request that was done."""
        document: dict[str, Any] = {}
        put(document, self._words.answer.data, dict(payload))
        return self._sealed(document, 200, self._words.answer.ok[0], "done", request_id)

    def refusal(self, refused: RefusedError, operation: Operation | None, request_id: str) -> Outgoing:
        """Return the answer to a request that was not done."""
        document: dict[str, Any] = {}
        if field := refused.field or self._argument_name(operation, refused.argument):
            put(document, beside(self._words.answer.message, "field"), field)
        status = refused.status or STATUSES[refused.why]
        return self._sealed(document, status, self._words.code(refused.why), refused.message, request_id)

    def _argument_name(self, operation: Operation | None, name: str) -> str:
        arguments = ARGUMENTS[operation] if operation else ()
        return next((self._name(operation, one) for one in arguments if operation and one.name == name), "")

    def _sealed(self, document: dict[str, Any], status: int, code: Code, message: str, request_id: str) -> Outgoing:
        answer, headers = self._words.answer, dict[str, str]()
        put(document, answer.code, code)
        put(document, answer.message, message)
        if answer.request_id.startswith(_HEADER):
            headers[answer.request_id.removeprefix(_HEADER)] = request_id
        else:
            put(document, answer.request_id, request_id)
        return Outgoing(status=status, code=code, headers=headers, document=document)
