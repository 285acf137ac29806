"""A sandbox in a thread: the same from a test that blocks, and from any loop that awaits."""

import asyncio
import errno
import socket
import threading
from collections.abc import Callable
from typing import Final

import pytest
from yarl import URL

from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.sandbox import PROFILE, ThreadedSandbox
from payasync.sandbox.faults.armed_faults import Fault, FaultNeverFiredError

THREAD = "payasync sandbox"


def threads() -> list[str]:
    """Return the names of the sandboxes' threads."""
    return [each.name for each in threading.enumerate() if each.name == THREAD]


def test_blocks_without_a_loop() -> None:
    """What is a coroutine in `Sandbox` is done when the call returns."""
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


def test_session_is_used_from_a_test_that_blocks() -> None:
    """`call` waits for any coroutine function in the sandbox's own loop."""
    with ThreadedSandbox() as sandbox:
        pay = sandbox.session()
        order = sandbox.call(pay.orders.place, total_amt=450, currency="CAD", out_trade_no="T1")
        sandbox.call(pay.aclose)

    assert "pending" == order.state


def test_has_what_a_sandbox_has() -> None:
    """Its properties are the sandbox's own."""
    with ThreadedSandbox(PROFILE, clock="frozen") as sandbox:
        before = sandbox.clock.now()
        sandbox.clock.advance(days=31)

        assert 31 == (sandbox.clock.now() - before).days
        assert sandbox.url.startswith("http://127.0.0.1:")
        assert "SANDBOX" == sandbox.credentials.merchant_id
        assert PROFILE is sandbox.profile
        assert {"url", "customer", "settle", "call", "faults"} <= set(dir(sandbox))
        assert "authorize" in dir(sandbox.customer)


def test_errors_cross_as_they_are() -> None:
    """What a call raises in the thread, its caller gets, with all that it knows."""
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
    """A call that waits in the sandbox while it is closed does not wait for ever."""
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


def test_nothing_is_there_before_the_start_or_after_the_end() -> None:
    """What needs a sandbox that runs says so; it is not started twice."""
    sandbox = ThreadedSandbox()
    with pytest.raises(ConfigurationError, match="does not run"):
        sandbox.settle()
    with sandbox, pytest.raises(ConfigurationError, match="runs already"):
        sandbox.start()
    with pytest.raises(ConfigurationError, match="does not run"):
        sandbox.customer.authorize("T1")


def test_what_there_is_not_is_an_attribute_error() -> None:
    """A name that no sandbox has is refused as Python does it."""
    with ThreadedSandbox() as sandbox:
        with pytest.raises(AttributeError, match="colour"):
            _ = sandbox.colour
        with pytest.raises(AttributeError, match="colour"):
            _ = sandbox.customer.colour


def test_fault_that_never_fired_is_an_error() -> None:
    """The end of `with` raises it, as that of `async with` does."""
    with pytest.raises(FaultNeverFiredError), ThreadedSandbox() as sandbox:
        sandbox.faults.latency("orders.place", seconds=1)


def refused(sandbox: ThreadedSandbox) -> bool:
    """Return whether the kernel refuses a connection."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", int(sandbox.url.rpartition(":")[2]))) == errno.ECONNREFUSED


END: Final = {
    "disarm": lambda _, fault: fault.disarm(),
    "clear": lambda sandbox, _: sandbox.faults.clear(),
}


@pytest.mark.parametrize("end", END.values(), ids=END)
def test_fault_is_ended_in_the_thread(end: Callable[[ThreadedSandbox, Fault], None]) -> None:
    """A fault lives where the sandbox does: ended from here, the door is open again."""
    with ThreadedSandbox() as sandbox:
        fault = sandbox.faults.refuse()
        before = refused(sandbox)
        end(sandbox, fault)

        assert (True, False) == (before, refused(sandbox))
        assert "pending" == sandbox.ledger.order_state(sandbox.given.pending_order())


def test_faults_of_notifications_are_armed_in_the_thread() -> None:
    """They are where the sandbox is, and can be read from here, as a text, too."""
    with ThreadedSandbox() as sandbox:
        fault = sandbox.faults.notifications.drop("payment")
        armed = sandbox.faults.armed()
        fault.disarm()

        assert [fault] == armed
        assert "notification.drop on payment" == str(fault)
        assert [] == sandbox.faults.armed()


def test_faults_outlive_the_thread() -> None:
    """They are armed before the start, and read after the end, as a sandbox's are."""
    sandbox = ThreadedSandbox()
    fault = sandbox.faults.latency("orders.place", seconds=1)
    with sandbox:
        during = sandbox.faults.armed()
        fault.disarm()

    assert ([fault], 0, False) == (during, fault.fired, fault.armed)
    sandbox.faults.check()


def test_timeline_outlives_the_thread() -> None:
    """After the end the timeline can still be read; before the first start it cannot."""
    sandbox = ThreadedSandbox()
    with pytest.raises(ConfigurationError, match="does not run"):
        sandbox.timeline()
    with sandbox:
        sandbox.given.pending_order(out_trade_no="T7")
        during = sandbox.timeline()

    assert during == sandbox.timeline()
    assert "T7" in "".join(during)


def test_error_of_the_test_goes_before_faults() -> None:
    """Where the test fails already, a fault that never fired does not hide why."""
    with pytest.raises(LookupError, match="first"), ThreadedSandbox() as sandbox:
        fail(sandbox)


def fail(sandbox: ThreadedSandbox) -> None:
    """Arm a fault, and fail before it fires."""
    sandbox.faults.latency("orders.place", seconds=1)
    raise LookupError("first")


def test_receiver_is_told_of_what_happens() -> None:
    """A receiver beside it verifies what the sandbox sends, and hands it out."""
    with ThreadedSandbox() as sandbox, sandbox.receiver() as receiver:
        order = sandbox.given.paid_order(notify_url=receiver.url)
        received = receiver.next()

    assert (order, "") == (received.document["data"]["outTradeNo"], received.wrong)


def test_receiver_ends_with_its_sandbox() -> None:
    """A receiver is closed with its sandbox."""
    with ThreadedSandbox() as sandbox, sandbox.receiver() as receiver:
        address = ("127.0.0.1", URL(receiver.url).port)
        sandbox.close()

        assert not sandbox.running
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)


def test_account_address_can_be_changed() -> None:
    """What has no `notifyUrl` goes where the account says, from the moment that it says so."""
    with ThreadedSandbox() as sandbox, sandbox.receiver() as receiver:
        sandbox.given.paid_order(out_trade_no="T1")
        sandbox.webhook_url = receiver.url
        sandbox.given.paid_order(out_trade_no="T2")
        sandbox.settle()
        told = [each.document["data"]["outTradeNo"] for each in receiver.received]

        assert receiver.url == sandbox.webhook_url
    assert ["T2"] == told
