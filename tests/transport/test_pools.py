"""Connection pools belong to one process and one event loop."""

import asyncio
import gc
import json
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import aiohttp
import pytest

from payasync import ConfigurationError, Session, SessionClosedError
from tests.foreign.certificates import authority, server_tls, trusting_tls
from tests.foreign.recorder import Recorder
from tests.sessions import connect, create

PROGRAM = Path(__file__).with_name("program.py")


def amounts(service: Recorder) -> list[int]:
    """Return the amount of each request, in the order of arrival."""
    return [json.loads(request.body)["amount"] for request in service.requests]


@pytest.mark.parametrize("scheme", ["http", pytest.param("https", marks=pytest.mark.long)])
def test_one_session_serves_loops_and_forks(scheme: str, tmp_path: Path) -> None:
    """A session used in several loops and forks delivers each call once, and nothing warns."""
    trusted = tmp_path / "authority.pem"
    authority().cert_pem.write_to_path(str(trusted))
    tls = server_tls() if scheme == "https" else None
    arguments = [str(trusted)] if tls else []

    with Recorder(tls=tls) as service:
        command = [sys.executable, "-X", "dev", "-W", "error", str(PROGRAM), service.url, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (0, "") == (ended.returncode, errors(ended.stderr))
    assert [1, 2, 3, 4, 5, 6, 7, 8] == amounts(service)
    assert [1, 2, 3, 4, 5, 4, 6, 4] == [request.connection for request in service.requests]


def errors(output: str) -> str:
    """Return standard error without the debug mode's lines about slow steps."""
    return "\n".join(line for line in output.splitlines() if not line.startswith("Executing "))


def test_a_dead_loop_leaves_no_socket_open() -> None:
    """The sockets of a loop that was closed abruptly are closed; only asyncio warns of its transport."""
    for scheme in ["http", "https"]:
        server, client = (server_tls(), trusting_tls()) if scheme == "https" else (None, None)
        with Recorder(tls=server) as service, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pay = connect(service, tls=client)
            loop = asyncio.new_event_loop()
            loop.run_until_complete(create(pay, 1))
            loop.close()
            asyncio.run(create(pay, 2))
            service.wait_for_ends()
            gc.collect()

        assert [1, 2] == amounts(service)
        assert {"unclosed transport"} == {str(each.message).partition(" <")[0] for each in caught}


def test_two_living_loops_have_a_pool_each() -> None:
    """Loops in two threads share no connection, and closing the session closes both pools."""
    with Recorder() as service:
        pay = connect(service)
        first_paid, may_end = threading.Event(), threading.Event()

        def other_thread() -> None:
            async def pay_and_stay() -> None:
                await create(pay, 1)
                first_paid.set()
                await asyncio.to_thread(may_end.wait, 30)

            asyncio.run(pay_and_stay())

        thread = threading.Thread(target=other_thread)
        thread.start()
        first_paid.wait(30)

        async def pay_and_close() -> None:
            await create(pay, 2)
            await pay.aclose()

        asyncio.run(pay_and_close())
        service.wait_for_ends()
        running = thread.is_alive()
        may_end.set()
        thread.join(30)

    assert running
    assert [1, 2] == amounts(service)
    assert 2 == len(service.connections)


def test_closing_from_another_loop_ends_one_that_stands_still() -> None:
    """Closing a session also closes the connections of a loop that does not run."""
    with Recorder() as service, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # asyncio's word of the transport of the loop that stands
        pay = connect(service)
        still = asyncio.new_event_loop()
        still.run_until_complete(create(pay, 1))
        asyncio.run(pay.aclose())
        service.wait_for_ends()
        with pytest.raises(SessionClosedError):
            still.run_until_complete(create(pay, 2))
        still.close()
        gc.collect()

    assert 1 == len(service.requests)


def test_injected_session_belongs_to_one_loop() -> None:
    """An injected aiohttp session is refused in another loop, even after the first loop has ended."""
    with Recorder() as service:
        with asyncio.Runner() as home:

            async def first() -> tuple[aiohttp.ClientSession, Session]:
                http = aiohttp.ClientSession()
                return http, connect(service, http=http)

            http, pay = home.run(first())
            home.run(create(pay, 1))
            with pytest.raises(ConfigurationError, match="http belongs to one event loop"):
                asyncio.run(create(pay, 2))
            home.run(create(pay, 3))
            home.run(http.close())
        with pytest.raises(ConfigurationError, match="http belongs to one event loop"):
            asyncio.run(create(pay, 4))

    assert [1, 3] == amounts(service)


async def test_a_closed_guard_allows_a_new_pool() -> None:
    """If a loop ends its async generators and goes on, the next call opens a new pool."""
    async with Recorder() as service, connect(service) as pay:
        await create(pay, 1)
        await asyncio.get_running_loop().shutdown_asyncgens()
        with warnings.catch_warnings():
            # asyncio says that a generator began after the end of all: that is what this test is about.
            warnings.simplefilter("ignore", ResourceWarning)
            await create(pay, 2)

    assert [1, 2] == amounts(service)


async def test_writes_do_not_share_connections_with_reads() -> None:
    """Writes and reads use separate pools."""
    async with Recorder() as service, connect(service) as pay:
        await create(pay)
        await pay.request("GET", "/bill", read=True)
        await create(pay)

    assert [1, 2, 1] == [request.connection for request in service.requests]


@pytest.mark.parametrize(
    ("read", "idle", "reused"), [(False, 1.9, True), (False, 2.1, False), (True, 14.9, True), (True, 15.1, False)]
)
async def test_idle_connection_is_reused_for_a_while(
    *, read: bool, idle: float, reused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write reuses a connection for 2 idle seconds, before the service may close it; a read for 15."""
    now = 1000.0
    monkeypatch.setattr("aiohttp.connector.monotonic", lambda: now)
    async with Recorder() as service, connect(service) as pay:
        await pay.request("POST", "/bill", read=read)
        now += idle
        await pay.request("POST", "/bill", read=read)

    assert [1, 1 if reused else 2] == [request.connection for request in service.requests]
