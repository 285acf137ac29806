"""A sandbox that is used in another event loop than its own, as by a fixture of a whole session of pytest."""

import asyncio
import gc
import inspect
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen

from payasync import ConfigurationError, QueryOrder, Refused, Session
from payasync.journal import SqliteJournal
from payasync.sandbox import Sandbox
from payasync.sandbox.clock import Clock
from payasync.sandbox.controls import Customer
from payasync.transport.pools import SANDBOXES


@frozen
class Shared:
    """A running sandbox, and what its own loop took from it."""

    sandbox: Sandbox
    session: Session
    own_session: Session
    customer: Customer
    clock: Clock


async def share(host: str = "127.0.0.1") -> Shared:
    """Start a sandbox with a pending order."""
    sandbox = await Sandbox(host=host, clock="frozen").start()
    await sandbox.given.pending_order(out_trade_no="T1")
    own = Session(sandbox.url, credentials=sandbox.credentials, profile=sandbox.profile)
    return Shared(sandbox, sandbox.session(), own, sandbox.customer, sandbox.clock)


@pytest.fixture
def home() -> Iterator[asyncio.Runner]:
    """The loop of the sandbox. It does not run while another one does."""
    with warnings.catch_warnings(), asyncio.Runner() as runner:
        warnings.simplefilter("ignore", ResourceWarning)  # a sandbox whose loop has ended cannot be closed
        yield runner
        runner.close()
        gc.collect()
        for url in [url for url, loop in SANDBOXES.items() if loop.is_closed()]:
            SANDBOXES.pop(url, None)  # the next test's server may get the port


async def query_many(session: Session) -> None:
    """Send a query by `bulk`, and raise the error of its result."""
    async for result in session.bulk([QueryOrder(out_trade_no="T1")]):
        assert isinstance(result, Refused)
        raise result.error


USES: Final[list[Callable[[Shared], Any]]] = [
    *(attrgetter(f"sandbox.{name}") for name in ("url", "ledger", "bank", "given", "customer", "clock")),
    *(lambda it, name=name: getattr(it.sandbox, name)() for name in ("session", "timeline", "receiver")),
    *(lambda it, name=name: getattr(it.sandbox, name)() for name in ("settle", "start", "close")),
    lambda it: it.sandbox.resend("N1"),
    lambda it: it.sandbox.faults.refuse(),
    # What its own loop got from it.
    lambda it: it.customer.authorize("T1"),
    lambda it: it.clock.advance(days=1),
    lambda it: it.session.orders.query("T1"),
    lambda it: it.session.orders.close("T1"),
    lambda it: it.own_session.orders.query("T1"),
    lambda it: query_many(it.session),
]


@pytest.mark.parametrize("ended", [False, True], ids=["standing", "ended"])
def test_other_loop(home: asyncio.Runner, *, ended: bool) -> None:
    """In another loop than its own, each part raises an error that names `ThreadedSandbox`, and sends nothing.

    If the loop of a sandbox has ended, its parts raise the error also while no loop runs.
    """
    shared = home.run(share())
    if ended:
        home.close()
        with pytest.raises(ConfigurationError, match="ThreadedSandbox"):
            shared.sandbox.session()

    async def elsewhere(use: Callable[[Shared], Any]) -> None:
        async with asyncio.timeout(10):
            result = use(shared)
            if inspect.isawaitable(result):
                await result

    for use in USES:
        with pytest.raises(ConfigurationError, match=r"Use payasync\.sandbox\.ThreadedSandbox") as caught:
            asyncio.run(elsewhere(use))
        assert caught.value.sent in {None, False}
    if not ended:
        assert ("pending", 0) == home.run(look_and_close(shared.sandbox))


async def look_and_close(sandbox: Sandbox) -> tuple[str, int]:
    """Return the state of the order and the number of calls, and close the sandbox."""
    found = sandbox.ledger.order_state("T1"), len(sandbox.ledger.calls())
    await sandbox.close()
    return found


def test_write_in_another_loop_is_not_in_doubt(home: asyncio.Runner, tmp_path: Path) -> None:
    """A journal records a write in another loop as rejected, and the number can be used again in the sandbox's loop."""
    shared = home.run(share())
    journal = SqliteJournal(tmp_path / "pay.db")
    pay = shared.sandbox.session(journal=journal)

    async def refused() -> list[str]:
        with pytest.raises(ConfigurationError):
            await pay.orders.close("T1")
        return [each.state for each in await journal.list()]

    states = asyncio.run(refused())
    closed = home.run(pay.orders.close("T1"))
    home.run(journal.aclose())

    assert ["rejected"] == states
    assert "closed" == closed.state


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_own_loop_between_its_runs(home: asyncio.Runner, host: str) -> None:
    """While no loop runs, the sandbox can be read. In its own loop, all works again, also after a use in another.

    A `refuse` that is disarmed while no loop runs lets the sandbox listen again as soon as its loop runs.
    """
    shared = home.run(share(host))
    pay = shared.sandbox.session()
    with pytest.raises(ConfigurationError):
        asyncio.run(shared.own_session.orders.query("T1"))

    async def refuse() -> None:
        shared.sandbox.faults.refuse()

    assert "pending" == shared.sandbox.ledger.order_state("T1")
    assert "pending" == home.run(pay.orders.query("T1")).state
    home.run(refuse())
    shared.sandbox.faults.clear()
    assert "pending" == home.run(pay.orders.query("T1")).state
    assert ("pending", 2) == home.run(look_and_close(shared.sandbox))


FORKED: Final = """
import asyncio, os
from payasync.sandbox import Sandbox
home = asyncio.Runner()
sandbox = home.run(Sandbox().start())
pay = sandbox.session()
child = os.fork()
if not child:
    asyncio.run(pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1"))
    os._exit(0)
code = home.run(asyncio.to_thread(os.waitpid, child, 0))[1]
print(code, sandbox.ledger.order_state("T1"))
home.run(sandbox.close())
"""


def test_child_uses_the_sandbox_of_its_parent() -> None:
    """A forked child may use a session of its parent's sandbox: the parent's loop may run although no loop did."""
    ended = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=False)

    assert ("0 pending\n", "") == (ended.stdout, ended.stderr)
