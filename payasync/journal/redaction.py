"""What the journal keeps of a response: no signature, no nonce, no detail of a customer."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import orjson
from attrs import frozen

from payasync.journal.drafts import CUSTOMER
from payasync.journal.intents import Outcome
from payasync.profile.schema import AnswerShape
from payasync.profile.signed_fields import OWN_KEYS, STATE_KEYS, join_path
from payasync.profile.wire_names import SIGNING
from payasync.signing.templates import parts_of
from payasync.strict_json import ABSENT, at, dumps, paths_of
from payasync.wire.call import Call, Reply

HIDDEN: Final = "***"
SHORTEST_PART: Final = 6
"""Characters from which a detail is hidden inside other texts. A shorter one stands there by chance."""
SMALLEST_NUMBER: Final = 10**6
"""From here on a number may identify a customer. A smaller one may be an amount."""

OWN: Final = (*STATE_KEYS, *OWN_KEYS)
"""What the profile locates in a response is the service's own, even if it looks like a customer's detail."""
_SCALAR: Final = (str, int)
"""A union would be made anew for each value."""


def redact_outcome(call: Call, reply: Reply, *, whole: bool = False) -> Outcome:
    """Return what may be stored of the response to a call.

    Args:
        call: The call.
        reply: The response.
        whole: Keep the whole document and not only what the profile locates in it.
    """
    shape, received = call.profile.answer, reply.document
    document = received if whole else select_located(shape, received)
    if whole or at(call.fields, _customer_name(call)) is not ABSENT:
        document = _redactor(call, received).redact(document)
    name = shape.request_id.removeprefix("header:")
    request_id = None if name == shape.request_id else reply.headers.get(name)
    return Outcome(
        status=reply.status,
        headers={} if request_id is None else {name: request_id},
        body=dumps(document),
        verified=reply.verified,
        recovered=reply.recovered,
    )


def redact_text(call: Call, text: str) -> str:
    """Return a text in one line, without the customer's details."""
    return " ".join(_redactor(call, None).redact_text(text).split())


def select_located(shape: AnswerShape, document: Any) -> dict[str, Any]:
    """Return the parts of a document that the profile's paths lead to, each at its place."""
    selected: dict[str, Any] = {}
    if shape.data and at(document, shape.data) is not ABSENT:
        _set_at(selected, shape.data, {})
    names, paths = _located_paths(shape)
    if isinstance(document, dict):
        for name, value in document.items():
            if name in names and isinstance(value, _SCALAR):
                selected[name] = value  # noqa: PERF403 - up to Python 3.11 a comprehension takes longer
    for path in paths:
        value = at(document, path)
        if isinstance(value, _SCALAR):
            _set_at(selected, path, value)
    return selected


@lru_cache(maxsize=64)
def _located_paths(shape: AnswerShape) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the paths, in a document, of all that a profile locates: those of one step, and the others."""
    paths = (*paths_of(shape.code), *paths_of(shape.message), shape.request_id)
    located = (*filter(None, paths), *(join_path(shape.data, path) for path in _own_paths(shape)))
    # Any other path may have several steps, or a number, which may be a place in a list.
    names = frozenset(path for path in located if path.isidentifier())
    return names, tuple(path for path in located if path not in names)


def _own_paths(shape: AnswerShape) -> list[str]:
    """Return the paths, in the payload, of what is the service's own, with the parts of the customer's address."""
    return [path for path in (*(getattr(shape, name) for name in OWN), *parts_of(shape.redirect_template)) if path]


def _set_at(document: dict[str, Any], path: str, value: str | int | dict[str, Any]) -> None:
    """Set a value at a dotted path. A list on the way becomes an object, which the same path reads."""
    if "." not in path:
        document[path] = value
        return
    *way, last = path.split(".")
    for step in way:
        document = document.setdefault(step, {})
    document[last] = value


def _customer_name(call: Call) -> str:
    return call.layout.names.get(CUSTOMER, CUSTOMER)


@frozen
class _Redactor:
    """Removes what may not be stored.

    Attributes:
        names: Members that are left out wherever they stand.
        details: The customer's.
        own: Values that the profile locates; they stay.
    """

    names: frozenset[str]
    details: tuple[str | int, ...]
    own: tuple[str | int, ...]

    def redact(self, value: Any) -> Any:
        """Return a copy of a JSON value, redacted."""
        if isinstance(value, dict):
            return {
                self.redact_text(name): self.redact(inner) for name, inner in value.items() if name not in self.names
            }
        if isinstance(value, list):
            return [self.redact(inner) for inner in value]
        if isinstance(value, str):
            return self.redact_text(value)
        return HIDDEN if type(value) is int and value not in self.own and value in self.details else value

    def redact_text(self, text: str) -> str:
        """Return a text without the customer's details."""
        if text in self.own:
            return text
        if text in self.details:
            return HIDDEN
        for detail in self.details:
            if isinstance(detail, str) and len(detail) >= SHORTEST_PART:
                text = text.replace(detail, HIDDEN)
        return text


def _redactor(call: Call, document: Any) -> _Redactor:
    shape, customer = call.profile.answer, _customer_name(call)
    last_steps = (path.rpartition(".")[2] for path in (customer, shape.signature))
    names = {*SIGNING, call.layout.nonce, call.layout.signature, CUSTOMER, *last_steps}
    data = at(document, shape.data)
    located = (at(data, path) for path in _own_paths(shape))
    own = (*(at(document, path) for path in (*paths_of(shape.code), shape.request_id)), *located)
    return _Redactor(
        frozenset(filter(None, names)),
        tuple(_find_details(at(call.fields, customer, None))),
        tuple(value for value in own if isinstance(value, str) or type(value) is int),
    )


def _find_details(value: Any) -> Iterator[str | int]:
    """Yield the values inside a JSON value that may identify a customer."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _find_details(inner)
    elif (isinstance(value, str) and value) or (type(value) is int and value >= SMALLEST_NUMBER):
        yield value


def outcome_to_json(outcome: Outcome) -> str:
    """Return an outcome as JSON."""
    facts: dict[str, Any] = {
        "status": outcome.status,
        "headers": dict(outcome.headers),
        "body": outcome.body.decode(errors="backslashreplace"),
        "verified": outcome.verified,
        "recovered": outcome.recovered,
    }
    return orjson.dumps(facts).decode()


_VERIFIED: Final = (None, True, False)


def outcome_from_json(text: str) -> Outcome:
    """Return the outcome that `outcome_to_json` has written.

    Raises:
        Exception: The text is another.
    """
    facts: dict[str, Any] = orjson.loads(text)
    stored = Outcome(**{**facts, "body": facts["body"].encode()})
    if type(stored.status) is not int or not isinstance(stored.headers, dict) or stored.verified not in _VERIFIED:
        raise ValueError("it is no response")
    return stored
