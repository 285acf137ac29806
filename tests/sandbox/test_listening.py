"""Where the sandbox may listen: on this machine alone."""

import asyncio
import gc
import socket
import warnings

import pytest

from payasync.errors import ConfigurationError
from payasync.sandbox import Sandbox
from payasync.sandbox.server import listen, loopback, url_of


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("127.8.9.1", "127.8.9.1"), ("localhost", "127.0.0.1"), ("::1", "::1")],
)
def test_loopback_is_taken(host: str, address: str) -> None:
    """The machine's own addresses are taken; `localhost` is 127.0.0.1, whatever a resolver says."""
    assert address == loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",  # noqa: S104 - it must be refused
        "::",
        "",
        "192.168.1.1",
        "example.com",
        "localhost.example",
        "LOCALHOST",
        "::ffff:127.0.0.1",
        "::1%lo",
        "0:0:0:0:0:0:0:1",
        "127.1",
        "[::1]",
        "127.0.0.1 ",
        None,
        2130706433,
        b"\x7f\x00\x00\x01",
    ],
)
def test_all_else_is_refused(host: object) -> None:
    """What others could reach, and what is written so that one must think about it, is refused by name."""
    with pytest.raises(ConfigurationError, match="host must be this machine alone") as refused:
        loopback(host)  # type: ignore[arg-type]

    assert repr(host) in str(refused.value)


@pytest.mark.parametrize("port", [-1, 65536, "80", 80.0, True, None])
def test_port_is_a_number_that_there_is(port: object) -> None:
    """A port is an integer from 0 to 65535."""
    with pytest.raises(ConfigurationError, match="port: cannot listen"):
        listen("127.0.0.1", port)  # type: ignore[arg-type]


def test_taken_port_is_said_to_be() -> None:
    """Where somebody listens already, the error says what to do."""
    with listen("127.0.0.1", 0) as first, pytest.raises(ConfigurationError, match="it is in use") as refused:
        listen("127.0.0.1", first.getsockname()[1])

    assert url_of(first) if first.fileno() >= 0 else "port" in str(refused.value)


async def test_sandbox_listens_on_another_loopback_address() -> None:
    """The URL, and all that leads to pages, follow the host that was given."""
    async with Sandbox(host="127.8.9.1") as sandbox, sandbox.session() as pay:
        order = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
        await sandbox.customer.authorize(order)
        paid = await pay.orders.query("T1")

    assert sandbox_host(order.redirect_url) == "127.8.9.1"
    assert "paid" == paid.state


def sandbox_host(url: str | None) -> str:
    """Return the host of a URL."""
    assert url
    return url.removeprefix("http://").partition(":")[0]


async def test_sandbox_listens_on_ipv6() -> None:
    """`::1` stands in brackets in URLs, and all works over it; a machine without it says so."""
    sandbox = Sandbox(host="::1")
    if not has_ipv6():
        with pytest.raises(ConfigurationError, match=r"cannot listen on \[::1\]"):
            await sandbox.start()
        return
    async with sandbox, sandbox.session() as pay:
        url = sandbox.url
        order = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
        await sandbox.customer.authorize(order)
        paid = await pay.orders.query("T1")

    assert url.startswith("http://[::1]:")
    assert "paid" == paid.state


def has_ipv6() -> bool:
    """Return whether this machine has `::1`."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("turns", range(5))
def test_closing_leaves_no_connection_open(turns: int) -> None:
    """A connection that comes in whichever turn of the loop before the end is closed with all others."""

    async def connected_and_closed() -> socket.socket:
        sandbox = await Sandbox().start()
        client = socket.create_connection(("127.0.0.1", int(sandbox.url.rpartition(":")[2])))
        for _ in range(turns):
            await asyncio.sleep(0)
        await sandbox.close()
        return client

    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always", ResourceWarning)
        client = asyncio.run(connected_and_closed())
        gc.collect()
    client.close()

    assert [] == [str(each.message) for each in left]
