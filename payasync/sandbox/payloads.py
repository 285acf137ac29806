"""What answers and notifications tell, in the words of a profile."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from payasync.coverage import COMPARED
from payasync.sandbox.keys import MERCHANT_ID
from payasync.sandbox.numbers import Numbers
from payasync.sandbox.paths import found, joined, put
from payasync.sandbox.values import Event, Order, Refund, Subscription
from payasync.sandbox.vocabulary import Vocabulary, camel


class Payloads:
    """Writes orders, payments, refunds, subscriptions and notifications.

    Args:
        words: The profile's.
    """

    def __init__(self, words: Vocabulary) -> None:
        self._words = words

    @property
    def numbers(self) -> Numbers:
        """Finds in answers what is written here."""
        answer = self._words.answer
        inside = {name: self._words.about(name) for name in ("out_trade_no", "out_refund_no")}
        inside |= {name: getattr(answer, name) for name in ("subscription_id", "redirect_url")}
        return Numbers({name: joined(answer.data, path) for name, path in inside.items() if path})

    def order(self, order: Order, redirect_url: str = "") -> dict[str, Any]:
        """Return an order as endpoints 2 to 4 tell it, with the customer's address where it is new."""
        return self._payable(order, "order", redirect_url)

    def payment(self, order: Order, redirect_url: str = "") -> dict[str, Any]:
        """Return a payment as endpoints 1 and 6 tell it, with the customer's address where it is new."""
        return self._payable(order, "payment", redirect_url)

    def _payable(self, order: Order, thing: str, redirect_url: str) -> dict[str, Any]:
        answer, payload = self._words.answer, dict[str, Any]()
        put(payload, answer.payment_id, order.payment_id)
        put(payload, getattr(answer, f"{thing}_status"), self._words.state(thing, order.state))
        if redirect_url:
            put(payload, answer.redirect_url, redirect_url)
        names = ("out_trade_no", "total_amt", "currency")
        return self._named(payload, thing, **{name: getattr(order, name) for name in names})

    def refund(self, refund: Refund) -> dict[str, Any]:
        """Return a refund as endpoints 5 and 7 tell it."""
        payload: dict[str, Any] = {}
        put(payload, self._words.answer.refund_status, self._words.state("refund", refund.state))
        names = ("out_refund_no", "out_trade_no", "total_amt", "refund_amt")
        return self._named(payload, "refund", **{name: getattr(refund, name) for name in names})

    def subscription(self, subscription: Subscription) -> dict[str, Any]:
        """Return a subscription as endpoints 8 to 10 tell it."""
        words = self._words
        payload: dict[str, Any] = {
            words.fields["frequency"]: subscription.frequency,
            words.fields["subscription_amount"]: subscription.amount,
            words.fields["start_date"]: subscription.start_date.strftime(words.date_format),
        }
        put(payload, words.answer.subscription_id or "", subscription.subscription_id)
        put(payload, words.answer.subscription_status, words.state("subscription", subscription.state))
        return self._named(payload, "subscription")

    def about(self, fields: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return a payload with all that its request names, and that the profile gives a path for.

        Args:
            fields: Of the request, by their wire names.
            payload: Of its answer.
        """
        told = dict(payload)
        for name in COMPARED:
            path = getattr(self._words.answer, name)
            if path and camel(name) in fields and found(told, path) is None:
                put(told, path, fields[camel(name)])
        return told

    def _named(self, payload: dict[str, Any], thing: str, **values: Any) -> dict[str, Any]:
        """Add to a payload what it is about; what the profile does not compare gives way to what it reads there."""
        answer = self._words.answer
        merchant = {"merchant_id": MERCHANT_ID} if answer.merchant_id else {}
        for name, value in {**values, **merchant}.items():
            path = self._words.about(name, thing)
            if getattr(answer, name) != "" or found(payload, path) is None:
                put(payload, path, value)
        return payload

    def number(self, payload: Mapping[str, Any]) -> str:
        """Return the number of what a payload tells: an order's, a payment's or a subscription's."""
        paths = (self._words.about("out_trade_no"), self._words.answer.subscription_id or "")
        return next((str(number) for path in paths if (number := found(payload, path))), "")

    def notification(self, event: Event, now: datetime) -> str | None:
        """Return the body of a notification (spec: Events, 4); `None` where the service does not tell this event."""
        shape, document = self._words.notification, dict[str, Any]()
        put(document, shape.data, self._told(event))
        if shape.kind:
            name = self._words.event(event.kind, event.name)
            if name is None:
                return None
            put(document, shape.kind, name)
        if shape.time:
            put(document, shape.time, written(now))
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)

    def _told(self, event: Event) -> dict[str, Any]:
        shape, subject = self._words.notification, event.subject
        if isinstance(subject, Order):
            path, number = shape.out_trade_no, subject.out_trade_no
            payload = self.payment(subject) if subject.origin == "payment" else self.order(subject)
        elif isinstance(subject, Refund):
            path, number = shape.out_refund_no, subject.out_refund_no
            payload = self.refund(subject)
        else:
            path, number = shape.subscription_id, subject.subscription_id
            payload = {**self.subscription(subject), "period": subject.period}
        if path:
            put(payload, path, number)
        return payload


def written(time: datetime) -> str:
    """Return a time as notifications tell it: in UTC, with milliseconds."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
