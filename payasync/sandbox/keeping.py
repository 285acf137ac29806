"""The time in the database: where it goes on after a restart."""

import time
from datetime import datetime

from attrs import field, frozen

from payasync.sandbox import statements
from payasync.sandbox.by_hand import by_hand
from payasync.sandbox.database import Database
from payasync.sandbox.instants import instant
from payasync.sandbox.pace import Pace
from payasync.sandbox.timepiece import Timepiece


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
