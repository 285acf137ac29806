"""Answers that nobody asked for, on a connection that is kept: they are never taken for the next call's."""

import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
import pytest

from payasync import Credentials, Event, NotSentError, Response, Retrying, RetryPolicy, Session, Unknown
from payasync.profile.sandbox_profile import PROFILE
from payasync.transport.request import OneShotBody
from tests.foreign.certificates import server_tls, trusting_tls
from tests.foreign.recorder import Answer, Recorder, answer
from tests.inside import idle, until

KEYS: Final = Credentials("M1", secret_key="sk_1", signing_key="signing key of M1")
FAST: Final = RetryPolicy(base_delay=0.001, max_delay=0.002)

CALLS: Final[dict[str, Callable[[Session, str], Awaitable[Response]]]] = {
    "refund": lambda pay, number: pay.refunds.create(
        out_trade_no="T1", out_refund_no=number, total_amt=2, refund_amt=1
    ),
    "payment": lambda pay, number: pay.payments.create(amount=1, currency="USD", description=number),
    "order query": lambda pay, number: pay.orders.query(number),
    "refund status": lambda pay, number: pay.refunds.status(number),
}


def said(who: str, status: int = 200, *headers: tuple[str, str]) -> Answer:
    """Return a success that says whose it is."""
    return answer(status, b'{"code":"SBX_OK","status":"SBX_PAID","for":"%s"}' % who.encode(), *headers)


STALE: Final = said("nobody").raw
CLOSING: Final = said("nobody", 408, ("Connection", "close")).raw

WRITE_AND_READ: Final = [
    pytest.param(ask, id=name, marks=[] if name in {"payment", "order query"} else pytest.mark.long)
    for name, ask in CALLS.items()
]
LENT: Final = [True, pytest.param(False, marks=pytest.mark.long)]

UNASKED: Final = {
    "a second answer": STALE,
    "two more answers": STALE * 2,
    "three more answers": STALE * 3,
    "a 408": said("nobody", 408).raw,
    "a 408, the last": CLOSING,
    "a 503": said("nobody", 503).raw,
    "a refusal": said("nobody", 400).raw,
    "the begin of one": STALE[:-5],
    "a head": STALE[: STALE.index(b"{")],
    "one without a body": b"HTTP/1.1 204 No Content\r\n\r\n",
    "one in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "one without an end": b"HTTP/1.1 200 OK\r\n\r\n{}",
    "nonsense": b"nonsense\r\n\r\n",
}


@pytest.mark.parametrize("own", LENT, ids=["own pool", "injected"])
@pytest.mark.parametrize("unasked", UNASKED.values(), ids=UNASKED)
@pytest.mark.parametrize("ask", WRITE_AND_READ)
async def test_answer_that_nobody_asked_for(
    ask: Callable[[Session, str], Awaitable[Response]],
    unasked: bytes,
    own: bool,  # noqa: FBT001 - pytest gives it by name
) -> None:
    """What came after the first answer was whole is none to the next call, which reaches the service elsewhere."""
    told: list[Event] = []
    async with AsyncExitStack() as stack:
        service = stack.enter_context(Recorder([said("first")], otherwise=said("second")))
        http = None if own else await stack.enter_async_context(aiohttp.ClientSession())
        settings: dict[str, Any] = {"credentials": KEYS, "profile": PROFILE, "retry": FAST, "on_event": told.append}
        pay = await stack.enter_async_context(Session(service.url, http=http, **settings))
        first = await ask(pay, "N1")
        (kept,) = idle(http or pay)
        service.connections[0].stream.sendall(unasked)
        await until(lambda: kept.should_close or not kept.is_connected())
        second = await ask(pay, "N2")
        third = await ask(pay, "N3")

    assert ["first", "second", "second"] == [each["for"] for each in (first, second, third)]
    assert [1, 2, 2] == [request.connection for request in service.requests]
    assert [b"N1" in service.requests[0].raw, b"N2" in service.requests[1].raw] == [True, True]
    assert (1, second.attempts - 1) == (third.attempts, sum(isinstance(event, Retrying) for event in told))
    assert not second.recovered
    assert not [event for event in told if isinstance(event, Unknown)]


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("unasked", [STALE, b""], ids=["an answer", "the end"])
@pytest.mark.parametrize("ask", WRITE_AND_READ)
async def test_what_the_loop_has_not_read_yet(
    ask: Callable[[Session, str], Awaitable[Response]],
    unasked: bytes,
    secure: bool,  # noqa: FBT001 - pytest gives it by name
) -> None:
    """What came in the very step before the call is none to it either, nor is a request lost to a closed connection."""
    told: list[Event] = []
    tls = server_tls() if secure else None
    with Recorder([said("first")], otherwise=said("second"), tls=tls) as service:
        settings: dict[str, Any] = {"credentials": KEYS, "profile": PROFILE, "retry": FAST, "on_event": told.append}
        async with Session(service.url, tls=trusting_tls() if secure else None, **settings) as pay:
            await ask(pay, "N1")
            await ask(pay, "N2")  # over TLS, tickets of the session have been read by now
            kept = service.connections[0]
            kept.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # it leaves before the call, not with it
            kept.stream.sendall(unasked) if unasked else kept.end()
            third = await ask(pay, "N3")

    assert "second" == third["for"]
    assert sum(isinstance(event, Retrying) for event in told) == third.attempts - 1
    assert not unasked or third.attempts == 2
    assert [1, 1, 2] == [request.connection for request in service.requests]
    assert not [event for event in told if isinstance(event, Unknown)]


@pytest.mark.parametrize("own", [True, False], ids=["own pool", "injected"])
@pytest.mark.parametrize("ask", WRITE_AND_READ)
async def test_late_408_and_a_close(
    ask: Callable[[Session, str], Awaitable[Response]],
    own: bool,  # noqa: FBT001 - pytest gives it by name
) -> None:
    """Of a service that ends an idle connection with a word, the word is none to the next call."""
    async with AsyncExitStack() as stack:
        service = stack.enter_context(Recorder([said("first")], otherwise=said("second")))
        http = None if own else await stack.enter_async_context(aiohttp.ClientSession())
        settings: dict[str, Any] = {"credentials": KEYS, "profile": PROFILE, "retry": FAST}
        pay = await stack.enter_async_context(Session(service.url, http=http, **settings))
        await ask(pay, "N1")
        (kept,) = idle(http or pay)
        service.connections[0].stream.sendall(CLOSING)
        service.connections[0].end()
        await until(lambda: not kept.is_connected())
        second = await ask(pay, "N2")

    assert ("second", 1) == (second["for"], second.attempts)
    assert [1, 2] == [request.connection for request in service.requests]


@pytest.mark.parametrize("ask", WRITE_AND_READ)
async def test_answer_that_nobody_asked_for_over_tls(ask: Callable[[Session, str], Awaitable[Response]]) -> None:
    """Nor is it where the connection is encrypted."""
    with Recorder([said("first")], otherwise=said("second"), tls=server_tls()) as service:
        settings: dict[str, Any] = {"credentials": KEYS, "profile": PROFILE, "retry": FAST, "tls": trusting_tls()}
        async with Session(service.url, **settings) as pay:
            await ask(pay, "N1")
            (kept,) = idle(pay)
            service.connections[0].stream.sendall(STALE)
            await until(lambda: kept.should_close)
            second = await ask(pay, "N2")

    assert ("second", 2) == (second["for"], second.attempts)
    assert [1, 2] == [request.connection for request in service.requests]


@pytest.mark.parametrize("ask", WRITE_AND_READ)
async def test_answer_twice_in_one_part(ask: Callable[[Session, str], Awaitable[Response]]) -> None:
    """Where the second stands right behind the first, it is left on its connection, too."""
    with Recorder([Answer(said("first").raw + STALE)], otherwise=said("second")) as service:
        async with Session(service.url, credentials=KEYS, profile=PROFILE, retry=FAST) as pay:
            first, second = await ask(pay, "N1"), await ask(pay, "N2")

    assert ("first", "second", 2) == (first["for"], second["for"], len(service.requests))


async def test_without_a_retry_it_was_not_sent() -> None:
    """A call that met such an answer left no byte: what may not be tried again says that it was not sent."""
    with Recorder([said("first")], otherwise=said("second")) as service:
        once = RetryPolicy(attempts=1)
        async with Session(service.url, credentials=KEYS, profile=PROFILE, retry=once) as pay:
            await CALLS["payment"](pay, "N1")
            (kept,) = idle(pay)
            service.connections[0].stream.sendall(STALE)
            await until(lambda: kept.should_close)
            with pytest.raises(NotSentError) as caught:
                await CALLS["payment"](pay, "N2")

    assert caught.value.sent is False
    assert 1 == len(service.requests)


async def test_body_does_not_begin_where_an_answer_stands() -> None:
    """Where a loop begins tasks at once, as from Python 3.12 on, the write comes before anybody reads the answer."""
    body = OneShotBody(b"{}")
    started: list[str] = []
    body.on_start = lambda: started.append("started")
    wire: Any = SimpleNamespace(protocol=SimpleNamespace(should_close=True), transport=None)
    with pytest.raises(ConnectionResetError, match="nobody asked for"):
        await body.write(wire)

    assert (False, []) == (body.begun, started)
