"""What every store asks of its arguments, whatever it keeps things in."""

from datetime import datetime
from typing import Final

from payasync.requests import invalid

_MOST: Final = 2**63 - 1


def number(name: str, given: object) -> int:
    """Return an integer that a database can hold.

    Raises:
        InvalidArgumentError: It is none, or below 0.
    """
    if type(given) is not int or not 0 <= given <= _MOST:
        raise invalid(name, "an integer of 0 or more, below 2**63", given)
    return given


def aware(name: str, given: object) -> datetime:
    """Return a moment that means the same everywhere.

    Raises:
        InvalidArgumentError: It does not say its offset from UTC, or is no moment.
    """
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise invalid(name, "a moment with its offset from UTC", given)
    return given
