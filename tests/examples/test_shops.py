"""The example shops in a real browser: buying, paying, notifications, refunds, unknown outcomes and kills."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from payasync.sandbox import Sandbox
from tests.examples.shops import NAMES, PASSWORD, Place, serving
from tests.sandbox.chromium import browsing


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """The system's Chromium."""
    async with browsing() as running:
        yield running


@pytest.fixture(params=NAMES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where one of the shops lives."""
    return Place.free(request.param, tmp_path)


async def admin_page(browser: Browser, place: Place) -> Page:
    """Open the orders as the administrator."""
    context = await browser.new_context(http_credentials={"username": "admin", "password": PASSWORD})
    page = await context.new_page()
    await page.goto(f"{place.url}/admin")
    return page


async def buy(page: Page, place: Place, product: str) -> str:
    """Buy a product, up to the gateway's page, and return the order's number."""
    await page.goto(place.url)
    await page.get_by_role("button", name=f"Buy {product}").click()
    await expect(page.get_by_role("button", name="Authorise")).to_be_visible()
    return (await page.locator("code").inner_text()).strip()


async def row_of(page: Page, number: str, text: str) -> None:
    """Load the page of orders again until the row of an order holds a text."""
    async with asyncio.timeout(20):
        while text not in await page.get_by_role("row").filter(has_text=number).inner_text():
            await page.reload()


async def test_customer_buys_and_is_refunded(browser: Browser, place: Place) -> None:
    """The return page asks the service, one notification of several stores the parcel, and a refund comes once."""
    async with Sandbox() as sandbox, serving(place, sandbox):
        sandbox.faults.notifications.duplicate("payment")
        page = await browser.new_page()
        coffee = await buy(page, place, "Large coffee")
        await page.get_by_role("button", name="Authorise").click()
        await expect(page.get_by_role("heading", name="Thank you")).to_be_visible()
        returned = page.url
        tea = await buy(page, place, "Pot of tea")
        await sandbox.customer.authorize(tea)  # and does not return
        admin = await admin_page(browser, place)
        await row_of(admin, tea, "paid")
        await sandbox.settle()
        await admin.get_by_role("button", name=f"Refund: order {coffee}").click()
        await row_of(admin, coffee, "succeeded")
        parcels = await admin.get_by_text("Parcels ordered").inner_text()
        refunded = sandbox.ledger.refunded(coffee), sandbox.ledger.refunded(tea)

    assert f"{place.url}/orders/{coffee}" == returned
    assert "Parcels ordered: 2" == parcels
    assert (450, 0) == refunded
