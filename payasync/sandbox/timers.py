"""What falls due, and when: durable timers, each set in the transaction of the change that it belongs to."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal

from attrs import asdict, field, frozen

from payasync.sandbox import statements
from payasync.sandbox.database import Database
from payasync.sandbox.instants import instant, shown
from payasync.sandbox.timepiece import Timepiece

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
        return f"{shown(self.at)}  {self.what}  {self.number}"


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
