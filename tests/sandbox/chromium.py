"""The system's browser."""

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, async_playwright


def chromium() -> str:
    """Return the path of Chromium. If it is missing, skip the test, and say what to install."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return found or pytest.skip("no Chromium here: install it (Debian: apt-get install chromium)")


@asynccontextmanager
async def browsing() -> AsyncGenerator[Browser]:
    """Run the browser until the block ends."""
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield running
        await running.close()
