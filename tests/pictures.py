"""Make the pictures of the documentation: `nox -s pictures` runs it."""

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, async_playwright

from payasync import ServiceError
from payasync.sandbox import Sandbox

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"


async def fill(sandbox: Sandbox) -> str:
    """Let a shop have customers, and return the address at which one of them pays."""
    async with sandbox.session() as pay:
        await sandbox.given.paid_order(out_trade_no="T1001", subject="Large coffee", total_amt=450)
        tea = await sandbox.given.paid_order(out_trade_no="T1002", subject="Tea for two", total_amt=1250)
        await pay.refunds.create(out_trade_no=tea, out_refund_no="R1002", total_amt=1250, refund_amt=500)
        with suppress(ServiceError):
            await pay.orders.query("T9999")
        order = await pay.orders.place(
            out_trade_no="T1003", subject="Breakfast", body="Two rolls, butter and jam", total_amt=980, currency="CAD"
        )
        sandbox.faults.arm("reset_after_commit", "refunds.create", times=1)
        return str(order.redirect_url)


async def take_pictures(browser: Browser, sandbox: Sandbox) -> None:
    """Save the pictures of the pages."""
    pay_page = await fill(sandbox)
    desktop = await browser.new_page(viewport={"width": 1120, "height": 900}, color_scheme="light")
    await desktop.goto(f"{sandbox.url}/?token={sandbox.admin_token.reveal()}")
    await desktop.screenshot(path=IMAGES / "dashboard.png")
    await desktop.locator("#requests tr", has_text="refunds.create").get_by_title("Show the request").click()
    await desktop.set_viewport_size({"width": 800, "height": 900})
    await desktop.screenshot(path=IMAGES / "request.png")
    phone = await browser.new_page(viewport={"width": 390, "height": 640}, color_scheme="light")
    await phone.goto(pay_page)
    await phone.screenshot(path=IMAGES / "gateway.png")
    sandbox.faults.clear()


async def main() -> None:
    """Start the sandbox and the browser."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    async with Sandbox(clock="frozen") as sandbox, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        await take_pictures(browser, sandbox)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
