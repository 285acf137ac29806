"""What a test does and reads beside the wire: starting points, the bank, the customer and the ledger."""

import asyncio
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import date
from itertools import chain
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from urllib.parse import unquote

import aiohttp

from payasync.errors import InvalidArgumentError, NoAnswerError
from payasync.sandbox.arguments import SORTS
from payasync.sandbox.model import (
    Answered,
    Attempt,
    Charge,
    Decision,
    Notification,
    Order,
    Refund,
    RefundState,
    RefusedError,
    Subscription,
)
from payasync.sandbox.server import check_loop
from payasync.sandbox.service import Service
from payasync.sandbox.store import Store
from payasync.sandbox.web.pages import GATEWAY, gateway_path
from payasync.strict_json import at, encodable
from payasync.wire.validators import invalid_argument


class WithDocument(Protocol):
    """A response of the service, such as that of `orders.place`."""

    @property
    def document(self) -> Any: ...  # noqa: D102 - its JSON


class Redirecting(Protocol):
    """A response that says where the customer goes, such as that of `orders.place`."""

    @property
    def redirect_url(self) -> str | None: ...  # noqa: D102 - said above


Named: TypeAlias = WithDocument | str
"""What names an order, a refund or a subscription: its number, or a response that contains it."""
Paying: TypeAlias = Redirecting | Named
"""What names an order or a payment: a response, the address in it, or a number."""


class Numbers:
    """Finds the number that a test means, which may pass the response that contains it instead.

    Args:
        paths: Where responses have it: paths into their documents, by our names such as `out_trade_no`.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths

    def find(self, name: str, named: object) -> str | None:
        """Return a text as it is, or what a response has at the path of `name`; `None` if it is neither."""
        path, document = self._paths.get(name), getattr(named, "document", None)
        text = named if isinstance(named, str) else at(document, path, None) if path else None
        return text if isinstance(text, str) and text and encodable(text) else None

    def number(self, name: str, named: object) -> str:
        """Return the number of `out_trade_no`, `out_refund_no` or `subscription_id`.

        Raises:
            InvalidArgumentError: It is neither a number nor a response that contains one.
        """
        number = self.find(name, named)
        if number is None:
            rule = "a number as a text, or a response of this sandbox that contains it"
            raise invalid_argument(name, rule, named, instead="give the number")
        return number


@contextmanager
def manual_change(store: Store, **given: object) -> Generator[None]:
    """Commit all that is done inside, or nothing if it is refused.

    Args:
        store: Has the transaction.
        given: The caller's arguments: the number first, and the wanted state last.

    Raises:
        InvalidArgumentError: It is refused.
    """
    try:
        with store.transaction():
            yield
    except RefusedError as refused:
        names = [*given]
        named = names[0 if refused.why == "absent" else -1]
        field = refused.argument if refused.argument in given else named
        message = f"{field}: {given[field]!r} is refused: {refused.message}"
        raise InvalidArgumentError(message, field=field, rule=refused.message, value=given[field]) from None


_PLACED: Final = ("total_amt", "currency", "out_trade_no", "subject", "body", "notify_url", "return_url")


class Factories:
    """Makes orders and subscriptions; each method returns the number of what it made.

    Args:
        service: Makes them.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._checks = service.dialect.checks

    async def pending_order(self, total_amt: int = 450, currency: str = "CAD", **given: Any) -> str:
        """Make an order that nobody has paid yet.

        Args:
            total_amt: Its amount.
            currency: Its currency.
            given: `out_trade_no`, `subject`, `body`, `notify_url`, `return_url`.

        Raises:
            InvalidArgumentError: The number is in use, or an argument is invalid; the error names it.
        """
        with manual_change(self._service.store, out_trade_no=given.get("out_trade_no")):
            return self._place(total_amt=total_amt, currency=currency, **given).out_trade_no

    async def paid_order(self, total_amt: int = 450, currency: str = "CAD", **given: Any) -> str:
        """Make an order that is paid; its notification is sent if there is an address for it.

        Args:
            total_amt: Its amount.
            currency: Its currency.
            given: As for `pending_order`.

        Raises:
            InvalidArgumentError: The number is in use, or an argument is invalid; the error names it.
        """
        with manual_change(self._service.store, out_trade_no=given.get("out_trade_no")):
            order = self._place(total_amt=total_amt, currency=currency, **given)
            return self._service.decide(order, "authorize").out_trade_no

    async def subscription(
        self,
        frequency: str = "monthly",
        amount: int = 900,
        *,
        start_date: date | None = None,
        customer: Mapping[str, Any] | str | None = None,
    ) -> str:
        """Make a subscription, and return its number.

        Args:
            frequency: How often it is billed.
            amount: What each period costs.
            start_date: When its first period begins; left out: today, by the sandbox's time.
            customer: Details, or the text by which the service knows the customer.

        Raises:
            InvalidArgumentError: An argument is invalid; the error names it.
        """
        if start_date is not None and type(start_date) is not date:
            raise invalid_argument("start_date", "a date without a time", start_date)
        details = {"email": "a@example.com"} if customer is None else customer
        terms = {
            "frequency": self._checked("frequency", frequency),
            "amount": self._checked("amount", amount),
            "customer": self._checked("customer", dict(details) if isinstance(details, Mapping) else details),
            "start_date": start_date or self._service.today(),
        }
        with manual_change(self._service.store, **terms):
            return self._service.create_subscription(**terms).subscription_id

    def _place(self, **given: Any) -> Order:
        for name, value in given.items():
            if name not in _PLACED:
                raise invalid_argument(name, f"left out: there are {', '.join(_PLACED)}", value)
        checked = {name: self._checked(name, value) for name, value in given.items() if value is not None}
        return self._service.place_order(**checked)

    def _checked(self, name: str, value: object) -> Any:
        try:
            return self._checks[SORTS[name]](value)
        except ValueError as error:
            raise invalid_argument(name, str(error), value) from None


MOST_TIMES: Final = 1000


class Bank:
    """Ends refunds, and makes charges of subscriptions fail.

    Args:
        service: Holds the refunds and subscriptions.
        numbers: Finds numbers in responses.
    """

    def __init__(self, service: Service, numbers: Numbers) -> None:
        self._service = service
        self._numbers = numbers

    async def settle_refund(self, out_refund_no: Named, state: RefundState = "succeeded") -> None:
        """End a refund that is processing, such as those of `Sandbox(refunds="by hand")`, and notify the merchant.

        Args:
            out_refund_no: Its number, or a response that contains it.
            state: `succeeded` or `failed`.

        Raises:
            InvalidArgumentError: There is no such refund, it has ended before, or `state` is not an end.
        """
        number = self._numbers.number("out_refund_no", out_refund_no)
        with manual_change(self._service.store, out_refund_no=number, state=state):
            self._service.settle_refund(self._service.refund(number), state)

    async def fail_renewals(self, subscription_id: Named, times: int = 1) -> None:
        """Make the next charges of a subscription fail: it is past due, and after the third in a row cancelled.

        Args:
            subscription_id: Its number, or a response that contains it.
            times: How many charges fail; 0: no more.

        Raises:
            InvalidArgumentError: There is no such subscription, it is cancelled, or `times` is invalid.
        """
        if type(times) is not int or not 0 <= times <= MOST_TIMES:
            raise invalid_argument("times", f"an integer from 0 to {MOST_TIMES}", times)
        number = self._numbers.number("subscription_id", subscription_id)
        with manual_change(self._service.store, subscription_id=number):
            self._service.fail_charges(number, times)


_BETWEEN_PARTS: Final = re.compile("[/?&=#]")
_PAYABLE: Final = "a response of this sandbox about an order or a payment, the address in it, or the number of either"


class Customer:
    """Presses a button of an order's gateway page, over HTTP.

    Each method takes a response about an order or a payment, the address in it, or the number of either. It returns
    the address that the customer is sent back to. It returns `None` if the customer stays at the gateway: there is no
    return URL, or the page does not offer the button, because the order is no longer pending. If a fault stops
    the gateway's response, the method raises `NoAnswerError`. The ledger shows whether the action was done.

    Args:
        http: The browser.
        store: Has the orders.
        numbers: Finds addresses and numbers in responses.
        url: The sandbox's own address: no other page is opened.
    """

    def __init__(self, http: aiohttp.ClientSession, store: Store, numbers: Numbers, url: str) -> None:
        self._http = http
        self._store = store
        self._numbers = numbers
        self._url = url
        self._loop = asyncio.get_running_loop()

    async def authorize(self, order: Paying) -> str | None:
        """Authorize the payment.

        Raises:
            InvalidArgumentError: It names no order of this sandbox.
        """
        return await self._press(order, "authorize")

    async def decline(self, order: Paying) -> str | None:
        """Let the payment be declined: the first two times the customer stays at the gateway and may try again.

        Raises:
            InvalidArgumentError: It names no order of this sandbox.
        """
        return await self._press(order, "decline")

    async def cancel(self, order: Paying) -> str | None:
        """Go back without paying: the order stays pending, for the merchant to close.

        Raises:
            InvalidArgumentError: It names no order of this sandbox.
        """
        return await self._press(order, "cancel")

    async def _press(self, named: Paying, decision: Decision) -> str | None:
        check_loop(self._loop)
        order = self._find(named)
        if order.state != "pending":
            return None
        path, form = gateway_path(order), {"decision": decision}
        try:
            async with self._http.post(self._url + path, data=form, allow_redirects=False) as page:
                location = page.headers.get("Location")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NoAnswerError(f"the gateway does not respond: {str(error) or type(error).__name__}") from None
        return None if location == path else location

    def _find(self, named: Paying) -> Order:
        # A response's document is read by the sandbox's own paths: the response may have no such attribute.
        readable = isinstance(named, str) or hasattr(named, "document")
        address = self._numbers.find("redirect_url", named if readable else getattr(named, "redirect_url", None)) or ""
        if "://" in address:
            # A sandbox that was started again has another port, and knows the token.
            parts = [unquote(part) for part in _BETWEEN_PARTS.split(address) if part]
            # An address that the profile's template made may have numbers, too: the token goes before them.
            tokens = address.rpartition(f"{GATEWAY}/")[2], *parts
            found = chain((self._store.find(Order, token=each) for each in tokens), map(self._store.order_named, parts))
            order = next(filter(None, found), None)
        else:
            # A journal records the service's own number, and not the merchant's.
            number = self._numbers.find("out_trade_no", named) or self._numbers.find("payment_id", named)
            order = self._store.order_named(number or "")
        if order is None:
            raise invalid_argument("order", _PAYABLE, named, instead="give the number, such as order.out_trade_no")
        return order


T = TypeVar("T")
_FOUND: Final = "the number of something in this sandbox"


class Ledger:
    """Reads what the service really did, whatever its responses said; states are by our names, such as `paid`.

    A method that takes a number also takes a response that contains it, such as that of `orders.place`. An order is
    found by its payment's number, too. Anything else is an `InvalidArgumentError`.

    Args:
        store: The sandbox's.
        numbers: Finds numbers in responses.
    """

    def __init__(self, store: Store, numbers: Numbers) -> None:
        self._store = store
        self._numbers = numbers

    def paid(self, out_trade_no: Named) -> int:
        """Return the amount paid for an order, or 0."""
        order = self._order(out_trade_no)
        return order.total_amt if order and order.state == "paid" else 0

    def refunded(self, out_trade_no: Named) -> int:
        """Return the amount refunded of an order, or 0."""
        order = self._order(out_trade_no)
        return self._store.refunded(order.out_trade_no) if order else 0

    def order_state(self, out_trade_no: Named) -> str:
        """Return an order's state: pending, paid, failed, expired or closed.

        Raises:
            InvalidArgumentError: There is no such order.
        """
        order = self._order(out_trade_no)
        if order is None:
            raise invalid_argument("out_trade_no", _FOUND, out_trade_no)
        return order.state

    def refund_state(self, out_refund_no: Named) -> str:
        """Return a refund's state: processing, succeeded or failed.

        Raises:
            InvalidArgumentError: There is no such refund.
        """
        return self._find(Refund, "out_refund_no", out_refund_no).state

    def subscription_state(self, subscription_id: Named) -> str:
        """Return a subscription's state: scheduled, active, past_due or cancelled.

        Raises:
            InvalidArgumentError: There is no such subscription.
        """
        return self._find(Subscription, "subscription_id", subscription_id).state

    def subscription_amount(self, subscription_id: Named) -> int:
        """Return what a subscription bills each time.

        Raises:
            InvalidArgumentError: There is no such subscription.
        """
        return self._find(Subscription, "subscription_id", subscription_id).amount

    def orders(self) -> int:
        """Count the orders that endpoint 2 made, and those of `sandbox.given`."""
        return self._store.count(Order, origin="order")

    def payments(self, description: str | None = None) -> int:
        """Count the payments that endpoint 1 made.

        Args:
            description: Only those with this description.
        """
        found = {} if description is None else {"subject": description}
        return self._store.count(Order, origin="payment", **found)

    def refunds(self) -> int:
        """Count the refunds."""
        return self._store.count(Refund)

    def calls(self, operation: str | None = None) -> list[Answered]:
        """Return the calls that the sandbox has responded to, oldest first.

        Args:
            operation: Only calls of this operation, such as `refunds.create`.
        """
        if operation is None:
            return self._store.find_all(Answered)
        return self._store.find_all(Answered, operation=operation)

    def deliveries(self) -> list[Attempt]:
        """Return the attempts to deliver notifications, oldest first."""
        return self._store.find_all(Attempt)

    def notifications(self) -> list[Notification]:
        """Return the notifications, oldest first; each has a `state`: waiting, delivered or dead."""
        return self._store.find_all(Notification)

    def charges(self, subscription_id: Named) -> list[Charge]:
        """Return what a subscription was billed, period by period.

        Raises:
            InvalidArgumentError: There is no such subscription.
        """
        subscription = self._find(Subscription, "subscription_id", subscription_id)
        return self._store.find_all(Charge, "period", subscription_id=subscription.subscription_id)

    def _order(self, out_trade_no: Named) -> Order | None:
        return self._store.order_named(self._numbers.number("out_trade_no", out_trade_no))

    def _find(self, kind: type[T], field: str, named: Named) -> T:
        found = self._store.find(kind, **{field: self._numbers.number(field, named)})
        if found is None:
            raise invalid_argument(field, _FOUND, named)
        return found
