"""The example shops in a real browser: buying, paying, notifications, refunds, unknown outcomes and kills."""

import asyncio
import sqlite3
import sys
from asyncio.subprocess import DEVNULL
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Browser, Page, expect

from payasync.sandbox import PROFILE, Sandbox
from tests.cli.sandbox_process import environment
from tests.examples.shops import NAMES, PASSWORD, Place, serving
from tests.sandbox.chromium import browsing


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """The system's Chromium. On a busy machine, a shop takes longer than its usual five seconds."""
    expect.set_options(timeout=20_000)
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
    await expect(page.get_by_role("button", name="Authorize")).to_be_visible()
    return (await page.locator("code").inner_text()).strip()


async def row_of(page: Page, number: str, text: str) -> None:
    """Load the page of orders again until the row of an order holds a text."""
    async with asyncio.timeout(20):
        while text not in await page.get_by_role("row").filter(has_text=number).inner_text():
            await page.reload()


async def sell(browser: Browser, place: Place, sandbox: Sandbox) -> tuple[str, Page]:
    """Have a customer pay a coffee, and return the order's number, and the orders that the administrator sees."""
    number = await buy(await browser.new_page(), place, "Large coffee")
    await sandbox.customer.authorize(number)
    admin = await admin_page(browser, place)
    await row_of(admin, number, "paid")
    return number, admin


async def test_customer_buys_and_is_refunded(browser: Browser, place: Place) -> None:
    """The return page asks the service, one notification of several stores the parcel, and a refund comes once."""
    async with Sandbox() as sandbox, serving(place, sandbox, fresh=True):
        sandbox.faults.notifications.duplicate("payment")
        page = await browser.new_page()
        coffee = await buy(page, place, "Large coffee")
        await page.get_by_role("button", name="Authorize").click()
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


async def reconcile(place: Place, sandbox: Sandbox) -> int:
    """Run `payasync reconcile`, as operations do, and return its exit code."""
    command = (sys.executable, "-m", "payasync", "reconcile", "--journal", place.folder / "pay.db")
    process = await asyncio.create_subprocess_exec(*command, env=environment(sandbox), stdout=DEVNULL)
    return await process.wait()


async def test_reconciler_runs_before_the_first_order(place: Place) -> None:
    """A shop makes the journal when it starts: `payasync reconcile` refuses a file that does not exist."""
    async with Sandbox() as sandbox, serving(place, sandbox):
        code = await reconcile(place, sandbox)

    assert 0 == code


@pytest.mark.long
async def test_unknown_order_is_checked_and_closed(browser: Browser, place: Place) -> None:
    """If it is unknown whether an order was placed, the customer waits, and the order is sent only once."""
    async with Sandbox() as sandbox, serving(place, sandbox):
        sandbox.faults.reset_after_commit("orders.place")
        outage = sandbox.faults.server_error("orders.query", times=None)
        page = await browser.new_page()
        await page.goto(place.url)
        await page.get_by_role("button", name="Buy Large coffee").click()
        await expect(page.get_by_role("heading", name="We are checking your payment")).to_be_visible()
        number = page.url.rpartition("/")[2]
        outage.disarm()
        code = await reconcile(place, sandbox)
        # The page loads itself again.
        await expect(page.get_by_role("heading", name="The order is closed")).to_be_visible()
        state = sandbox.ledger.order_state(number)
        sent = sum("orders.place" in line for line in sandbox.timeline())

    assert (0, "closed", 1) == (code, state, sent)


@pytest.mark.long
async def test_unknown_refund_is_not_repeated(browser: Browser, place: Place) -> None:
    """If it is unknown whether a refund was made, the administrator asks again, and it is sent only once."""
    async with Sandbox(clock="frozen") as sandbox, serving(place, sandbox):
        number, admin = await sell(browser, place, sandbox)
        sandbox.faults.reset_after_commit("refunds.create")
        sandbox.faults.notifications.drop("refund")
        outage = sandbox.faults.server_error("refunds.status", times=None)
        await admin.get_by_role("button", name=f"Refund: order {number}").click()
        await row_of(admin, number, "checking")
        outage.disarm()
        code = await reconcile(place, sandbox)
        await admin.get_by_role("button", name=f"Ask again: order {number}").click()
        await row_of(admin, number, "succeeded")
        sent = sum("refunds.create" in line for line in sandbox.timeline())
        refunded = sandbox.ledger.refunded(number)

    assert (0, 1, 450) == (code, sent, refunded)


@pytest.mark.long
async def test_refund_ends_by_notification(browser: Browser, place: Place) -> None:
    """A notification ends a refund that took a while. A failed one can be made again, under a new number."""
    async with Sandbox(refunds="by hand") as sandbox, serving(place, sandbox):
        number, admin = await sell(browser, place, sandbox)
        button = admin.get_by_role("button", name=f"Refund: order {number}")
        await button.click()
        await row_of(admin, number, "processing")
        await sandbox.bank.settle_refund(f"{number}-R1", "failed")
        await row_of(admin, number, "failed")
        await button.click()
        await row_of(admin, number, "processing")
        await sandbox.bank.settle_refund(f"{number}-R2")
        await row_of(admin, number, "succeeded")
        buttons = await button.count()
        refunded = sandbox.ledger.refunded(number)

    assert (0, 450) == (buttons, refunded)


@pytest.mark.long
async def test_killed_shop_loses_no_payment(browser: Browser, place: Place) -> None:
    """A payment that comes while the shop is dead is stored as it starts; its late notification changes nothing."""
    async with Sandbox(clock="frozen") as sandbox:
        async with serving(place, sandbox) as process:
            number = await buy(await browser.new_page(), place, "Large coffee")
            process.kill()
        await sandbox.customer.authorize(number)
        await sandbox.settle()
        async with serving(place, sandbox):
            admin = await admin_page(browser, place)
            await row_of(admin, number, "paid")
            await sandbox.clock.advance(hours=1)
            await sandbox.settle()
            await admin.reload()
            parcels = await admin.get_by_text("Parcels ordered").inner_text()
        delivered = [each.state for each in sandbox.ledger.notifications()]

    assert ("Parcels ordered: 1", ["delivered"]) == (parcels, delivered)


@pytest.mark.long
async def test_shop_killed_while_it_places_sends_nothing_again(browser: Browser, place: Place) -> None:
    """If a shop dies before it gets the response, the next one checks the order, and closes it: it has no address."""
    number = "0123456789abcdef01234567"
    async with Sandbox() as sandbox, aiohttp.ClientSession() as http:
        sandbox.faults.hang("orders.place", phase="after")
        async with serving(place, sandbox) as process:
            form = {"product": "coffee", "number": number}
            clicking = asyncio.create_task(http.post(f"{place.url}/orders", data=form, allow_redirects=False))
            async with asyncio.timeout(20):
                while not sandbox.ledger.orders():
                    await sandbox.settle()
            process.kill()
            with pytest.raises(aiohttp.ClientError):
                await clicking
        with closing(sqlite3.connect(place.folder / "shop.db")) as db, db:
            db.execute("UPDATE orders SET created = datetime('now', '-2 minutes')")
        outage = sandbox.faults.server_error("orders.query", times=None)
        async with serving(place, sandbox):
            page = await browser.new_page()
            await page.goto(f"{place.url}/orders/{number}")
            await expect(page.get_by_role("heading", name="We are checking your payment")).to_be_visible()
            buttons = await page.get_by_role("button").count()
            outage.disarm()
            # The page loads itself again.
            await expect(page.get_by_role("heading", name="The order is closed")).to_be_visible()
            state = sandbox.ledger.order_state(number)
        sent = sum("orders.place" in line for line in sandbox.timeline())

    assert 1 == sent
    assert (0, "closed") == (buttons, state)


async def test_shop_believes_no_stranger(place: Place) -> None:
    """Several clicks send one request, a form decides no amount, and neither other sites nor strangers refund."""
    number = "0123456789abcdef01234567"
    form = {"product": "coffee", "number": number, "amount": "1", "price": "1"}
    refund = f"{place.url}/admin/orders/{number}/refund"
    whole: dict[str, Any] = {"data": {"refund": f"{number}-R1", "amount": "450"}}
    right, wrong = (
        {"Authorization": f"Basic {b64encode(f'admin:{each}'.encode()).decode()}"} for each in (PASSWORD, "guess")
    )
    async with Sandbox() as sandbox, serving(place, sandbox), aiohttp.ClientSession() as http:

        async def post(url: str, **given: Any) -> int:
            async with http.post(url, allow_redirects=False, **given) as answer:
                return answer.status

        clicks = await asyncio.gather(*(post(f"{place.url}/orders", data=form) for _ in range(5)))
        sent = sum("orders.place" in line for line in sandbox.timeline())
        await sandbox.customer.authorize(number)
        await sandbox.settle()
        refused = [
            await post(f"{place.url}/orders", data={**form, "number": "../admin"}),
            await post(f"{place.url}/notify/payment", json={"type": "payment.paid", "data": {"outTradeNo": number}}),
            await post(f"{place.url}/notify", json={"type": "payment.paid", "data": {"outTradeNo": number}}),
            await post(refund, headers={**right, "Origin": "https://elsewhere.example"}, **whole),
            await post(refund, headers=wrong, **whole),
        ]
        before = sandbox.ledger.refunded(number)
        async with http.get(f"{place.url}/orders/{number}") as shown:
            assert "Thank you" in await shown.text()
        await asyncio.gather(*(post(refund, headers=right, **whole) for _ in range(5)))
        repaid = sum("refunds.create" in line for line in sandbox.timeline())
        paid, refunded = sandbox.ledger.paid(number), sandbox.ledger.refunded(number)

    assert ([303] * 5, 1, 1) == (clicks, sent, repaid)
    assert refused[0] in {400, 422}
    assert [400, 400, 403, 401] == refused[1:]
    assert (0, 450, 450) == (before, paid, refunded)


async def test_unknown_word_is_checked(place: Place) -> None:
    """If the profile does not have the service's word, the page does not say that the order is unpaid."""
    profile = place.folder / "service.toml"
    profile.write_text(PROFILE.to_toml().replace("SBX_PENDING", "OTHER"), encoding="utf-8")
    number = "0123456789abcdef01234567"
    async with (
        Sandbox() as sandbox,
        serving(place, sandbox, PAYASYNC_PROFILE=str(profile)),
        aiohttp.ClientSession() as http,
    ):
        form = {"product": "coffee", "number": number}
        async with http.post(f"{place.url}/orders", data=form, allow_redirects=False):
            pass
        async with http.get(f"{place.url}/orders/{number}") as shown:
            text = await shown.text()

    assert "We are checking your payment" in text
    assert "Continue to payment" not in text
