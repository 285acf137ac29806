"""The service itself: each change of state with all its consequences, by the rules, in one transaction."""

import re
import secrets
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, Literal, TypeVar

from attrs import AttrsInstance, evolve

from payasync.endpoints import QUERY_ORDER, QUERY_REFUND
from payasync.profile.profile import Profile
from payasync.profile.wire_names import number_taken
from payasync.sandbox import rules
from payasync.sandbox.clock import DueAction
from payasync.sandbox.dialect import Dialect
from payasync.sandbox.model import (
    Charge,
    Decision,
    Event,
    Notification,
    Order,
    Refund,
    RefundState,
    RefusedError,
    Subscription,
    TimerKind,
)
from payasync.sandbox.rules import RefundTerms
from payasync.sandbox.store import Store

T = TypeVar("T")
_SENT_BACK: Final = ("out_trade_no", "identifier", "subscription_id")
"""The arguments by which a merchant names what the sandbox has numbered."""
_MAX_LENGTH: Final = 64
_SIZES: Final = (*range(21, 1, -1), *range(22, _MAX_LENGTH + 1))
"""Characters of a number, the preferred first: long ones are never drawn twice by chance."""
_TRIES: Final = 100


class Numbering:
    """Draws numbers that a profile's merchants may send back: they match its pattern, and are not too long.

    Args:
        profile: The service's.
    """

    def __init__(self, profile: Profile) -> None:
        lengths = profile.accept.length
        self._pattern: Final = re.compile(profile.identifier)
        self._most: Final = min(lengths.get(name, _MAX_LENGTH) for name in _SENT_BACK)

    def new(self, kind: str, used: Callable[[str], object]) -> str:
        """Return a number that names nothing yet; if none matches the profile's pattern, one of our own form.

        Args:
            kind: The capital that it begins with, if the profile allows that.
            used: Says whether a number names something.
        """
        for number in (number for _ in range(_TRIES) for number in _draw(kind)):
            if len(number) <= self._most and self._pattern.fullmatch(number) and not used(number):
                return number
        return next(_draw(kind))


def _draw(kind: str) -> Iterator[str]:
    for size in _SIZES:
        # The first digit is not 0: a profile may mean numbers that are counted.
        digits = str(secrets.randbelow(9 * 10 ** (size - 1)) + 10 ** (size - 1))
        yield from (kind + digits[1:], kind.lower() + digits[1:], digits)
    yield str(uuid.uuid4())


class Service:
    """Orders, refunds and subscriptions, and the notifications about them.

    Args:
        store: Where they are stored; its `now` is the sandbox's time.
        dialect: Writes notifications.
        terms: How refunds end.
        webhook_url: Where notifications go that have no address of their own.

    Attributes:
        store: As given.
        dialect: As given.
        webhook_url: As given; it may be changed.
    """

    def __init__(self, store: Store, dialect: Dialect, *, terms: RefundTerms, webhook_url: str | None) -> None:
        self.store: Final = store
        self.dialect: Final = dialect
        self._numbering = Numbering(dialect.names.profile)
        self._terms = terms
        self.webhook_url = webhook_url

    @property
    def due_actions(self) -> dict[TimerKind, DueAction]:
        """The functions that run when a timer falls due."""
        return {"expire": self._expire, "settle": self._settle_when_due, "renew": self._renew}

    def today(self) -> date:
        """Return the day, by the sandbox's time."""
        return self.store.now().date()

    def create_payment(self, *, amount: int, currency: str, description: str = "", **given: Any) -> Order:
        """Make a payment; unless its number is given, it has numbers of its own (docs/reference/service.md#payments).

        Raises:
            RefusedError: Its number was used before.
        """
        return self._add_order("payment", total_amt=amount, currency=currency, subject=description, **given)

    def place_order(self, *, scene_type: str = "", **given: Any) -> Order:  # noqa: ARG002 - one scene is like another
        """Make an order (docs/reference/service.md#orders).

        Raises:
            RefusedError: Its number was used before.
        """
        return self._add_order("order", **given)

    def _add_order(self, origin: Literal["order", "payment"], *, out_trade_no: str = "", **given: Any) -> Order:
        if self.store.find(Order, out_trade_no=out_trade_no) is not None:
            raise RefusedError("duplicate", "the number was used before", argument="out_trade_no")
        order = Order(
            origin=origin,
            out_trade_no=out_trade_no or self._numbering.new("T", self.store.order_named),
            payment_id=self._numbering.new("P", self.store.order_named),
            token=secrets.token_urlsafe(24),
            created=self.store.now(),
            **given,
        )
        self.store.add(order)
        expiry = timedelta(seconds=self.dialect.names.profile.sandbox.order_expiry)
        self.store.set_timer("expire", order.out_trade_no, order.created + expiry)
        return order

    def order(self, out_trade_no: str) -> Order:
        """Return an order (docs/reference/service.md#orders).

        Raises:
            RefusedError: There is none.
        """
        return _required(self.store.find(Order, out_trade_no=out_trade_no), "order", "out_trade_no")

    def asked_order(self, out_trade_no: str) -> Order:
        """Return the order of a query, by the number that the profile says it takes.

        Raises:
            RefusedError: There is none.
        """
        if number_taken(self.dialect.names.profile, QUERY_ORDER.name) == "merchant":
            return self.order(out_trade_no)
        return _required(self.store.find(Order, payment_id=out_trade_no), "order", "out_trade_no")

    def payment(self, identifier: str) -> Order:
        """Return the order that a merchant's number names, or a payment's (docs/reference/service.md#payments).

        Raises:
            RefusedError: There is none.
        """
        return _required(self.store.order_named(identifier), "payment", "identifier")

    def at_gateway(self, token: str) -> Order:
        """Return the order of a gateway page.

        Raises:
            RefusedError: There is none.
        """
        return _required(self.store.find(Order, token=token), "gateway page", "")

    def close_order(self, *, out_trade_no: str) -> Order:
        """Close an order (docs/reference/service.md#orders).

        Raises:
            RefusedError: There is none, or it is paid.
        """
        order = self.order(out_trade_no)
        return self._move_order(order, rules.close(order))

    def decide(self, order: Order, decision: Decision) -> Order:
        """Do what a customer decided at the gateway (docs/reference/service.md#orders).

        Raises:
            RefusedError: The order is no longer pending.
        """
        return self._move_order(order, rules.decide(order, decision))

    def _move_order(self, before: Order, after: Order) -> Order:
        if after == before:
            return before
        self._move("order", before, after)
        if after.state != "pending":
            self.store.set_timer("expire", after.out_trade_no, None)
            self._notify(Event(kind="payment", name=after.state, subject=after, url=after.notify_url))
        return after

    def _expire(self, out_trade_no: str) -> str:
        order = self.order(out_trade_no)
        return "order expired" if self._move_order(order, rules.expire(order)) != order else ""

    def create_refund(self, *, fingerprint: str, refund_desc: str = "", **given: Any) -> Refund:  # noqa: ARG002 - free text
        """Refund a paid order, or return the refund that the same request made (docs/reference/service.md#refunds).

        Raises:
            RefusedError: The number names another refund, or the order has less left to refund.
        """
        if "total_amt" not in given:  # the service does not take it
            given["total_amt"] = self.order(given["out_trade_no"]).total_amt
        number = self._numbering.new("R", lambda number: self.store.find(Refund, refund_id=number))
        refund = Refund(refund_id=number, fingerprint=fingerprint, created=self.store.now(), **given)
        if first := self.store.find(Refund, out_refund_no=refund.out_refund_no):
            return rules.repeat_refund(first, refund, refused=self._terms.once)
        order = self.order(refund.out_trade_no)
        self._move("order", order, rules.reserve(order, refund))
        self.store.add(refund)
        if self._terms.outcome:
            return self.settle_refund(refund, self._terms.outcome)
        if self._terms.after:
            self.store.set_timer("settle", refund.out_refund_no, self.store.now() + self._terms.after)
        return refund

    def settle_refund(self, refund: Refund, state: RefundState) -> Refund:
        """End a refund; what a failed one had reserved is released.

        Raises:
            RefusedError: It has ended before.
        """
        settled = rules.settle(refund, state)
        self._move("refund", refund, settled)
        self.store.set_timer("settle", refund.out_refund_no, None)
        if settled.state == "failed":
            order = self.order(refund.out_trade_no)
            self._move("order", order, rules.release(order, refund))
        self._notify(Event(kind="refund", name=settled.state, subject=settled, url=settled.notify_url))
        return settled

    def _settle_when_due(self, out_refund_no: str) -> str:
        return f"refund {self.settle_refund(self.refund(out_refund_no), 'succeeded').state}"

    def refund(self, out_refund_no: str) -> Refund:
        """Return a refund (docs/reference/service.md#refunds).

        Raises:
            RefusedError: There is none.
        """
        return _required(self.store.find(Refund, out_refund_no=out_refund_no), "refund", "identifier")

    def asked_refund(self, identifier: str) -> Refund:
        """Return the refund of a query, by the number that the profile says it takes.

        Raises:
            RefusedError: There is none.
        """
        if number_taken(self.dialect.names.profile, QUERY_REFUND.name) == "merchant":
            return self.refund(identifier)
        return _required(self.store.find(Refund, refund_id=identifier), "refund", "identifier")

    def create_subscription(self, **given: Any) -> Subscription:
        """Make a subscription, which begins on its start date (docs/reference/service.md#subscriptions)."""
        number = self._numbering.new("S", lambda number: self.store.find(Subscription, subscription_id=number))
        planned = Subscription(subscription_id=number, created=self.store.now(), **given)
        subscription = rules.begin(planned, self.today())
        self.store.add(subscription)
        self._bill(planned, subscription)
        return subscription

    def update_subscription(self, *, subscription_id: str, **changes: Any) -> Subscription:
        """Change a subscription (docs/reference/service.md#subscriptions).

        Raises:
            RefusedError: There is none, it is cancelled, or it has begun and its start date would change.
        """
        before = self.subscription(subscription_id)
        return self._move_subscription(before, rules.update(before, changes, self.today()))

    def cancel_subscription(self, *, subscription_id: str, at_period_end: bool = False) -> Subscription:
        """Cancel a subscription immediately, or when its period ends (docs/reference/service.md#subscriptions).

        Raises:
            RefusedError: There is none, or it was cancelled before.
        """
        before = self.subscription(subscription_id)
        return self._move_subscription(before, rules.cancel(before, at_period_end=at_period_end))

    def subscription(self, subscription_id: str) -> Subscription:
        """Return a subscription.

        Raises:
            RefusedError: There is none.
        """
        found = self.store.find(Subscription, subscription_id=subscription_id)
        return _required(found, "subscription", "subscription_id")

    def fail_charges(self, subscription_id: str, times: int) -> Subscription:
        """Make the next charges of a subscription fail.

        Raises:
            RefusedError: There is none, or it is cancelled.
        """
        before = self.subscription(subscription_id)
        return self._move_subscription(before, rules.fail(before, times))

    def _renew(self, subscription_id: str) -> str:
        before = self.subscription(subscription_id)
        began = rules.begin(before, self.today())
        after = self._move_subscription(before, rules.renew(before) if began == before else began)
        event = rules.subscription_event(before, after)
        return f"subscription {event.name}" if event else ""

    def _move_subscription(self, before: Subscription, after: Subscription) -> Subscription:
        self._move("subscription", before, after)
        self._bill(before, after)
        self._notify(rules.subscription_event(before, after))
        return after

    def _bill(self, before: Subscription, after: Subscription) -> None:
        number = after.subscription_id
        if after.period > before.period:
            paid = not after.failures
            now = self.store.now()
            self.store.add(Charge(subscription_id=number, period=after.period, at=now, amount=after.amount, paid=paid))
        due = after.start_date if after.state == "scheduled" else after.renews
        self.store.set_timer("renew", number, datetime.combine(due, time(), UTC) if due else None)

    def _move(self, thing: str, before: AttrsInstance, after: AttrsInstance) -> None:
        if not self.store.move(before, after):
            raise RefusedError("wrong_state", f"the {thing} has changed since it was read")

    def _notify(self, event: Event | None) -> None:
        """Put an event into the outbox, if there is one, an address for it, and the service sends it."""
        url, now = event and (event.url or self.webhook_url), self.store.now()
        if event and url and (body := self.dialect.build_notification(event, now)) is not None:
            notification = Notification(
                notification_id=f"msg_{secrets.token_hex(12)}",
                event=f"{event.kind}.{event.name}",
                reference=event.subject.number,
                url=url,
                body=body,
                created=now,
                due=now,
            )
            self.store.add(notification)

    def resend(self, notification_id: str) -> Notification:
        """Put a notification into the outbox once more, whatever its state, with all its redeliveries.

        Raises:
            RefusedError: There is none.
        """
        found = self.store.find(Notification, notification_id=notification_id)
        before = _required(found, "notification", "notification_id")
        again = evolve(before, state="waiting", due=self.store.now(), tries=0, resends=before.resends + 1)
        self.store.move(before, again)
        return again


def _required(found: T | None, thing: str, argument: str) -> T:
    """Return what was found, or refuse the request."""
    if found is None:
        raise RefusedError("absent", f"there is no such {thing}", argument=argument)
    return found
