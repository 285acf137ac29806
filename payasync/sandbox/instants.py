"""Moments as the database keeps them: whole microseconds since 1970, which sort as they follow each other."""

from datetime import UTC, datetime, timedelta
from typing import Final

BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    """Return an aware moment as microseconds since 1970."""
    return (moment - BEGINNING) // _MICROSECOND


def instant(given: datetime | int) -> datetime:
    """Return a moment in UTC, from itself or from its microseconds."""
    return BEGINNING + timedelta(microseconds=given) if isinstance(given, int) else given.astimezone(UTC)


def instant_if_any(given: datetime | int | None) -> datetime | None:
    """Return a moment as `instant` does, where there is one."""
    return None if given is None else instant(given)


def shown(moment: datetime) -> str:
    """Return a moment as people read it: ISO 8601, in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
