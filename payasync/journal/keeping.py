"""What may be kept of an answer, and of an error's words: no signature, no nonce, none of the customer's details."""

from collections.abc import Iterator
from typing import Any, Final

from attrs import frozen

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


def outcome(call: Call, reply: Reply) -> Outcome:
    """Return what may be kept of the answer to a call."""
    shape = call.profile.answer
    kind, _, header = shape.request_id.partition(":")
    told = reply.headers.get(header) if header and kind == "header" else None
    return Outcome(
        status=reply.status,
        headers={} if told is None else {header: told},
        body=dumps(_keeper(call, reply.document).kept(reply.document)),
        verified=reply.verified,
        recovered=reply.recovered,
    )


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
        *(at(data, getattr(shape, each)) for each in OWN),
    ]
    return tuple(each for each in found if isinstance(each, str) or type(each) is int)
