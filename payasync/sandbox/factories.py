"""Starting points for tests, and what neither merchant nor customer decides: by the rules, without a request."""

import re
from collections.abc import Mapping
from datetime import date
from functools import partial
from typing import Any, Final, NoReturn

from payasync.errors import InvalidArgumentError
from payasync.sandbox.arguments import (
    Check,
    check_amount,
    check_currency,
    check_customer,
    check_frequency,
    check_pattern,
    check_text,
    check_url,
)
from payasync.sandbox.database import by_hand
from payasync.sandbox.model import Order, RefundState
from payasync.sandbox.service import Service
from payasync.sandbox.store import Named, Numbers, Store


class Given:
    """Makes orders and subscriptions; each method returns the number of what it made.

    Args:
        service: Makes them.
        store: Holds the transaction around it.
        identifier: The pattern that numbers must match as a whole.
    """

    def __init__(self, service: Service, store: Store, identifier: str) -> None:
        self._checks: Final[Mapping[str, Check]] = {
            "total_amt": check_amount,
            "currency": check_currency,
            "out_trade_no": partial(check_pattern, re.compile(identifier)),
            "subject": check_text,
            "body": check_text,
            "notify_url": check_url,
            "return_url": check_url,
        }
        self._service = service
        self._store = store

    async def pending_order(self, total_amt: int = 450, currency: str = "CAD", **given: Any) -> str:
        """Make an order that nobody has paid yet.

        Args:
            total_amt: Its amount.
            currency: Its currency.
            given: `out_trade_no`, `subject`, `body`, `notify_url`, `return_url`.

        Raises:
            InvalidArgumentError: The number is taken, or one of them is none; the field is named.
        """
        with by_hand(self._store, out_trade_no=given.get("out_trade_no")):
            return self._placed(total_amt=total_amt, currency=currency, **given).out_trade_no

    async def paid_order(self, total_amt: int = 450, currency: str = "CAD", **given: Any) -> str:
        """Make an order that is paid; its notification goes out where there is an address for it.

        Args:
            total_amt: Its amount.
            currency: Its currency.
            given: As for `pending_order`.

        Raises:
            InvalidArgumentError: The number is taken, or one of them is none; the field is named.
        """
        with by_hand(self._store, out_trade_no=given.get("out_trade_no")):
            order = self._placed(total_amt=total_amt, currency=currency, **given)
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
            "frequency": _checked("frequency", check_frequency, frequency),
            "amount": _checked("amount", check_amount, amount),
            "customer": _checked("customer", _customer, {"email": "a@example.com"} if customer is None else customer),
        }
        first = _checked("start_date", _day, self._service.today() if start_date is None else start_date)
        with by_hand(self._store, **given):
            made = self._service.subscriptions.create(start_date=first, **given)
        return made.subscription_id

    def _placed(self, **given: Any) -> Order:
        wanted = {name: value for name, value in given.items() if value is not None}
        checked = {name: _checked(name, self._checks.get(name, self._unknown), wanted[name]) for name in wanted}
        return self._service.place_order(**checked)

    def _unknown(self, _value: object) -> NoReturn:
        raise ValueError(f"left out: there are {', '.join(self._checks)}")


def _day(value: object) -> date:
    if type(value) is not date:
        raise ValueError("a date without a time")
    return value


def _customer(value: object) -> str:
    return check_customer(dict(value) if isinstance(value, Mapping) else value)


def _checked(field: str, check: Check, value: object) -> Any:
    try:
        return check(value)
    except ValueError as error:
        rule = str(error)
    raise InvalidArgumentError(f"{field} must be {rule}, not {value!r}", field=field, rule=rule, value=value)


MOST_TIMES: Final = 1000


class Bank:
    """Ends refunds, and has charges of subscriptions fail.

    Args:
        service: Does it.
        store: Holds the transaction around it.
        numbers: Finds numbers in answers.
    """

    def __init__(self, service: Service, store: Store, numbers: Numbers) -> None:
        self._numbers = numbers
        self._service = service
        self._store = store

    async def settle_refund(self, out_refund_no: Named, state: RefundState = "succeeded") -> None:
        """End a refund that is processing, such as those of `Sandbox(refunds="by hand")`; the merchant is told.

        Args:
            out_refund_no: Its number, or an answer that tells it.
            state: `succeeded` or `failed`.

        Raises:
            InvalidArgumentError: There is no such refund, it has ended before, or `state` is no end.
        """
        number = self._numbers.of("out_refund_no", out_refund_no)
        with by_hand(self._store, out_refund_no=number, state=state):
            self._service.settle_refund(self._service.refund(number), state)

    async def fail_renewals(self, subscription_id: Named, times: int = 1) -> None:
        """Have the next charges of a subscription fail: it is past due, and after the third in a row cancelled.

        Args:
            subscription_id: Its number, or an answer that tells it.
            times: How many; 0: none any more.

        Raises:
            InvalidArgumentError: There is no such subscription, it is cancelled, or `times` is no number of times.
        """
        if type(times) is not int or not 0 <= times <= MOST_TIMES:
            rule = f"an integer from 0 to {MOST_TIMES}"
            raise InvalidArgumentError(f"times must be {rule}, not {times!r}", field="times", rule=rule, value=times)
        number = self._numbers.of("subscription_id", subscription_id)
        with by_hand(self._store, subscription_id=number):
            self._service.subscriptions.fail(number, times)
