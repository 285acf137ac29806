"""The outbox: what the merchant's servers are told, and every attempt to tell them.

A row is written in the transaction of the change that it tells of.
"""

import json
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final, Literal

from attrs import asdict, evolve, field, frozen

from payasync.sandbox import statements
from payasync.sandbox.database import Database
from payasync.sandbox.instants import BEGINNING, instant, instant_if_any

NotificationState = Literal["waiting", "delivered", "dead"]

REDELIVERIES: Final = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
)
"""How long after each attempt that was not acknowledged the next one is due; after the last it is a dead letter.

The sandbox's own choice (spec: Events, 5).
"""


@frozen(kw_only=True)
class Notification:
    """A notification: a row of the outbox.

    Attributes:
        notification_id: Names it to the receiver, in every attempt.
        event: What is told, such as `payment.paid`.
        reference: The number of the order, refund or subscription.
        url: Where it goes.
        body: What is sent, signed as it stands.
        created: When what it tells of happened.
        state: Whether it waits for an attempt, was acknowledged, or is given up (a dead letter).
        due: When the next attempt is due; `None` where there is none.
        tries: The attempts since it was last put into the outbox.
        resends: How often it was put there by hand: what became of an earlier attempt does not count then.
        seq: Its place in the outbox.
    """

    notification_id: str
    event: str = ""
    reference: str = ""
    url: str
    body: str
    created: datetime = field(default=BEGINNING, converter=instant)
    state: NotificationState = "waiting"
    due: datetime | None = field(default=BEGINNING, converter=instant_if_any)
    tries: int = 0
    resends: int = 0
    seq: int = 0


@frozen(kw_only=True)
class Attempt:
    """One attempt to deliver a notification.

    Attributes:
        notification_id: Which one.
        url: Where it went.
        at: When it ended, by the sandbox's time.
        status: The HTTP status of the answer, or `None` where none came.
        error: Why none came, or why the answer does not acknowledge; empty where it does.
        answer: How the answer's body begins.
        acknowledged: The receiver took it.
    """

    notification_id: str
    url: str
    at: datetime = field(default=BEGINNING, converter=instant)
    status: int | None
    error: str
    answer: str = ""
    acknowledged: bool = field(converter=bool)


def delivered(notification: Notification, attempt: Attempt) -> Notification:
    """Return a notification after an attempt: delivered, due again, or dead; what was taken once stays so."""
    tries = notification.tries + 1
    if attempt.acknowledged or notification.state == "delivered":
        return evolve(notification, state="delivered", due=None, tries=tries)
    if tries > len(REDELIVERIES):
        return evolve(notification, state="dead", due=None, tries=tries)
    return evolve(notification, due=attempt.at + REDELIVERIES[tries - 1], tries=tries)


class Outbox:
    """Reads and writes notifications and attempts.

    Args:
        database: Holds them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, notification: Notification) -> None:
        """Put a notification into the outbox."""
        self._database.changed(statements.ADD_NOTIFICATION, asdict(notification))

    def notification(self, notification_id: str) -> Notification | None:
        """Return the notification with this number."""
        return self._database.first(Notification, statements.NOTIFICATION, notification_id=notification_id)

    def notifications(self) -> list[Notification]:
        """Return all notifications, oldest first."""
        return self._database.read(Notification, statements.ALL_NOTIFICATIONS)

    def next(self, after: datetime) -> Notification | None:
        """Return the notification whose attempt is due first, after a moment."""
        return self._database.first(Notification, statements.NEXT_NOTIFICATION, after=after)

    def due(self, now: datetime, busy: Collection[str]) -> Notification | None:
        """Return the notification that has been due for longest.

        Args:
            now: By which time.
            busy: Addresses that are not asked for.
        """
        return self._database.first(Notification, statements.DUE_NOTIFICATION, now=now, busy=json.dumps([*busy]))

    def move(self, notification: Notification) -> None:
        """Keep what became of a notification."""
        self._database.changed(statements.MOVE_NOTIFICATION, asdict(notification))

    def add_attempt(self, attempt: Attempt) -> None:
        """Keep the record of an attempt."""
        self._database.changed(statements.ADD_ATTEMPT, asdict(attempt))

    def attempts(self) -> list[Attempt]:
        """Return all attempts, oldest first."""
        return self._database.read(Attempt, statements.ALL_ATTEMPTS)

    def attempts_of(self, notification_id: str) -> list[Attempt]:
        """Return the attempts to deliver one notification, oldest first."""
        return self._database.read(Attempt, statements.ATTEMPTS_OF, notification_id=notification_id)
