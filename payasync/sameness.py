"""Whether what the service tells of a number is about what was asked for: no I/O here.

A number may have been used for another refund before this one: what the service then tells is that one's.
"""

from collections.abc import Mapping
from typing import Final
from unicodedata import decimal

from payasync.responses import holds_nothing, payload
from payasync.shapes import AnswerShape

COMPARED: Final = ("outTradeNo", "outRefundNo", "totalAmt", "refundAmt", "currency")
"""The document's names of what says what was asked for, where both sides have them."""

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
