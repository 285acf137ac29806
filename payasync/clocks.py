"""Clocks, jitter, and the deadlines of a loop. One timer serves a loop: a timer each would cost more than signing."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Protocol

import backoff
from attrs import frozen

RESOLUTION: Final = 0.05
"""Seconds between two checks if no deadline is nearer, and the most by which a call ends late in an idle loop."""
CLOSEST: Final = 0.005
"""The fewest seconds between two checks, because a thousand calls may have a thousand deadlines."""
BLOCKED: Final = 1.0
"""Seconds by which a check is late if the loop was blocked, or the process stopped. Busy loops are late by less."""

# This clock goes on while the machine is suspended, as the service does.
BOOT_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


@cache
def _boot_identity() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex(16)  # this process's alone


@frozen(kw_only=True)
class Clocks:
    """The clocks and the jitter of a process. `use_clocks` replaces them, so that a test or a simulation need not wait.

    The event loop has a clock of its own, for timers and deadlines.

    Attributes:
        wall: Returns seconds since 1970.
        boot: Returns seconds on a clock that counts while the machine is suspended. Default: the wall clock, if the
            machine has no such clock.
        monotonic: Returns seconds on a clock that never goes back.
        tick: Returns nanoseconds on the clock of `boot`. Default: on `monotonic`, if the machine has no such clock.
        identity: Returns the identity of that clock, without blanks: it changes when the machine is started.
        jitter: Returns a random number, from 0 to its argument.
    """

    wall: Callable[[], float] = time.time
    boot: Callable[[], float] = lambda: time.time() if BOOT_CLOCK is None else time.clock_gettime(BOOT_CLOCK)
    monotonic: Callable[[], float] = time.monotonic
    tick: Callable[[], int] = lambda: time.monotonic_ns() if BOOT_CLOCK is None else time.clock_gettime_ns(BOOT_CLOCK)
    identity: Callable[[], str] = _boot_identity
    jitter: Callable[[float], float] = backoff.full_jitter


_clocks: Final = ContextVar("_clocks", default=Clocks())


def use_clocks(clocks: Clocks) -> None:
    """Have what runs in this context, and the tasks that it makes from now on, use other clocks."""
    _clocks.set(clocks)


def wall_time() -> float:
    """Return seconds since 1970."""
    return _clocks.get().wall()


def utc_moment(seconds: float) -> datetime:
    """Return the aware moment that is so many seconds after the beginning of 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def utc_now() -> datetime:
    """Return what time it is, as an aware moment."""
    return utc_moment(wall_time())


def boot_time() -> float:
    """Return seconds on a clock that counts while the machine is suspended, or wall time without such a clock."""
    return _clocks.get().boot()


def monotonic_time() -> float:
    """Return seconds on a clock that never goes back."""
    return _clocks.get().monotonic()


def boot_tick() -> str:
    """Return a timestamp of the same clock and its identity, so that a jump of the wall clock changes no wait."""
    clocks = _clocks.get()
    return f"{clocks.identity()} {clocks.tick()}e-9"  # seconds; writing a float would take longer


def draw_jitter(longest: float) -> float:
    """Return a random number of seconds, from 0 to its argument."""
    return _clocks.get().jitter(longest)


@frozen(kw_only=True)
class Pace:
    """The clock, the sleep and the jitter of a loop that waits, which tests replace.

    Attributes:
        clock: Returns the time in seconds. Default: the event loop's time.
        sleep: Waits for a number of seconds.
        jitter: Returns a random number of seconds, from 0 to its argument.
    """

    clock: Callable[[], float] = lambda: asyncio.get_running_loop().time()
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    jitter: Callable[[float], float] = draw_jitter


class Timed(Protocol):
    """What ends when its time is over.

    Attributes:
        when: The moment, on the loop's clock.
        mine: Whether it bounds the running task.
    """

    when: float

    @property
    def mine(self) -> bool:
        """See above."""
        return False

    def postpone(self, seconds: float) -> None:
        """Take notice that the loop was blocked."""

    def expire(self) -> None:
        """End, because the time is over."""


def running_task() -> "asyncio.Task[object]":
    """Return the running task; a coroutine always runs in one."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - asyncio runs coroutines in tasks only
    return task


class Deadlines:
    """The deadlines of one loop, checked when the earliest is over, or every `RESOLUTION` seconds while there are any.

    Attributes:
        loop: The loop.
        time: The loop's clock.
        running: The deadlines of running attempts and waits, in the order in which they began: equal ones end so.
        timer: The timer of the next check, or `None` if none is scheduled.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.time: Callable[[], float] = loop.time
        self.running: dict[Timed, None] = {}
        self.timer: asyncio.TimerHandle | None = None

    def add(self, deadline: Timed) -> None:
        """End an attempt or a wait when its time is over, unless it is removed from `running` before."""
        self.running[deadline] = None
        # If its time was over long ago, a signal's exception came at the very beginning of its check.
        if self.timer is None or self.timer.when() < self.time() - BLOCKED:
            self.schedule_check(RESOLUTION)

    def schedule_check(self, seconds: float) -> None:
        """Schedule the next check. It schedules another one as long as there are deadlines."""
        due = self.loop.time() + seconds
        self.timer = self.loop.call_at(due, self._check, due)

    def _check(self, due: float) -> None:
        now = earliest = self.time()
        try:
            if now - due > BLOCKED:  # what happened meanwhile is not read yet
                for deadline in self.running:
                    deadline.postpone(now - due)
            near = [each for each in self.running if each.when <= now + RESOLUTION]
            for deadline in sorted((each for each in near if each.when <= now), key=attrgetter("when")):
                self.running.pop(deadline, None)
                deadline.expire()
            earliest = min((each.when for each in near if each.when > now), default=inf)
        finally:  # also after a signal's exception
            if self.timer is not None:
                self.timer.cancel()  # such an exception may have left two timers
                self.timer = None
            if self.running:
                self.schedule_check(min(RESOLUTION, max(CLOSEST, earliest - now)))

    def close(self) -> None:
        """Stop the timer, and end all other tasks' attempts as if their time were over."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for deadline in tuple(self.running):
            if not deadline.mine:
                self.running.pop(deadline, None)
                deadline.expire()
