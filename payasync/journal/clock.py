"""Moments on a clock that nobody sets, for what a jump of the other one must not shorten."""

import secrets
import time
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def _whose() -> str:
    """Return what tells apart the clocks: one for each start of a machine where that has a name."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex(16)  # this process's alone


_WHOSE: Final = _whose()
# It goes on while the machine sleeps, as the service does.
_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def tick() -> str:
    """Return this moment: whose clock it is by, and seconds."""
    return f"{_WHOSE} {time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)}"


def boot_time() -> float:
    """Return seconds on a clock that counts while the machine is suspended; wall time where there is none."""
    return time.time() if _CLOCK is None else time.clock_gettime(_CLOCK)


def between(earlier: str | None, later: str | None) -> float | None:
    """Return the seconds between two moments; `None` where they are not by one clock."""
    if earlier is None or later is None:
        return None
    (whose, then), (same, now) = earlier.split(" "), later.split(" ")
    return float(now) - float(then) if whose == same else None


def after(moment: str | None, seconds: float) -> str | None:
    """Return the moment so many seconds after another."""
    if moment is None or not seconds:
        return moment
    whose, then = moment.split(" ")
    return f"{whose} {float(then) + seconds}"
