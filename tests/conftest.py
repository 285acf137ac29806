"""Fixtures and hooks for all tests."""

import gc
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Final, TypeVar

import pytest
from hypothesis import HealthCheck, settings

# Behind all else: an installed payasync comes first, and `tests.` and `benchmarks.` are found.
sys.path.append(str(Path(__file__).parents[1]))

# No test trusts whom the machine trusts; reading its authorities took longer than most tests, once for each session.
os.environ |= {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}

# A machine whose users share groups makes files that others can write; profiles and keys like that are refused.
os.umask(0o022)

# What runs in the background of a shell ignores Ctrl-C, and so would each process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests on files waited mostly for the disk. In a container this folder may be too small.
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own in it
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# What collecting makes lasts as long as the run: `gc.collect` need not walk through thousands of tests each time.
gc.disable()

# A busy machine makes an example slow, not wrong. `nox -s long` tries 2,000.
settings.register_profile("payasync", deadline=None, max_examples=40)
settings.load_profile("payasync")

# Of `nox -s long`: the same examples each time, so that luck decides no change. `nox -s chaos` draws new ones.
settings.register_profile("long", max_examples=2_000, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
# Of `nox -s chaos`: for pure properties, and for state machines that work on real files.
settings.register_profile(
    "chaos", max_examples=100_000, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("models", settings.get_profile("chaos"), max_examples=6_000)

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
NO_SKIP: Final = "PAYASYNC_NO_SKIP"
"""Where this is set, everything that a test needs is there: a test that is skipped has failed."""
ENDED: Final = itertools.count(1)
TIDIED: Final = 200
"""After so many tests."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins that start the servers which tests of several folders share."""
    config.pluginmanager.import_plugin("tests.postgres")
    config.pluginmanager.import_plugin("tests.pgbouncer")
    config.pluginmanager.import_plugin("tests.redis_server")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark a scenario's repetition with a scrambled profile as a long test."""
    for item in items:
        if "scrambled" in item.name:
            item.add_marker("long")


def pytest_collection_finish() -> None:
    """Resume garbage collection, without the objects of the collection itself."""
    gc.freeze()
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """From time to time, exclude the permanent objects of earlier tests, such as reports, from garbage collection.

    The process that only hears of the tests of its workers collects none.
    """
    if gc.isenabled() and next(ENDED) % TIDIED == 0:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skipped test if skipping is not allowed."""
    return _judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a skipped module if skipping is not allowed."""
    return _judged((yield))


def _judged(report: Report) -> Report:
    if report.skipped and os.environ.get(NO_SKIP) and not hasattr(report, "wasxfail"):
        report.longrepr = f"skipped where {NO_SKIP} is set: {report.longrepr}"
        report.outcome = "failed"
    return report
