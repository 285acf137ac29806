"""The fixtures of the pytest plugin, in test suites of several kinds, each run by its own pytest."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, TypeAlias

import pytest

pytest_plugins = ["pytester"]

Run: TypeAlias = Callable[..., pytest.RunResult]

PAYING: Final = """
async def pay_and_refund(payasync_sandbox, payasync_session, payasync_customer, payasync_receiver):
    order = await payasync_session.orders.place(
        total_amt=450, currency="CAD", out_trade_no="T1", notify_url=payasync_receiver.url
    )
    await payasync_customer.authorize(order)
    notified = await payasync_receiver.next()
    assert "T1" == notified.document["data"]["outTradeNo"]
    refund = await payasync_session.refunds.create(
        out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200
    )
    await payasync_sandbox.settle()
    assert "succeeded" == refund.state
    assert 200 == payasync_sandbox.ledger.refunded("T1")
"""

AWAITING: Final = """
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

{mark}
@pytest.mark.parametrize("time", range(3))
async def test_paying(time, payasync_sandbox, payasync_session, payasync_customer, payasync_receiver):
    assert 0 == payasync_sandbox.ledger.orders()
    await pay_and_refund(payasync_sandbox, payasync_session, payasync_customer, payasync_receiver)
"""

BLOCKING: Final = """
import asyncio

def test_blocking(payasync_sandbox, payasync_session, payasync_customer, payasync_receiver):
    order = payasync_sandbox.given.pending_order(notify_url=payasync_receiver.url)
    payasync_customer.authorize(order)
    payasync_sandbox.settle()
    assert order == payasync_receiver.next().document["data"]["outTradeNo"]
    assert "paid" == payasync_sandbox.call(payasync_session.orders.query, order).state

def test_account(payasync_sandbox, payasync_receiver):
    order = payasync_sandbox.given.paid_order()
    assert order == payasync_receiver.next().document["data"]["outTradeNo"]

def test_running_a_loop(payasync_sandbox, payasync_session, payasync_customer, payasync_receiver):
    asyncio.run(pay_and_refund(payasync_sandbox, payasync_session, payasync_customer, payasync_receiver))
"""

FAILING: Final = """
import pytest

def test_failing(payasync_sandbox, payasync_session):
    payasync_sandbox.call(payasync_session.orders.place, total_amt=450, currency="CAD", out_trade_no="T7")
    raise AssertionError

def test_passing(payasync_sandbox, payasync_session):
    payasync_sandbox.call(payasync_session.orders.place, total_amt=450, currency="CAD", out_trade_no="PASSING")

def test_without():
    raise AssertionError

@pytest.fixture
def order(payasync_sandbox, payasync_session):
    payasync_sandbox.call(payasync_session.orders.place, total_amt=450, currency="CAD", out_trade_no="T9")
    raise LookupError

def test_failing_later(order):
    pass
"""

OWN_PROFILE: Final = """
import pytest
from attrs import evolve
from payasync.sandbox import PROFILE

@pytest.fixture
def payasync_profile():
    return evolve(PROFILE, name="mine")

def test_profile(payasync_sandbox, payasync_session):
    assert "mine" == payasync_sandbox.profile.name == payasync_session.profile.name
"""

FAULTS: Final = """
def test_fires(payasync_sandbox, payasync_session):
    payasync_sandbox.faults.latency("orders.place", seconds=0.001)
    payasync_sandbox.call(payasync_session.orders.place, total_amt=450, currency="CAD")

def test_never_fires(payasync_sandbox):
    payasync_sandbox.faults.latency("orders.close", seconds=0.001)
"""

NOT_PROVOKED: Final = """
import pytest

@pytest.fixture(autouse=True)
def fault(payasync_sandbox):
    payasync_sandbox.faults.latency("orders.close", seconds=0.001)

def test_fails():
    raise AssertionError

def test_skips():
    pytest.skip("not today")

"""

CLOSED: Final = """
def test_closed(payasync_sandbox):
    payasync_sandbox.given.pending_order(out_trade_no="T7")
    payasync_sandbox.close()
    raise AssertionError

def test_closed_and_passed(payasync_sandbox, payasync_session, payasync_receiver):
    payasync_sandbox.call(payasync_session.orders.place, total_amt=450, currency="CAD", out_trade_no="T8")
    payasync_sandbox.close()

def test_broken(payasync_sandbox):
    payasync_sandbox.timeline = None
    raise AssertionError
"""


UNUSED: Final = """
import sys

def test_nothing():
    loaded = [name for name in sys.modules if name.partition(".")[0] in {"payasync", "aiohttp", "attrs", "cattrs"}]
    assert ["payasync", "payasync.pytest_plugin"] == sorted(loaded)
"""

SUITES: Final = {
    "awaiting": PAYING + AWAITING.replace("{mark}", ""),
    "blocking": PAYING + BLOCKING,
    "failing": FAILING,
    "own_profile": OWN_PROFILE,
    "faults": FAULTS,
    "not_provoked": NOT_PROVOKED,
    "closed": CLOSED,
}
ASYNCIO: Final = ("-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function")
ANYIO: Final = ("-p", "anyio.pytest_plugin")
XDIST: Final = ("-p", "xdist.plugin", "-n", "2")
TIMELINE: Final = "payasync sandbox timeline"


def ends(printed: str, suite: str) -> Counter[str]:
    """Count the results of a suite's tests; a test whose teardown failed has two results."""
    return Counter(re.findall(rf"^test_{suite}\.py::\S+ ([A-Z]+)", printed, re.MULTILINE))


def shown(printed: str, test: str) -> str:
    """Return the part of the output about a failed test."""
    _, header, below = re.split(rf"^(_+ (?:ERROR at \w+ of )?{test} _+)$", printed, flags=re.MULTILINE)
    return header + re.split(r"^(?:_____|=====)", below, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run all suites together, with only this plugin and pytest-asyncio; warnings are errors."""
    folder = tmp_path_factory.mktemp("suites")
    for name, text in SUITES.items():
        (folder / f"test_{name}.py").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        command = [sys.executable, "-W", "error", "-m", "pytest", "-v", "-p", "payasync.pytest_plugin", *ASYNCIO]
        options = ["-W", "error", "-o", "asyncio_mode=auto", "--rootdir=.", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *options], cwd=folder, capture_output=True, text=True, timeout=100, check=False
        )
    return done.stdout


def test_serves_suites_of_each_kind(ran: str) -> None:
    """The test's own loop runs the fixtures, and each test gets new ones. A suite may override `payasync_profile`.

    Without an asyncio plugin the same calls block, and a test may also run its own loop.
    """
    assert [3, 3, 1] == [ends(ran, suite)["PASSED"] for suite in ("awaiting", "blocking", "own_profile")]
    assert {"PASSED": 7} == ends(ran, "(?:awaiting|blocking|own_profile)")


def test_failure_shows_the_timeline(ran: str) -> None:
    """A failed test or fixture shows the timeline of its sandbox; other tests do not."""
    assert {"PASSED": 1, "FAILED": 2, "ERROR": 1} == ends(ran, "failing")
    assert 1 == shown(ran, "test_failing").count(TIMELINE)
    assert "T7" in shown(ran, "test_failing").partition(TIMELINE)[2]
    assert "T9" in shown(ran, "test_failing_later").partition(TIMELINE)[2]
    assert TIMELINE not in shown(ran, "test_without")
    assert "PASSING" not in ran


def test_fault_that_never_fired_fails_the_test(ran: str) -> None:
    """A passed test whose fault never fired fails, because it did not test what it meant to."""
    assert {"PASSED": 2, "ERROR": 1} == ends(ran, "faults")
    assert "FaultNeverFiredError" in shown(ran, "test_never_fires")


def test_fault_is_missed_where_the_test_passed_alone(ran: str) -> None:
    """If a test did not pass, a fault that never fired is not reported as well."""
    assert {"FAILED": 1, "SKIPPED": 1} == ends(ran, "not_provoked")
    assert "FaultNeverFiredError" not in shown(ran, "test_fails")


def test_closed_sandbox_shows_its_timeline(ran: str) -> None:
    """A failed test shows the timeline even if it closed its sandbox, and says if there is none."""
    assert {"PASSED": 1, "FAILED": 2} == ends(ran, "closed")
    assert "T7" in shown(ran, "test_closed").partition(TIMELINE)[2]
    assert "the timeline is not available: " in shown(ran, "test_broken").partition(TIMELINE)[2]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a suite of one file, with only this plugin and the named ones; warnings are errors."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(tests: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(tests)
        return pytester.runpytest_subprocess("-p", "payasync.pytest_plugin", "-W", "error", *options)

    return run


@pytest.mark.long
@pytest.mark.parametrize(
    ("mark", "options"),
    [
        pytest.param("@pytest.mark.asyncio", (*ASYNCIO, "-o", "asyncio_mode=strict"), id="asyncio strict"),
        pytest.param("@pytest.mark.anyio", ANYIO, id="anyio"),
        pytest.param("@pytest.mark.asyncio", (*ASYNCIO, *XDIST), id="xdist"),
    ],
)
def test_serves_asynchronous_suites_of_other_plugins(mark: str, options: tuple[str, ...], run: Run) -> None:
    """With any asyncio plugin, the test's own loop runs the fixtures, and each test gets new ones."""
    run(PAYING + AWAITING.replace("{mark}", mark), *options).assert_outcomes(passed=3)


@pytest.mark.long
def test_failure_shows_the_timeline_behind_xdist(run: Run) -> None:
    """The timeline of a worker's test reaches the main process."""
    result = run(FAILING, *XDIST)

    result.assert_outcomes(passed=1, failed=2, errors=1)
    assert 2 == result.stdout.str().count(TIMELINE)


def test_costs_nothing_where_it_is_not_used(run: Run) -> None:
    """Without a fixture in use, only the plugin module itself is loaded, which is found by its entry point."""
    run(UNUSED).assert_outcomes(passed=1)
    found = entry_points(group="pytest11")["pytest_payasync"].load()

    assert "pytest_plugin.py" == Path(found.__file__).name
