"""The sandbox's clock, as its users see it."""

from datetime import datetime, timedelta

from payasync.errors import InvalidArgumentError
from payasync.sandbox.agenda import Agenda, Report
from payasync.sandbox.pace import LATEST
from payasync.sandbox.timepiece import Timepiece


class Clock:
    """Tells the sandbox's time, and advances it.

    Args:
        timepiece: Shows it.
        agenda: Does what falls due on the way.
    """

    def __init__(self, timepiece: Timepiece, agenda: Agenda) -> None:
        self._timepiece = timepiece
        self._agenda = agenda

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return self._timepiece.now()

    async def advance(self, span: timedelta | None = None, /, **units: float) -> Report:
        """Advance the time, do all that falls due until then, each at its own moment, and return what that was.

        It returns when that is done: timers have run, and what is due to be delivered has been attempted.

        Args:
            span: By how much; or
            units: the same as the arguments of `timedelta`, such as `days=31`.

        Raises:
            InvalidArgumentError: The time would go backwards, or further than the year 9998.
        """
        by = _span(span, units)
        if not timedelta() <= by <= LATEST - self.now():
            raise _refused(f"a time from 0 to the year {LATEST.year - 1}", by)
        return await self._agenda.advance(by)


def _span(span: timedelta | None, units: dict[str, float]) -> timedelta:
    given: object = units if span is None else span
    try:
        by = timedelta(**units) if span is None else span
    except (TypeError, ValueError, OverflowError):
        by = None
    if by is None or not isinstance(by, timedelta) or (span is not None and units):
        raise _refused("a timedelta, or its arguments such as days=31", given)
    return by


def _refused(rule: str, value: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"advance must be given {rule}, not {value!r}", field="advance", rule=rule, value=value)
