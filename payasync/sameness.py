"""Whether what the service tells of a number is about what was asked for: no I/O here.

A number may have been used for another refund before this one: what the service then tells is that one's.
"""

from collections.abc import Mapping
from typing import Final
from unicodedata import decimal

from payasync.calls import Call
from payasync.documents import at
from payasync.operations import QUERY_ORDER, QUERY_PAYMENT, QUERY_REFUND
from payasync.responses import holds_nothing, payload
from payasync.shapes import AnswerShape

COMPARED: Final = ("outTradeNo", "outRefundNo", "totalAmt", "refundAmt", "currency")
"""The document's names of what says what was asked for, where both sides have them."""

AMOUNTS: Final = ("totalAmt", "refundAmt")
"""Those of them that nothing has which is not there."""

_ASKED: Final = {
    QUERY_ORDER.name: ("order", "outTradeNo"),
    QUERY_PAYMENT.name: ("payment", ""),
    QUERY_REFUND.name: ("refund", "outRefundNo"),
}
"""By question: what it is about, and under which name answers show its number."""

LONGEST: Final = 100
"""Characters of a strange value that are shown."""


def compared(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a write that say what was asked for, by their wire names."""
    return {name: fields[name] for name in COMPARED if name in fields}


def objection(asked: Mapping[str, object], number: str | None, shape: AnswerShape, document: object) -> str:
    """Return what speaks against taking the answer to a question for what became of a write; nothing, where nothing.

    Args:
        asked: The fields of the write, by their wire names.
        number: Which names it.
        shape: How answers are read.
        document: The answer.
    """
    if holds_nothing(shape, document):
        return f"the service tells nothing of {number}"
    other = difference(asked, payload(shape, document))
    return f"{number} stands at the service for another one: {other}" if other else ""


def tells_of_something(question: Call, document: object) -> bool:
    """Return whether an answer, by its code "absent", tells of something all the same.

    It names a state that the profile knows, an amount, or another number: somebody has changed a code that no signature
    covers, or it is the answer to another question.
    """
    profile, told = question.profile, payload(question.profile.answer, document)
    if question.operation.name not in _ASKED or not isinstance(told, Mapping):
        return False
    thing, name = _ASKED[question.operation.name]
    path = getattr(profile.answer, f"{thing}_status")
    if path and profile.states.name(thing, at(told, path)):
        return True
    return any(told.get(amount) is not None for amount in AMOUNTS) or _differs(question.reference or "", told.get(name))


def difference(asked: Mapping[str, object], told: object) -> str:
    """Return in what an answer is about something else than was asked for; nothing where it is not.

    Args:
        asked: The fields of the write, by their wire names.
        told: The payload of an answer, or of a notification.
    """
    if not isinstance(told, Mapping):
        return ""
    for name in COMPARED:
        mine, theirs = asked.get(name), told.get(name)
        if mine is not None and _differs(mine, theirs):
            return f"{name} is {_shown(theirs)} there, and {mine} here"
    return ""


def _shown(theirs: object) -> str:
    text = str(theirs)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _differs(mine: object, theirs: object) -> bool:
    """Return whether two values are not the same, however they are written; what cannot be compared says nothing."""
    if isinstance(mine, str):
        return isinstance(theirs, str | int) and type(theirs) is not bool and str(theirs).casefold() != mine.casefold()
    if isinstance(theirs, str):
        return theirs.isdecimal() and _digits(theirs) != str(mine)
    return type(theirs) is int and theirs != mine


def _digits(text: str) -> str:
    """Return a number's digits as we write them; Python takes no thousands of them for a number."""
    return "".join(str(decimal(each)) for each in text).lstrip("0") or "0"
