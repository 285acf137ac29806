"""What the merchant's servers are told is put into the outbox, with the change that it tells of."""

import secrets
from collections.abc import Callable
from datetime import datetime

from attrs import evolve

from payasync.sandbox.numbers import known
from payasync.sandbox.outbox import Notification, Outbox
from payasync.sandbox.values import Event, Order, Refund


class Telling:
    """Puts events into the outbox, in the transaction that is open.

    Args:
        outbox: Holds them.
        now: The sandbox's time.
        written: Writes the body of a notification.
        webhook_url: Where notifications go of what has no address of its own.
    """

    def __init__(
        self,
        outbox: Outbox,
        *,
        now: Callable[[], datetime],
        written: Callable[[Event, datetime], str],
        webhook_url: str | None,
    ) -> None:
        self._outbox = outbox
        self._now = now
        self._written = written
        self.webhook_url = webhook_url

    def tell(self, event: Event | None) -> None:
        """Tell an event, where there is one, and an address for it."""
        url = event and (event.url or self.webhook_url)
        if event and url:
            self._outbox.add(self._notification(event, url))

    def resend(self, notification_id: str) -> Notification:
        """Put a notification into the outbox once more, whatever became of it, with all its redeliveries.

        Raises:
            RefusedError: There is none.
        """
        notification = known(self._outbox.notification(notification_id), "notification", "notification_id")
        again = evolve(notification, state="waiting", due=self._now(), tries=0, resends=notification.resends + 1)
        self._outbox.move(again)
        return again

    def _notification(self, event: Event, url: str) -> Notification:
        now = self._now()
        return Notification(
            notification_id=f"msg_{secrets.token_hex(12)}",
            event=f"{event.kind}.{event.name}",
            reference=number(event.subject),
            url=url,
            body=self._written(event, now),
            created=now,
            due=now,
        )


def number(subject: object) -> str:
    """Return the number of an order, a refund or a subscription."""
    if isinstance(subject, Order):
        return subject.out_trade_no
    return subject.out_refund_no if isinstance(subject, Refund) else str(getattr(subject, "subscription_id", ""))
