"""A sandbox in a thread, for tests that block and tests in any event loop. `test_pytest_plugin` has more."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from yarl import URL

from payasync.errors import ConfigurationError
from payasync.sandbox import PROFILE, ThreadedSandbox
from payasync.sandbox.faults.armed_faults import FaultNeverFiredError
from tests.sandbox.foreign import refuses


async def test_is_awaited_in_a_loop() -> None:
    """In a running loop, coroutine methods are awaited, and other tasks go on."""
    went_on = asyncio.Event()
    with ThreadedSandbox() as sandbox:
        asyncio.get_running_loop().call_soon(went_on.set)
        order = await sandbox.given.pending_order()
        await sandbox.customer.authorize(order)

        assert ("paid", True) == (sandbox.ledger.order_state(order), went_on.is_set())


def test_has_what_a_sandbox_has() -> None:
    """`ThreadedSandbox` has the attributes and methods of `Sandbox` and its parts, and no others."""
    with ThreadedSandbox(PROFILE, clock="frozen") as sandbox:
        before = sandbox.clock.now()
        sandbox.clock.advance(days=31)

        assert 31 == (sandbox.clock.now() - before).days
        assert sandbox.url.startswith("http://127.0.0.1:")
        assert ("SANDBOX", PROFILE) == (sandbox.credentials.merchant_id, sandbox.profile)
        assert {"url", "customer", "settle", "call", "faults"} <= set(dir(sandbox))
        assert "authorize" in dir(sandbox.customer)
        for part in (sandbox, sandbox.customer):
            with pytest.raises(AttributeError, match="colour"):
                _ = part.colour


def test_thread_ends() -> None:
    """If the port is in use, `start` raises the error. Then, and after `close`, the port is closed and no thread stays.

    A receiver is closed with its sandbox. Closing again does nothing.
    """
    before = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as occupied, pytest.raises(ConfigurationError, match="it is in use"):
        ThreadedSandbox(port=occupied.getsockname()[1]).start()
    failed = threading.active_count()
    with ThreadedSandbox() as sandbox, sandbox.receiver() as receiver:
        url, notify, during = sandbox.url, receiver.url.removesuffix("/"), threading.active_count()
        for _ in range(2):
            sandbox.close()

        assert ([True, True], False) == ([refuses(url), refuses(f"http://{URL(notify).authority}")], sandbox.running)
    assert (before, True, before) == (failed, during > before, threading.active_count())


def test_closing_cancels_what_is_awaited() -> None:
    """If the sandbox is closed, a call that waits in its thread ends with `CancelledError`."""
    sandbox, waits = ThreadedSandbox().start(), threading.Event()

    async def forever() -> None:
        waits.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor() as callers:
        called = callers.submit(sandbox.call, forever)
        assert waits.wait(30)
        sandbox.close()

        assert "CancelledError" == type(called.exception(30)).__name__


def test_works_between_start_and_close() -> None:
    """Before the start and after the end, calls raise `ConfigurationError`, and so does a second start.

    Faults can be armed before the start and read after the end. The timeline can be read after the end.
    """
    sandbox = ThreadedSandbox()
    fault = sandbox.faults.latency("orders.place", seconds=1)
    for call in (sandbox.settle, sandbox.timeline):
        with pytest.raises(ConfigurationError, match="does not run"):
            call()
    with sandbox:
        sandbox.given.pending_order(out_trade_no="T7")
        during, armed = sandbox.timeline(), sandbox.faults.armed()
        fault.disarm()
        with pytest.raises(ConfigurationError, match="runs already"):
            sandbox.start()
    with pytest.raises(ConfigurationError, match="does not run"):
        sandbox.customer.authorize("T1")

    assert ([fault], 0, False) == (armed, fault.fired, fault.armed)
    assert during == sandbox.timeline()
    assert "T7" in "".join(during)
    sandbox.faults.check()


def arm(failure: Exception | None) -> None:
    """Arm a fault in a sandbox, and end it, with an error or without."""
    with ThreadedSandbox() as sandbox:
        sandbox.faults.latency("orders.place", seconds=1)
        if failure:
            raise failure


def test_fault_that_never_fired_is_an_error() -> None:
    """The end of `with` raises `FaultNeverFiredError`, unless another error was raised before."""
    with pytest.raises(FaultNeverFiredError):
        arm(None)
    with pytest.raises(LookupError, match="first"):
        arm(LookupError("first"))


def test_fault_is_disarmed_in_the_thread() -> None:
    """A test in another thread can disarm and clear faults, also `refuse` and those of notifications."""
    with ThreadedSandbox() as sandbox:
        fault = sandbox.faults.refuse()
        seen = [refuses(sandbox.url)]
        fault.disarm()
        seen.append(refuses(sandbox.url))
        sandbox.faults.refuse()
        seen.append(refuses(sandbox.url))
        sandbox.faults.clear()
        drop = sandbox.faults.notifications.drop("payment")
        armed = sandbox.faults.armed()
        for _ in range(2):
            drop.disarm()

        assert [True, False, True, False] == [*seen, refuses(sandbox.url)]
        assert ([drop], []) == (armed, sandbox.faults.armed())
