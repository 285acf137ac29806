"""Starting points for tests: orders made by the sandbox's rules, without a request."""

from typing import Any

from payasync.errors import InvalidArgumentError
from payasync.sandbox import checks
from payasync.sandbox.service import Service
from payasync.sandbox.store import Store
from payasync.sandbox.values import Order, RefusedError


class Given:
    """Makes orders; each method returns the order's number.

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
        with self._store.transaction():
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
        with self._store.transaction():
            order = self._placed(total_amt, currency, given)
            return self._service.decide(order, "authorize").out_trade_no

    def _placed(self, total_amt: int, currency: str, given: dict[str, Any]) -> Order:
        try:
            return self._service.place_order(total_amt=checks.amount(total_amt), currency=currency, **given)
        except RefusedError as refused:
            field, rule = refused.argument, "free"
        except ValueError as error:
            field, rule = "total_amt", str(error)
        raise InvalidArgumentError(f"{field} must be {rule}", field=field, rule=rule)
