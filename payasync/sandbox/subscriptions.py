"""Subscriptions: each change with all its consequences, by the rules, in one transaction (spec: endpoints 8 to 10).

Who calls it holds the transaction open.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from payasync.sandbox import periods, rules
from payasync.sandbox.numbers import Numbering, known
from payasync.sandbox.store import Store
from payasync.sandbox.telling import Telling
from payasync.sandbox.timers import Timers
from payasync.sandbox.values import Charge, RefusedError, Subscription


class Subscriptions:
    """Makes, changes, bills and cancels subscriptions.

    Args:
        store: Where they are kept.
        timers: Where their periods are set.
        telling: Tells the merchant.
        now: The sandbox's time.
        numbering: Gives their numbers.
    """

    def __init__(
        self, store: Store, timers: Timers, telling: Telling, *, now: Callable[[], datetime], numbering: Numbering
    ) -> None:
        self._store = store
        self._timers = timers
        self._telling = telling
        self._now = now
        self._numbering = numbering

    def create(self, **given: Any) -> Subscription:
        """Make a subscription, which begins on its start date (spec: endpoint 8)."""
        number = self._numbering.new("S", self._store.subscription)
        planned = Subscription(subscription_id=number, created=self._now(), **given)
        subscription = rules.begin(planned, self._now().date())
        self._store.add_subscription(subscription)
        self._bill(planned, subscription)
        return subscription

    def update(self, *, subscription_id: str, **changes: Any) -> Subscription:
        """Change a subscription (spec: endpoint 9).

        Raises:
            RefusedError: There is none, it is cancelled, or it has begun and its start date would change.
        """
        before = self.subscription(subscription_id)
        return self._moved(before, rules.update(before, changes, self._now().date()))

    def cancel(self, *, subscription_id: str, at_period_end: bool = False) -> Subscription:
        """Cancel a subscription at once, or when its period ends (spec: endpoint 10).

        Raises:
            RefusedError: There is none, or it was cancelled before.
        """
        before = self.subscription(subscription_id)
        return self._moved(before, rules.cancel(before, at_period_end=at_period_end))

    def subscription(self, subscription_id: str) -> Subscription:
        """Return a subscription.

        Raises:
            RefusedError: There is none.
        """
        return known(self._store.subscription(subscription_id), "subscription", "subscription_id")

    def fail(self, subscription_id: str, times: int) -> Subscription:
        """Have the next charges of a subscription fail.

        Raises:
            RefusedError: There is none, or it is cancelled.
        """
        before = self.subscription(subscription_id)
        return self._moved(before, rules.fail(before, times))

    def fall_due(self, subscription_id: str) -> str:
        """Begin the next period of a subscription, or end it, and return what was done."""
        before = self.subscription(subscription_id)
        began = rules.begin(before, self._now().date())
        after = self._moved(before, rules.renew(before) if began == before else began)
        event = rules.subscription_event(before, after)
        return f"subscription {event.name}" if event else ""

    def _moved(self, before: Subscription, after: Subscription) -> Subscription:
        if not self._store.move_subscription(before, after):
            raise RefusedError("wrong_state", "the subscription has changed meanwhile")
        self._bill(before, after)
        self._telling.tell(rules.subscription_event(before, after))
        return after

    def _bill(self, before: Subscription, after: Subscription) -> None:
        if after.period > before.period:
            charge = Charge(
                subscription_id=after.subscription_id,
                period=after.period,
                at=self._now(),
                amount=after.amount,
                paid=not after.failures,
            )
            self._store.add_charge(charge)
        due = after.start_date if after.state == "scheduled" else after.renews
        self._timers.set("renew", after.subscription_id, periods.midnight(due) if due else None)
