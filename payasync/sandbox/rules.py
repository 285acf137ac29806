"""The rules of orders, refunds and subscriptions: values in, values out, no I/O.

Every rule is the sandbox's own choice: the service's document names no states (spec: States and
transitions). Each function returns the thing as it is afterwards, or raises `RefusedError`.
"""

from datetime import date
from typing import Any, Final

from attrs import evolve

from payasync.sandbox.values import (
    Decision,
    Event,
    Order,
    OrderState,
    Refund,
    RefundState,
    RefusedError,
    Subscription,
)

MOST_DECLINES: Final = 3
CLOSABLE: Final[frozenset[OrderState]] = frozenset({"pending", "failed", "expired", "closed"})
SETTLED: Final[frozenset[RefundState]] = frozenset({"succeeded", "failed"})


def decide(order: Order, decision: Decision) -> Order:
    """Return an order after its customer's decision at the gateway (spec: Endpoints, rule 2).

    Cancelling changes nothing: the merchant closes the order. Authorising what is paid is no second
    payment.

    Raises:
        RefusedError: The order is no longer pending.
    """
    if order.state == "paid" and decision == "authorize":
        return order
    if order.state != "pending":
        raise RefusedError("wrong_state", f"the order is {order.state}: nothing is left to decide")
    if decision == "authorize":
        return evolve(order, state="paid")
    return _declined(order) if decision == "decline" else order


def _declined(order: Order) -> Order:
    declines = order.declines + 1
    return evolve(order, declines=declines, state="failed" if declines >= MOST_DECLINES else "pending")


def close(order: Order) -> Order:
    """Return an order that its merchant closes; closed again, it stays as it is (spec: Endpoints, rule 4).

    Raises:
        RefusedError: It is paid.
    """
    if order.state not in CLOSABLE:
        raise RefusedError("wrong_state", f"the order is {order.state}: it cannot be closed, but refunded")
    return evolve(order, state="closed")


def check_refund(order: Order, refund: Refund) -> None:
    """Check that an order can give back so much (spec: Endpoints, rule 5).

    Raises:
        RefusedError: The order is not paid, it has another amount, or less than this is left of it.
    """
    if order.state != "paid":
        raise RefusedError("wrong_state", f"the order is {order.state}: only a paid one can be refunded")
    if refund.total_amt != order.total_amt:
        raise RefusedError("invalid", f"the order's amount is {order.total_amt}", argument="total_amt")
    left = order.total_amt - order.reserved
    if refund.refund_amt > left:
        raise RefusedError("wrong_state", f"{left} is left to refund", argument="refund_amt")


def repeated(first: Refund, again: Refund) -> Refund:
    """Return the refund that a number already names, where the request is the same (spec: Refund request).

    Raises:
        RefusedError: It is another request.
    """
    if first.fingerprint != again.fingerprint:
        raise RefusedError("duplicate", "the number names another refund", argument="out_refund_no")
    return first


def settle(refund: Refund, state: RefundState) -> Refund:
    """Return a refund that has ended as `state`.

    Raises:
        RefusedError: It has ended before, or `state` is no end.
    """
    if refund.state in SETTLED or state not in SETTLED:
        raise RefusedError("wrong_state", f"a refund does not go from {refund.state} to {state}")
    return evolve(refund, state=state)


def begin(subscription: Subscription, today: date) -> Subscription:
    """Return a subscription as it is on a day: from its start date on it is active, in its first period."""
    if subscription.state != "scheduled" or subscription.start_date > today:
        return subscription
    return evolve(subscription, state="active", period=1)


def update(subscription: Subscription, changes: dict[str, Any], today: date) -> Subscription:
    """Return a subscription with changes applied (spec: endpoint 9).

    Raises:
        RefusedError: It is cancelled, or it has begun and its start date would change.
    """
    if subscription.state == "cancelled":
        raise RefusedError("wrong_state", "the subscription is cancelled")
    changed = evolve(subscription, **changes)
    if changed.start_date != subscription.start_date and subscription.state != "scheduled":
        raise RefusedError("wrong_state", "the subscription has begun", argument="start_date")
    return begin(changed, today)


def cancel(subscription: Subscription) -> Subscription:
    """Return a subscription that is cancelled at once (spec: endpoint 10).

    Raises:
        RefusedError: It was cancelled before.
    """
    if subscription.state == "cancelled":
        raise RefusedError("wrong_state", "the subscription is cancelled")
    return evolve(subscription, state="cancelled")


def order_event(before: Order, after: Order) -> Event | None:
    """Return what the merchant is told about an order (spec: Events, 1): the end of its being pending."""
    if after.state in {before.state, "pending"}:
        return None
    return Event(kind="payment", name=after.state, subject=after, url=after.notify_url)


def refund_event(after: Refund) -> Event:
    """Return what the merchant is told about a refund that has ended (spec: Events, 2)."""
    return Event(kind="refund", name=after.state, subject=after, url=after.notify_url)


def subscription_event(before: Subscription, after: Subscription) -> Event | None:
    """Return what the merchant is told about a subscription (spec: Events, 3)."""
    if after.state == before.state or after.state != "cancelled":
        return None
    return Event(kind="subscription", name=after.state, subject=after, url=None)
