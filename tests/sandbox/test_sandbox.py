"""The lifetime of a sandbox, and its parts."""

import asyncio
import inspect
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from payasync import Credentials, Session
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.sandbox import Sandbox
from tests.sandbox.foreign import NOON


async def test_sandbox_that_does_not_run() -> None:
    """A sandbox that does not run refuses to work, and can be started again; closing again does nothing."""
    sandbox = Sandbox()
    for name in ("url", "customer", "ledger", "given"):
        with pytest.raises(ConfigurationError, match=f"does not run: {name} "):
            getattr(sandbox, name)
    await sandbox.start()
    with pytest.raises(ConfigurationError, match="runs already"):
        await sandbox.start()
    for _ in range(2):
        await sandbox.close()
    with pytest.raises(ConfigurationError, match="does not run"):
        sandbox.session()
    with pytest.raises(ConfigurationError, match="does not run"):
        await sandbox.settle()
    async with sandbox:
        assert 0 == sandbox.ledger.orders()


async def test_closing_does_not_wait_for_a_receiver_that_hangs(tmp_path: Path) -> None:
    """`close` does not wait for a delivery in progress. With `db`, that delivery is due again at the next start."""
    connected = asyncio.Queue[asyncio.StreamWriter]()
    server = await asyncio.start_server(lambda _, writer: connected.put_nowait(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(10), server:
        async with Sandbox(db=tmp_path / "sandbox.db") as sandbox:
            await sandbox.given.paid_order(notify_url=f"http://127.0.0.1:{port}/")
            first = await connected.get()
        async with Sandbox(db=tmp_path / "sandbox.db") as sandbox:
            second = await connected.get()
            attempts = sandbox.ledger.deliveries()
        for hanging in (first, second):
            hanging.close()
            await hanging.wait_closed()

    assert [] == attempts


async def test_port_can_be_chosen() -> None:
    """A given port is used; a port in use is refused, and nothing stays open."""
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        with pytest.raises(ConfigurationError, match=r"it is in use: .*, or choose another with --port or port=; 0 "):
            await Sandbox(port=port).start()
    async with Sandbox(port=port) as sandbox:
        assert f"http://127.0.0.1:{port}" == sandbox.url


async def test_database_is_a_path(tmp_path: Path) -> None:
    """`db` may be a `Path` or a `str`, and the file keeps keys and timeline; a folder is refused."""
    with pytest.raises(ConfigurationError, match="does not run: credentials"):
        _ = Sandbox(db=tmp_path / "sandbox.db").credentials
    async with Sandbox(db=tmp_path / "sandbox.db", clock=NOON) as sandbox:
        number, keys, lines = await sandbox.given.paid_order(), sandbox.credentials, sandbox.timeline()
    async with Sandbox(db=str(tmp_path / "sandbox.db")) as sandbox:
        assert (450, keys, lines) == (sandbox.ledger.paid(number), sandbox.credentials, sandbox.timeline())
    with pytest.raises(ConfigurationError, match="db: cannot use"):
        await Sandbox(db=tmp_path).start()

    assert {"2027-01-31T12:00:00.000Z"} == {line.partition(" ")[0] for line in lines}


def test_credentials_are_new() -> None:
    """No two sandboxes share a key; the merchant's number is the same."""
    first, second = Sandbox().credentials, Sandbox().credentials
    keys = [
        *(key for one in (first, second) for key in (one.secret_key, one.signing_key, one.public_key)),
        *first.notification_keys,
        *second.notification_keys,
    ]

    assert "SANDBOX" == first.merchant_id == second.merchant_id
    assert 8 == len(set(keys))
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{32}", first.notification_keys[0].reveal())


async def test_session_takes_overrides(sandbox: Sandbox) -> None:
    """`session` takes any argument of `Session`, in place of the sandbox's own."""
    async with sandbox.session(credentials=Credentials("M2", signing_key="signing key of M2")) as pay:
        with pytest.raises(Exception, match="no such merchant"):
            await pay.orders.query("T1")

    names = list(inspect.signature(Session).parameters)[1:]
    assert "profile" in names
    for name in names:
        with pytest.raises(ConfigurationError) as refused:
            sandbox.session(**{name: object()})
        assert name == refused.value.field


async def test_given_orders(sandbox: Sandbox) -> None:
    """`given` makes orders without a request, and refuses a number in use. The ledger refuses unknown numbers.

    For an unknown order, the paid amount is 0.
    """
    given, ledger = sandbox.given, sandbox.ledger
    assert (0, 0) == (ledger.paid("T1"), ledger.refunded("T1"))
    for unknown, field in ((ledger.order_state, "out_trade_no"), (ledger.subscription_state, "subscription_id")):
        with pytest.raises(InvalidArgumentError, match=field):
            unknown("T1")
    pending, paid = await given.pending_order(7, "USD", out_trade_no="T1"), await given.paid_order(total_amt=9)

    assert ("T1", "pending", 0) == (pending, ledger.order_state("T1"), ledger.paid("T1"))
    assert ("paid", 9) == (ledger.order_state(paid), ledger.paid(paid))
    assert (2, 0) == (ledger.orders(), len(ledger.calls()))
    with pytest.raises(InvalidArgumentError, match="out_trade_no"):
        await given.paid_order(out_trade_no="T1")


async def test_arguments_of_given_are_checked(sandbox: Sandbox) -> None:
    """`given` refuses an argument that no request could have by its name, and makes nothing.

    An invalid webhook address is refused on a change, and the old one stays.
    """
    before, own = sandbox.webhook_url, sandbox.given
    order: dict[str, Any] = {
        "total_amt": 1.5,
        "currency": "toolong",
        "out_trade_no": "b d!",
        "subject": 7,
        "body": "x" * 5000,
        "notify_url": "ftp://127.0.0.1/",
        "return_url": "javascript:alert(1)",
        "colour": "red",
    }
    subscription: dict[str, Any] = {"frequency": "often", "amount": 0, "start_date": "2027-01-31", "customer": []}
    makes: list[tuple[Any, dict[str, Any]]] = [(own.pending_order, order), (own.paid_order, order)]
    for make, arguments in [*makes, (own.subscription, subscription)]:
        for field, value in arguments.items():
            with pytest.raises(InvalidArgumentError, match=f"{field} must be ") as refused:
                await make(**{field: value})

            assert (field, value) == (refused.value.field, refused.value.value)
    with pytest.raises(ConfigurationError, match="webhook_url must be an absolute http or https URL"):
        sandbox.webhook_url = "nonsense"
    assert (0, before) == (sandbox.ledger.orders(), sandbox.webhook_url)
