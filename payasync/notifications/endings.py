"""What becomes of an event after it was dispatched, and when it is tried again: no I/O here."""

from itertools import islice
from typing import Final

import backoff
from attrs import frozen

from payasync.notifications.inbox import State

LONGEST_WAIT: Final = 3600.0
"""Seconds; the waits before it are 1, 4, 16, 64, … at most."""
CUT_OFF: Final = 4
"""So many times the attempts: what a crash or a shutdown cut off is no failure, but it is not begun for ever."""
LONGEST_REASON: Final = 300


@frozen
class Ending:
    """What becomes of an event.

    Attributes:
        state: `pending`: it is tried again.
        reason: Why, in one line.
    """

    state: State
    reason: str = ""


DONE: Final = Ending("done")


def again(reason: str) -> Ending:
    """Return that an event is tried again."""
    return Ending("pending", reason)


def dead(reason: str) -> Ending:
    """Return that an event is given up."""
    return Ending("dead", reason)


def parked(reason: str) -> Ending:
    """Return that nobody can handle an event as things are."""
    return Ending("parked", reason)


def quarantined(reason: str) -> Ending:
    """Return that an event contradicts what is expected."""
    return Ending("quarantined", reason)


def bounded(ending: Ending, attempt: int, attempts: int) -> Ending:
    """Return an ending, where the last attempt is followed by none.

    Args:
        ending: What the attempt ended with.
        attempt: Its number, 1 for the first.
        attempts: How many there are.
    """
    last = ending.state == "pending" and attempt >= attempts
    return dead(ending.reason) if last else ending


def worn_out(attempt: int, attempts: int) -> Ending | None:
    """Return the end of an event that was begun so often, and never came to one."""
    if attempt <= CUT_OFF * attempts:
        return None
    return dead(f"begun {attempt - 1} times, and cut off each time: its handler may end the process")


def longest_wait(attempt: int) -> float:
    """Return how long the wait after an attempt can be, in seconds: four times as long after each, up to an hour."""
    bounds = backoff.expo(base=4, max_value=LONGEST_WAIT)
    next(bounds)  # backoff's generators begin with an empty step
    return float(next(islice(bounds, attempt - 1, None)))


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
