"""docs/tutorial.md, followed step by step in a terminal and a browser."""

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.cli.sandbox_process import free_address, lines, started
from tests.sandbox.chromium import chromium
from tests.test_readme import blocks

PAGE: Final = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text(encoding="utf-8")
FILES: Final = dict(re.findall(r'^```python title="(\w+\.py)"\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE))
SERVICE: Final = "127.0.0.1:8402"
SHOP: Final = "127.0.0.1:8403"
LISTENING: Final = 'host="127.0.0.1", port=8403'


class Reader:
    """Somebody who follows the page in a folder.

    Args:
        folder: Holds the programs of the page.
        places: The addresses that take the place of those on the page, because other programs may use the latter.
    """

    def __init__(self, folder: Path, places: dict[str, str]) -> None:
        self.folder = folder
        self.places = places
        self.variables: dict[str, str] = {}
        self._shown = iter([text for _, text in blocks(PAGE, "text")])
        for name, code in FILES.items():
            (folder / name).write_text(self.here(code), encoding="utf-8")

    def here(self, text: str) -> str:
        """Return a text with the addresses of this test."""
        for shown, used in self.places.items():
            text = text.replace(shown, used)
        return text

    def expect(self, said: str) -> str:
        """Check that a text is the next one that the page shows; `…` is any text."""
        expected = self.here(next(self._shown)).rstrip("\n")

        assert re.fullmatch(re.escape(expected).replace("…", ".+"), said.rstrip("\n")), f"{expected}\n---\n{said}"
        return said

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start Python with the variables that were pasted."""
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**os.environ, **self.variables, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> str:
        """Run Python, and return its output."""
        with self.start(*arguments) as process:
            said, _ = process.communicate(timeout=60)
        return said


def arm(page: Page, operation: str) -> None:
    """Arm the fault of the page for an operation, on the dashboard."""
    page.get_by_label("What goes wrong").select_option(label="reset after commit")
    page.get_by_label("On which").select_option(label=operation)
    page.get_by_role("button", name="Arm").click()
    page.get_by_text(f"Armed: reset_after_commit on {operation}").wait_for()


@pytest.mark.long
def test_each_step_shows_what_the_page_says(tmp_path: Path) -> None:
    """Each program and command of the tutorial shows what the page says, and the browser has the buttons that it names.

    Installing the package and stopping the servers are left out.
    """
    (host, port), (shop_host, shop_port) = free_address(), free_address()
    shop_at = f"{shop_host}:{shop_port}"
    listening = f'host="{shop_host}", port={shop_port}'
    reader = Reader(tmp_path, {SERVICE: f"{host}:{port}", SHOP: shop_at, LISTENING: listening})
    with ExitStack() as stack:
        reader.expect(reader.run("-m", "payasync", "--version"))

        sandbox = stack.enter_context(started("--host", host, "--port", port))
        stack.callback(sandbox.terminate)
        first = "\n".join(lines(sandbox, "Press Ctrl-C"))
        reader.expect(first)
        reader.variables = dict(re.findall(r"^export (\w+)=(.*)$", first, re.MULTILINE))
        (dashboard,) = re.findall(r"http\S+token=\S+", first)
        reader.expect("\n".join(reader.run("-m", "payasync", "doctor").splitlines()[1:3]))

        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.goto(reader.expect(reader.run("order.py")).split()[-1])
        reader.expect(reader.run("query.py"))
        page.get_by_role("button", name="Authorize 4.50 CAD").click()
        page.get_by_text("The payment is authorized.").wait_for()
        reader.expect(reader.run("query.py"))

        refunded = reader.expect(reader.run("refund.py"))
        assert refunded == reader.run("refund.py")

        shop = stack.enter_context(reader.start("shop.py"))
        stack.callback(shop.terminate)
        reader.expect("\n".join(lines(shop, "Press CTRL+C")))
        page.goto(f"http://{shop_at}")
        page.get_by_role("button", name="Buy a coffee").click()
        page.get_by_role("button", name="Authorize").click()
        page.wait_for_url("**/thanks?*")
        reader.expect(page.inner_text("body"))
        reader.expect(*lines(shop, "Ship"))

        page.goto(dashboard)
        page.get_by_role("button", name="Resend payment.paid").click()
        arm(page, "payments.create")
        reader.expect(reader.run("invoice.py"))
        page.get_by_text("10.00 CAD").wait_for()
        arm(page, "refunds.create")
        program = tmp_path / "refund.py"
        program.write_text(program.read_text(encoding="utf-8").replace("R1", "R2"), encoding="utf-8")
        reader.expect(reader.run("refund.py"))
        browser.close()
