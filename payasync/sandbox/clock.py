"""The sandbox's time: how fast it goes, and the durable timers of what falls due."""

import asyncio
import math
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias, TypeVar

from attrs import asdict, field, frozen

from payasync.errors import ConfigurationError
from payasync.sandbox import statements
from payasync.sandbox.database import Database
from payasync.sandbox.model import BEGINNING, RefusedError, format_instant, instant

ClockSetting: TypeAlias = str | float | datetime
"""`real`, `frozen`, a moment at which it stands, or how many sandbox seconds a real one has: `60`, `"60x"`."""

FASTEST: Final = 100_000
"""Sandbox seconds in a real one: a day in about a second."""
LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)
_FACTOR: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)x?")
_RULE: Final = f'"real", "frozen", an aware datetime, or a factor up to {FASTEST:_} such as 60 or "60x"'


@frozen
class Pace:
    """How the sandbox's time goes.

    Attributes:
        rate: Sandbox seconds in a real one; 0: it stands, and moves by `advance` only.
        start: Where it begins in a new database; `None`: at the time of this machine.
    """

    rate: float = 1.0
    start: datetime | None = None

    def resumed(self, latest: datetime, away: timedelta) -> datetime:
        """Return where the time of a database goes on.

        A real clock counts the time that the sandbox was not running; the others stand still meanwhile.

        Args:
            latest: The last moment that the database knows.
            away: What has passed since, by the clock of this machine, which may have been set back.
        """
        return latest + min(max(away, timedelta()), LATEST - latest) if self.rate == 1 else latest


def pace(setting: ClockSetting) -> Pace:
    """Return the pace that a setting means.

    Raises:
        ConfigurationError: It means none.
    """
    if isinstance(setting, datetime):
        return Pace(0.0, _aware(setting).astimezone(UTC))
    named = {"real": Pace(), "frozen": Pace(0.0)}.get(setting) if isinstance(setting, str) else None
    return named or Pace(_rate(setting))


def _rate(setting: object) -> float:
    if isinstance(setting, str) and (written := _FACTOR.fullmatch(setting)):
        setting = float(written[1])
    if isinstance(setting, bool) or not isinstance(setting, int | float):
        raise _no_clock(setting)
    if not (math.isfinite(setting) and 0 < setting <= FASTEST):
        raise _no_clock(setting)
    return float(setting)


def _aware(moment: datetime) -> datetime:
    if moment.utcoffset() is None or not BEGINNING <= moment < LATEST:
        raise _no_clock(moment)
    return moment


def _no_clock(setting: object) -> ConfigurationError:
    return ConfigurationError(f"clock must be {_RULE}, not {setting!r}", field="clock")


class Timepiece:
    """Shows the time; it never goes backwards.

    Args:
        pace: How fast it goes.
        at: What it shows first.
        ticks: Real seconds; they only grow.
    """

    def __init__(self, pace: Pace, at: datetime, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._rate = pace.rate
        self._ticks = ticks
        self._at = at
        self._since = ticks()
        self._held: datetime | None = None

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return self._held or self.reading()

    def reading(self) -> datetime:
        """Return the time, whatever moment is held."""
        passed = (self._ticks() - self._since) * self._rate
        return self._at + timedelta(seconds=min(passed, (LATEST - self._at).total_seconds()))

    def move_to(self, moment: datetime) -> None:
        """Go on from a later moment; an earlier one changes nothing."""
        self._at, self._since = max(moment, self.reading()), self._ticks()

    def seconds_until(self, moment: datetime) -> float | None:
        """Return the real seconds until a moment; 0 where it has come, and `None` where time stands before it."""
        left = (moment - self.now()).total_seconds()
        if left <= 0:
            return 0.0
        return left / self._rate if self._rate else None

    @contextmanager
    def held(self, moment: datetime) -> Generator[None]:
        """Show one moment for as long as something is done, without a pause, that fell due then."""
        self._held = moment
        try:
            yield
        finally:
            self._held = None


T = TypeVar("T")
PAUSE: Final = 0.25
"""Seconds between two tries, unless somebody asks for one before."""


class Insistence:
    """Tries writes until they succeed, and tells who asks whether one of them fails just now."""

    def __init__(self) -> None:
        self._why = ""
        self._failing = asyncio.Event()
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Have what failed tried again at once; until then it counts as not failing."""
        self._failing.clear()
        self._asked.set()
        self._asked = asyncio.Event()

    async def failing(self) -> None:
        """Return when a write fails."""
        await self._failing.wait()

    def check(self) -> None:
        """Do nothing, unless a write fails.

        Raises:
            ConfigurationError: The last try failed.
        """
        if self._failing.is_set():
            raise ConfigurationError(f"db: {self._why}", field="db")

    async def done(self, write: Callable[[], T]) -> T:
        """Return what a write returns, once it has succeeded.

        Args:
            write: All or nothing; refused where the database cannot be written.
        """
        while True:
            try:
                written = write()
            except RefusedError as refused:
                self._why = refused.message
                self._failing.set()
                await self._pause()
            else:
                self._failing.clear()
                return written

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE):
                await self._asked.wait()


TimerKind = Literal["expire", "settle", "renew"]


@frozen(kw_only=True)
class Timer:
    """Something that falls due: the expiry of an order, the end of a refund, a period of a subscription.

    Attributes:
        due: When.
        kind: What is done then.
        reference: The number of the order, refund or subscription.
    """

    due: datetime = field(converter=instant)
    kind: TimerKind
    reference: str


@frozen
class Happened:
    """Something that fell due, and was done.

    Attributes:
        at: When, by the sandbox's time.
        what: What it was, such as `subscription renewed`.
        number: Of which order, refund, subscription or notification.
    """

    at: datetime
    what: str
    number: str

    def __str__(self) -> str:
        return f"{format_instant(self.at)}  {self.what}  {self.number}"


class Timers:
    """Sets and stops timers; a thing has one of each kind at most.

    Args:
        database: Keeps them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def set(self, kind: TimerKind, reference: str, due: datetime | None) -> None:
        """Set a timer to a moment, whatever it was set to before; to none stops it."""
        if due is None:
            self.stop(kind, reference)
        else:
            self._database.changed(statements.SET_TIMER, asdict(Timer(due=due, kind=kind, reference=reference)))

    def stop(self, kind: TimerKind, reference: str) -> None:
        """Stop a timer, where it is set."""
        self._database.changed(statements.STOP_TIMER, {"kind": kind, "reference": reference})

    def due(self, by: datetime) -> Timer | None:
        """Return the timer that falls due first, by a moment."""
        return self._database.first(Timer, statements.DUE_TIMER, now=by)

    def next(self, after: datetime) -> Timer | None:
        """Return the timer that falls due first, after a moment."""
        return self._database.first(Timer, statements.NEXT_TIMER, after=after)


Falling = Callable[[str], str]
"""Does what falls due for a number, and returns what that was; empty where nothing was left to do."""


class Alarm:
    """Does what falls due, one timer after the other, each as if at its own moment and in its own transaction.

    Args:
        database: Holds the transactions.
        timers: Say what is due.
        timepiece: Shows the time.
        falling: What each kind of timer does.
    """

    def __init__(
        self, database: Database, timers: Timers, timepiece: Timepiece, falling: Mapping[TimerKind, Falling]
    ) -> None:
        self._database = database
        self._timers = timers
        self._timepiece = timepiece
        self._falling = falling

    def next(self, after: datetime) -> datetime | None:
        """Return when the next timer falls due after a moment."""
        timer = self._timers.next(after)
        return timer.due if timer else None

    def run_next(self, by: datetime) -> list[Happened] | None:
        """Do what is due first, by a moment; `None` where nothing is.

        Raises:
            RefusedError: The database cannot be written.
        """
        timer = self._timers.due(by)
        if timer is None:
            return None
        with self._timepiece.held(timer.due), self._database.transaction():
            self._timers.stop(timer.kind, timer.reference)
            what = self._falling[timer.kind](timer.reference)
        return [Happened(timer.due, what, timer.reference)] if what else []
