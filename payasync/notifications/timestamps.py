"""When something was sent, by what it says itself, and whether that is near enough."""

import math
import re
from datetime import datetime
from typing import Final

from payasync.errors import InvalidSignatureError

MILLISECONDS_FROM: Final = 10**11
"""So many seconds after 1970 are the year 5138: a number from here on counts milliseconds."""

MISMATCH: Final = "the body is not the one that was signed, or the key is another"
"""What a signature that is not the right one comes from."""

_NUMBER: Final = re.compile(r"[0-9]{1,19}(\.[0-9]{1,9})?", re.ASCII)


def seconds(value: object) -> float | None:
    """Return a time as seconds since 1970; `None` for what is no time.

    Args:
        value: ISO 8601 with an offset, or seconds since 1970, or milliseconds; a text of digits is a number.
    """
    if isinstance(value, str):
        return _counted(float(value)) if _NUMBER.fullmatch(value) else _instant(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return _counted(float(value))
    except OverflowError:
        return None


def _counted(number: float) -> float | None:
    if not math.isfinite(number):
        return None
    return number / 1000 if number >= MILLISECONDS_FROM else number


def _instant(text: str) -> float | None:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if instant.utcoffset() is None else instant.timestamp()


def check_window(field: str, sent: float, now: float, tolerance: float) -> None:
    """Refuse what was sent too long ago, or would have been sent in the future.

    Args:
        field: Where it says when it was sent.
        sent: Seconds since 1970, as all of these.
        now: By this machine's clock.
        tolerance: How far the two may be apart, both ways.

    Raises:
        InvalidSignatureError: They are further apart.
    """
    age = now - sent
    if not abs(age) <= tolerance:
        side = "ago" if age > 0 else "ahead of this machine's clock"
        raise unverified(field, f"is {abs(age):.0f} seconds {side}: more than notification.tolerance, {tolerance:g}")


def unverified(field: str, reason: str) -> InvalidSignatureError:
    """Return the error for what nobody has shown to be from the service.

    Args:
        field: A header, or a path in the document.
        reason: What is wrong with it: never a key, nor what would have been right.
    """
    return InvalidSignatureError(f"the notification is not verified: {field} {reason}", field=field, reason=reason)
