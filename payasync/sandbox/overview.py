"""What the dashboard shows, read from the store: the newest of each, however many there are."""

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from attrs import frozen

from payasync.sandbox import statements
from payasync.sandbox.outbox import Attempt, Notification
from payasync.sandbox.store import Store
from payasync.sandbox.timeline import Entry, Timeline
from payasync.sandbox.values import Order, Refund, Subscription

T = TypeVar("T")
MOST: Final = 50
"""How many of each are shown."""
_ALL: Final = 2**63 - 1


@frozen
class Newest(Generic[T]):
    """The newest of something, newest first.

    Attributes:
        shown: They.
        more: There are older ones.
    """

    shown: Sequence[T]
    more: bool


@frozen
class Refunded:
    """A refund, with the currency of its order."""

    refund: Refund
    currency: str


@frozen
class Told:
    """A notification, with its attempts, oldest first."""

    notification: Notification
    attempts: Sequence[Attempt]


@frozen(kw_only=True)
class Overview:
    """All that the dashboard lists."""

    orders: Newest[Order]
    refunds: Newest[Refunded]
    subscriptions: Newest[Subscription]
    notifications: Newest[Told]
    requests: Newest[Entry]


def overview(store: Store, timeline: Timeline) -> Overview:
    """Return what there is now."""
    refunds = _newest(store, Refund, statements.NEWEST_REFUNDS)
    notifications = _newest(store, Notification, statements.NEWEST_NOTIFICATIONS)
    return Overview(
        orders=_newest(store, Order, statements.NEWEST_ORDERS),
        refunds=Newest([Refunded(refund, _currency(store, refund)) for refund in refunds.shown], refunds.more),
        subscriptions=_newest(store, Subscription, statements.NEWEST_SUBSCRIPTIONS),
        notifications=Newest([_told(store, each) for each in notifications.shown], notifications.more),
        requests=_cut(timeline.requests(MOST + 1)),
    )


def _newest(store: Store, kind: type[T], statement: str) -> Newest[T]:
    return _cut(store.read(kind, statement, below=_ALL, limit=MOST + 1))


def _cut(found: list[T]) -> Newest[T]:
    return Newest(found[:MOST], len(found) > MOST)


def _currency(store: Store, refund: Refund) -> str:
    order = store.order(refund.out_trade_no)
    return order.currency if order else ""


def _told(store: Store, notification: Notification) -> Told:
    number = notification.notification_id
    return Told(notification, store.read(Attempt, statements.ATTEMPTS_OF, notification_id=number))
