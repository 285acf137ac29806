"""The state machines and the amounts, as plain functions."""

from datetime import date
from typing import Any, Final, get_args

import pytest
from attrs import evolve

from payasync.sandbox import rules
from payasync.sandbox.values import (
    Decision,
    Event,
    Order,
    OrderState,
    Refund,
    RefundState,
    RefusedError,
    Subscription,
    SubscriptionState,
)

ORDER: Final = Order(
    out_trade_no="T1", payment_id="P1", token="t", origin="order", total_amt=450, currency="CAD", notify_url="http://n"
)
REFUND: Final = Refund(
    out_refund_no="R1", out_trade_no="T1", total_amt=450, refund_amt=200, fingerprint="f", notify_url="http://r"
)
SUBSCRIPTION: Final = Subscription(
    subscription_id="S1", frequency="monthly", amount=900, start_date=date(2027, 1, 31), customer="{}"
)
BEFORE: Final = date(2027, 1, 30)
AFTER: Final = date(2027, 2, 1)
ENDED: Final[list[OrderState]] = ["failed", "expired", "closed"]


def test_authorising_pays() -> None:
    """A pending order that its customer authorises is paid."""
    assert "paid" == rules.decide(ORDER, "authorize").state


def test_authorising_again_pays_once() -> None:
    """A customer who presses twice has paid once: the order stays as it is."""
    paid = evolve(ORDER, state="paid")

    assert paid is rules.decide(paid, "authorize")


def test_third_decline_fails() -> None:
    """A declined order stays pending, for another try; the third time it fails."""
    states = list[OrderState]()
    order = ORDER
    for _ in range(3):
        order = rules.decide(order, "decline")
        states.append(order.state)

    assert ["pending", "pending", "failed"] == states


def test_cancelling_at_the_page_changes_nothing() -> None:
    """The customer cancels, the merchant closes: until then the order is pending."""
    assert ORDER == rules.decide(ORDER, "cancel")


@pytest.mark.parametrize("state", ENDED)
@pytest.mark.parametrize("decision", get_args(Decision))
def test_nothing_is_decided_after_the_end(state: OrderState, decision: Decision) -> None:
    """No decision brings an order back that has failed, expired or been closed."""
    with pytest.raises(RefusedError) as refused:
        rules.decide(evolve(ORDER, state=state), decision)

    assert "wrong_state" == refused.value.why


@pytest.mark.parametrize("decision", ["decline", "cancel"])
def test_what_is_paid_is_not_undone_at_the_page(decision: Decision) -> None:
    """A paid order is neither declined nor cancelled."""
    with pytest.raises(RefusedError):
        rules.decide(evolve(ORDER, state="paid"), decision)


@pytest.mark.parametrize("state", ["pending", *ENDED])
def test_close(state: OrderState) -> None:
    """Pending, failed and expired orders close; one that is closed stays so."""
    assert "closed" == rules.close(evolve(ORDER, state=state)).state


def test_paid_order_does_not_close() -> None:
    """Money that was paid goes back by a refund only."""
    with pytest.raises(RefusedError) as refused:
        rules.close(evolve(ORDER, state="paid"))

    assert "wrong_state" == refused.value.why


@pytest.mark.parametrize("state", ["pending", *ENDED])
def test_only_paid_orders_are_refunded(state: OrderState) -> None:
    """What was not paid cannot be given back."""
    with pytest.raises(RefusedError) as refused:
        rules.check_refund(evolve(ORDER, state=state), REFUND)

    assert "wrong_state" == refused.value.why


def test_refund_names_the_amount_of_its_order() -> None:
    """`totalAmt` must be that of the order."""
    with pytest.raises(RefusedError) as refused:
        rules.check_refund(evolve(ORDER, state="paid"), evolve(REFUND, total_amt=451))

    assert ("invalid", "total_amt") == (refused.value.why, refused.value.argument)


@pytest.mark.parametrize(("reserved", "fits"), [(0, True), (250, True), (251, False), (450, False)])
def test_refunds_never_exceed_what_was_paid(reserved: int, *, fits: bool) -> None:
    """The sum of refunds, those under way included, stays within what was paid."""
    order = evolve(ORDER, state="paid", reserved=reserved)
    refused = None
    try:
        rules.check_refund(order, REFUND)
    except RefusedError as error:
        refused = error.argument

    assert (None if fits else "refund_amt") == refused


def test_same_refund_again() -> None:
    """The same number with the same request names the same refund."""
    assert REFUND is rules.repeated(REFUND, evolve(REFUND))


def test_changed_refund_is_a_duplicate() -> None:
    """The same number with another request is refused."""
    with pytest.raises(RefusedError) as refused:
        rules.repeated(REFUND, evolve(REFUND, fingerprint="g"))

    assert "duplicate" == refused.value.why


@pytest.mark.parametrize("state", ["succeeded", "failed"])
def test_refund_ends(state: RefundState) -> None:
    """A refund that is processing succeeds or fails."""
    assert state == rules.settle(REFUND, state).state


@pytest.mark.parametrize(
    ("before", "after"), [("succeeded", "failed"), ("failed", "succeeded"), ("processing", "processing")]
)
def test_refund_ends_once(before: RefundState, after: RefundState) -> None:
    """What has ended does not end again, and processing is no end."""
    with pytest.raises(RefusedError):
        rules.settle(evolve(REFUND, state=before), after)


@pytest.mark.parametrize(
    ("today", "expected"), [(BEFORE, ("scheduled", 0)), (date(2027, 1, 31), ("active", 1)), (AFTER, ("active", 1))]
)
def test_subscription_begins_on_its_start_date(today: date, expected: tuple[str, int]) -> None:
    """A subscription is scheduled until its start date, and from then on active in its first period."""
    begun = rules.begin(SUBSCRIPTION, today)

    assert expected == (begun.state, begun.period)


def test_update_applies() -> None:
    """Changes are applied; a start date that is brought forward begins the subscription."""
    changed = rules.update(SUBSCRIPTION, {"amount": 1000, "start_date": BEFORE}, BEFORE)

    begun: dict[str, Any] = {"state": "active", "period": 1, "renews": date(2027, 2, 28)}
    assert evolve(SUBSCRIPTION, amount=1000, start_date=BEFORE, **begun) == changed


def test_active_subscription_keeps_its_start_date() -> None:
    """A subscription that has begun takes a new amount, but no new beginning."""
    active = evolve(SUBSCRIPTION, state="active", period=1)

    assert 1000 == rules.update(active, {"amount": 1000}, AFTER).amount
    with pytest.raises(RefusedError):
        rules.update(active, {"start_date": AFTER}, AFTER)


def test_cancelled_subscription_stays_so() -> None:
    """What is cancelled is neither updated nor cancelled again."""
    cancelled = rules.cancel(SUBSCRIPTION)

    assert "cancelled" == cancelled.state
    with pytest.raises(RefusedError):
        rules.cancel(cancelled)
    with pytest.raises(RefusedError):
        rules.update(cancelled, {"amount": 1}, AFTER)


@pytest.mark.parametrize("state", ["paid", "failed", "closed", "expired"])
def test_the_end_of_being_pending_is_told(state: OrderState) -> None:
    """The merchant is told once that an order is no longer pending."""
    after = evolve(ORDER, state=state)

    assert Event(kind="payment", name=state, subject=after, url="http://n") == rules.order_event(ORDER, after)


def test_a_decline_is_not_told() -> None:
    """What stays pending is no news, and neither is what stays as it is."""
    paid = evolve(ORDER, state="paid")

    assert rules.order_event(ORDER, evolve(ORDER, declines=1)) is None
    assert rules.order_event(paid, paid) is None


def test_refund_is_told_at_its_own_address() -> None:
    """A refund's notification goes to the address in the refund."""
    after = evolve(REFUND, state="succeeded")

    assert Event(kind="refund", name="succeeded", subject=after, url="http://r") == rules.refund_event(after)


@pytest.mark.parametrize("state", ["pending", "paid", *ENDED])
def test_only_what_is_pending_expires(state: OrderState) -> None:
    """An order whose time is over expires, unless something else has become of it."""
    order = evolve(ORDER, state=state)

    assert ("expired" if state == "pending" else state) == rules.expire(order).state


def test_same_refund_may_be_refused() -> None:
    """Where numbers are taken once only, the same request is a duplicate, too."""
    with pytest.raises(RefusedError, match="used before") as refused:
        rules.repeated(REFUND, evolve(REFUND), refused=True)

    assert "duplicate" == refused.value.why


def test_renewal_begins_the_next_period() -> None:
    """The period that was foreseen begins, and the one after it is foreseen."""
    active = rules.begin(SUBSCRIPTION, date(2027, 1, 31))
    renewed = rules.renew(active)

    assert (1, date(2027, 2, 28), 2, date(2027, 3, 31)) == (
        active.period,
        active.renews,
        renewed.period,
        renewed.renews,
    )


@pytest.mark.parametrize(
    "subscription",
    [
        SUBSCRIPTION,
        evolve(SUBSCRIPTION, state="cancelled"),
        evolve(SUBSCRIPTION, state="active", period=1, start_date=date(9999, 12, 31)),
    ],
)
def test_nothing_to_renew(subscription: Subscription) -> None:
    """What has not begun, what is cancelled, and what the calendar has no more room for stays as it is."""
    assert subscription is rules.renew(subscription)


def test_failures_in_a_row() -> None:
    """A charge that fails makes it past due, the third in a row cancels; a success in between begins anew."""
    subscription, states = rules.fail(rules.begin(SUBSCRIPTION, AFTER), 2), list[tuple[str, int]]()
    for failing in (2, 1, 0, 9, 9, 9):
        subscription = rules.renew(evolve(subscription, failing=failing))
        states.append((subscription.state, subscription.failures))

    assert [
        ("past_due", 1),
        ("past_due", 2),
        ("active", 0),
        ("past_due", 1),
        ("past_due", 2),
        ("cancelled", 3),
    ] == states
    assert subscription.renews is None
    with pytest.raises(RefusedError):
        rules.fail(subscription, 1)


def test_cancel_at_the_end_of_the_period() -> None:
    """It stays active until then; what has not begun has no period to end, and is cancelled at once."""
    ending = rules.cancel(rules.begin(SUBSCRIPTION, AFTER), at_period_end=True)

    assert ("active", "cancelled") == (ending.state, rules.renew(ending).state)
    assert ("cancelled", "cancelled") == (
        rules.cancel(SUBSCRIPTION, at_period_end=True).state,
        rules.cancel(ending).state,
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (("scheduled", 0), ("active", 1), "started"),
        (("scheduled", 0), ("past_due", 1), "past_due"),
        (("active", 1), ("active", 2), "renewed"),
        (("active", 1), ("past_due", 2), "past_due"),
        (("past_due", 2), ("past_due", 3), "past_due"),
        (("past_due", 2), ("active", 3), "renewed"),
        (("past_due", 2), ("cancelled", 3), "cancelled"),
        (("active", 1), ("active", 1), ""),
        (("past_due", 1), ("past_due", 1), ""),
    ],
)
def test_each_period_is_told(
    before: tuple[SubscriptionState, int], after: tuple[SubscriptionState, int], expected: str
) -> None:
    """The merchant is told of each period, of whether it was paid, and of the end."""
    first, then = (evolve(SUBSCRIPTION, state=state, period=period) for state, period in (before, after))
    told = rules.subscription_event(first, then)

    assert expected == (told.name if told else "")


def test_cancellation_is_told() -> None:
    """A cancelled subscription is told, a changed one is not."""
    cancelled = rules.cancel(SUBSCRIPTION)
    told = rules.subscription_event(SUBSCRIPTION, cancelled)

    assert Event(kind="subscription", name="cancelled", subject=cancelled, url=None) == told
    assert rules.subscription_event(SUBSCRIPTION, evolve(SUBSCRIPTION, state="active")) is None
    assert rules.subscription_event(cancelled, cancelled) is None
