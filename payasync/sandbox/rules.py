"""The rules of orders, refunds and subscriptions: values in, values out, no I/O."""

from calendar import monthrange
from datetime import date, timedelta
from typing import Any, Final, Literal, TypeAlias, get_args

from attrs import evolve, frozen

from payasync.sandbox.model import Decision, Event, Order, OrderState, Refund, RefundState, RefusedError, Subscription
from payasync.settings import invalid_setting

_DAYS: Final = {"daily": 1, "day": 1, "weekly": 7, "week": 7}
_MONTHS: Final = {"monthly": 1, "month": 1, "quarterly": 3, "quarter": 3, "yearly": 12, "year": 12}
FREQUENCIES: Final = (*_DAYS, *_MONTHS)
"""How often a subscription may be billed; written in any case."""


def next_period(begun: date, frequency: str, start: date) -> date | None:
    """Return when the next period begins; `None` if the calendar ends before.

    Months are anchored to the day of the start: after 31 January come 28 February and 31 March. If the frequency has
    changed since the start, the day on which this period began is the anchor.

    Args:
        begun: When this period began.
        frequency: How often it is billed.
        start: When the first period began.
    """
    if days := _DAYS.get(frequency.lower()):
        return begun + timedelta(days=days) if (date.max - begun).days >= days else None
    month = _month_number(begun)
    anchor = start.day if begun == _day_in_month(month, start.day) else begun.day
    following = month + _MONTHS[frequency.lower()]
    return _day_in_month(following, anchor) if following <= _month_number(date.max) else None


def current_period(start: date, frequency: str, today: date) -> date:
    """Return when the period of a day began.

    Args:
        start: When the first period began, on this day or before.
        frequency: How often it is billed.
        today: The day.
    """
    if days := _DAYS.get(frequency.lower()):
        return today - timedelta(days=(today - start).days % days)
    months, first = _MONTHS[frequency.lower()], _month_number(start)
    latest = _month_number(today) - (_month_number(today) - first) % months
    begun = _day_in_month(latest, start.day)
    return begun if begun <= today else _day_in_month(latest - months, start.day)


def _month_number(day: date) -> int:
    return day.year * 12 + day.month - 1


def _day_in_month(month: int, day: int) -> date:
    """Return a day of a month, or its last day if the month is shorter."""
    year, index = divmod(month, 12)
    return date(year, index + 1, min(day, monthrange(year, index + 1)[1]))


RefundSetting: TypeAlias = Literal["succeed", "fail", "by hand"] | timedelta
"""How a refund ends: immediately, in one of two ways; when the test says so; or with success after a time."""
RepeatedSetting: TypeAlias = Literal["same", "refused"]
"""What the same request for a refund returns when it is sent again: the first refund, or a refusal."""

_ENDS: Final[dict[object, Literal["succeeded", "failed"]]] = {"succeed": "succeeded", "fail": "failed"}
_MANUAL: Final = "by hand"


@frozen(kw_only=True)
class RefundTerms:
    """How refunds end, and whether their numbers may be repeated.

    Attributes:
        outcome: How a refund ends immediately; `None`: it does not.
        after: The time from the request to its success; `None`: it does not end by itself.
        once: A number is accepted once only, even from the same request.
    """

    outcome: Literal["succeeded", "failed"] | None = "succeeded"
    after: timedelta | None = None
    once: bool = False


def refund_terms(refunds: RefundSetting = "succeed", repeated: RepeatedSetting = "same") -> RefundTerms:
    """Return the terms that two settings mean.

    Raises:
        ConfigurationError: A setting is invalid.
    """
    if repeated not in get_args(RepeatedSetting):
        raise invalid_setting("repeated_refunds", f'must be "same" or "refused", not {repeated!r}')
    after = refunds if isinstance(refunds, timedelta) else None
    if (after is not None and after <= timedelta()) or (after is None and refunds not in (*_ENDS, _MANUAL)):
        rule = f'"succeed", "fail", "{_MANUAL}", or a timedelta above 0'
        raise invalid_setting("refunds", f"must be {rule}, not {refunds!r}")
    return RefundTerms(outcome=None if after else _ENDS.get(refunds), after=after, once=repeated == "refused")


MAX_DECLINES: Final = 3
MAX_FAILURES: Final = 3
"""Charges in a row that fail before a subscription is cancelled."""
CLOSABLE: Final[frozenset[OrderState]] = frozenset({"pending", "failed", "expired", "closed"})
SETTLED: Final[tuple[RefundState, ...]] = ("succeeded", "failed")


def decide(order: Order, decision: Decision) -> Order:
    """Return an order after its customer's decision at the gateway (docs/reference/service.md#orders).

    Cancelling changes nothing: the merchant closes the order. Authorizing a paid order is not a second payment.

    Raises:
        RefusedError: The order is no longer pending.
    """
    if order.state == "paid" and decision == "authorize":
        return order
    if order.state != "pending":
        message = f"the order is {order.state}: nothing is left to decide"
        raise RefusedError("already_paid" if order.state == "paid" else "wrong_state", message)
    if decision == "authorize":
        return evolve(order, state="paid")
    if decision == "cancel":
        return order
    declines = order.declines + 1
    return evolve(order, declines=declines, state="failed" if declines >= MAX_DECLINES else "pending")


def close(order: Order) -> Order:
    """Return an order after its merchant closed it; a second close changes nothing (docs/reference/service.md#orders).

    Raises:
        RefusedError: It is paid.
    """
    if order.state not in CLOSABLE:
        raise RefusedError("already_paid", f"the order is {order.state}: it cannot be closed, but refunded")
    return evolve(order, state="closed")


def expire(order: Order) -> Order:
    """Return an order after its time is over (docs/reference/service.md#orders): only a pending one expires."""
    return evolve(order, state="expired") if order.state == "pending" else order


def reserve(order: Order, refund: Refund) -> Order:
    """Return an order with the amount of a refund reserved (docs/reference/service.md#refunds).

    Raises:
        RefusedError: The order is not paid, it has another amount, or less is left to refund.
    """
    if order.state != "paid":
        raise RefusedError("wrong_state", f"the order is {order.state}: only a paid one can be refunded")
    if refund.total_amt != order.total_amt:
        raise RefusedError("refund_mismatch", f"the order's amount is {order.total_amt}", argument="total_amt")
    left = order.total_amt - order.reserved
    if refund.refund_amt > left:
        raise RefusedError("refund_mismatch", f"{left} is left to refund", argument="refund_amt")
    return evolve(order, reserved=order.reserved + refund.refund_amt)


def release(order: Order, refund: Refund) -> Order:
    """Return an order without the amount that was reserved for a failed refund."""
    return evolve(order, reserved=order.reserved - refund.refund_amt)


def repeat_refund(first: Refund, again: Refund, *, refused: bool = False) -> Refund:
    """Return the refund that a number already names, if the request is the same (docs/reference/service.md#refunds).

    Args:
        first: The refund.
        again: The refund of the new request.
        refused: A number is accepted once only, even from the same request.

    Raises:
        RefusedError: It is another request, or numbers are accepted once only.
    """
    if first.fingerprint != again.fingerprint:
        raise RefusedError("duplicate", "the number names another refund", argument="out_refund_no")
    if refused:
        raise RefusedError("duplicate", "the number was used before", argument="out_refund_no")
    return first


def settle(refund: Refund, state: RefundState) -> Refund:
    """Return a refund after it has ended as `state`.

    Raises:
        RefusedError: It has ended before, or `state` is not an end.
    """
    if refund.state in SETTLED or state not in SETTLED:
        raise RefusedError("wrong_state", f"a refund does not go from {refund.state} to {state}")
    return evolve(refund, state=state)


def begin(subscription: Subscription, today: date) -> Subscription:
    """Return a subscription as it is on a day: from its start date on it is billed, first for that day's period."""
    start = subscription.start_date
    if subscription.state != "scheduled" or start > today:
        return subscription
    return _billed(subscription, current_period(start, subscription.frequency, today))


def renew(subscription: Subscription) -> Subscription:
    """Return a subscription after its next period begins: billed for it, or cancelled at its end."""
    if subscription.state not in {"active", "past_due"} or subscription.renews is None:
        return subscription
    return _cancelled(subscription) if subscription.ends else _billed(subscription, subscription.renews)


def _billed(subscription: Subscription, begun: date) -> Subscription:
    failed = subscription.failing > 0
    billed = evolve(
        subscription,
        state="past_due" if failed else "active",
        period=subscription.period + 1,
        renews=next_period(begun, subscription.frequency, subscription.start_date),
        failing=subscription.failing - failed,
        failures=subscription.failures + 1 if failed else 0,
    )
    return _cancelled(billed) if billed.failures >= MAX_FAILURES else billed


def _cancelled(subscription: Subscription) -> Subscription:
    return evolve(subscription, state="cancelled", renews=None)


def fail(subscription: Subscription, times: int) -> Subscription:
    """Return a subscription with its next charges set to fail.

    Raises:
        RefusedError: It is cancelled.
    """
    if subscription.state == "cancelled":
        raise RefusedError("wrong_state", "the subscription is cancelled", argument="subscription_id")
    return evolve(subscription, failing=times)


def update(subscription: Subscription, changes: dict[str, Any], today: date) -> Subscription:
    """Return a subscription with changes that count from its next period on (docs/reference/service.md#subscriptions).

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
    """Return a subscription after it is cancelled: immediately, or when its period ends.

    See docs/reference/service.md#subscriptions.

    Args:
        subscription: If it has not begun, it is cancelled immediately.
        at_period_end: It is cancelled when its period ends.

    Raises:
        RefusedError: It was cancelled before.
    """
    if subscription.state == "cancelled":
        raise RefusedError("wrong_state", "the subscription is cancelled")
    return evolve(subscription, ends=True) if at_period_end and subscription.renews else _cancelled(subscription)


def subscription_event(before: Subscription, after: Subscription) -> Event | None:
    """Return the event of a subscription (docs/reference/service.md#notifications)."""
    if after.state == "cancelled" != before.state:
        name = "cancelled"
    elif after.period == before.period:
        return None
    elif after.state == "past_due":
        name = "past_due"
    else:
        name = "renewed" if before.period else "started"
    return Event(kind="subscription", name=name, subject=after, url=None)
