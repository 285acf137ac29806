"""A customer: what a person does on the gateway page, over real HTTP."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import aiohttp
from yarl import URL

from payasync.errors import InvalidArgumentError, NoAnswerError
from payasync.sandbox.model import Decision
from payasync.sandbox.store import Named, Numbers


class Redirecting(Protocol):
    """An answer that says where the customer goes, such as that of `orders.place`."""

    @property
    def redirect_url(self) -> str | None: ...  # noqa: D102 - said above


Paying: TypeAlias = Redirecting | Named
"""What names an order or a payment: an answer, the address in it, or a number."""


class Customer:
    """Opens an order's gateway page and presses a button.

    Each method takes an answer about an order or a payment, the address in it, or the number of either. It returns
    the address that the customer is sent back to, or `None` where they stay at the gateway: there is no
    return URL, or the page does not offer the button, since the order is no longer pending. Where a fault keeps
    the gateway from answering, that is a `NoAnswerError`: whether it was done, the ledger tells.

    Args:
        http: The browser.
        page_url: Gives the address of the gateway page by the order's or the payment's number, where there is one.
        base: The sandbox's own address: no other page is opened.
        numbers: Finds addresses and numbers in answers.
    """

    def __init__(
        self, http: aiohttp.ClientSession, *, page_url: Callable[[str], str | None], base: str, numbers: Numbers
    ) -> None:
        self._http = http
        self._numbers = numbers
        self._page_url = page_url
        self._base = base

    async def authorize(self, order: Paying) -> str | None:
        """Pay.

        Raises:
            InvalidArgumentError: It names no order of this sandbox.
        """
        return await self._press(order, "authorize")

    async def decline(self, order: Paying) -> str | None:
        """Have the payment declined: the first two times the customer stays at the gateway and may try again.

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

    async def _press(self, order: Paying, decision: Decision) -> str | None:
        page_url = self._page(order)
        try:
            return await self._pressed(order, page_url, decision)
        except (aiohttp.ClientError, TimeoutError) as error:
            why = str(error) or type(error).__name__
        raise NoAnswerError(f"the gateway does not answer: {why}")

    async def _pressed(self, order: Paying, page_url: URL, decision: Decision) -> str | None:
        # As JSON, because the page itself needs an extra.
        headers = {"Accept": "application/json"}
        async with self._http.get(page_url, headers=headers, allow_redirects=False) as page:
            if page.status != 200:  # noqa: PLR2004 - the page is there, or it is not
                raise _unknown(order)
            offered = (await page.json())["decisions"]
        if decision not in offered:
            return None
        async with self._http.post(page_url, data={"decision": decision}, allow_redirects=False) as answer:
            location = answer.headers.get("Location")
        return None if location in {None, page_url.raw_path} else location

    def _page(self, order: Paying) -> URL:
        address = self._address(order)
        if address is None or not address.startswith(f"{self._base}/"):
            raise _unknown(order)
        return URL(address)

    def _address(self, order: Paying) -> str | None:
        # An answer with a document is read as the sandbox writes it: our own may have no such property, or no place.
        given = self._numbers.told("redirect_url", order if hasattr(order, "document") else _redirect(order))
        if given is not None and "://" in given:
            return given
        number = self._numbers.told("out_trade_no", order)
        return None if number is None else self._page_url(number)


def _redirect(order: Paying) -> object:
    return order if isinstance(order, str) else getattr(order, "redirect_url", None)


def _unknown(order: Paying) -> InvalidArgumentError:
    rule = "an answer of this sandbox about an order or a payment, the address in it, or the number of either"
    return InvalidArgumentError(f"order must be {rule}, not {order!r}", field="order", rule=rule, value=order)
