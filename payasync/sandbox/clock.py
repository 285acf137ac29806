"""The sandbox's clock: its speed, and the timers and deliveries that fall due, in this order."""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from attrs import frozen

from payasync.clocks import monotonic_time, utc_now
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.sandbox.model import BEGINNING, Timer, TimerKind, format_instant
from payasync.sandbox.server import check_loop
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
class ClockRate:
    """How fast the sandbox's time goes.

    Attributes:
        factor: Sandbox seconds in a real one; 0: the clock stands, and only `advance` moves it.
        start: The first time in a new database; `None`: the machine's.
    """

    factor: float = 1.0
    start: datetime | None = None

    def resume(self, latest: datetime, away: timedelta) -> datetime:
        """Return the time at which a stored sandbox goes on; only a real clock counts the time in between.

        Args:
            latest: The last time that the database has.
            away: How long the sandbox was closed by the machine's clock, which may have been set back.
        """
        return latest + min(max(away, timedelta()), LATEST - latest) if self.factor == 1 else latest


def read_clock_rate(setting: ClockSetting) -> ClockRate:
    """Return the rate that a setting means.

    Raises:
        ConfigurationError: The setting is invalid.
    """
    if isinstance(setting, datetime) and setting.utcoffset() is not None and BEGINNING <= setting < LATEST:
        return ClockRate(0.0, setting.astimezone(UTC))
    if setting in ("real", "frozen"):
        return ClockRate(float(setting == "real"))
    written = _FACTOR.fullmatch(setting) if isinstance(setting, str) else None
    factor = float(written[1]) if written else setting
    if is_number(factor) and 0 < factor <= FASTEST:
        return ClockRate(float(factor))
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
        first = f"{format_instant(self.since)} to {format_instant(self.until)}: {len(self)} fell due"
        return "\n".join([first, *map(str, self)])


class Clock:
    """The sandbox's time. It never goes backwards, and each commit stores it.

    Args:
        rate: How fast it goes.
        store: Has the time of an earlier start, and the timers.
    """

    def __init__(self, rate: ClockRate, store: Store) -> None:
        wall, stored = utc_now(), store.time()
        self._factor = rate.factor
        self._at = rate.resume(stored[0], wall - stored[1]) if stored else rate.start or wall
        self._since = monotonic_time()
        self._shown: datetime | None = None
        self._store = store
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._advancing = asyncio.Lock()
        self._happened: list[ClockEvent] | None = None
        self._task: asyncio.Task[NoReturn] | None = None
        store.now = self.now
        store.before_commit = lambda: store.set_time(self._reading(), utc_now())
        self.store_time()

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return self._shown or self._reading()

    async def advance(self, span: timedelta | None = None, /, **units: float) -> Report:
        """Advance the clock, do all that falls due until then, each at its own time, and return what that was.

        When it returns, timers have run, and due deliveries have been attempted.

        Args:
            span: By how much; or
            units: the same as the arguments of `timedelta`, such as `days=31`.

        Raises:
            InvalidArgumentError: The time would go backwards, or beyond the year 9998.
        """
        by = self._read_span(span, units)
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

    def _read_span(self, span: timedelta | None, units: Mapping[str, float]) -> timedelta:
        rule = f"a timedelta, or its arguments such as days=31, from 0 to the year {LATEST.year - 1}"
        with suppress(TypeError, ValueError, OverflowError):
            by = timedelta(**units) if span is None else span
            if timedelta() <= by <= LATEST - self.now() and (span is None or not units):
                return by
        value = units if span is None else span
        message = f"advance must be given {rule}, not {value!r}"
        raise InvalidArgumentError(message, field="advance", rule=rule, value=value)

    def store_time(self) -> None:
        """Store the time for the next start, if nothing else has changed."""
        with self._store.transaction():
            pass

    def seconds_until(self, moment: datetime) -> float | None:
        """Return the real seconds until a time: 0 if it has come, `None` if the clock is stopped before it."""
        left = (moment - self.now()).total_seconds()
        if left <= 0:
            return 0.0
        return left / self._factor if self._factor else None

    def start(self, actions: Mapping[TimerKind, DueAction], deliveries: "Deliveries") -> None:
        """Do what fell due while the sandbox was closed, and go on in the background.

        Args:
            actions: What each kind of timer does.
            deliveries: Deliver notifications.
        """
        self._actions = actions
        self._deliveries = deliveries
        while (timer := self._store.next_timer()) and timer.due <= self.now():
            self._run_timer(timer)
        self._task = asyncio.create_task(self._run(), name="payasync sandbox clock")
        self._task.add_done_callback(lambda _task: self._idle.set())
        self._store.after_commit = self._wake

    async def settle(self) -> None:
        """Return when all that was due is done, with all that it caused to be due.

        Raises:
            ConfigurationError: The sandbox was closed, or was started in another event loop, or its database cannot be
                written.
        """
        task = self._task
        assert task is not None  # noqa: S101 - nobody has it before it was started
        check_loop(task.get_loop())
        if not task.done():
            self._wake()
            await self._idle.wait()
        if task.cancelled():
            raise ConfigurationError("the sandbox was closed before everything due was done")
        if task.done():
            task.result()

    async def close(self) -> None:
        """Stop. Due timers and deliveries stay due until the next start.

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
        passed = (monotonic_time() - self._since) * self._factor
        return self._at + timedelta(seconds=min(passed, (LATEST - self._at).total_seconds()))

    def _move_to(self, moment: datetime) -> None:
        self._at, self._since = max(moment, self._reading()), monotonic_time()

    def _next_due(self, after: datetime) -> datetime | None:
        timer, delivery = self._store.next_timer(), self._deliveries.next(after)
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
        while (timer := self._store.next_timer()) and timer.due <= now:
            self._run_timer(timer)
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

    def _run_timer(self, timer: Timer) -> None:
        """Run a due timer in its own transaction, as if at its own time."""
        self._shown = timer.due
        try:
            with self._store.transaction():
                self._store.set_timer(timer.kind, timer.reference, None)
                what = self._actions[timer.kind](timer.reference)
        finally:
            self._shown = None
        if what:
            self._note(ClockEvent(timer.due, what, timer.reference))

    def _note(self, happened: ClockEvent) -> None:
        if self._happened is not None:
            self._happened.append(happened)

    def _delivery_ended(self, happened: ClockEvent) -> None:
        self._note(happened)
        self._wake()
