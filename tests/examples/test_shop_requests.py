"""The example shops over HTTP, without a browser: what the service refuses, and who is let in."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from attrs import frozen

from payasync.sandbox import Sandbox
from tests.examples.shops import NAMES, PASSWORD, Place, serving

NUMBER: Final = "0123456789abcdef01234567"
SECONDS: Final = 20


def basic(user: str) -> str:
    """Return the header of a user with the administrator's password."""
    return f"Basic {b64encode(f'{user}:{PASSWORD}'.encode()).decode()}"


@frozen
class Client:
    """A customer and an administrator of a shop.

    Attributes:
        place: Where the shop lives.
        http: Their connections.
    """

    place: Place
    http: aiohttp.ClientSession

    async def press(self, path: str, **form: str) -> tuple[int, str]:
        """Send a form, and return the status and the page."""
        async with self.http.post(f"{self.place.url}{path}", data=form, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def buy(self) -> tuple[int, str]:
        """Buy a coffee, up to the gateway."""
        return await self.press("/orders", product="coffee", number=NUMBER)

    async def refund(self) -> tuple[int, str]:
        """Press the button of the order's refund."""
        return await self.press(f"/admin/orders/{NUMBER}/refund")

    async def page(self, path: str) -> str:
        """Return a page."""
        async with self.http.get(f"{self.place.url}{path}") as answer:
            return await answer.text()

    async def see(self, path: str, text: str) -> None:
        """Load a page until it holds a text."""
        async with asyncio.timeout(SECONDS):
            while text not in await self.page(path):
                pass


@pytest.fixture(params=NAMES)
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of one of the shops, which is not started yet."""
    async with aiohttp.ClientSession(headers={"Authorization": basic("admin")}) as http:
        yield Client(Place.free(request.param, tmp_path), http)


async def test_refused_refund_is_shown_and_can_be_repeated(client: Client) -> None:
    """The administrator reads why the service refuses a refund, and each click sends the same number."""
    async with Sandbox() as sandbox, serving(client.place, sandbox), sandbox.session() as tool:
        await client.buy()
        await sandbox.customer.authorize(NUMBER)
        await client.see(f"/orders/{NUMBER}", "Thank you")
        await tool.refunds.create(out_trade_no=NUMBER, out_refund_no="X1", total_amt=450, refund_amt=450)
        clicks = [(await client.refund())[0] for _ in range(2)]
        admin = await client.page("/admin")
        sent = [each.status for each in sandbox.ledger.calls("refunds.create")]
        refunded = sandbox.ledger.refunded(NUMBER), sandbox.ledger.refunds()

    assert ([303, 303], [200, 422, 422], (450, 1)) == (clicks, sent, refunded)
    assert '<span class="state refused">refused</span>' in admin
    assert "HTTP 422, refused before it was done (code &#39;SBX_INVALID&#39;: 0 is left to refund)</small>" in admin
    assert f"Refund: order {NUMBER}" in admin


async def test_page_says_what_failed(client: Client) -> None:
    """A page tells a refused order from a service that does not respond; strangers do not become administrators."""
    async with Sandbox() as sandbox, serving(client.place, sandbox):
        sandbox.faults.rate_limited("orders.place", retry_after=3600)
        refused = await client.buy()
        away = sandbox.faults.refuse()
        unreachable = await client.buy()
        away.disarm()
        async with client.http.get(f"{client.place.url}/admin", headers={"Authorization": basic("root")}) as answer:
            stranger = answer.status
        orders = sandbox.ledger.orders()

    assert (503, 503, 401, 0) == (refused[0], unreachable[0], stranger, orders)
    assert "The payment service did not accept this request. Nothing was charged" in refused[1]
    assert "We cannot use the payment service now. Nothing was charged" in unreachable[1]
