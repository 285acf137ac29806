"""What a fault makes of one attempt to deliver a notification, decided without sending anything."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from attrs import frozen

from payasync.profile import NONCE
from payasync.sandbox.faults import effects

_NONCE: Final = re.compile(rf'"{NONCE}": ?"[0-9a-f]')
_DIGIT: Final = re.compile(r"[0-9](?=[^0-9]*$)", re.ASCII)


@frozen(kw_only=True)
class Passage:
    """How one attempt goes.

    Attributes:
        fault: What befalls it, in words; empty: nothing.
        lost: It never arrives.
        copies: How often it arrives.
        later: It is not attempted now, but so much later by the sandbox's clock.
        overtaken: It need not wait so long, once another one was attempted.
        age: Seconds by which its timestamp lies back.
        corrupted: Its body is changed after it was signed.
    """

    fault: str = ""
    lost: bool = False
    copies: int = 1
    later: timedelta = timedelta()
    overtaken: bool = False
    age: int = 0
    corrupted: bool = False

    def body(self, signed: str) -> str:
        """Return the body that goes over the wire.

        Args:
            signed: As it was signed.
        """
        return corrupted(signed) if self.corrupted else signed


PLAIN: Final = Passage()


def passage(effect: effects.Effect, fault: str) -> Passage:
    """Return how an attempt goes that meets a fault.

    Args:
        effect: What the fault does.
        fault: The fault in words.
    """
    match effect:
        case effects.Drop():
            return Passage(fault=fault, lost=True)
        case effects.Duplicate():
            return Passage(fault=fault, copies=2)
        case effects.Reorder(seconds=seconds):
            return Passage(fault=fault, later=timedelta(seconds=seconds), overtaken=True)
        case effects.Delay(seconds=seconds):
            return Passage(fault=fault, later=timedelta(seconds=seconds))
        case effects.OldTimestamp(seconds=age):
            return Passage(fault=fault, age=age)
        case _:
            return Passage(fault=fault, corrupted=True)


def texts(document: object) -> Iterator[str]:
    """Yield the texts in a JSON document, without their names: among them are the numbers that it tells of."""
    match document:
        case str():
            yield document
        case dict():
            yield from texts([*document.values()])
        case list():
            for each in document:
                yield from texts(each)
        case _:
            pass


def corrupted(body: str) -> str:
    """Return a body in which one character is another: still as long, and still JSON; else it loses its end.

    It is one of the nonce where there is one, because not all that a body holds need be signed; else the last digit.
    """
    found = _NONCE.search(body) or _DIGIT.search(body)
    if not found:
        return body[:-1]
    at = found.end() - 1
    # 1 to 9, so that no number begins with a 0.
    other = int(body[at]) % 9 + 1 if body[at].isdecimal() else 0
    return f"{body[:at]}{other}{body[at + 1 :]}"
