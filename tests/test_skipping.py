"""Skipped tests: told everywhere, and a failure where everything that tests need is there."""

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
OPTIONS: Final = ("-p", "no:cacheprovider", "-ra")


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite with what all our tests share."""
    monkeypatch.delenv("PAYASYNC_NO_SKIP", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))  # where `tests.` is found
    pytester.makeconftest(CONFTEST)
    return pytester


def test_skips_are_told(folder: pytest.Pytester) -> None:
    """A developer's machine may lack something: what is skipped says why."""
    folder.makepyfile(SKIPPING)
    ran = folder.runpytest_subprocess(*OPTIONS)

    ran.assert_outcomes(passed=1, skipped=2, xfailed=1)
    ran.stdout.fnmatch_lines(["*no browser", "*not today"])


def test_no_test_may_be_skipped(folder: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all is there, a test that is skipped has failed; one that is expected to fail has not."""
    monkeypatch.setenv("PAYASYNC_NO_SKIP", "1")
    folder.makepyfile(SKIPPING)
    ran = folder.runpytest_subprocess(*OPTIONS)
    counted = ran.parseoutcomes()

    assert (1, 1, 0) == (counted["passed"], counted["xfailed"], counted.get("skipped", 0))
    assert 2 == counted.get("failed", 0) + counted.get("errors", 0)


def test_no_module_may_be_skipped(folder: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor may a module that needs a package."""
    monkeypatch.setenv("PAYASYNC_NO_SKIP", "1")
    folder.makepyfile(WHOLE)
    ran = folder.runpytest_subprocess(*OPTIONS)

    assert 1 == ran.parseoutcomes()["errors"]
