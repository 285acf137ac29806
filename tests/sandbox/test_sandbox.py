"""The lifetime of a sandbox, and its parts."""

import asyncio
import inspect
import re
import socket
from pathlib import Path
from typing import Any, Final

import pytest

from payasync import Credentials, Session
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.sandbox import Sandbox
from tests.sandbox.foreign import Foreign


@pytest.mark.parametrize("name", ["url", "customer", "ledger", "given"])
def test_parts_need_a_running_sandbox(name: str) -> None:
    """Before the start, each part raises `ConfigurationError` with its name."""
    with pytest.raises(ConfigurationError, match=f"does not run: {name} "):
        getattr(Sandbox(), name)


async def test_sandbox_that_was_closed() -> None:
    """A closed sandbox refuses to work, and can be started again; closing again does nothing."""
    sandbox = Sandbox()
    await sandbox.start()
    with pytest.raises(ConfigurationError, match="runs already"):
        await sandbox.start()
    await sandbox.close()
    await sandbox.close()

    with pytest.raises(ConfigurationError, match="does not run"):
        sandbox.session()
    with pytest.raises(ConfigurationError, match="does not run"):
        await sandbox.settle()
    async with sandbox:
        assert 0 == sandbox.ledger.orders()


async def test_closing_leaves_nothing_behind(foreign: Foreign) -> None:
    """After `close` no task runs, and the port is closed."""
    before = asyncio.all_tasks()
    async with Sandbox(webhook_url="http://127.0.0.1:1/") as sandbox:
        url = sandbox.url
        await sandbox.customer.authorize(await sandbox.given.pending_order())
    port = int(url.rpartition(":")[2])

    assert before == asyncio.all_tasks()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    assert foreign.sandbox.url != url


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
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=r"it is in use: .*, or choose another with --port or port=; 0 "):
            await Sandbox(port=port).start()
    async with Sandbox(port=port) as sandbox:
        assert f"http://127.0.0.1:{port}" == sandbox.url


async def test_database_is_a_path(tmp_path: Path) -> None:
    """`db` may be a `Path` or a `str`, and the file keeps the keys; any other or unusable value is refused."""
    nowhere: Any = 5
    with pytest.raises(ConfigurationError, match="does not run: credentials"):
        _ = Sandbox(db=tmp_path / "sandbox.db").credentials
    async with Sandbox(db=tmp_path / "sandbox.db") as sandbox:
        number, keys = await sandbox.given.paid_order(), sandbox.credentials
    async with Sandbox(db=str(tmp_path / "sandbox.db")) as sandbox:
        assert (450, keys) == (sandbox.ledger.paid(number), sandbox.credentials)
    with pytest.raises(ConfigurationError, match="db must be the path of a file, or ':memory:', not 5") as refused:
        Sandbox(db=nowhere)
    with pytest.raises(ConfigurationError, match="db: cannot use"):
        await Sandbox(db=tmp_path).start()

    assert "db" == refused.value.field


@pytest.mark.parametrize("profile", ["service.toml", None])
def test_profile_must_be_a_profile(profile: Any) -> None:
    """A file's name is not a profile; the error says how to load one."""
    with pytest.raises(ConfigurationError, match=r"profile must be a Profile, such as Profile\.from_file gives"):
        Sandbox(profile)


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
    """`given` makes orders without a request, and refuses a number in use."""
    pending = await sandbox.given.pending_order(7, "USD", out_trade_no="T1")
    paid = await sandbox.given.paid_order(total_amt=9)

    assert ("T1", "pending", 0) == (pending, sandbox.ledger.order_state("T1"), sandbox.ledger.paid("T1"))
    assert ("paid", 9, 2, 0) == (
        sandbox.ledger.order_state(paid),
        sandbox.ledger.paid(paid),
        sandbox.ledger.orders(),
        len(sandbox.ledger.calls()),
    )
    with pytest.raises(InvalidArgumentError, match="out_trade_no"):
        await sandbox.given.paid_order(out_trade_no="T1")


ORDERED: Final[list[tuple[str, object]]] = [
    ("total_amt", 1.5),
    ("currency", "toolong"),
    ("out_trade_no", "b d!"),
    ("subject", 7),
    ("body", "x" * 5000),
    ("notify_url", "ftp://127.0.0.1/"),
    ("return_url", "javascript:alert(1)"),
    ("colour", "red"),
]
SUBSCRIBED: Final = [("frequency", "often"), ("amount", 0), ("start_date", "2027-01-31"), ("customer", [])]


@pytest.mark.parametrize(
    ("make", "field", "value"),
    [
        *((make, *given) for make in ("pending_order", "paid_order") for given in ORDERED),
        *(("subscription", *given) for given in SUBSCRIBED),
    ],
)
async def test_arguments_of_given_are_checked(sandbox: Sandbox, make: str, field: str, value: object) -> None:
    """`given` refuses an argument that no request could have by its name, and makes nothing."""
    with pytest.raises(InvalidArgumentError, match=f"{field} must be ") as refused:
        await getattr(sandbox.given, make)(**{field: value})

    assert (field, value, 0) == (refused.value.field, refused.value.value, sandbox.ledger.orders())


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "http://", "", 7])
def test_webhook_must_be_a_url(url: object) -> None:
    """An invalid webhook address is refused before the start and on a change; the old one then stays."""
    sandbox = Sandbox(webhook_url="http://127.0.0.1:1/")

    with pytest.raises(ConfigurationError, match="webhook_url must be an absolute http or https URL") as refused:
        Sandbox(webhook_url=url)  # type: ignore[arg-type] # that is the mistake
    with pytest.raises(ConfigurationError, match="webhook_url must be an absolute http or https URL"):
        sandbox.webhook_url = url  # type: ignore[assignment] # that is the mistake
    assert ("webhook_url", "http://127.0.0.1:1/") == (refused.value.field, sandbox.webhook_url)


async def test_ledger_of_unknown_numbers(sandbox: Sandbox) -> None:
    """For an unknown order, the paid amount is 0, and its state raises `InvalidArgumentError`."""
    assert (0, 0) == (sandbox.ledger.paid("T1"), sandbox.ledger.refunded("T1"))
    with pytest.raises(InvalidArgumentError, match="out_trade_no"):
        sandbox.ledger.order_state("T1")
    with pytest.raises(InvalidArgumentError, match="subscription_id"):
        sandbox.ledger.subscription_state("S1")
