"""The ledger: what the service really did, whatever a client was told."""

from payasync.errors import InvalidArgumentError
from payasync.sandbox.model import Answered, Charge, Order, Subscription
from payasync.sandbox.store import Named, Numbers, Store
from payasync.sandbox.webhooks import Attempt, Notification, Outbox


class Ledger:
    """Reads what the sandbox keeps; states are by our names, such as `paid`.

    Where a method takes a number, it takes an answer that tells it, too, such as that of `orders.place`; an order
    is found by its payment's number as well. Anything else is an `InvalidArgumentError`.

    Args:
        store: The sandbox's.
        numbers: Finds numbers in answers.
    """

    def __init__(self, store: Store, numbers: Numbers) -> None:
        self._store = store
        self._numbers = numbers
        self._outbox = Outbox(store)

    def paid(self, out_trade_no: Named) -> int:
        """Return what was paid for an order; 0 where there is none."""
        order = self._found(out_trade_no)
        return order.total_amt if order and order.state == "paid" else 0

    def refunded(self, out_trade_no: Named) -> int:
        """Return what was given back of an order; 0 where there is none."""
        order = self._found(out_trade_no)
        return self._store.refunded(order.out_trade_no) if order else 0

    def order_state(self, out_trade_no: Named) -> str:
        """Return an order's state: pending, paid, failed, expired or closed.

        Raises:
            InvalidArgumentError: There is no such order.
        """
        order = self._found(out_trade_no)
        if order is None:
            raise _absent("out_trade_no", out_trade_no)
        return order.state

    def refund_state(self, out_refund_no: Named) -> str:
        """Return a refund's state: processing, succeeded or failed.

        Raises:
            InvalidArgumentError: There is no such refund.
        """
        refund = self._store.refund(self._numbers.of("out_refund_no", out_refund_no))
        if refund is None:
            raise _absent("out_refund_no", out_refund_no)
        return refund.state

    def subscription_state(self, subscription_id: Named) -> str:
        """Return a subscription's state: scheduled, active, past_due or cancelled.

        Raises:
            InvalidArgumentError: There is no such subscription.
        """
        return self._subscription(subscription_id).state

    def subscription_amount(self, subscription_id: Named) -> int:
        """Return what a subscription bills each time.

        Raises:
            InvalidArgumentError: There is no such subscription.
        """
        return self._subscription(subscription_id).amount

    def orders(self) -> int:
        """Count the orders that endpoint 2 made, and those of `sandbox.given`."""
        return self._store.count_orders("order")

    def payments(self) -> int:
        """Count the payments that endpoint 1 made."""
        return self._store.count_orders("payment")

    def refunds(self) -> int:
        """Count the refunds."""
        return self._store.count_refunds()

    def calls(self, operation: str | None = None) -> list[Answered]:
        """Return the calls that were answered, oldest first.

        Args:
            operation: Only those of one, by its name such as `refunds.create`.
        """
        return self._store.calls(operation)

    def deliveries(self) -> list[Attempt]:
        """Return the attempts to deliver notifications, oldest first."""
        return self._outbox.attempts()

    def notifications(self) -> list[Notification]:
        """Return what the merchant is told, oldest first; each has a `state`: waiting, delivered or dead."""
        return self._outbox.notifications()

    def charges(self, subscription_id: Named) -> list[Charge]:
        """Return what a subscription was billed, period by period.

        Raises:
            InvalidArgumentError: There is no such subscription.
        """
        return self._store.charges(self._subscription(subscription_id).subscription_id)

    def _subscription(self, subscription_id: Named) -> Subscription:
        subscription = self._store.subscription(self._numbers.of("subscription_id", subscription_id))
        if subscription is None:
            raise _absent("subscription_id", subscription_id)
        return subscription

    def _found(self, out_trade_no: Named) -> Order | None:
        return self._store.order_named(self._numbers.of("out_trade_no", out_trade_no))


def _absent(field: str, value: Named) -> InvalidArgumentError:
    rule = "the number of something in this sandbox"
    return InvalidArgumentError(f"{field} must be {rule}, not {value!r}", field=field, rule=rule, value=value)
