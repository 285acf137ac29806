"""What becomes of an event after it was dispatched, and when it is tried again: no I/O here."""

from itertools import islice
from typing import Final

import backoff
from attrs import frozen

from payasync.notifications.inbox import State

ATTEMPTS: Final = 100
"""With the waits between them, three days: the service does not tell again what was acknowledged."""
LONGEST_WAIT: Final = 3600.0
"""Seconds; the waits before it are 1, 4, 16, 64, … at most."""
CUT_OFF: Final = 32
"""So often what a crash or a shutdown cut off is begun again: that is no failure, but it may end the process."""
LONGEST_REASON: Final = 300


@frozen
class Ending:
    """What becomes of an event.

    Attributes:
        state: `pending`: it is tried again.
        reason: Why, in one line.
        wait: Of a pending event that could not be tried yet, the seconds until it is; however often that happens, it
            is not given up.
    """

    state: State
    reason: str = ""
    wait: float | None = None


DONE: Final = Ending("done")


def again(reason: str) -> Ending:
    """Return that an event is tried again."""
    return Ending("pending", reason)


def later(reason: str, wait: float) -> Ending:
    """Return that an event could not be tried yet, and is tried in so many seconds."""
    return Ending("pending", reason, wait)


def dead(reason: str) -> Ending:
    """Return that an event is given up."""
    return Ending("dead", reason)


def parked(reason: str) -> Ending:
    """Return that nobody can handle an event as things are."""
    return Ending("parked", reason)


def quarantined(reason: str) -> Ending:
    """Return that an event contradicts what is expected."""
    return Ending("quarantined", reason)


def bounded(ending: Ending, failures: int, attempts: int) -> Ending:
    """Return an ending, where the last failure is followed by no other attempt.

    Args:
        ending: What an attempt ended with.
        failures: How many there were, if that is one.
        attempts: How many there may be.
    """
    last = ending.state == "pending" and ending.wait is None and failures >= attempts
    return dead(ending.reason) if last else ending


def worn_out(attempts: int, failures: int) -> Ending | None:
    """Return the end of an event that was cut off too often.

    Args:
        attempts: How often it was begun, this time included.
        failures: How often that came to an end, and failed.
    """
    cut_off = attempts - 1 - failures
    return dead(f"cut off {cut_off} times: its handler may end the process") if cut_off >= CUT_OFF else None


def longest_wait(failures: int) -> float:
    """Return how long the wait after a failure can be, in seconds: four times as long after each, up to an hour."""
    bounds = backoff.expo(base=4, max_value=LONGEST_WAIT)
    next(bounds)  # backoff's generators begin with an empty step
    return float(next(islice(bounds, failures - 1, None)))


def upper_half(bound: float) -> float:
    """Return a wait by chance, at least half as long as it can be: so many of them last for days."""
    return bound / 2 + backoff.full_jitter(bound / 2)


def told(error: BaseException) -> str:
    """Return an error's class and text, cut, in one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - anybody's code
        text = ""
    return in_short(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def in_short(reason: str) -> str:
    """Return a reason that is not too long to be read in a list."""
    return reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1]}…"
