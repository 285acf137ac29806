"""Host names are looked up in threads of payasync, and again after a connection failed."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pytest

from payasync import NotSentError, RetryPolicy
from tests.foreign.recorder import HOST, Recorder, answer
from tests.sessions import ONE_TRY, connect, create

NOWHERE: Final = "127.0.0.2"
"""An address at which nothing listens."""
CLOSING: Final = answer(200, b"{}", ("Connection", "close"))
"""The next request needs a new connection."""
session = partial(connect, retry=RetryPolicy(attempts=2, base_delay=0))


@pytest.fixture(name="names")
def make_names(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[object]]:
    """Return a function that lets each lookup find the next of some addresses, and returns the names that are asked."""
    look_up = socket.getaddrinfo

    def answered(*addresses: str) -> list[object]:
        asked: list[object] = []

        def found(host: object, *given: Any, **named: Any) -> Any:
            asked.append(host)
            return look_up(addresses[min(len(asked), len(addresses)) - 1], *given, **named)

        monkeypatch.setattr(socket, "getaddrinfo", found)
        return asked

    return answered


def named(service: Recorder) -> str:
    """Return the address of a service with a host name."""
    return service.url.replace(HOST, "localhost")


async def test_a_name_is_looked_up_again_after_a_refused_connection(names: Callable[..., list[object]]) -> None:
    """After a connection was refused, the next attempt looks the name up again."""
    asked = names(NOWHERE, HOST)
    async with Recorder() as service, session(named(service)) as pay:
        response = await create(pay)

    assert (2, 1) == (response.attempts, len(service.requests))
    assert ["localhost"] * 2 == asked


async def test_a_name_is_looked_up_again_after_a_failed_proxy(names: Callable[..., list[object]]) -> None:
    """After no connection to a proxy was made, the next attempt looks the proxy's name up again."""
    names(NOWHERE, HOST)
    async with Recorder([answer()]) as proxy, session("http://localhost:9", proxy=named(proxy)) as pay:
        response = await create(pay)

    assert 2 == response.attempts


async def test_addresses_are_reused_while_connections_succeed(names: Callable[..., list[object]]) -> None:
    """Calls at the same time, and later ones, share one lookup as long as no connection fails."""
    asked = names(HOST)
    async with Recorder([CLOSING] * 8) as service, session(named(service)) as pay:
        await asyncio.gather(*(create(pay) for _ in range(7)))
        await create(pay)

    assert (8, 1) == (len(service.connections), len(asked))


async def test_a_name_that_does_not_resolve(names: Callable[..., list[object]]) -> None:
    """A failed lookup is not kept: the next call looks the name up, and is sent."""
    names("no.such.name.invalid", HOST)
    async with Recorder() as service, session(named(service), retry=ONE_TRY) as pay:
        with pytest.raises(NotSentError, match="the host name does not resolve"):
            await create(pay)
        await create(pay)

    assert 1 == len(service.requests)


async def test_lookups_do_not_wait_for_the_programs_threads() -> None:
    """If `asyncio.to_thread` of the program has no free thread, a name is still looked up."""
    go = threading.Event()
    with ThreadPoolExecutor(1) as threads, Recorder() as service:
        asyncio.get_running_loop().set_default_executor(threads)
        busy = asyncio.ensure_future(asyncio.to_thread(go.wait, 30))
        try:
            async with session(named(service), retry=ONE_TRY) as pay:
                response = await create(pay)
        finally:
            go.set()
        await busy

    assert 200 == response.http_status


ENDS: Final = """
import asyncio, socket, threading
from payasync import Credentials, NotSentTimeoutError, Profile, RetryPolicy, Session, Timeouts
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()

async def main():
    keys = Credentials(merchant_id="M1", secret_key="sk_1")
    settings = {"timeouts": Timeouts(connect=0.1), "retry": RetryPolicy(attempts=1)}
    async with Session("https://pay.example", credentials=keys, profile=Profile(), **settings) as pay:
        try:
            await pay.payments.create(amount=1000, currency="USD", description="Invoice 42")
        except NotSentTimeoutError as error:
            print(error.reason)

asyncio.run(main())
"""


def test_a_lookup_that_hangs_does_not_hold_up_the_end() -> None:
    """A program ends although one of its lookups never does."""
    ended = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=20, check=False)

    assert (0, "no connection in time: Timeouts.connect is 0.1 s\n") == (ended.returncode, ended.stdout)
