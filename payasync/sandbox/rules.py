"""The rules of orders, refunds and subscriptions: values in, values out, no I/O.

Every rule is the sandbox's own choice: the service's document names no states (spec: States and
transitions). Each function returns the thing as it is afterwards, or raises `RefusedError`.
"""

from datetime import date, timedelta
from typing import Any, Final

from attrs import evolve

from payasync.sandbox import periods
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
EXPIRY: Final = timedelta(minutes=30)
"""How long an order waits for its customer (spec: Limits, gaps)."""
MOST_FAILURES: Final = 3
"""Charges in a row that fail before a subscription is cancelled."""
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


def expire(order: Order) -> Order:
    """Return an order whose time is over (spec: endpoint 4): only one that is pending expires."""
    return evolve(order, state="expired") if order.state == "pending" else order


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


def repeated(first: Refund, again: Refund, *, refused: bool = False) -> Refund:
    """Return the refund that a number already names, where the request is the same (spec: Refund request).

    Args:
        first: The refund.
        again: What is asked for now.
        refused: A number is taken once only, the same request included.

    Raises:
        RefusedError: It is another request, or none is taken again.
    """
    if first.fingerprint != again.fingerprint:
        raise RefusedError("duplicate", "the number names another refund", argument="out_refund_no")
    if refused:
        raise RefusedError("duplicate", "the number was used before", argument="out_refund_no")
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
    """Return a subscription as it is on a day: from its start date on it is billed, first for the day's period."""
    start = subscription.start_date
    if subscription.state != "scheduled" or start > today:
        return subscription
    return _billed(subscription, periods.current(start, subscription.frequency, today))


def renew(subscription: Subscription) -> Subscription:
    """Return a subscription at the moment when its next period begins: billed for it, or at its end."""
    if subscription.state not in {"active", "past_due"} or subscription.renews is None:
        return subscription
    if subscription.ends:
        return _cancelled(subscription)
    return _billed(subscription, subscription.renews)


def _billed(subscription: Subscription, begun: date) -> Subscription:
    failed = subscription.failing > 0
    billed = evolve(
        subscription,
        state="past_due" if failed else "active",
        period=subscription.period + 1,
        renews=periods.following(begun, subscription.frequency, subscription.start_date),
        failing=subscription.failing - failed,
        failures=subscription.failures + 1 if failed else 0,
    )
    return _cancelled(billed) if billed.failures >= MOST_FAILURES else billed


def _cancelled(subscription: Subscription) -> Subscription:
    return evolve(subscription, state="cancelled", renews=None)


def fail(subscription: Subscription, times: int) -> Subscription:
    """Return a subscription whose next charges fail.

    Raises:
        RefusedError: It is cancelled.
    """
    if subscription.state == "cancelled":
        raise RefusedError("wrong_state", "the subscription is cancelled", argument="subscription_id")
    return evolve(subscription, failing=times)


def update(subscription: Subscription, changes: dict[str, Any], today: date) -> Subscription:
    """Return a subscription with changes applied, which count from its next period on (spec: endpoint 9).

    Raises:
        RefusedError: It is cancelled, or it has begun and its start date would change.
    """
    if subscription.state == "cancelled":
        raise RefusedError("wrong_state", "the subscription is cancelled")
    changed = evolve(subscription, **changes)
    if changed.start_date != subscription.start_date and subscription.state != "scheduled":
        raise RefusedError("wrong_state", "the subscription has begun", argument="start_date")
    return begin(changed, today)


def cancel(subscription: Subscription, *, at_period_end: bool = False) -> Subscription:
    """Return a subscription that is cancelled at once, or when its period ends (spec: endpoint 10).

    Args:
        subscription: One that has not begun is cancelled at once.
        at_period_end: It stays as it is until then.

    Raises:
        RefusedError: It was cancelled before.
    """
    if subscription.state == "cancelled":
        raise RefusedError("wrong_state", "the subscription is cancelled")
    if at_period_end and subscription.renews:
        return evolve(subscription, ends=True)
    return _cancelled(subscription)


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
    name = "cancelled" if after.state == "cancelled" != before.state else _billing(before, after)
    return Event(kind="subscription", name=name, subject=after, url=None) if name else None


def _billing(before: Subscription, after: Subscription) -> str:
    if after.period == before.period:
        return ""
    if after.state == "past_due":
        return "past_due"
    return "renewed" if before.period else "started"
