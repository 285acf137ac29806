"""The system's browser."""

import shutil

import pytest


def chromium() -> str:
    """Return the path of Chromium. If it is missing, skip the test, and say what to install."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return found or pytest.skip("no Chromium here: install it (Debian: apt-get install chromium)")
