"""The example shops in a real browser: buying, paying, notifications and a refund."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from payasync.sandbox import Sandbox
from tests.cli.sandbox_process import environment
from tests.examples.shops import NAMES, PASSWORD, Place, serving
from tests.sandbox.chromium import browsing


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """The system's Chromium. On a busy machine, a shop takes longer than its usual five seconds."""
    expect.set_options(timeout=20_000)
    async with browsing() as running:
        yield running


async def buy(browser: Browser, place: Place) -> tuple[str, Page]:
    """Buy a coffee, up to the gateway's page, and return the order's number and the page."""
    page = await browser.new_page()
    await page.goto(place.url)
    await page.get_by_role("button", name="Buy Large coffee").click()
    await expect(page.get_by_role("button", name="Authorize")).to_be_visible()
    return (await page.locator("code").inner_text()).strip(), page


async def row_of(page: Page, number: str, text: str) -> None:
    """Load the page of orders again until the row of an order holds a text."""
    async with asyncio.timeout(20):
        while text not in await page.get_by_role("row").filter(has_text=number).inner_text():
            await page.reload()


async def reconcile(place: Place, sandbox: Sandbox) -> int:
    """Run `payasync reconcile`, as operations do, and return its exit code."""
    command = (sys.executable, "-m", "payasync", "reconcile", "--journal", place.folder / "pay.db")
    process = await asyncio.create_subprocess_exec(*command, env=environment(sandbox), stdout=DEVNULL)
    return await process.wait()


@pytest.mark.parametrize("name", [NAMES[0], pytest.param(NAMES[1], marks=pytest.mark.long)])
async def test_customer_buys_and_is_refunded(browser: Browser, name: str, tmp_path: Path) -> None:
    """The return page asks the service, one notification of several stores the parcel, and a refund comes once.

    A shop makes the journal when it starts, because `payasync reconcile` refuses a file that does not exist.
    """
    place = Place.free(name, tmp_path)
    async with Sandbox(clock="frozen", refunds="by hand") as sandbox, serving(place, sandbox):
        code = await reconcile(place, sandbox)
        sandbox.faults.notifications.duplicate("payment")
        coffee, page = await buy(browser, place)
        await page.get_by_role("button", name="Authorize").click()
        await expect(page.get_by_role("heading", name="Thank you")).to_be_visible()
        other, _ = await buy(browser, place)
        await sandbox.customer.authorize(other)  # who does not return
        context = await browser.new_context(http_credentials={"username": "admin", "password": PASSWORD})
        admin = await context.new_page()
        await admin.goto(f"{place.url}/admin")
        await row_of(admin, other, "paid")
        await sandbox.settle()
        await admin.get_by_role("button", name=f"Refund: order {coffee}").click()
        await row_of(admin, coffee, "processing")
        await sandbox.bank.settle_refund(f"{coffee}-R1")
        await row_of(admin, coffee, "succeeded")
        parcels = await admin.get_by_text("Parcels ordered").inner_text()

        assert (0, f"{place.url}/orders/{coffee}", "Parcels ordered: 2") == (code, page.url, parcels)
        assert (450, 0) == (sandbox.ledger.refunded(coffee), sandbox.ledger.refunded(other))
