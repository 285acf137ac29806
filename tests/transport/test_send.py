"""One attempt over HTTP: how it ends, within which limits, and what a cancelled one leaves behind."""

import asyncio
import errno
import ssl
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from yarl import URL

from payasync import Call, Profile, Response, Session, Timeouts, errors
from payasync.endpoints import CREATE_PAYMENT, Operation, custom_operation
from payasync.errors import SessionClosedError
from payasync.profile.sandbox_profile import PROFILE
from payasync.transport.deadlines import NoFreeConnectionError
from payasync.transport.pools import PoolSettings
from payasync.transport.send import ResponseTooLargeError, Transport, attempt_error
from tests.foreign.recorder import SILENT, Answer, Recorder, answer
from tests.inside import Time, busy, turns, until, waiting
from tests.sessions import begin, connect, create

BILL = custom_operation("GET", "/bill", read=True)


@asynccontextmanager
async def transport(url: str, **settings: Any) -> AsyncGenerator[Transport]:
    """Yield a transport, and close it afterwards."""
    pools = PoolSettings(tls=None, max_connections=settings.pop("connections", 10), headers={})
    chosen: dict[str, Any] = {"proxy": None, "max_response_bytes": 1000} | settings
    made = Transport(URL(url), pools=pools, **chosen)
    try:
        yield made
    finally:
        await made.aclose()


def call(operation: Operation = CREATE_PAYMENT, **changes: Any) -> Call:
    """Return a call whose deadline is in 30 seconds."""
    deadline = asyncio.get_running_loop().time() + 30
    chosen: dict[str, Any] = {"profile": Profile(), "fields": {"a": 1}, "deadline": deadline} | changes
    return Call(operation=operation, **chosen)


async def test_what_is_cancelled_beside_another_call_begins_no_more() -> None:
    """Beside another call a request waits for the next turn of the loop, and if it is cancelled meanwhile, it ends."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    begun: list[tuple[bool, bool]] = []
    with Recorder(by_path={BILL.path: SILENT}, otherwise=answer(200, b"{}")) as service:
        async with transport(service.url) as way:
            held = asyncio.ensure_future(way.send(call(BILL)))
            await until(lambda: bool(service.requests))
            for steps in range(5):
                await way.send(call())
                attempt = call()
                sending = asyncio.ensure_future(way.send(attempt))
                await turns(steps)
                before = attempt.progress.begun
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                await turns(2)
                begun.append((before, attempt.progress.begun))
            held.cancel()
            await asyncio.gather(held, return_exceptions=True)

    assert [(False, False)] * 2 + [(True, True)] * 3 == begun
    assert [] == complaints


async def test_what_wakes_too_late_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the process is stopped before the write, and wakes after the deadline, nothing is sent."""
    loop, ahead = asyncio.get_running_loop(), [0.0]
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + sum(ahead))
    async with Recorder([answer(200, b"{}")]) as service, transport(service.url) as way:
        late = call()

        def stopped(_: object) -> bool:
            ahead.append(30)
            return False

        monkeypatch.setattr("payasync.transport.aiohttp_request.has_stray_bytes", stopped)
        with pytest.raises(errors.NotSentTimeoutError):
            await way.send(late)

    assert [] == service.requests
    assert not late.progress.begun


async def test_an_answer_in_many_parts_is_read_whole() -> None:
    """A response in many parts is read completely."""
    large = b"0123456789" * 400_000
    async with Recorder([answer(200, large)]) as service, transport(service.url, max_response_bytes=len(large)) as way:
        reply = await way.send(call())

    assert large == reply.body


@pytest.mark.parametrize(
    ("read", "words"),
    [(60, "the limit of the call, timeout= or Timeouts.total, is 30 s"), (20, "Timeouts.read is 20 s")],
)
async def test_reading_is_bounded(read: float, words: str) -> None:
    """`Timeouts.read` and the call's time bound the whole response, not each byte. The error says what was over."""
    time, drip = Time(), Answer(answer(200, b"x" * 900).raw, drip=0.01)
    async with Recorder([drip]) as service, transport(service.url) as way:
        sending = await begin(way.send(call(timeouts=Timeouts(total=30, read=read))), service)
        await time.pass_by(min(30, read))
        with pytest.raises(errors.NoAnswerTimeoutError) as caught:
            await asyncio.wait_for(sending, 15)

    assert f"no response in time: {words}" == caught.value.reason


async def test_a_call_that_waits_to_connect_when_the_session_closes_was_not_sent() -> None:
    """Closing ends a call that waits for a connection with `SessionClosedError`."""
    hold = threading.Event()
    with Recorder([Answer(answer().raw, after=hold)]) as service:
        async with transport(service.url, connections=1) as way:
            first = await begin(way.send(call()), service)
            second = asyncio.create_task(way.send(call()))
            await asyncio.sleep(0)
            await way.aclose()
            ends = await asyncio.gather(first, second, return_exceptions=True)
        hold.set()

    assert [errors.NoAnswerError, SessionClosedError] == [type(each) for each in ends]


ADDRESS = "https://pay.example"
KEY = ConnectionKey("pay.example", 443, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None)
UNTRUSTED = aiohttp.ClientConnectorCertificateError(KEY, ssl.SSLCertVerificationError("self-signed"))


def test_each_failure_is_said_in_a_few_words() -> None:
    """Only the start of the write tells "not sent" from "no response". The reason begins with a fixed phrase."""
    cases: list[tuple[Exception, str]] = [
        (UNTRUSTED, "the certificate of the service cannot be trusted"),
        (ssl.SSLCertVerificationError("expired"), "the certificate of the service cannot be trusted"),
        (aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "unknown")), "the host name does not resolve"),
        (aiohttp.ClientConnectorSSLError(KEY, OSError("cut")), "the TLS handshake failed"),
        (aiohttp.ClientPayloadError("Response payload is not completed"), "the response was cut short"),
        (aiohttp.ServerDisconnectedError(), "the connection was closed before the response"),
        (ResponseTooLargeError(), "the response is longer than max_response_bytes"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "any words"), "connection refused"),
        (ConnectionResetError(errno.ECONNRESET, "any words"), "connection reset by peer"),
        (RuntimeError("anything"), "the connection failed"),
        (aiohttp.ConnectionTimeoutError(), "no connection in time"),
        (TimeoutError(), "no connection in time"),
        (NoFreeConnectionError(), "no connection was free in time: raise max_connections"),
    ]
    for error, words in cases:
        unsent, lost = (attempt_error(error, ADDRESS, begun=begun) for begun in (False, True))
        late = isinstance(error, TimeoutError)

        assert (errors.NotSentTimeoutError if late else errors.NotSentError) is type(unsent)
        assert (errors.NoAnswerTimeoutError if late else errors.NoAnswerError) is type(lost)
        assert isinstance(unsent, errors.NotSentError)
        assert str(unsent.reason).startswith(words)
        assert ("certificate" in words) == unsent.permanent
        assert unsent.permanent == str(unsent).endswith("; repeating does not help")
        assert unsent.permanent != str(unsent).endswith("; repeating is harmless")


SUCH_AS: Final = "such as http://user:password@proxy.example:3128"


async def test_a_proxy_that_refuses() -> None:
    """If a proxy refuses the connection, the error names the status, and what a proxy with a password needs."""
    for status, words in [
        (403, "the proxy refused the connection with status 403"),
        (407, f"the proxy refused the connection with status 407: put your user and password into proxy=, {SUCH_AS}"),
    ]:
        async with Recorder([answer(status)]) as proxy, connect("https://pay.example", proxy=proxy.url) as pay:
            with pytest.raises(errors.NotSentError) as caught:
                await create(pay)

        assert words == caught.value.reason


LIMIT: Final = 200
"""Bytes that an answer may have in these tests."""
OK: Final = answer(200, b'{"code":"SBX_OK"}').raw
LONG: Final = answer(200, b'{"code":"SBX_OK"}'.ljust(LIMIT + 1)).raw
"""Too long an answer, which comes in one part: when it is looked at, its connection is in the pool again."""

Calls = tuple["asyncio.Future[Response]", threading.Event]

CALLS: Final[dict[str, Callable[[Session, int], Awaitable[Response]]]] = {
    "write": create,
    "read": lambda pay, number: pay.orders.query(f"T{number}"),
}


session = partial(connect, profile=PROFILE, max_connections=1, max_response_bytes=LIMIT)
"""It has one connection for writes and one for reads, and no second try."""


@asynccontextmanager
async def two_calls(name: str, raw: bytes) -> AsyncGenerator[tuple[Recorder, Session, Calls]]:
    """Yield a call with this response, and a second one that waits for its connection.

    Afterwards the second call must get its response on the same connection, even if the first failed.
    """
    first_may, second_may = threading.Event(), threading.Event()
    with Recorder([Answer(raw, after=first_may), Answer(OK, after=second_may)]) as service:
        async with session(service) as pay:
            first = await begin(CALLS[name](pay, 1), service)
            second = asyncio.ensure_future(CALLS[name](pay, 2))
            await until(lambda: waiting(pay) == 1)
            yield service, pay, (first, first_may)
            await asyncio.to_thread(service.wait_for_request)
            early = second.done()
            second_may.set()
            found = await second

    assert not early
    assert (200, 1) == (found.http_status, found.attempts)
    assert [1, 1] == [request.connection for request in service.requests]


async def test_long_answer_that_came_whole() -> None:
    """If a response was too long but complete, its connection serves the next call."""
    for name in CALLS:
        async with two_calls(name, LONG) as (_, _, (first, first_may)):
            first_may.set()
            with pytest.raises(errors.NoAnswerError if name == "read" else errors.OutcomeUnknownError) as caught:
                await first

        assert "the response is longer than max_response_bytes" == caught.value.reason


@pytest.mark.parametrize("name", CALLS)
async def test_cancelled_as_the_answer_ended(name: str) -> None:
    """If a call is cancelled as the last byte arrives, its connection serves the next call."""
    half, received = len(OK) - 5, bytearray()
    async with two_calls(name, OK[:half]) as (service, pay, (first, first_may)):
        (held,) = busy(pay)
        came = held.data_received

        def last_byte(data: bytes) -> None:
            received.extend(data)
            came(data)
            if bytes(received) == OK:
                first.cancel()

        held.data_received = last_byte
        first_may.set()
        await until(lambda: bytes(received) == OK[:half])
        await turns(20)  # it has read the head, and waits for the rest
        service.connections[0].stream.sendall(OK[half:])
        (ended,) = await asyncio.gather(first, return_exceptions=True)
        held.data_received = came

    assert isinstance(ended, asyncio.CancelledError)


async def test_answer_that_has_not_ended() -> None:
    """If a response is refused before its end, its connection is closed."""
    for name in CALLS:
        ask = CALLS[name]
        endless = Answer(answer(200, b"x" * 10_000).raw[:-1])
        async with Recorder([endless, Answer(OK)]) as service, session(service) as pay:
            first = await begin(ask(pay, 1), service)
            found = await ask(pay, 2)
            (ended,) = await asyncio.gather(first, return_exceptions=True)

        assert isinstance(ended, errors.NoAnswerError if name == "read" else errors.OutcomeUnknownError)
        assert "the response is longer than max_response_bytes" == ended.reason
        assert 200 == found.http_status
        assert [1, 2] == [request.connection for request in service.requests]
