"""What all tests share."""

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Final, TypeVar

import pytest
from hypothesis import settings

# Behind all else: an installed payasync comes first, and `tests.` and `benchmarks.` are found.
sys.path.append(str(Path(__file__).parents[1]))

# A busy machine makes an example slow, not wrong.
settings.register_profile("payasync", deadline=None)
settings.load_profile("payasync")

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
SCENARIOS: Final = ("test_scenarios_", "test_cancelling", "test_cuts")
NO_SKIP: Final = "PAYASYNC_NO_SKIP"
"""Where this is set, everything that a test needs is there: a test that is skipped has failed."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count the scenarios among the slow tests, and what runs a second time, with a scrambled profile."""
    for item in items:
        if "scrambled" in item.name or item.path.name.startswith(SCENARIOS):
            item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that is skipped, where none may be."""
    return _judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a module that is skipped, where none may be."""
    return _judged((yield))


def _judged(report: Report) -> Report:
    if report.skipped and os.environ.get(NO_SKIP) and not hasattr(report, "wasxfail"):
        report.longrepr = f"skipped where {NO_SKIP} is set: {report.longrepr}"
        report.outcome = "failed"
    return report
