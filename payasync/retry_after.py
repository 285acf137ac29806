"""The Retry-After header: seconds or a date; nonsense is ignored."""

from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_FAR = 10**9


def _utc_now() -> datetime:
    return datetime.now(UTC)


def retry_after(value: str | None, now: Callable[[], datetime] = _utc_now) -> float | None:
    """Return the seconds that a service asked to wait, or `None` where it did not say, or not clearly.

    Args:
        value: The header, as it came.
        now: The wall clock, which a date is measured against.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdecimal():
        return float(text) if len(text) < len(str(_FAR)) else None
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - now()).total_seconds())
