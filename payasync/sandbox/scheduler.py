"""Does what falls due as the sandbox's time goes on: timers first, then deliveries."""

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NoReturn

from attrs import field, frozen

from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.sandbox import statements
from payasync.sandbox.clock import LATEST, Alarm, Happened, Insistence, Pace, Timepiece
from payasync.sandbox.database import Database, by_hand
from payasync.sandbox.model import format_instant, instant
from payasync.sandbox.webhooks import Deliveries


@frozen
class Report:
    """What fell due while the time was advanced, in the order in which it was done.

    Attributes:
        since: The time before.
        until: The time after.
        happened: What was done, each with its moment and its number.
    """

    since: datetime
    until: datetime
    happened: tuple[Happened, ...]

    def __iter__(self) -> Iterator[Happened]:
        return iter(self.happened)

    def __len__(self) -> int:
        return len(self.happened)

    def __str__(self) -> str:
        return "\n".join(
            [f"{format_instant(self.since)} to {format_instant(self.until)}: {len(self)} fell due", *map(str, self)]
        )


class Agenda:
    """Waits for what is due next, and does it, in the background.

    Args:
        timepiece: The time.
        alarm: Does what timers stand for.
        deliveries: Deliver notifications.
        keep: Keeps the time, for the next start.
    """

    def __init__(self, timepiece: Timepiece, alarm: Alarm, deliveries: Deliveries, keep: Callable[[], object]) -> None:
        self._keep = keep
        self._timepiece = timepiece
        self._alarm = alarm
        self._deliveries = deliveries
        self._insistence = Insistence()
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._advancing = asyncio.Lock()
        self._happened: list[Happened] | None = None
        self._task = asyncio.create_task(self._run(), name="payasync sandbox agenda")

    def wake(self) -> None:
        """Say that something may be due, and may be written."""
        self._insistence.ask()
        self._idle.clear()
        self._woken.set()

    async def settle(self) -> None:
        """Return when all that was due is done, with all that it caused to be due.

        Raises:
            ConfigurationError: The sandbox is closed meanwhile, or its database cannot be written; what is due
                stays so, and is done once it can.
        """
        self.wake()
        waiting = [asyncio.create_task(until) for until in (self._idle.wait(), self._insistence.failing())]
        try:
            await asyncio.wait({*waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        if self._task.cancelled():
            raise ConfigurationError("the sandbox was closed meanwhile")
        if self._task.done():
            self._task.result()
        self._insistence.check()

    async def advance(self, span: timedelta) -> Report:
        """Go on by a time, by way of each moment at which something falls due, and return what that was."""
        async with self._advancing:
            since, self._happened = self._timepiece.now(), []
            until = since + min(span, LATEST - since)
            try:
                await self.settle()
                while (due := self._next(self._timepiece.now())) and due <= until:
                    self._timepiece.move_to(due)
                    await self.settle()
                self._timepiece.move_to(until)
                self._keep()
                await self.settle()
                return Report(since, self._timepiece.now(), tuple(self._happened))
            finally:
                self._happened = None

    async def close(self) -> None:
        """Stop; what is still due stays so.

        Raises:
            ConfigurationError: Something that is due could not be written.
        """
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()
        self._insistence.check()

    def _next(self, after: datetime) -> datetime | None:
        return min(filter(None, (self._alarm.next(after), self._deliveries.next(after))), default=None)

    async def _run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._go_on(group)

    async def _go_on(self, group: asyncio.TaskGroup) -> None:
        self._woken.clear()
        now = self._timepiece.now()
        await self._run_timers(now)
        self._deliveries.begin(group, now, self._insistence, self._ended)
        if not self._deliveries.under_way and not self._woken.is_set():
            self._idle.set()
        await self._until_next(now)

    async def _run_timers(self, by: datetime) -> None:
        while (done := await self._insistence.done(lambda: self._alarm.run_next(by))) is not None:
            self._note(done)
            await asyncio.sleep(0)

    async def _until_next(self, now: datetime) -> None:
        due = self._next(now)
        seconds = self._timepiece.seconds_until(due) if due else None
        waking = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            if waking:
                waking.cancel()

    def _ended(self, happened: Happened) -> None:
        self._note([happened])
        self.wake()

    def _note(self, done: list[Happened]) -> None:
        if self._happened is not None:
            self._happened += done


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


@frozen
class Kept:
    """The time as the database has it.

    Attributes:
        latest: The sandbox's, at the last change.
        wall: That of the machine, then.
    """

    latest: datetime = field(converter=instant)
    wall: datetime = field(converter=instant)


def resumed(database: Database, pace: Pace) -> Timepiece:
    """Return the time as it goes on, kept in the database from now on with each change."""
    wall = _wall()
    kept = database.first(Kept, statements.CLOCK)
    timepiece = Timepiece(pace, pace.resumed(kept.latest, wall - kept.wall) if kept else pace.start or wall)
    database.on_committing(lambda: _write(database, timepiece))
    keep(database)
    return timepiece


def keep(database: Database) -> None:
    """Keep the time, where nothing else has changed.

    Raises:
        ConfigurationError: The database cannot be written.
    """
    with by_hand(database):
        pass


def _write(database: Database, timepiece: Timepiece) -> None:
    database.changed(statements.KEEP_CLOCK, {"latest": timepiece.reading(), "wall": _wall()})


def _wall() -> datetime:
    return instant(time.time_ns() // 1000)
