"""The example shops in a real browser: buying, paying, notifications, refunds, unknown outcomes and kills."""

import asyncio
import sqlite3
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from playwright.async_api import Browser, Page, expect

from payasync.sandbox import Sandbox
from tests.cli.sandbox_process import environment
from tests.examples.shops import NAMES, PASSWORD, Place, serving
from tests.sandbox.chromium import browsing

NUMBER: Final = "0123456789abcdef01234567"
FORM: Final = {"product": "coffee", "number": NUMBER}


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """The system's Chromium. On a busy machine, a shop takes longer than its usual five seconds."""
    expect.set_options(timeout=20_000)
    async with browsing() as running:
        yield running


class Shop:
    """A shop, its service and a browser."""

    def __init__(self, place: Place, sandbox: Sandbox, browser: Browser) -> None:
        self.place = place
        self.sandbox = sandbox
        self._browser = browser

    async def buy(self) -> tuple[str, Page]:
        """Buy a coffee, up to the gateway's page, and return the order's number and the page."""
        page = await self.show("/", "What would you like?")
        await page.get_by_role("button", name="Buy Large coffee").click()
        await expect(page.get_by_role("button", name="Authorize")).to_be_visible()
        return (await page.locator("code").inner_text()).strip(), page

    async def show(self, path: str, heading: str) -> Page:
        """Load a page, and wait for its heading."""
        page = await self._browser.new_page()
        await page.goto(f"{self.place.url}{path}")
        await expect(page.get_by_role("heading", name=heading)).to_be_visible()
        return page

    async def administrate(self) -> Page:
        """Open the orders as the administrator."""
        context = await self._browser.new_context(http_credentials={"username": "admin", "password": PASSWORD})
        page = await context.new_page()
        await page.goto(f"{self.place.url}/admin")
        return page

    async def sell(self) -> tuple[str, Page]:
        """Have a customer pay a coffee, and return the order's number, and the orders that the administrator sees."""
        number, _ = await self.buy()
        await self.sandbox.customer.authorize(number)
        admin = await self.administrate()
        await row_of(admin, number, "paid")
        return number, admin

    async def reconcile(self) -> int:
        """Run `payasync reconcile`, as operations do, and return its exit code."""
        command = (sys.executable, "-m", "payasync", "reconcile", "--journal", self.place.folder / "pay.db")
        process = await asyncio.create_subprocess_exec(*command, env=environment(self.sandbox), stdout=DEVNULL)
        return await process.wait()

    def sent(self, operation: str) -> int:
        """Return how many requests the service got for an operation."""
        return sum(operation in line for line in self.sandbox.timeline())


@pytest.fixture(params=NAMES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where one of the shops lives."""
    return Place.free(request.param, tmp_path)


@pytest.fixture
async def shop(browser: Browser, place: Place) -> AsyncIterator[Shop]:
    """A shop that is not started yet."""
    async with Sandbox(clock="frozen", refunds="by hand") as sandbox:
        yield Shop(place, sandbox, browser)


async def row_of(page: Page, number: str, text: str) -> None:
    """Load the page of orders again until the row of an order holds a text."""
    async with asyncio.timeout(20):
        while text not in await page.get_by_role("row").filter(has_text=number).inner_text():
            await page.reload()


async def test_customer_buys_and_is_refunded(shop: Shop) -> None:
    """The return page asks the service, one notification of several stores the parcel, and a refund comes once.

    A shop makes the journal when it starts, because `payasync reconcile` refuses a file that does not exist.
    """
    sandbox = shop.sandbox
    async with serving(shop.place, sandbox, fresh=True):
        code = await shop.reconcile()
        sandbox.faults.notifications.duplicate("payment")
        coffee, page = await shop.buy()
        await page.get_by_role("button", name="Authorize").click()
        await expect(page.get_by_role("heading", name="Thank you")).to_be_visible()
        tea, admin = await shop.sell()  # whose customer does not return
        await sandbox.settle()
        await admin.get_by_role("button", name=f"Refund: order {coffee}").click()
        await row_of(admin, coffee, "processing")
        await sandbox.bank.settle_refund(f"{coffee}-R1")
        await row_of(admin, coffee, "succeeded")
        parcels = await admin.get_by_text("Parcels ordered").inner_text()

    assert (0, f"{shop.place.url}/orders/{coffee}", "Parcels ordered: 2") == (code, page.url, parcels)
    assert (450, 0) == (sandbox.ledger.refunded(coffee), sandbox.ledger.refunded(tea))


@pytest.mark.long
async def test_unknown_order_is_checked_and_closed(shop: Shop) -> None:
    """If it is unknown whether an order was placed, the customer waits, and the order is sent only once."""
    async with serving(shop.place, shop.sandbox):
        shop.sandbox.faults.reset_after_commit("orders.place")
        outage = shop.sandbox.faults.server_error("orders.query", times=None)
        page = await shop.show("/", "What would you like?")
        await page.get_by_role("button", name="Buy Large coffee").click()
        await expect(page.get_by_role("heading", name="We are checking your payment")).to_be_visible()
        outage.disarm()
        code = await shop.reconcile()
        # The page loads itself again.
        await expect(page.get_by_role("heading", name="The order is closed")).to_be_visible()
        state = shop.sandbox.ledger.order_state(page.url.rpartition("/")[2])

    assert (0, "closed", 1) == (code, state, shop.sent("orders.place"))


@pytest.mark.long
async def test_unknown_refund_is_not_repeated(shop: Shop) -> None:
    """If it is unknown whether a refund was made, the administrator asks again, and it is sent only once."""
    sandbox = shop.sandbox
    async with serving(shop.place, sandbox):
        number, admin = await shop.sell()
        sandbox.faults.reset_after_commit("refunds.create")
        sandbox.faults.notifications.drop("refund")
        outage = sandbox.faults.server_error("refunds.status", times=None)
        await admin.get_by_role("button", name=f"Refund: order {number}").click()
        await row_of(admin, number, "checking")
        await sandbox.bank.settle_refund(f"{number}-R1")
        outage.disarm()
        code = await shop.reconcile()
        await admin.get_by_role("button", name=f"Ask again: order {number}").click()
        await row_of(admin, number, "succeeded")

    assert (0, 1, 450) == (code, shop.sent("refunds.create"), sandbox.ledger.refunded(number))


@pytest.mark.long
async def test_refund_ends_by_notification(shop: Shop) -> None:
    """A notification ends a refund that took a while. A failed one can be made again, under a new number."""
    async with serving(shop.place, shop.sandbox):
        number, admin = await shop.sell()
        button = admin.get_by_role("button", name=f"Refund: order {number}")
        ends: list[tuple[str, Any]] = [("R1", "failed"), ("R2", "succeeded")]
        for refund, state in ends:
            await button.click()
            await row_of(admin, number, "processing")
            await shop.sandbox.bank.settle_refund(f"{number}-{refund}", state)
            await row_of(admin, number, state)
        buttons = await button.count()

    assert (0, 450) == (buttons, shop.sandbox.ledger.refunded(number))


@pytest.mark.long
async def test_killed_shop_loses_no_payment(shop: Shop) -> None:
    """A payment that comes while the shop is dead is stored as it starts; its late notification changes nothing."""
    async with serving(shop.place, shop.sandbox) as process:
        number, _ = await shop.buy()
        process.kill()
    await shop.sandbox.customer.authorize(number)
    await shop.sandbox.settle()
    async with serving(shop.place, shop.sandbox):
        admin = await shop.administrate()
        await row_of(admin, number, "paid")
        await shop.sandbox.clock.advance(hours=1)
        await admin.reload()
        parcels = await admin.get_by_text("Parcels ordered").inner_text()
    delivered = [each.state for each in shop.sandbox.ledger.notifications()]

    assert ("Parcels ordered: 1", ["delivered"]) == (parcels, delivered)


@pytest.mark.long
async def test_shop_killed_while_it_places_sends_nothing_again(shop: Shop) -> None:
    """If a shop dies before it gets the response, the next one checks the order, and closes it: it has no address."""
    sandbox = shop.sandbox
    sandbox.faults.hang("orders.place", phase="after")
    async with aiohttp.ClientSession() as http, serving(shop.place, sandbox) as process:
        clicking = asyncio.create_task(http.post(f"{shop.place.url}/orders", data=FORM, allow_redirects=False))
        async with asyncio.timeout(20):
            while not sandbox.ledger.orders():
                await sandbox.settle()
        process.kill()
        with pytest.raises(aiohttp.ClientError):
            await clicking
    with closing(sqlite3.connect(shop.place.folder / "shop.db")) as db, db:
        db.execute("UPDATE orders SET created = datetime('now', '-2 minutes')")
    outage = sandbox.faults.server_error("orders.query", times=None)
    async with serving(shop.place, sandbox):
        page = await shop.show(f"/orders/{NUMBER}", "We are checking your payment")
        buttons = await page.get_by_role("button").count()
        outage.disarm()
        # The page loads itself again.
        await expect(page.get_by_role("heading", name="The order is closed")).to_be_visible()

    assert (1, 0, "closed") == (shop.sent("orders.place"), buttons, sandbox.ledger.order_state(NUMBER))
