"""Make the pictures of the documentation: `nox -s pictures` runs it."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from playwright.async_api import Browser, Page

from payasync.sandbox import Sandbox
from tests.cli.sandbox_process import environment
from tests.examples.shops import Place, serving
from tests.sandbox.chromium import browsing
from tests.test_tutorial import FILES

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
SIDE_BY_SIDE: Final = '<!doctype html><body style="margin: 0; display: flex; gap: 12px; width: max-content">{}</body>'


async def run(name: str, sandbox: Sandbox) -> str:
    """Run a program of the tutorial, and return what it prints."""
    command = (sys.executable, "-c", FILES[name])
    process = await asyncio.create_subprocess_exec(*command, env=environment(sandbox), stdout=PIPE)
    return (await process.communicate())[0].decode()


async def window(browser: Browser, width: int, height: int = 640) -> Page:
    """Open an empty window; that of a phone is 390 wide."""
    return await browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")


async def save_down_to(page: Page, last: str, name: str) -> None:
    """Save a page from its top down to an element, so that nothing is cut."""
    box = await page.locator(last).bounding_box()
    assert box
    assert page.viewport_size
    height = round(box["y"] + box["height"]) + 16
    await page.set_viewport_size({"width": page.viewport_size["width"], "height": height})
    await page.screenshot(path=IMAGES / name)


async def take_pages_of_the_tutorial(browser: Browser, sandbox: Sandbox) -> None:
    """Save what a reader of the tutorial sees: its order at the gateway, and the dashboard in its last step."""
    phone = await window(browser, 390)
    await phone.goto((await run("order.py", sandbox)).split()[-1])
    await phone.screenshot(path=IMAGES / "gateway.png")
    await phone.get_by_role("button", name="Authorize").click()
    await run("refund.py", sandbox)
    sandbox.faults.reset_after_commit("payments.create")
    await run("invoice.py", sandbox)
    sandbox.faults.reset_after_commit("refunds.create")
    desktop = await window(browser, 1120)
    await desktop.goto(f"{sandbox.url}/?token={sandbox.admin_token.reveal()}")
    await save_down_to(desktop, "#orders", "dashboard.png")
    await desktop.locator("#requests tr", has_text="refunds.create").get_by_title("Show the request").click()
    await desktop.set_viewport_size({"width": 800, "height": 640})
    await save_down_to(desktop, "section[aria-labelledby=answered]", "request.png")
    sandbox.faults.clear()


async def take_pages_of_the_shop(browser: Browser, sandbox: Sandbox, folder: Path) -> None:
    """Save three pages of an example shop side by side: the products, the gateway and the paid order."""
    place = Place.free("fastapi_shop", folder)
    async with serving(place, sandbox):
        phone, pages = await window(browser, 390, 668), list[bytes]()
        await phone.goto(place.url)
        for button in ("Buy Large coffee", "Authorize"):
            pages.append(await phone.screenshot())
            await phone.get_by_role("button", name=button).click()
        await phone.get_by_role("heading", name="Thank you").wait_for()
        pages.append(await phone.screenshot())
    table = await window(browser, 1200)
    images = (f'<img src="data:image/png;base64,{b64encode(page).decode()}">' for page in pages)
    await table.set_content(SIDE_BY_SIDE.format("".join(images)))
    await table.locator("body").screenshot(path=IMAGES / "shop.png")


async def main() -> None:
    """Start the sandbox at the tutorial's address, and the browser."""
    with TemporaryDirectory() as folder:
        async with Sandbox(port=8402) as sandbox, browsing() as browser:
            await take_pages_of_the_tutorial(browser, sandbox)
            await take_pages_of_the_shop(browser, sandbox, Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
