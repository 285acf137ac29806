"""The service itself: each change of state with all its consequences, by the rules, in one transaction."""

import secrets
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Final, Literal

from attrs import evolve

from payasync.sandbox import rules
from payasync.sandbox.clock import Falling, TimerKind, Timers
from payasync.sandbox.model import Charge, Decision, Event, Order, Refund, RefundState, RefusedError, Subscription
from payasync.sandbox.rules import AT_ONCE, RefundTerms, midnight
from payasync.sandbox.store import Numbering, Store, known
from payasync.sandbox.webhooks import Notification, Outbox


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
        self._timers.set("renew", after.subscription_id, midnight(due) if due else None)


class Service:
    """Orders and refunds.

    Args:
        store: Where they are kept.
        now: The sandbox's time.
        written: Writes the body of a notification; `None` where the service does not tell of that.
        webhook_url: Where notifications go of what has no address of its own.
        numbering: Gives the numbers that the merchant does not.
        terms: How refunds end.

    Attributes:
        subscriptions: Likewise.
        telling: Tells the merchant.
    """

    def __init__(
        self,
        store: Store,
        *,
        now: Callable[[], datetime],
        written: Callable[[Event, datetime], str | None],
        webhook_url: str | None,
        numbering: Numbering,
        terms: RefundTerms = AT_ONCE,
    ) -> None:
        self._store = store
        self._now = now
        self._terms = terms
        self._numbering = numbering
        self._timers = Timers(store)
        self.telling: Final = Telling(Outbox(store), now=now, written=written, webhook_url=webhook_url)
        self.subscriptions: Final = Subscriptions(store, self._timers, self.telling, now=now, numbering=numbering)

    @property
    def falling(self) -> dict[TimerKind, Falling]:
        """What is done when a timer falls due."""
        return {
            "expire": self._expire,
            "settle": self._settle_by_itself,
            "renew": self.subscriptions.fall_due,
        }

    def today(self) -> date:
        """Return the day, by the sandbox's time."""
        return self._now().date()

    def create_payment(
        self, *, amount: int, currency: str, description: str = "", return_url: str | None = None
    ) -> Order:
        """Make a payment with numbers of its own (spec: endpoint 1)."""
        given = {"total_amt": amount, "currency": currency, "subject": description, "return_url": return_url}
        order = self._new_order("payment", **given)
        self._add(order)
        return order

    def place_order(self, *, scene_type: str = "", **given: Any) -> Order:  # noqa: ARG002 - one scene is like another
        """Make an order (spec: endpoint 2).

        Raises:
            RefusedError: Its number was used before.
        """
        order = self._new_order("order", **given)
        if not self._add(order):
            raise RefusedError("duplicate", "the number names another order", argument="out_trade_no")
        return order

    def _new_order(self, origin: Literal["order", "payment"], **given: Any) -> Order:
        payment_id, token = self._numbering.new("P", self._store.order_named), secrets.token_urlsafe(24)
        if "out_trade_no" not in given:
            given["out_trade_no"] = self._numbering.new("T", self._store.order_named)
        return Order(origin=origin, payment_id=payment_id, token=token, created=self._now(), **given)

    def _add(self, order: Order) -> bool:
        added = self._store.add_order(order)
        if added:
            self._timers.set("expire", order.out_trade_no, order.created + rules.EXPIRY)
        return added

    def order(self, out_trade_no: str) -> Order:
        """Return an order (spec: endpoint 3).

        Raises:
            RefusedError: There is none.
        """
        return known(self._store.order(out_trade_no), "order", "out_trade_no")

    def payment(self, identifier: str) -> Order:
        """Return the order that a merchant's number names, or a payment's (spec: endpoint 6).

        Raises:
            RefusedError: There is none.
        """
        return known(self._store.order_named(identifier), "payment", "identifier")

    def at_gateway(self, token: str) -> Order:
        """Return the order of a gateway page.

        Raises:
            RefusedError: There is none.
        """
        return known(self._store.order_by_token(token), "gateway page", "")

    def close_order(self, *, out_trade_no: str) -> Order:
        """Close an order (spec: endpoint 4).

        Raises:
            RefusedError: There is none, or it is paid.
        """
        order = self.order(out_trade_no)
        return self._moved(order, rules.close(order))

    def decide(self, order: Order, decision: Decision) -> Order:
        """Do what a customer decided at the gateway (spec: Endpoints, rule 2).

        Raises:
            RefusedError: The order is no longer pending.
        """
        return self._moved(order, rules.decide(order, decision))

    def _moved(self, before: Order, after: Order) -> Order:
        if after == before:
            return before
        if not self._store.move_order(before, after):
            raise RefusedError("wrong_state", "the order has changed meanwhile")
        if after.state != "pending":
            self._timers.stop("expire", after.out_trade_no)
        self.telling.tell(rules.order_event(before, after))
        return after

    def _expire(self, out_trade_no: str) -> str:
        order = self.order(out_trade_no)
        return "order expired" if self._moved(order, rules.expire(order)) != order else ""

    def create_refund(self, *, fingerprint: str, refund_desc: str = "", **given: Any) -> Refund:  # noqa: ARG002 - free text
        """Refund a paid order, or return the refund that the same request made (spec: endpoint 5).

        Raises:
            RefusedError: The number names another refund, or the order cannot give back so much.
        """
        refund = Refund(fingerprint=fingerprint, created=self._now(), **given)
        if first := self._store.refund(refund.out_refund_no):
            return rules.repeated(first, refund, refused=self._terms.once)
        rules.check_refund(self.order(refund.out_trade_no), refund)
        if not self._store.reserve(refund.out_trade_no, refund.refund_amt):
            raise RefusedError("wrong_state", "less is left to refund", argument="refund_amt")
        self._store.add_refund(refund)
        if self._terms.outcome:
            return self.settle_refund(refund, self._terms.outcome)
        if self._terms.after:
            self._timers.set("settle", refund.out_refund_no, self._now() + self._terms.after)
        return refund

    def settle_refund(self, refund: Refund, state: RefundState) -> Refund:
        """End a refund; what a failed one had set aside is free again.

        Raises:
            RefusedError: It has ended before.
        """
        settled = rules.settle(refund, state)
        if not self._store.move_refund(refund.out_refund_no, refund.state, settled.state):
            raise RefusedError("wrong_state", "the refund has ended meanwhile")
        self._timers.stop("settle", refund.out_refund_no)
        if settled.state == "failed":
            self._store.release(refund.out_trade_no, refund.refund_amt)
        self.telling.tell(rules.refund_event(settled))
        return settled

    def _settle_by_itself(self, out_refund_no: str) -> str:
        return f"refund {self.settle_refund(self.refund(out_refund_no), 'succeeded').state}"

    def refund(self, out_refund_no: str) -> Refund:
        """Return a refund (spec: endpoint 7).

        Raises:
            RefusedError: There is none.
        """
        return known(self._store.refund(out_refund_no), "refund", "identifier")
