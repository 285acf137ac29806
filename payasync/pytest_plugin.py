"""The pytest plugin of payasync: fixtures for a sandbox per test.

Each run of pytest imports an installed plugin, used or not. So this module imports the rest of payasync only in its
fixtures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from payasync import Profile, Session
    from payasync.sandbox import ThreadedSandbox

SECTION = "payasync sandbox timeline"
_SANDBOX: pytest.StashKey[ThreadedSandbox] = pytest.StashKey()
_PASSED: pytest.StashKey[bool] = pytest.StashKey()


@pytest.fixture
def payasync_profile() -> Profile:
    """The profile of the sandbox. Override this fixture to return the profile of your service."""
    from payasync.sandbox import PROFILE  # noqa: PLC0415 - see above

    return PROFILE


@pytest.fixture
def payasync_sandbox(request: pytest.FixtureRequest, payasync_profile: Profile) -> Generator[ThreadedSandbox]:
    """A fresh payment service in memory, on a free port and in a thread of its own, with a frozen clock.

    Coroutines of `Sandbox` are blocking functions here; an asynchronous test awaits them. A test that passes fails at
    its end if a fault that it armed never fired.

    Each test has its own sandbox. To share one in a module or a session, write a fixture of that scope:
    `with ThreadedSandbox(clock="frozen") as sandbox: yield sandbox`.
    """
    from payasync.sandbox import ThreadedSandbox  # noqa: PLC0415 - see above

    sandbox = request.node.stash[_SANDBOX] = ThreadedSandbox(payasync_profile, clock="frozen").start()
    yield sandbox
    sandbox.close()
    if request.node.stash.get(_PASSED, False):
        sandbox.faults.check()


@pytest.fixture
def payasync_session(payasync_sandbox: ThreadedSandbox) -> Generator[Session]:
    """A session for the sandbox, closed after the test."""
    session = payasync_sandbox.session()
    yield session
    if payasync_sandbox.running:
        payasync_sandbox.call(session.aclose)


@pytest.fixture
def payasync_customer(payasync_sandbox: ThreadedSandbox) -> Any:
    """A customer at the gateway page of the sandbox: `authorize`, `decline`, `cancel`."""
    return payasync_sandbox.customer


@pytest.fixture
def payasync_receiver(payasync_sandbox: ThreadedSandbox) -> Generator[Any]:
    """A merchant's server at `url` that verifies and acknowledges notifications; `next` returns them.

    It also receives the notifications of orders without `notifyUrl`.
    """
    with payasync_sandbox.receiver() as receiver:
        payasync_sandbox.webhook_url = receiver.url
        yield receiver


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the timeline of the sandbox to a failure, and record whether the test passed."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    if report.failed and (sandbox := item.stash.get(_SANDBOX, None)):
        report.sections.append((SECTION, _format_timeline(sandbox)))
    return report


def _format_timeline(sandbox: ThreadedSandbox) -> str:
    try:
        return "\n".join(sandbox.timeline())
    except Exception as error:  # noqa: BLE001 - an error in a hook would end the whole run of pytest
        return f"the timeline is not available: {error}"
