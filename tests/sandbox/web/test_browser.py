"""The pages in a real browser: with mouse, keyboard, phone, dark colours, and without script."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from playwright.async_api import Browser, Page, ViewportSize, expect

from payasync.sandbox import Sandbox
from tests.sandbox.chromium import browsing
from tests.sandbox.foreign import Receiver

PHONE: Final[ViewportSize] = {"width": 320, "height": 640}
DESKTOP: Final[ViewportSize] = {"width": 1280, "height": 800}
LONG: Final = "N" * 64


def watched(page: Page, own: str) -> list[str]:
    """Return what goes wrong: the browser's errors, violations of a page's policy, and requests to other addresses."""
    wrong = list[str]()
    page.on("console", lambda said: wrong.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith((own, "data:")) else wrong.append(asked.url))
    return wrong


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """The system's Chromium."""
    async with browsing() as running:
        yield running


@pytest.fixture
async def page(browser: Browser, sandbox: Sandbox) -> AsyncIterator[Page]:
    """A page of a desktop browser, in which nothing goes wrong."""
    made = await browser.new_page(viewport=DESKTOP)
    wrong = watched(made, sandbox.url)
    yield made
    await made.close()
    assert [] == wrong


def link(sandbox: Sandbox) -> str:
    """Return the address that opens the dashboard."""
    return f"{sandbox.url}/?token={sandbox.admin_token.reveal()}"


async def pay_page(sandbox: Sandbox, **fields: Any) -> str:
    """Place an order, and return the address of its page."""
    async with sandbox.session() as pay:
        given: dict[str, Any] = {"out_trade_no": "T1", "subject": "Coffee", "body": "Large coffee", **fields}
        order = await pay.orders.place(total_amt=450, currency="CAD", **given)
        return str(order.redirect_url)


async def test_customer_pays_by_keyboard(page: Page, sandbox: Sandbox) -> None:
    """A customer can pay with Tab and Enter, sees the focus, and returns to the merchant."""
    merchant = await pay_page(sandbox, out_trade_no="T0")
    await page.goto(await pay_page(sandbox, return_url=merchant))
    await page.keyboard.press("Tab")
    outline = await page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    on = await page.evaluate("document.activeElement.innerText")
    await page.keyboard.press("Enter")
    await page.wait_for_url(merchant)

    assert ("Authorize 4.50 CAD", "3px", "paid") == (on, outline, sandbox.ledger.order_state("T1"))


async def test_dashboard_shows_and_works(page: Page, sandbox: Sandbox, receiver: Receiver) -> None:
    """An order appears without reloading. Buttons pay it, resend its notification, and advance the clock.

    A form arms a fault, and a button disarms it.
    """
    await page.goto(link(sandbox))
    address = page.url
    await expect(page.locator("#orders")).to_contain_text("none yet")
    await sandbox.given.pending_order(out_trade_no="T1", subject="Coffee")
    await page.get_by_role("button", name="Authorize order T1").click()
    await expect(page.get_by_role("status")).to_have_text("Order T1 is paid.")
    await expect(page.locator("#orders")).to_contain_text("SBX_PAID")
    await expect(page.locator("#notifications")).to_contain_text("delivered")
    await page.get_by_role("button", name="Resend payment.paid of T1").click()
    await sandbox.settle()
    await expect(page.locator("#notifications")).to_contain_text("2 attempts")
    before = sandbox.clock.now()
    await page.get_by_label("By", exact=True).fill("40")
    await page.get_by_role("button", name="Advance", exact=True).click()
    await expect(page.get_by_role("status")).to_contain_text("The clock was advanced by 40 days.")
    await page.get_by_label("What goes wrong").select_option("server_error")
    await page.get_by_label("On which").select_option("refunds.create")
    await page.get_by_label("From the nth one").fill("2")
    await page.get_by_role("button", name="Arm").click()
    await expect(page.get_by_role("status")).to_contain_text("Armed: server_error on refunds.create (from number 2)")
    await page.get_by_role("button", name="Disarm").click()
    await expect(page.get_by_role("status")).to_contain_text("Disarmed: server_error")

    assert (f"{sandbox.url}/", 40) == (address, (sandbox.clock.now() - before).days)
    assert 2 == len(receiver.received)


async def test_page_of_a_request(page: Page, sandbox: Sandbox) -> None:
    """A button copies the curl command of a request, under the policy of the page, and says so."""
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await pay_page(sandbox)
    await page.goto(link(sandbox))
    await page.get_by_title("Show the request").first.click()
    await page.get_by_role("button", name="Copy").click()
    await expect(page.get_by_role("status")).to_have_text("Copied")
    copied = str(await page.evaluate("navigator.clipboard.readText()"))

    assert copied.startswith(f"curl --request POST {sandbox.url}/payment/unifiedorder ")
    assert await page.locator("#command").text_content() == copied


@pytest.mark.long
async def test_refresh_keeps_what_a_person_does(page: Page, sandbox: Sandbox) -> None:
    """A refresh keeps a form that is being filled in, its focus, and what was unfolded."""
    await sandbox.given.paid_order(out_trade_no="T1", notify_url="http://127.0.0.1:1/")
    await sandbox.clock.advance(hours=1)
    await page.goto(link(sandbox))
    await page.locator("#notifications summary").click()
    await page.locator("#more-fault summary").click()
    field = page.get_by_label("Only this number")
    await field.fill("T77")
    await sandbox.given.paid_order(out_trade_no="T2")
    await expect(page.locator("#notifications")).to_contain_text("T2")

    await expect(field).to_have_value("T77")
    await expect(field).to_be_focused()
    await expect(page.get_by_label("Location")).to_be_visible()
    assert await page.locator("#notifications details").get_attribute("open") is not None


@pytest.mark.long
async def test_page_of_an_ended_sandbox_says_so(browser: Browser, sandbox: Sandbox) -> None:
    """If the sandbox has ended, the dashboard says that it is out of date."""
    page = await browser.new_page()
    await page.goto(link(sandbox))
    await expect(page.get_by_text("The sandbox does not respond.")).to_be_hidden()
    await sandbox.close()

    await expect(page.get_by_text("The sandbox does not respond.")).to_be_visible()


@pytest.mark.long
async def test_everything_works_without_script(browser: Browser, sandbox: Sandbox, receiver: Receiver) -> None:
    """Without JavaScript the customer can pay, and the dashboard works."""
    context = await browser.new_context(viewport=PHONE, java_script_enabled=False)
    page = await context.new_page()
    wrong = watched(page, sandbox.url)
    await page.goto(await pay_page(sandbox))
    await page.get_by_role("button", name="Authorize").click()
    await expect(page.get_by_role("status")).to_contain_text("Paid.")
    await page.goto(link(sandbox))
    await expect(page.locator("#orders")).to_contain_text("SBX_PAID")
    await page.get_by_role("button", name="31 minutes").click()
    await expect(page.get_by_role("status")).to_contain_text("The clock was advanced by 31 minutes.")
    await page.get_by_role("link", name="show what is new").click()
    await page.get_by_role("link", name="T1").first.click()
    await expect(page.locator("main")).to_contain_text("pending -> paid")
    await page.get_by_title("Show the request").first.click()
    await expect(page.get_by_role("button")).to_have_count(0)
    await expect(page.locator("#command")).to_have_css("user-select", "all")

    assert 1 == len(receiver.received)
    assert [] == wrong
    await context.close()


LOOK: Final = """
() => {
  const found = [], light = (colour) => colour.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0);
  const style = getComputedStyle(document.body);
  if (Math.abs(light(style.color) - light(style.backgroundColor)) < 400)
    found.push('pale text');
  if (document.documentElement.scrollWidth > window.innerWidth) found.push('stands out sideways');
  if (document.documentElement.lang !== 'en' || document.querySelectorAll('h1').length !== 1) found.push('no heading');
  for (const field of document.querySelectorAll('input:not([type=hidden]), select'))
    if (!field.labels.length) found.push(`no label: ${field.name}`);
  for (const one of document.querySelectorAll('button, a'))
    if (!one.textContent.trim()) found.push(`no name: ${one.outerHTML}`);
  return found;
}
"""
"""Returns what keeps people from reading or using a page."""


async def test_pages_are_for_everybody(browser: Browser, receiver: Receiver) -> None:
    """On a phone and a desktop, in light and dark, each page fits its width, and its fields and buttons have names."""
    page, found = await browser.new_page(), list[tuple[str, list[str]]]()
    looks: list[tuple[ViewportSize, Any]] = [(PHONE, "dark"), (DESKTOP, "light")]
    async with Sandbox(clock="frozen") as sandbox:
        await sandbox.given.paid_order(out_trade_no=LONG, subject="A long title " * 20, notify_url=receiver.url)
        await sandbox.given.pending_order(9_007_199_254_740_991, out_trade_no="T2", subject="Coffee", body="Large")
        await sandbox.given.subscription()
        addresses = [await pay_page(sandbox), link(sandbox), f"{sandbox.url}/timeline?about={LONG}"]
        for url in (*addresses, f"{sandbox.url}/timeline/1", f"{sandbox.url}/gateway/unknown"):
            await page.goto(url)
            for size, scheme in looks:
                await page.set_viewport_size(size)
                await page.emulate_media(color_scheme=scheme)
                found.append((url, await page.evaluate(LOOK)))

    assert [] == [each for each in found if each[1]]
