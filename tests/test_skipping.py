"""Skipped tests: a failure where everything that tests need is there."""

from pathlib import Path
from typing import Final

import pytest

pytest_plugins = ["pytester"]

CONFTEST: Final = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")
SKIPPING: Final = """
import pytest

def test_one(): pytest.skip("no browser")

@pytest.mark.skip(reason="not today")
def test_two(): pass

@pytest.mark.xfail(reason="known", strict=True)
def test_three(): raise AssertionError

def test_four(): pass
"""
WHOLE: Final = 'import pytest\npytest.importorskip("no_such_package")\n'


def test_nothing_may_be_skipped(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """With PAYASYNC_NO_SKIP, skipped tests and modules fail; expected failures do not."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))  # where `tests.` is found
    monkeypatch.setenv("PAYASYNC_NO_SKIP", "1")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_tests=SKIPPING, test_module=WHOLE)
    ran = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--continue-on-collection-errors")
    counted = ran.parseoutcomes()

    assert (1, 1, 0) == (counted["passed"], counted["xfailed"], counted.get("skipped", 0))
    assert 3 == counted.get("failed", 0) + counted.get("errors", 0)
