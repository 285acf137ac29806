"""Starting points for tests: orders and subscriptions made by the sandbox's rules, without a request."""

from collections.abc import Mapping
from datetime import date
from typing import Any

from payasync.errors import InvalidArgumentError
from payasync.sandbox import checks
from payasync.sandbox.by_hand import by_hand
from payasync.sandbox.service import Service
from payasync.sandbox.store import Store
from payasync.sandbox.values import Order


class Given:
    """Makes orders and subscriptions; each method returns the number of what it made.

    Args:
        service: Makes them.
        store: Holds the transaction around it.
    """

    def __init__(self, service: Service, store: Store) -> None:
        self._service = service
        self._store = store

    async def pending_order(self, total_amt: int = 450, currency: str = "CAD", **given: Any) -> str:
        """Make an order that nobody has paid yet.

        Args:
            total_amt: Its amount.
            currency: Its currency.
            given: `out_trade_no`, `subject`, `body`, `notify_url`, `return_url`.

        Raises:
            InvalidArgumentError: The number is taken, or the amount is none.
        """
        with by_hand(self._store, out_trade_no=given.get("out_trade_no")):
            return self._placed(total_amt, currency, given).out_trade_no

    async def paid_order(self, total_amt: int = 450, currency: str = "CAD", **given: Any) -> str:
        """Make an order that is paid; its notification goes out where there is an address for it.

        Args:
            total_amt: Its amount.
            currency: Its currency.
            given: As for `pending_order`.

        Raises:
            InvalidArgumentError: The number is taken, or the amount is none.
        """
        with by_hand(self._store, out_trade_no=given.get("out_trade_no")):
            order = self._placed(total_amt, currency, given)
            return self._service.decide(order, "authorize").out_trade_no

    async def subscription(
        self,
        frequency: str = "monthly",
        amount: int = 900,
        *,
        start_date: date | None = None,
        customer: Mapping[str, Any] | None = None,
    ) -> str:
        """Make a subscription, and return its number.

        Args:
            frequency: How often it is billed.
            amount: What each period costs.
            start_date: When its first period begins; left out: today, by the sandbox's time.
            customer: Details.

        Raises:
            InvalidArgumentError: One of them is none.
        """
        given = {
            "frequency": _checked("frequency", checks.frequency, frequency),
            "amount": _checked("amount", checks.amount, amount),
            "customer": _checked("customer", checks.customer, dict(customer or {"email": "a@example.com"})),
        }
        with by_hand(self._store, **given):
            made = self._service.subscriptions.create(start_date=start_date or self._service.today(), **given)
        return made.subscription_id

    def _placed(self, total_amt: int, currency: str, given: dict[str, Any]) -> Order:
        amount = _checked("total_amt", checks.amount, total_amt)
        return self._service.place_order(total_amt=amount, currency=currency, **given)


def _checked(field: str, check: checks.Check, value: object) -> Any:
    try:
        return check(value)
    except ValueError as error:
        rule = str(error)
    raise InvalidArgumentError(f"{field} must be {rule}, not {value!r}", field=field, rule=rule, value=value)
