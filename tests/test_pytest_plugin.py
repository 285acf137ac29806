"""The fixtures of the pytest plugin, in suites of every kind, each run by a pytest of its own."""

import subprocess
import sys
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

AWAITING: Final = (
    PAYING
    + """
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
)

BLOCKING: Final = (
    PAYING
    + """
import asyncio

def test_blocking(payasync_sandbox, payasync_session, payasync_customer, payasync_receiver):
    order = payasync_sandbox.given.pending_order(notify_url=payasync_receiver.url)
    payasync_customer.authorize(order)
    payasync_sandbox.settle()
    assert order == payasync_receiver.next().document["data"]["outTradeNo"]
    assert "paid" == payasync_sandbox.call(payasync_session.orders.query, order).state

def test_running_a_loop(payasync_sandbox, payasync_session, payasync_customer, payasync_receiver):
    asyncio.run(pay_and_refund(payasync_sandbox, payasync_session, payasync_customer, payasync_receiver))
"""
)


ASYNCIO: Final = ("-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function")
ANYIO: Final = ("-p", "anyio.pytest_plugin")
XDIST: Final = ("-p", "xdist.plugin", "-n", "2")
AGAIN: Final = pytest.mark.long


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a suite of one file, with our plugin and those that are named alone; warnings are errors."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(tests: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(tests)
        return pytester.runpytest_subprocess("-p", "pytest_payasync", "-W", "error", *options)

    return run


@pytest.mark.parametrize(
    ("mark", "options"),
    [
        pytest.param("", (*ASYNCIO, "-o", "asyncio_mode=auto"), id="asyncio auto"),
        pytest.param(
            "@pytest.mark.asyncio", (*ASYNCIO, "-o", "asyncio_mode=strict"), id="asyncio strict", marks=pytest.mark.long
        ),
        pytest.param("@pytest.mark.anyio", ANYIO, id="anyio", marks=pytest.mark.long),
        pytest.param("@pytest.mark.asyncio", (*ASYNCIO, *XDIST), id="xdist", marks=AGAIN),
    ],
)
def test_serves_asynchronous_suites(mark: str, options: tuple[str, ...], run: Run) -> None:
    """Whatever runs the tests, the fixtures are awaited from the test's own loop, and are fresh for each test."""
    result = run(AWAITING.replace("{mark}", mark), *options)

    result.assert_outcomes(passed=3)


def test_serves_synchronous_suites(run: Run) -> None:
    """With no asyncio plugin, the same calls block, and a test may also run a loop of its own."""
    result = run(BLOCKING)

    result.assert_outcomes(passed=2)


FAILING: Final = """
def test_failing(payasync_sandbox, payasync_session):
    payasync_sandbox.call(payasync_session.orders.place, total_amt=450, currency="CAD", out_trade_no="T7")
    raise AssertionError

def test_passing(payasync_sandbox, payasync_session):
    payasync_sandbox.call(payasync_session.orders.place, total_amt=450, currency="CAD", out_trade_no="T8")

def test_without():
    raise AssertionError
"""


@pytest.mark.parametrize("options", [pytest.param((), id="alone"), pytest.param(XDIST, id="xdist", marks=AGAIN)])
def test_failure_shows_the_timeline(options: tuple[str, ...], run: Run) -> None:
    """A test that fails shows what its sandbox saw; one that passes, or has none, does not."""
    result = run(FAILING, *options)
    shown = result.stdout.str()

    result.assert_outcomes(passed=1, failed=2)
    assert 1 == shown.count("payasync sandbox timeline")
    assert "orders.place" in shown.partition("payasync sandbox timeline")[2]
    assert "T8" not in shown


FAILING_SETUP: Final = """
import pytest

@pytest.fixture
def order(payasync_sandbox, payasync_session):
    payasync_sandbox.call(payasync_session.orders.place, total_amt=450, currency="CAD")
    raise LookupError

def test_failing(order):
    pass
"""


@pytest.mark.long
def test_failed_setup_shows_the_timeline(run: Run) -> None:
    """Where a fixture on top of the sandbox fails, the timeline is there, too."""
    result = run(FAILING_SETUP)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*payasync sandbox timeline*", "*orders.place*"])


OWN_PROFILE: Final = """
import asyncio
import pytest
from attrs import evolve
from payasync.sandbox import PROFILE

@pytest.fixture
def payasync_profile():
    return evolve(PROFILE, name="mine", fields={**PROFILE.fields, "return_url": "backTo"})

def test_profile(payasync_sandbox, payasync_session):
    assert "mine" == payasync_sandbox.profile.name
    order = asyncio.run(payasync_session.orders.place(total_amt=1, currency="CAD", return_url="http://127.0.0.1/back"))
    assert "http://127.0.0.1/back" == payasync_sandbox.customer.authorize(order)
"""


@pytest.mark.long
def test_speaks_the_profile_of_the_suite(run: Run) -> None:
    """A suite that overrides `payasync_profile` has a sandbox, and a session, of its own service's dialect."""
    result = run(OWN_PROFILE)

    result.assert_outcomes(passed=1)


FAULTS: Final = """
def test_fires(payasync_sandbox, payasync_session):
    payasync_sandbox.faults.latency("orders.place", seconds=0.001)
    payasync_sandbox.call(payasync_session.orders.place, total_amt=450, currency="CAD")

def test_never_fires(payasync_sandbox):
    payasync_sandbox.faults.latency("orders.close", seconds=0.001)
"""


def test_fault_that_never_fired_fails_the_test(run: Run) -> None:
    """A test that armed a fault, and did not provoke it, has not tested what it meant to."""
    result = run(FAULTS)

    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_never_fires*", "*FaultNeverFiredError*"])


NOT_PROVOKED: Final = """
import pytest

def test_fails(payasync_sandbox):
    payasync_sandbox.faults.latency("orders.close", seconds=0.001)
    raise AssertionError

def test_skips(payasync_sandbox):
    payasync_sandbox.faults.latency("orders.close", seconds=0.001)
    pytest.skip("not today")

def test_is_expected_to_fail(payasync_sandbox):
    payasync_sandbox.faults.latency("orders.close", seconds=0.001)
    pytest.xfail("not yet")

@pytest.mark.xfail
def test_is_marked(payasync_sandbox):
    payasync_sandbox.faults.latency("orders.close", seconds=0.001)
    raise AssertionError

@pytest.fixture
def broken(payasync_sandbox):
    payasync_sandbox.faults.latency("orders.close", seconds=0.001)
    raise LookupError

def test_has_no_chance(broken):
    pass
"""


@pytest.mark.long
def test_fault_is_missed_where_the_test_passed_alone(run: Run) -> None:
    """A test that came to no end of its own had no chance to provoke its fault: it is told once what it is."""
    result = run(NOT_PROVOKED)

    result.assert_outcomes(failed=1, skipped=1, xfailed=2, errors=1)
    assert "FaultNeverFiredError" not in result.stdout.str()


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


@pytest.mark.long
def test_closed_sandbox_shows_its_timeline(run: Run) -> None:
    """A test may close its sandbox, and all that goes with it: a failure still shows what it saw, where it can."""
    result = run(CLOSED)
    shown = result.stdout.str()

    result.assert_outcomes(passed=1, failed=2)
    assert 2 == shown.count("payasync sandbox timeline")
    result.stdout.fnmatch_lines(["*payasync sandbox timeline*", "*T7*", "*it cannot be told: *"])


SHARED: Final = """
import pytest
from payasync.sandbox import ThreadedSandbox

@pytest.fixture(scope="module")
def shared():
    with ThreadedSandbox(clock="frozen") as sandbox:
        yield sandbox

@pytest.mark.parametrize("count", [1, 2])
def test_shares(shared, count):
    shared.given.paid_order()
    assert count == shared.ledger.orders()
"""


@pytest.mark.long
def test_sandbox_of_a_module(run: Run) -> None:
    """What the fixture's docstring says: a module's own fixture makes a sandbox that its tests share."""
    result = run(SHARED)

    result.assert_outcomes(passed=2)


RECEIVING: Final = """
import pytest
import urllib.error
import urllib.request
from payasync.errors import WaitTimeoutError

def test_account(payasync_sandbox, payasync_receiver):
    order = payasync_sandbox.given.paid_order()
    assert order == payasync_receiver.next().document["data"]["outTradeNo"]

def test_bad_answer(payasync_sandbox, payasync_receiver):
    payasync_receiver.answer_badly(503)
    payasync_sandbox.given.paid_order()
    payasync_receiver.next()
    payasync_sandbox.settle()
    assert [503] == [each.status for each in payasync_sandbox.ledger.deliveries()]

def test_nothing_comes(payasync_receiver):
    with pytest.raises(WaitTimeoutError, match="within 0.01 seconds"):
        payasync_receiver.next(timeout=0.01)

def test_forged(payasync_receiver):
    forged = urllib.request.Request(payasync_receiver.url, data=b"{}", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="400") as refused:
        urllib.request.urlopen(forged)
    refused.value.close()
    assert ["webhook-timestamp is no number of seconds"] == [each.wrong for each in payasync_receiver.received]
    with pytest.raises(WaitTimeoutError, match="refused were 1"):
        payasync_receiver.next(timeout=0.01)
"""


@pytest.mark.long
def test_receiver(run: Run) -> None:
    """The receiver takes what the account hears of, answers badly on demand, and believes nothing forged."""
    result = run(RECEIVING)

    result.assert_outcomes(passed=4)


@pytest.mark.long
def test_fixtures_are_described(run: Run) -> None:
    """`pytest --fixtures` lists each with a line of what it is."""
    shown = run("", "--fixtures").stdout.str()

    for name in ("sandbox", "session", "receiver", "customer", "profile"):
        assert f"\npayasync_{name} -- " in shown
    assert "no docstring available" not in shown.partition("payasync_profile")[2]


UNUSED: Final = """
import sys

def test_nothing():
    assert [] == [name for name in sys.modules if name.partition(".")[0] in {"payasync", "aiohttp", "attrs", "cattrs"}]
"""


def test_costs_nothing_where_it_is_not_used(run: Run) -> None:
    """A run that asks for no fixture imports neither payasync nor what it builds on."""
    result = run(UNUSED)

    result.assert_outcomes(passed=1)


def test_is_installed_with_the_package() -> None:
    """A run of pytest finds the plugin by itself, beside the package that it serves."""
    found = entry_points(group="pytest11")["pytest_payasync"].load()

    program = "import sys, pytest_payasync; print('payasync' in sys.modules)"
    alone = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)

    assert "pytest_payasync.py" == Path(found.__file__).name
    assert "False\n" == alone.stdout
