"""Whether payasync is installed here, which some tests need."""

from importlib.metadata import distributions

import pytest


def require_installed() -> None:
    """Fail, and say what to do, if payasync is only on the path, without its plugin and its requirements."""
    if not list(distributions(name="payasync")):
        pytest.fail("payasync is not installed: run nox", pytrace=False)
