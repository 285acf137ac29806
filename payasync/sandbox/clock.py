"""The sandbox's time: how fast it goes, and what falls due as it goes on: timers first, then deliveries."""

import asyncio
import math
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from attrs import frozen

from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.sandbox.model import BEGINNING, TimerKind, format_instant, to_instant
from payasync.sandbox.store import Store
from payasync.settings import is_number

if TYPE_CHECKING:
    from payasync.sandbox.webhooks import Deliveries

ClockSetting: TypeAlias = str | float | datetime
"""`real`, `frozen`, the time at which it stands, or how many sandbox seconds a real one has: `60`, `"60x"`."""
DueAction: TypeAlias = Callable[[str], str]
"""Does what falls due for a number, and returns what it did; empty if nothing was left to do."""

FASTEST: Final = 100_000
"""Sandbox seconds in a real one: a day in about a second."""
LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)
_FACTOR: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)x?")


@frozen
class Pace:
    """How fast the sandbox's time goes.

    Attributes:
        rate: Sandbox seconds in a real one; 0: the clock stands, and only `advance` moves it.
        start: The first time in a new database; `None`: the machine's.
    """

    rate: float = 1.0
    start: datetime | None = None

    def resume(self, latest: datetime, away: timedelta) -> datetime:
        """Return the time at which a stored sandbox goes on; only a real clock counts the time in between.

        Args:
            latest: The last time that the database has.
            away: How long the sandbox was closed by the machine's clock, which may have been set back.
        """
        return latest + min(max(away, timedelta()), LATEST - latest) if self.rate == 1 else latest


def read_pace(setting: ClockSetting) -> Pace:
    """Return the pace that a setting means.

    Raises:
        ConfigurationError: The setting is invalid.
    """
    if isinstance(setting, datetime) and setting.utcoffset() is not None and BEGINNING <= setting < LATEST:
        return Pace(0.0, setting.astimezone(UTC))
    if isinstance(setting, str) and setting in {"real", "frozen"}:
        return Pace(float(setting == "real"))
    written = _FACTOR.fullmatch(setting) if isinstance(setting, str) else None
    rate = float(written[1]) if written else setting
    if is_number(rate) and math.isfinite(rate) and 0 < rate <= FASTEST:
        return Pace(float(rate))
    rule = f'"real", "frozen", an aware datetime, or a factor up to {FASTEST:_} such as 60 or "60x"'
    raise ConfigurationError(f"clock must be {rule}, not {setting!r}", field="clock")


@frozen
class ClockEvent:
    """Something that fell due and was done.

    Attributes:
        at: When, by the sandbox's time.
        what: What was done, such as `subscription renewed`.
        number: The number of the order, refund, subscription or notification.
    """

    at: datetime
    what: str
    number: str

    def __str__(self) -> str:
        return f"{format_instant(self.at)}  {self.what}  {self.number}"


@frozen
class Report:
    """What fell due while the clock was advanced, in order.

    Attributes:
        since: The time before.
        until: The time after.
        happened: What was done, each with its time and its number.
    """

    since: datetime
    until: datetime
    happened: tuple[ClockEvent, ...]

    def __iter__(self) -> Iterator[ClockEvent]:
        return iter(self.happened)

    def __len__(self) -> int:
        return len(self.happened)

    def __str__(self) -> str:
        return "\n".join(
            [f"{format_instant(self.since)} to {format_instant(self.until)}: {len(self)} fell due", *map(str, self)]
        )


class Clock:
    """The sandbox's time. It never goes backwards, and each commit stores it.

    Args:
        pace: How fast it goes.
        store: Has the time of an earlier start, and the timers.
        ticks: Real seconds, monotonic.
    """

    def __init__(self, pace: Pace, store: Store, *, ticks: Callable[[], float] = time.monotonic) -> None:
        wall, stored = _wall_time(), store.time()
        self._rate = pace.rate
        self._ticks = ticks
        self._at = pace.resume(stored[0], wall - stored[1]) if stored else pace.start or wall
        self._since = ticks()
        self._held: datetime | None = None
        self._store = store
        self._task: asyncio.Task[NoReturn] | None = None
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._advancing = asyncio.Lock()
        self._happened: list[ClockEvent] | None = None
        store.now = self.now
        store.on_commit(before=lambda: store.set_time(self._reading(), _wall_time()))
        self.store_time()

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return self._held or self._reading()

    async def advance(self, span: timedelta | None = None, /, **units: float) -> Report:
        """Advance the clock, do all that falls due until then, each at its own time, and return what that was.

        When it returns, timers have run, and due deliveries have been attempted.

        Args:
            span: By how much; or
            units: the same as the arguments of `timedelta`, such as `days=31`.

        Raises:
            InvalidArgumentError: The time would go backwards, or beyond the year 9998.
        """
        given: object = units if span is None else span
        try:
            by = timedelta(**units) if span is None else span
        except (TypeError, ValueError, OverflowError):
            by = None
        if not isinstance(by, timedelta) or (span is not None and units):
            raise _invalid_span("a timedelta, or its arguments such as days=31", given)
        if not timedelta() <= by <= LATEST - self.now():
            raise _invalid_span(f"a time from 0 to the year {LATEST.year - 1}", by)
        async with self._advancing:
            since, self._happened = self.now(), []
            until = since + min(by, LATEST - since)
            try:
                await self.settle()
                while (due := self._next_due(self.now())) and due <= until:
                    self._move_to(due)
                    await self.settle()
                self._move_to(until)
                self.store_time()
                await self.settle()
                return Report(since, self.now(), tuple(self._happened))
            finally:
                self._happened = None

    def store_time(self) -> None:
        """Store the time for the next start, if nothing else has changed."""
        with self._store.transaction():
            pass

    def seconds_until(self, moment: datetime) -> float | None:
        """Return the real seconds until a time: 0 if it has come, `None` if the clock stands before it."""
        left = (moment - self.now()).total_seconds()
        if left <= 0:
            return 0.0
        return left / self._rate if self._rate else None

    def start(self, actions: Mapping[TimerKind, DueAction], deliveries: "Deliveries") -> None:
        """Do what fell due while the sandbox was closed, and go on in the background.

        Args:
            actions: What each kind of timer does.
            deliveries: Deliver notifications.
        """
        self._actions = actions
        self._deliveries = deliveries
        while self._run_next_timer(self.now()) is not None:
            pass
        self._task = asyncio.create_task(self._run(), name="payasync sandbox clock")
        self._store.on_commit(after=self._wake)

    async def settle(self) -> None:
        """Return when all that was due is done, with all that it caused to be due.

        Raises:
            ConfigurationError: The sandbox was closed, or its database cannot be written.
        """
        self._wake()
        idle = asyncio.create_task(self._idle.wait())
        task = self._task
        assert task is not None  # noqa: S101 - nobody has it before it was started
        try:
            await asyncio.wait({idle, task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            idle.cancel()
        if task.cancelled():
            raise ConfigurationError("the sandbox was closed before everything due was done")
        if task.done():
            task.result()

    async def close(self) -> None:
        """Stop; what is still due stays so, for the next start.

        Raises:
            ConfigurationError: Something that was due could not be written.
        """
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()

    def _wake(self) -> None:
        self._idle.clear()
        self._woken.set()

    def _reading(self) -> datetime:
        passed = (self._ticks() - self._since) * self._rate
        return self._at + timedelta(seconds=min(passed, (LATEST - self._at).total_seconds()))

    def _move_to(self, moment: datetime) -> None:
        self._at, self._since = max(moment, self._reading()), self._ticks()

    @contextmanager
    def _held_at(self, moment: datetime) -> Generator[None]:
        """Show the time at which something fell due while it is done."""
        self._held = moment
        try:
            yield
        finally:
            self._held = None

    def _next_due(self, after: datetime) -> datetime | None:
        timer, delivery = self._store.next_timer(after), self._deliveries.next(after)
        return min(delivery or timer.due, timer.due) if timer else delivery

    async def _run(self) -> NoReturn:
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._run_due(group)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _run_due(self, group: asyncio.TaskGroup) -> None:
        """Run the timers that are due, begin the deliveries that are due, and wait for more."""
        self._woken.clear()
        now = self.now()
        while (done := self._run_next_timer(now)) is not None:
            self._note(*done)
            await asyncio.sleep(0)
        self._deliveries.begin(group, now, self._delivery_ended)
        if not self._deliveries.under_way and not self._woken.is_set():
            self._idle.set()
        due = self._next_due(now)
        seconds = self.seconds_until(due) if due else None
        waking = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            if waking:
                waking.cancel()

    def _run_next_timer(self, by: datetime) -> list[ClockEvent] | None:
        """Do what was due first, as if at its own time, in its own transaction; `None` if nothing is due."""
        timer = self._store.due_timer(by)
        if timer is None:
            return None
        with self._held_at(timer.due), self._store.transaction():
            self._store.set_timer(timer.kind, timer.reference, None)
            what = self._actions[timer.kind](timer.reference)
        return [ClockEvent(timer.due, what, timer.reference)] if what else []

    def _delivery_ended(self, happened: ClockEvent) -> None:
        self._note(happened)
        self._wake()

    def _note(self, *happened: ClockEvent) -> None:
        if self._happened is not None:
            self._happened += happened


def _invalid_span(rule: str, value: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"advance must be given {rule}, not {value!r}", field="advance", rule=rule, value=value)


def _wall_time() -> datetime:
    return to_instant(time.time_ns() // 1000)
