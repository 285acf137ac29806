"""What may be kept of an answer, and of an error's words: no signature, no nonce, none of the customer's details.

Of an answer that is what the profile's paths lead to, and nothing else, unless whole answers are asked for.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from attrs import frozen

from payasync.absent import ABSENT
from payasync.calls import Call, Reply
from payasync.documents import at, dumps
from payasync.journal.drafting import CUSTOMER, wire_names
from payasync.journal.intents import Outcome
from payasync.profile import NONCE, SIGN
from payasync.responses import payload
from payasync.shapes import AnswerShape

HIDDEN: Final = "***"
LONG: Final = 6
"""Characters from which a detail is looked for inside of other texts: a shorter one stands there by chance."""
MANY: Final = 10**6
"""From here on a number tells somebody apart; a smaller one may be an amount."""

OWN: Final = (
    "payment_id",
    "payment_status",
    "redirect_url",
    "order_status",
    "refund_status",
    "subscription_id",
    "subscription_status",
)
"""What the profile locates in an answer's data is the service's own, whatever else it may look like."""


def outcome(call: Call, reply: Reply, *, whole: bool = False) -> Outcome:
    """Return what may be kept of the answer to a call.

    Args:
        call: What was asked.
        reply: What came.
        whole: Keep the whole document, but for what may never be kept.
    """
    shape = call.profile.answer
    document = reply.document if whole else located(shape, reply.document)
    kind, _, header = shape.request_id.partition(":")
    told = reply.headers.get(header) if header and kind == "header" else None
    return Outcome(
        status=reply.status,
        headers={} if told is None else {header: told},
        body=_written(_keeper(call, reply.document).kept(document)),
        verified=reply.verified,
        recovered=reply.recovered,
    )


def located(shape: AnswerShape, document: Any) -> dict[str, Any]:
    """Return, of a document, what the profile's paths lead to, each where it stood."""
    found: dict[str, Any] = {}
    inner = shape.data and at(document, shape.data) is not ABSENT
    if inner:
        _put(found, shape.data, {})
    where = f"{shape.data}." if inner else ""
    within = (f"{where}{path}" for name in OWN if (path := getattr(shape, name)))
    for path in (shape.code, shape.message, shape.request_id, *within):
        value = at(document, path) if path else ABSENT
        if isinstance(value, str | int):
            _put(found, path, value)
    return found


def _written(document: Any) -> bytes:
    try:
        return dumps(document)
    except TypeError:  # an integer beyond 64 bits, such as the service's number of a payment
        return json.dumps(document).encode()


def _put(document: dict[str, Any], path: str, value: str | int | dict[str, Any]) -> None:
    """Set what stands at a dotted path; what was a list on its way is an object then, read by the same path."""
    *way, last = path.split(".")
    for step in way:
        document = document.setdefault(step, {})
    document[last] = value


def words(call: Call, text: str) -> str:
    """Return a text in one line, without the customer's details."""
    return " ".join(_keeper(call, None).text(text).split())


@frozen
class _Keeper:
    """What is taken out of a document.

    Attributes:
        names: Of members that are left out wherever they stand.
        details: Of the customer.
        located: Texts that the profile's paths lead to; they are the service's own, and stay whole.
    """

    names: frozenset[str]
    details: tuple[str | int, ...]
    located: tuple[str | int, ...]

    def kept(self, value: Any) -> Any:
        """Return a copy of a JSON value with nothing in it that may not be kept."""
        if isinstance(value, dict):
            return {self.text(name): self.kept(inner) for name, inner in value.items() if name not in self.names}
        if isinstance(value, list):
            return [self.kept(inner) for inner in value]
        if isinstance(value, str):
            return self.text(value)
        return HIDDEN if type(value) is int and value not in self.located and value in self.details else value

    def text(self, text: str) -> str:
        """Return a text without the customer's details."""
        if text in self.located:
            return text
        if text in self.details:
            return HIDDEN
        for detail in self.details:
            if isinstance(detail, str) and len(detail) >= LONG:
                text = text.replace(detail, HIDDEN)
        return text


def _keeper(call: Call, document: Any) -> _Keeper:
    shape = call.profile.answer
    customer = wire_names(call.operation.name, call.profile).get(CUSTOMER, CUSTOMER)
    signature = shape.signature.rpartition(".")[2] or SIGN
    details = _leaves(call.fields.get(customer))
    return _Keeper(frozenset({NONCE, SIGN, signature, CUSTOMER, customer}), tuple(details), _located(shape, document))


def _leaves(value: Any) -> Iterator[str | int]:
    """Yield what stands at the ends of a JSON value, where it tells somebody apart."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif (isinstance(value, str) and value) or (type(value) is int and value >= MANY):
        yield value


def _located(shape: AnswerShape, document: Any) -> tuple[str | int, ...]:
    data = payload(shape, document)
    found = [
        at(document, shape.code),
        at(document, shape.request_id),
        *(at(data, path) for each in OWN if (path := getattr(shape, each))),
    ]
    return tuple(each for each in found if isinstance(each, str) or type(each) is int)
