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
        written: Writes the body of a notification; `None` where the service does not tell of that.
        webhook_url: Where notifications go of what has no address of its own.
    """

    def __init__(
        self,
        outbox: Outbox,
        *,
        now: Callable[[], datetime],
        written: Callable[[Event, datetime], str | None],
        webhook_url: str | None,
    ) -> None:
        self._outbox = outbox
        self._now = now
        self._written = written
        self.webhook_url = webhook_url

    def tell(self, event: Event | None) -> None:
        """Tell an event, where there is one, an address for it, and the service tells of it."""
        url, now = event and (event.url or self.webhook_url), self._now()
        if event and url and (body := self._written(event, now)) is not None:
            self._outbox.add(_notification(event, url, body, now))

    def resend(self, notification_id: str) -> Notification:
        """Put a notification into the outbox once more, whatever became of it, with all its redeliveries.

        Raises:
            RefusedError: There is none.
        """
        notification = known(self._outbox.notification(notification_id), "notification", "notification_id")
        again = evolve(notification, state="waiting", due=self._now(), tries=0, resends=notification.resends + 1)
        self._outbox.move(again)
        return again


def _notification(event: Event, url: str, body: str, now: datetime) -> Notification:
    return Notification(
        notification_id=f"msg_{secrets.token_hex(12)}",
        event=f"{event.kind}.{event.name}",
        reference=number(event.subject),
        url=url,
        body=body,
        created=now,
        due=now,
    )


def number(subject: object) -> str:
    """Return the number of an order, a refund or a subscription."""
    if isinstance(subject, Order):
        return subject.out_trade_no
    return subject.out_refund_no if isinstance(subject, Refund) else str(getattr(subject, "subscription_id", ""))
