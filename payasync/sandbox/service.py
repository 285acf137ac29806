"""The service itself: each change of state with all its consequences, by the rules, in one transaction.

Who calls it holds the transaction open.
"""

import secrets
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Literal, TypeVar

from payasync.sandbox import rules
from payasync.sandbox.store import Store
from payasync.sandbox.values import (
    Decision,
    Event,
    Notification,
    Order,
    Refund,
    RefundState,
    RefusedError,
    Subscription,
)

T = TypeVar("T")


class Service:
    """Orders, refunds and subscriptions.

    Args:
        store: Where they are kept.
        now: The sandbox's time.
        written: Writes the body of a notification.
        webhook_url: Where notifications go of what has no address of its own.
    """

    def __init__(
        self,
        store: Store,
        *,
        now: Callable[[], datetime],
        written: Callable[[Event, datetime], str],
        webhook_url: str | None,
    ) -> None:
        self._store = store
        self._now = now
        self._written = written
        self._webhook_url = webhook_url

    def create_payment(
        self, *, amount: int, currency: str, description: str = "", return_url: str | None = None
    ) -> Order:
        """Make a payment with numbers of its own (spec: endpoint 1)."""
        order = _new_order("payment", total_amt=amount, currency=currency, subject=description, return_url=return_url)
        self._store.add_order(order)
        return order

    def place_order(self, *, scene_type: str = "", **given: Any) -> Order:  # noqa: ARG002 - one scene is like another
        """Make an order (spec: endpoint 2).

        Raises:
            RefusedError: Its number was used before.
        """
        order = _new_order("order", **given)
        if not self._store.add_order(order):
            raise RefusedError("duplicate", "the number names another order", argument="out_trade_no")
        return order

    def order(self, out_trade_no: str) -> Order:
        """Return an order (spec: endpoint 3).

        Raises:
            RefusedError: There is none.
        """
        return _known(self._store.order(out_trade_no), "order", "out_trade_no")

    def payment(self, identifier: str) -> Order:
        """Return the order that a merchant's number names, or a payment's (spec: endpoint 6).

        Raises:
            RefusedError: There is none.
        """
        found = self._store.order(identifier) or self._store.order_by_payment(identifier)
        return _known(found, "payment", "identifier")

    def at_gateway(self, token: str) -> Order:
        """Return the order of a gateway page.

        Raises:
            RefusedError: There is none.
        """
        return _known(self._store.order_by_token(token), "gateway page", "")

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
        self._tell(rules.order_event(before, after))
        return after

    def create_refund(self, *, fingerprint: str, refund_desc: str = "", **given: Any) -> Refund:  # noqa: ARG002 - free text
        """Refund a paid order, or return the refund that the same request made (spec: endpoint 5).

        Raises:
            RefusedError: The number names another refund, or the order cannot give back so much.
        """
        refund = Refund(fingerprint=fingerprint, **given)
        if first := self._store.refund(refund.out_refund_no):
            return rules.repeated(first, refund)
        rules.check_refund(self.order(refund.out_trade_no), refund)
        if not self._store.reserve(refund.out_trade_no, refund.refund_amt):
            raise RefusedError("wrong_state", "less is left to refund", argument="refund_amt")
        self._store.add_refund(refund)
        return self.settle_refund(refund, "succeeded")

    def settle_refund(self, refund: Refund, state: RefundState) -> Refund:
        """End a refund; what a failed one had set aside is free again.

        Raises:
            RefusedError: It has ended before.
        """
        settled = rules.settle(refund, state)
        if not self._store.move_refund(refund.out_refund_no, refund.state, settled.state):
            raise RefusedError("wrong_state", "the refund has ended meanwhile")
        if settled.state == "failed":
            self._store.release(refund.out_trade_no, refund.refund_amt)
        self._tell(rules.refund_event(settled))
        return settled

    def refund(self, out_refund_no: str) -> Refund:
        """Return a refund (spec: endpoint 7).

        Raises:
            RefusedError: There is none.
        """
        return _known(self._store.refund(out_refund_no), "refund", "identifier")

    def create_subscription(self, **given: Any) -> Subscription:
        """Make a subscription, which begins on its start date (spec: endpoint 8)."""
        planned = Subscription(subscription_id=_numbered("S"), **given)
        subscription = rules.begin(planned, self._today())
        self._store.add_subscription(subscription)
        return subscription

    def update_subscription(self, *, subscription_id: str, **changes: Any) -> Subscription:
        """Change a subscription (spec: endpoint 9).

        Raises:
            RefusedError: There is none, it is cancelled, or it has begun and its start date would change.
        """
        before = self.subscription(subscription_id)
        return self._renewed(before, rules.update(before, changes, self._today()))

    def cancel_subscription(self, *, subscription_id: str) -> Subscription:
        """Cancel a subscription at once (spec: endpoint 10).

        Raises:
            RefusedError: There is none, or it was cancelled before.
        """
        before = self.subscription(subscription_id)
        return self._renewed(before, rules.cancel(before))

    def subscription(self, subscription_id: str) -> Subscription:
        """Return a subscription.

        Raises:
            RefusedError: There is none.
        """
        return _known(self._store.subscription(subscription_id), "subscription", "subscription_id")

    def _renewed(self, before: Subscription, after: Subscription) -> Subscription:
        if not self._store.move_subscription(before, after):
            raise RefusedError("wrong_state", "the subscription has changed meanwhile")
        self._tell(rules.subscription_event(before, after))
        return after

    def _tell(self, event: Event | None) -> None:
        url = event and (event.url or self._webhook_url)
        if event and url:
            number, body = f"msg_{secrets.token_hex(12)}", self._written(event, self._now())
            self._store.add_notification(Notification(notification_id=number, url=url, body=body))

    def _today(self) -> date:
        return self._now().date()


def _known(found: T | None, thing: str, argument: str) -> T:
    if found is None:
        raise RefusedError("absent", f"there is no such {thing}", argument=argument)
    return found


def _new_order(origin: Literal["order", "payment"], **given: Any) -> Order:
    given.setdefault("out_trade_no", _numbered("T"))
    return Order(origin=origin, payment_id=_numbered("P"), token=secrets.token_urlsafe(24), **given)


def _numbered(kind: str) -> str:
    # Capitals and digits only: profiles narrow what a number may be.
    return f"{kind}{secrets.randbelow(10**20):020}"
