"""The outbox at work: what is due is delivered, oldest first, one at a time to each address."""

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

from attrs import evolve

from payasync.sandbox.database import Database
from payasync.sandbox.delivery import Delivery
from payasync.sandbox.faults.armoury import Armoury
from payasync.sandbox.faults.passage import PLAIN, Passage, texts
from payasync.sandbox.insistence import Insistence
from payasync.sandbox.notifier import Notifier
from payasync.sandbox.outbox import Attempt, Notification, Outbox, delivered
from payasync.sandbox.timeline import line
from payasync.sandbox.timepiece import Timepiece
from payasync.sandbox.timers import Happened

LOGGER: Final = logging.getLogger("payasync.sandbox")
MOST_AT_ONCE: Final = 32
"""Deliveries under way, each to another address: a slow receiver holds up nobody but itself."""


class Deliveries:
    """Has due notifications delivered, and keeps what became of each attempt.

    Args:
        database: Holds the transactions.
        outbox: What is due.
        notifier: Makes the attempts.
        timepiece: The sandbox's time.
        armoury: The faults that notifications meet.
    """

    def __init__(
        self,
        database: Database,
        outbox: Outbox,
        notifier: Notifier,
        timepiece: Timepiece,
        armoury: Armoury,
    ) -> None:
        self._database = database
        self._outbox = outbox
        self._notifier = notifier
        self._timepiece = timepiece
        self._armoury = armoury
        self._busy = set[str]()
        self._held = set[str]()
        self._overtaken = list[Notification]()

    @property
    def under_way(self) -> bool:
        """Whether an attempt has begun that has not ended."""
        return bool(self._busy)

    def next(self, after: datetime) -> datetime | None:
        """Return when the next attempt is due after a moment."""
        notification = self._outbox.next(after)
        return notification.due if notification else None

    def begin(
        self, group: asyncio.TaskGroup, by: datetime, insistence: Insistence, ended: Callable[[Happened], object]
    ) -> None:
        """Begin the attempts that are due, as far as their addresses are free.

        Args:
            group: Holds their tasks.
            by: They were due then, or before.
            insistence: Keeps what became of each: what was sent is not sent again because the disk was full.
            ended: Called as each has ended and is kept.
        """
        while len(self._busy) < MOST_AT_ONCE and (notification := self._outbox.due(by, self._busy)):
            self._busy.add(notification.url)
            delivering = self._deliver(notification, insistence, ended)
            group.create_task(delivering, name="payasync sandbox delivery")

    async def _deliver(
        self, notification: Notification, insistence: Insistence, ended: Callable[[Happened], object]
    ) -> None:
        passage = self._passage(notification)
        try:
            if passage.later:
                became = await self._hold_back(notification, passage, insistence)
            else:
                after = notification
                for _ in range(passage.copies):
                    after = await self._attempt(after, passage, insistence)
                became = _became(after)
                await self._let_go(insistence)
        finally:
            self._busy.discard(notification.url)
        ended(Happened(self._timepiece.now(), f"{notification.event} {became}", notification.reference))

    def _passage(self, notification: Notification) -> Passage:
        if notification.notification_id in self._held:
            self._held.discard(notification.notification_id)
            return PLAIN
        numbers = {notification.reference, *texts(json.loads(notification.body))}
        kind = notification.event.partition(".")[0]
        return self._armoury.for_notification(kind, numbers, timed=self._notifier.timed)

    async def _attempt(self, notification: Notification, passage: Passage, insistence: Insistence) -> Notification:
        attempt = evolve(await self._notifier.attempt(notification, passage), at=self._timepiece.now())
        after, kept = await insistence.done(lambda: self._keep(notification, attempt))
        self._tell(attempt, kept)
        return after

    def _tell(self, attempt: Attempt, notification: Notification) -> None:
        wait = self._timepiece.seconds_until(notification.due) if notification.due else None
        delivery = Delivery.of(attempt, notification, wait)
        LOGGER.info("%s", line(delivery.entry), extra={"delivery": delivery})

    async def _hold_back(self, notification: Notification, passage: Passage, insistence: Insistence) -> str:
        self._held.add(notification.notification_id)
        later = evolve(notification, due=self._timepiece.now() + passage.later)
        await insistence.done(lambda: self._move(notification, later))
        if passage.overtaken:
            self._overtaken.append(later)
        return f"held back by {passage.fault}"

    async def _let_go(self, insistence: Insistence) -> None:
        """Have what was to be overtaken attempted, now that another one was."""
        while self._overtaken:
            held = self._overtaken.pop(0)
            now = evolve(held, due=self._timepiece.now())
            await insistence.done(partial(self._move, held, now))

    def _move(self, before: Notification, after: Notification) -> None:
        with self._database.transaction():
            if self._outbox.notification(before.notification_id) == before:
                self._outbox.move(after)

    def _keep(self, notification: Notification, attempt: Attempt) -> tuple[Notification, Notification]:
        """Return the notification after this attempt, and as it is kept."""
        after = delivered(notification, attempt)
        with self._database.transaction():
            self._outbox.add_attempt(attempt)
            kept = self._outbox.notification(notification.notification_id)
            # Asked for once more while it was under way, it stays due.
            if kept == notification:
                self._outbox.move(after)
                kept = after
        return after, kept or after


def _became(after: Notification) -> str:
    return {"waiting": "not acknowledged", "delivered": "delivered", "dead": "given up"}[after.state]
