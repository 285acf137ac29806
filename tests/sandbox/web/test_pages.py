"""Only the pages need Jinja2. Programs that do not configure logging see no log."""

import subprocess
import sys
from typing import Final

PROGRAM: Final = """
import asyncio, sys
sys.modules["jinja2"] = None
import aiohttp
from payasync.sandbox import Sandbox

async def main():
    async with Sandbox(clock="frozen") as sandbox, aiohttp.ClientSession() as http, sandbox.session() as pay:
        token = {"Authorization": "Bearer " + sandbox.admin_token.reveal()}
        order = await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        for url in (order.redirect_url, sandbox.url, f"{sandbox.url}/timeline?about=T1"):
            async with http.get(url, headers=token) as page:
                print(page.status, await page.text(), end="")
        day = {"amount": 1, "unit": "days"}
        async with http.post(f"{sandbox.url}/admin/clock/advance", data=day, headers=token) as done:
            print(done.status)
        number = await sandbox.given.pending_order(notify_url="http://127.0.0.1:1/")
        await sandbox.customer.authorize(number)
        await sandbox.settle()
        print(sandbox.ledger.order_state(number), len(sandbox.ledger.deliveries()))

asyncio.run(main())
"""
SAID: Final = "501 The sandbox's pages need Jinja2: python -m pip install 'payasync[sandbox]'\n"


def test_only_pages_need_jinja() -> None:
    """Without Jinja2, a page returns 501 with the command to install it. The rest works, and prints no log."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60
    )

    assert ("", SAID * 3 + "200\npaid 1\n") == (done.stderr, done.stdout)
