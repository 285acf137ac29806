"""Whether what the service tells of a number is about what was asked for: no I/O here.

A number may have been used for another refund before this one: what the service then tells is that one's.
"""

from collections.abc import Mapping
from typing import Final

from payasync.responses import holds_nothing, payload
from payasync.shapes import AnswerShape

COMPARED: Final = ("outTradeNo", "outRefundNo", "totalAmt", "refundAmt", "currency")
"""The document's names of what says what was asked for, where both sides have them."""


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
            return f"{name} is {theirs} there, and {mine} here"
    return ""


def _differs(mine: object, theirs: object) -> bool:
    """Return whether two values are not the same, however they are written; what cannot be compared says nothing."""
    if isinstance(mine, str):
        return isinstance(theirs, str | int) and type(theirs) is not bool and str(theirs).casefold() != mine.casefold()
    if isinstance(theirs, str) and theirs.isdecimal():
        theirs = int(theirs)
    return type(theirs) is int and theirs != mine
