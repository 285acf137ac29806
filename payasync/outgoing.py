"""A call becomes bytes: a JSON body, or the places of a request without one."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from attrs import define, field

from payasync import documents
from payasync.calls import Call
from payasync.errors import InvalidArgumentError
from payasync.headers import is_header
from payasync.requests import invalid

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
