"""A sandbox in a thread, for tests that block and tests in any event loop. `test_pytest_plugin` has more."""

import asyncio
import socket
import threading

import pytest
from yarl import URL

from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.sandbox import PROFILE, ThreadedSandbox
from payasync.sandbox.faults.armed_faults import FaultNeverFiredError
from tests.sandbox.foreign import refuses

THREAD = "payasync sandbox"


def threads() -> list[str]:
    """Return the names of the threads of sandboxes."""
    return [each.name for each in threading.enumerate() if each.name == THREAD]


def test_blocks_without_a_loop() -> None:
    """Without a running loop, a coroutine method of `Sandbox` blocks until it is done."""
    with ThreadedSandbox() as sandbox:
        order = sandbox.given.pending_order(total_amt=450, return_url="http://127.0.0.1/thanks")
        back = sandbox.customer.authorize(order)
        sandbox.settle()

        assert "http://127.0.0.1/thanks" == back
        assert 450 == sandbox.ledger.paid(order)


async def test_is_awaited_in_a_loop() -> None:
    """In a running loop, coroutine methods are awaited, and other tasks go on."""
    went_on = asyncio.Event()
    with ThreadedSandbox() as sandbox:
        asyncio.get_running_loop().call_soon(went_on.set)
        order = await sandbox.given.pending_order()
        await sandbox.customer.authorize(order)
        await sandbox.settle()

        assert "paid" == sandbox.ledger.order_state(order)
    assert went_on.is_set()


def test_has_what_a_sandbox_has() -> None:
    """`ThreadedSandbox` has the attributes and methods of `Sandbox` and its parts."""
    with ThreadedSandbox(PROFILE, clock="frozen") as sandbox:
        before = sandbox.clock.now()
        sandbox.clock.advance(days=31)

        assert 31 == (sandbox.clock.now() - before).days
        assert sandbox.url.startswith("http://127.0.0.1:")
        assert "SANDBOX" == sandbox.credentials.merchant_id
        assert PROFILE is sandbox.profile
        assert {"url", "customer", "settle", "call", "faults"} <= set(dir(sandbox))
        assert "authorize" in dir(sandbox.customer)


def test_errors_reach_the_caller() -> None:
    """An error in the thread is raised in the caller, with its attributes."""
    with ThreadedSandbox() as sandbox, pytest.raises(InvalidArgumentError, match="out_trade_no") as refused:
        sandbox.ledger.order_state("T404")

    assert "T404" == refused.value.value


def test_start_that_fails_says_why() -> None:
    """If the port is in use, `start` raises the error, and no thread stays."""
    before = threads()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        sandbox = ThreadedSandbox(port=taken.getsockname()[1])
        with pytest.raises(ConfigurationError, match="it is in use"):
            sandbox.start()

    assert before == threads()


def test_close_ends_the_thread() -> None:
    """After `close` the port is closed and the thread has ended; closing again does nothing."""
    before = threads()
    sandbox = ThreadedSandbox().start()
    url = sandbox.url
    during = threads()
    sandbox.close()
    sandbox.close()

    assert [*before, THREAD] == during
    assert before == threads()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))


def test_closing_cancels_what_is_awaited() -> None:
    """If the sandbox is closed, a call that waits in its thread ends with `CancelledError`."""
    sandbox, waits = ThreadedSandbox().start(), threading.Event()
    ends: list[BaseException] = []

    async def forever() -> None:
        waits.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            sandbox.call(forever)
        except BaseException as error:  # noqa: BLE001 - it is what the test is about
            ends.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    waits.wait(30)
    sandbox.close()
    caller.join(30)

    assert ["CancelledError"] == [type(each).__name__ for each in ends]


def test_works_between_start_and_close() -> None:
    """Before the start and after the end, calls raise `ConfigurationError`, and so does a second start."""
    sandbox = ThreadedSandbox()
    with pytest.raises(ConfigurationError, match="does not run"):
        sandbox.settle()
    with sandbox, pytest.raises(ConfigurationError, match="runs already"):
        sandbox.start()
    with pytest.raises(ConfigurationError, match="does not run"):
        sandbox.customer.authorize("T1")


def test_unknown_names() -> None:
    """An unknown name raises `AttributeError`."""
    with ThreadedSandbox() as sandbox:
        with pytest.raises(AttributeError, match="colour"):
            _ = sandbox.colour
        with pytest.raises(AttributeError, match="colour"):
            _ = sandbox.customer.colour


def test_fault_that_never_fired_is_an_error() -> None:
    """The end of `with` raises `FaultNeverFiredError`, unless another error was raised before."""
    with pytest.raises(FaultNeverFiredError), ThreadedSandbox() as sandbox:
        sandbox.faults.latency("orders.place", seconds=1)
    with pytest.raises(LookupError, match="first"), ThreadedSandbox() as sandbox:
        fail(sandbox)


def fail(sandbox: ThreadedSandbox) -> None:
    """Arm a fault, and fail before it fires."""
    sandbox.faults.latency("orders.place", seconds=1)
    raise LookupError("first")


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
        drop.disarm()

        assert [True, False, True, False] == [*seen, refuses(sandbox.url)]
        assert ([drop], []) == (armed, sandbox.faults.armed())


def test_faults_and_timeline_outlive_the_thread() -> None:
    """Faults can be armed before the start and read after the end. The timeline can be read after the end."""
    sandbox = ThreadedSandbox()
    fault = sandbox.faults.latency("orders.place", seconds=1)
    with pytest.raises(ConfigurationError, match="does not run"):
        sandbox.timeline()
    with sandbox:
        sandbox.given.pending_order(out_trade_no="T7")
        during, armed = sandbox.timeline(), sandbox.faults.armed()
        fault.disarm()

    assert ([fault], 0, False) == (armed, fault.fired, fault.armed)
    assert during == sandbox.timeline()
    assert "T7" in "".join(during)
    sandbox.faults.check()


def test_receiver_ends_with_its_sandbox() -> None:
    """A receiver is closed with its sandbox."""
    with ThreadedSandbox() as sandbox, sandbox.receiver() as receiver:
        address = ("127.0.0.1", URL(receiver.url).port)
        sandbox.close()

        assert not sandbox.running
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
