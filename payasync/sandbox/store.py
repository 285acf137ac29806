"""What the sandbox keeps: orders, refunds, subscriptions, and what it answered."""

from collections.abc import Callable
from contextlib import suppress

from attrs import asdict

from payasync.sandbox import statements
from payasync.sandbox.database import Database
from payasync.sandbox.values import (
    Answered,
    Charge,
    Order,
    Refund,
    RefundState,
    RefusedError,
    Subscription,
)


class Store(Database):
    """Reads and writes what the sandbox keeps; whoever changes something does it in one `transaction`."""

    def add_order(self, order: Order) -> bool:
        """Keep a new order; `False` where its number is taken."""
        return self.changed(statements.ADD_ORDER, asdict(order))

    def order(self, out_trade_no: str) -> Order | None:
        """Return the order with this number."""
        return self.first(Order, statements.ORDER, key=out_trade_no)

    def order_by_payment(self, payment_id: str) -> Order | None:
        """Return the order with this payment number."""
        return self.first(Order, statements.ORDER_BY_PAYMENT, key=payment_id)

    def order_named(self, number: str) -> Order | None:
        """Return the order with this number, or else that with this payment number."""
        return self.order(number) or self.order_by_payment(number)

    def order_by_token(self, token: str) -> Order | None:
        """Return the order whose gateway page this token names."""
        return self.first(Order, statements.ORDER_AT_GATEWAY, key=token)

    def move_order(self, before: Order, after: Order) -> bool:
        """Change an order's state; `False` where it is no longer as it was."""
        values = {**asdict(after), "was": before.state, "declined": before.declines}
        return self.changed(statements.MOVE_ORDER, values)

    def reserve(self, out_trade_no: str, amount: int) -> bool:
        """Set aside what a refund gives back; `False` where the order has less left, or is not paid."""
        return self.changed(statements.RESERVE, {"out_trade_no": out_trade_no, "amount": amount})

    def release(self, out_trade_no: str, amount: int) -> None:
        """Give back what was set aside for a refund that failed."""
        self.changed(statements.RELEASE, {"out_trade_no": out_trade_no, "amount": amount})

    def count_orders(self, origin: str) -> int:
        """Count what one of the endpoints 1 (`payment`) and 2 (`order`) made."""
        return self.number(statements.COUNT_ORDERS, origin=origin)

    def add_refund(self, refund: Refund) -> None:
        """Keep a new refund."""
        self.changed(statements.ADD_REFUND, asdict(refund))

    def refund(self, out_refund_no: str) -> Refund | None:
        """Return the refund with this number."""
        return self.first(Refund, statements.REFUND, key=out_refund_no)

    def move_refund(self, out_refund_no: str, was: RefundState, state: RefundState) -> bool:
        """Change a refund's state; `False` where it is no longer as it was."""
        return self.changed(statements.MOVE_REFUND, {"out_refund_no": out_refund_no, "was": was, "state": state})

    def refunded(self, out_trade_no: str) -> int:
        """Sum up what of an order was given back."""
        return self.number(statements.REFUNDED, out_trade_no=out_trade_no)

    def refunds_of(self, out_trade_no: str) -> list[Refund]:
        """Return an order's refunds, in no order."""
        return self.read(Refund, statements.REFUNDS_OF, out_trade_no=out_trade_no)

    def count_refunds(self) -> int:
        """Count all refunds."""
        return self.number(statements.ALL_REFUNDS)

    def add_subscription(self, subscription: Subscription) -> None:
        """Keep a new subscription."""
        self.changed(statements.ADD_SUBSCRIPTION, asdict(subscription))

    def subscription(self, subscription_id: str) -> Subscription | None:
        """Return the subscription with this number."""
        return self.first(Subscription, statements.SUBSCRIPTION, key=subscription_id)

    def move_subscription(self, before: Subscription, after: Subscription) -> bool:
        """Change a subscription; `False` where it is no longer as it was."""
        values = {**asdict(after), "was": before.state, "before": before.period}
        return self.changed(statements.MOVE_SUBSCRIPTION, values)

    def add_charge(self, charge: Charge) -> None:
        """Keep what a period was billed; there is one charge to a period."""
        self.changed(statements.ADD_CHARGE, asdict(charge))

    def charges(self, subscription_id: str) -> list[Charge]:
        """Return what a subscription was billed, period by period."""
        return self.read(Charge, statements.CHARGES, subscription_id=subscription_id)

    def burn(self, merchant_id: str, nonce: str) -> bool:
        """Use up a nonce; `False` where it was used before (spec: Authentication, 3)."""
        return self.changed(statements.BURN, {"merchant_id": merchant_id, "nonce": nonce})

    def kept(self, name: str, draw: Callable[[], str]) -> str:
        """Return the key that is kept by a name, or one that is drawn now and kept from now on."""
        with self.transaction():
            if found := self.read(dict[str, str], statements.KEY, name=name):
                return found[0]["text"]
            drawn = draw()
            self.changed(statements.ADD_KEY, {"name": name, "text": drawn})
            return drawn

    def add_call(self, call: Answered) -> None:
        """Keep the record of a call that is about to be answered.

        Where the database cannot be written it is lost: the call was done, or refused, all the same.
        """
        with suppress(RefusedError), self.transaction():
            self.changed(statements.ADD_CALL, asdict(call))

    def calls(self, operation: str | None) -> list[Answered]:
        """Return the calls of one operation, or all, oldest first."""
        if operation is None:
            return self.read(Answered, statements.ALL_CALLS)
        return self.read(Answered, statements.CALLS, operation=operation)
