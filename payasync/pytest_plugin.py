"""The pytest plugin of payasync: a sandbox of its own for each test that asks for one.

Every run of pytest imports a plugin, also those that do not use it: this one loads nothing else of payasync before
the first fixture is asked for.
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
    """The profile that the sandbox speaks: its own. Override this fixture to return that of your service."""
    from payasync.sandbox import PROFILE  # noqa: PLC0415 - see above

    return PROFILE


@pytest.fixture
def payasync_sandbox(request: pytest.FixtureRequest, payasync_profile: Profile) -> Generator[ThreadedSandbox]:
    """A fresh payment service: in memory, on a free port, in a thread of its own; its clock stands still.

    What is a coroutine in `Sandbox` blocks here, and is awaited in an asynchronous test. A test that passes, and has
    armed a fault that never fired, fails as it ends.

    It is a test's own. For one that a module or a session shares, write a fixture of that scope:
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
    """A session that is configured for the sandbox; it is closed after the test."""
    session = payasync_sandbox.session()
    yield session
    if payasync_sandbox.running:
        payasync_sandbox.call(session.aclose)


@pytest.fixture
def payasync_customer(payasync_sandbox: ThreadedSandbox) -> Any:
    """A customer at the sandbox's gateway page: `authorize`, `decline`, `cancel`."""
    return payasync_sandbox.customer


@pytest.fixture
def payasync_receiver(payasync_sandbox: ThreadedSandbox) -> Generator[Any]:
    """A merchant's server for notifications, at `url`: it verifies and acknowledges them, and hands them out (`next`).

    The account's own notifications, of what has no `notifyUrl`, come to it, too.
    """
    with payasync_sandbox.receiver() as receiver:
        payasync_sandbox.webhook_url = receiver.url
        yield receiver


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach to a failure what the sandbox saw, and note whether the test itself passed."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    if report.failed and (sandbox := item.stash.get(_SANDBOX, None)):
        report.sections.append((SECTION, _seen(sandbox)))
    return report


def _seen(sandbox: ThreadedSandbox) -> str:
    try:
        return "\n".join(sandbox.timeline())
    except Exception as error:  # noqa: BLE001 - an error in a hook would end the whole run of pytest
        return f"it cannot be told: {error}"
