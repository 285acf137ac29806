"""The requests of payasync, their one-shot body, and unsolicited bytes on a connection."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
import pytest

from payasync import Event, Response, Retrying, Session, Unknown
from payasync.profile.sandbox_profile import PROFILE
from payasync.transport import aiohttp_request
from payasync.transport.aiohttp_request import SHORT, OneShotBody, OwnRequest, Writes, is_compared
from tests.foreign.certificates import server_tls, trusting_tls
from tests.foreign.recorder import RESET, Answer, Recorder, answer
from tests.inside import idle, turns, until
from tests.sessions import FAST, connect

CONTENT: Final = b'{"totalAmt":450}'
OF_AIOHTTP: Final = aiohttp.ClientRequest.send


class Theirs(OwnRequest):
    """A request of payasync that is sent by aiohttp's own `send`."""

    send = OF_AIOHTTP


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths of the requests that aiohttp's own `send` sends."""
    seen: list[str] = []

    async def noted(self: aiohttp.ClientRequest, conn: Any) -> aiohttp.ClientResponse:
        seen.append(self.url.path)
        return await OF_AIOHTTP(self, conn)

    monkeypatch.setattr(aiohttp.ClientRequest, "send", noted)
    return seen


async def post(http: aiohttp.ClientSession, url: str, body: OneShotBody | None = None, **settings: Any) -> bytes:
    """Send a body, and return the body of the response."""
    async with http.post(url, data=body or OneShotBody(CONTENT), **settings) as response:
        return await response.read()


async def test_it_is_what_aiohttp_writes() -> None:
    """Head and body are byte for byte those of aiohttp's own `send`."""
    for method, content in [("GET", b""), ("POST", CONTENT), ("PUT", CONTENT), ("PATCH", CONTENT), ("DELETE", b"")]:
        with Recorder() as service:
            for kind in (Theirs, OwnRequest):
                async with (
                    aiohttp.ClientSession(request_class=kind, headers={"X-Api-Version": "3"}) as http,
                    http.request(
                        method,
                        f"{service.url}/a%20b?c=d&e=%26",
                        data=OneShotBody(content),
                        headers={"Authorization": "B"},
                    ) as response,
                ):
                    await response.read()

        first, second = service.requests
        assert first.raw == second.raw
        assert content == second.body


class TheirHead(OwnRequest):
    """A request of payasync whose headers aiohttp puts together."""

    update_headers = aiohttp.ClientRequest.update_headers
    update_auto_headers = aiohttp.ClientRequest.update_auto_headers


async def test_headers_are_those_of_aiohttp() -> None:
    """A request has the headers that aiohttp would give it: its own come before those of each request."""
    for own in [{}, {"Accept": "text/xml", "X-Own": "1"}, {"host": "pay.example", "User-Agent": "U"}]:
        with Recorder() as service:
            for kind in (TheirHead, OwnRequest):
                async with aiohttp.ClientSession(request_class=kind, headers={"X-Api-Version": "3"}) as http:
                    for _ in range(2):
                        await post(http, service.url, headers=own)

        heads = [sorted(request.raw.lower().split(b"\r\n")) for request in service.requests]
        assert [heads[0]] * 4 == heads


@pytest.mark.parametrize(
    "large",
    [{"body": OneShotBody(b"x" * SHORT)}, {"headers": {"X-Large": "x" * SHORT}}, {"params": {"large": "x" * SHORT}}],
    ids=["body", "headers", "query"],
)
async def test_a_large_request(large: dict[str, Any], theirs: list[str]) -> None:
    """A large request goes by aiohttp's own `send`, because its write may have to wait."""
    async with Recorder() as service, aiohttp.ClientSession(request_class=OwnRequest) as http:
        await post(http, f"{service.url}/large", **large)

    assert ["/large"] == theirs
    assert SHORT < len(service.only.raw)
    assert b"x" * SHORT in service.only.raw


def test_compared_versions() -> None:
    """Only one minor version of aiohttp was compared with our own `send`."""
    for version, compared in [("3.14.5", True), ("3.13.9", False), ("3.15.0", False), ("3.140.0", False)]:
        assert compared == is_compared(version)


async def test_another_aiohttp(monkeypatch: pytest.MonkeyPatch, theirs: list[str]) -> None:
    """An aiohttp version that was not compared uses its own `send`."""
    monkeypatch.setattr(aiohttp_request, "COMPARED", False)
    async with Recorder() as service, aiohttp.ClientSession(request_class=OwnRequest) as http:
        await post(http, f"{service.url}/unknown")

    assert ["/unknown"] == theirs


KINDS: Final = {"ours": OwnRequest, "aiohttp's": aiohttp.ClientRequest}
"""Who writes a request: short ones we do, long and traced ones aiohttp."""


async def test_aiohttp_sends_a_begun_body_once() -> None:
    """After a reset on a reused connection nothing is sent again, whatever the method is."""
    for method in ["GET", "PUT", "DELETE"]:
        for kind in KINDS.values():
            async with Recorder([answer(), RESET]) as service, aiohttp.ClientSession(request_class=kind) as http:
                async with http.request(method, service.url, data=OneShotBody(b"")) as first:
                    await first.read()
                with pytest.raises(aiohttp.ClientOSError):
                    await http.request(method, service.url, data=OneShotBody(b""))

            assert 2 == len(service.requests)


async def test_a_request_that_lost_its_connection_before_its_turn() -> None:
    """A request that waits for the next turn is never written to a connection that another one may use by then."""
    complaints: list[object] = []
    loop, body = asyncio.get_running_loop(), OneShotBody(CONTENT)
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    writes = Writes(loop, ("this one", "another"))

    def write(body: OneShotBody, head: bytes, connection: Any) -> None:
        writes.add(body, head, connection)
        connection.release()

    async with Recorder() as service, aiohttp.ClientSession(request_class=OwnRequest.verified_by(None, write)) as http:
        with pytest.raises(AttributeError):  # aiohttp's: it has nowhere to read from
            await post(http, service.url, body)
        await turns(2)

    assert (False, CONTENT) == (body.begun, await body.as_bytes())
    assert [] == service.requests
    assert [] == complaints


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("scheme", "turns"), [("http", range(0, 300, 2)), ("https", range(0, 9000, 150))])
async def test_a_body_that_did_not_begin_left_no_byte(
    scheme: str, turns: range, kind: type[aiohttp.ClientRequest]
) -> None:
    """A request cancelled at any step left no byte if its body had not begun."""
    server, client = (server_tls(), trusting_tls()) if scheme == "https" else (None, None)
    trials: dict[str, OneShotBody] = {}
    with Recorder(tls=server) as service:
        connector = aiohttp.TCPConnector(ssl=client or True, force_close=True)
        made = kind.verified_by(client) if issubclass(kind, OwnRequest) else kind
        async with aiohttp.ClientSession(connector=connector, request_class=made) as http:
            for steps in turns:
                trials[str(steps)] = body = OneShotBody(b"%d" % steps)
                await cancelled_after(steps, partial(http.post, service.url, data=body))

    received = {aiohttp_request.body.decode() for aiohttp_request in service.requests}
    begun = {name for name, body in trials.items() if body.begun}

    assert received <= begun
    assert received
    assert len(begun) < len(trials)


async def cancelled_after(
    steps: int, aiohttp_request: Callable[[], AbstractAsyncContextManager[aiohttp.ClientResponse]]
) -> None:
    """Begin a request, and cancel it after this many turns of the loop."""

    async def whole() -> None:
        async with aiohttp_request() as response:
            await response.read()

    task = asyncio.ensure_future(whole())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


CALLS: Final[dict[str, Callable[[Session, str], Awaitable[Response]]]] = {
    "payment": lambda pay, number: pay.payments.create(amount=1, currency="USD", description=number),
    "order query": lambda pay, number: pay.orders.query(number),
}
each_call = pytest.mark.parametrize("ask", CALLS.values(), ids=CALLS)
each_pool = pytest.mark.parametrize("own", [True, False], ids=["own pool", "injected"])


def said(who: str, status: int = 200, *headers: tuple[str, str]) -> Answer:
    """Return a success that names its receiver."""
    return answer(status, b'{"code":"SBX_OK","status":"SBX_PAID","for":"%s"}' % who.encode(), *headers)


STALE: Final = said("nobody").raw
CLOSING: Final = said("nobody", 408, ("Connection", "close")).raw

UNASKED: Final = {
    "a second answer": STALE,
    "two more answers": STALE * 2,
    "a 408": said("nobody", 408).raw,
    "a 408, the last": CLOSING,
    "a 408, and the end": CLOSING + b"END",
    "the begin of one": STALE[:-5],
    "a head": STALE[: STALE.index(b"{")],
    "one without a body": b"HTTP/1.1 204 No Content\r\n\r\n",
    "one in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "one without an end": b"HTTP/1.1 200 OK\r\n\r\n{}",
    "nonsense": b"nonsense\r\n\r\n",
}


@asynccontextmanager
async def stage(*, own: bool = True, secure: bool = False, **settings: Any) -> AsyncGenerator[tuple[Recorder, Session]]:
    """Yield a service whose first response differs from the others, and a session with it."""
    async with AsyncExitStack() as stack:
        tls = server_tls() if secure else None
        service = stack.enter_context(Recorder([said("first")], otherwise=said("second"), tls=tls))
        http = None if own else await stack.enter_async_context(aiohttp.ClientSession())
        chosen: dict[str, Any] = {"retry": FAST, "http": http, "tls": trusting_tls() if secure else None, **settings}
        pay = connect(service, profile=PROFILE, **chosen)
        yield service, await stack.enter_async_context(pay)


async def say_unasked(service: Recorder, pay: Session, unasked: bytes) -> None:
    """Send unsolicited bytes on the idle connection, and wait until the client has read them."""
    (kept,) = idle(pay)
    service.connections[0].stream.sendall(unasked.removesuffix(b"END"))
    if unasked.endswith(b"END"):
        service.connections[0].end()
    await until(lambda: kept.should_close or not kept.is_connected())


@each_pool
@pytest.mark.parametrize("unasked", UNASKED.values(), ids=UNASKED)
@each_call
async def test_answer_that_nobody_asked_for(
    ask: Callable[[Session, str], Awaitable[Response]], unasked: bytes, *, own: bool
) -> None:
    """Unsolicited bytes after a response are never the response to the next call, which uses another connection."""
    told: list[Event] = []
    async with stage(own=own, on_event=told.append) as (service, pay):
        first = await ask(pay, "N1")
        await say_unasked(service, pay, unasked)
        second = await ask(pay, "N2")
        third = await ask(pay, "N3")

    assert ["first", "second", "second"] == [each["for"] for each in (first, second, third)]
    assert [1, 2, 2] == [aiohttp_request.connection for aiohttp_request in service.requests]
    assert [b"N1" in service.requests[0].raw, b"N2" in service.requests[1].raw] == [True, True]
    assert (1, second.attempts - 1) == (third.attempts, sum(isinstance(event, Retrying) for event in told))
    assert not second.recovered
    assert not [event for event in told if isinstance(event, Unknown)]


async def test_body_does_not_begin_where_an_answer_stands() -> None:
    """A body does not begin on a connection with unread bytes."""
    body: Any = OneShotBody(b"{}")
    started: list[str] = []
    body.deadline = SimpleNamespace(begin=lambda: started.append("started"))
    wire: Any = SimpleNamespace(protocol=SimpleNamespace(should_close=True), transport=None)
    with pytest.raises(ConnectionResetError, match="unsolicited bytes"):
        await body.write(wire)

    assert (False, []) == (body.begun, started)


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("unasked", [STALE, b""], ids=["an answer", "the end"])
@each_call
async def test_what_the_loop_has_not_read_yet(
    ask: Callable[[Session, str], Awaitable[Response]], unasked: bytes, *, secure: bool
) -> None:
    """Unsolicited bytes, or an end, that the loop has not read yet never reach the next call."""
    told: list[Event] = []
    async with stage(secure=secure, on_event=told.append) as (service, pay):
        await ask(pay, "N1")
        await ask(pay, "N2")  # over TLS, tickets of the session have been read by now
        kept = service.connections[0]
        kept.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # it leaves before the call, not with it
        kept.stream.sendall(unasked) if unasked else kept.end()
        third = await ask(pay, "N3")

    assert "second" == third["for"]
    assert sum(isinstance(event, Retrying) for event in told) == third.attempts - 1
    assert not unasked or third.attempts == 2
    assert [1, 1, 2] == [aiohttp_request.connection for aiohttp_request in service.requests]
    assert not [event for event in told if isinstance(event, Unknown)]


async def test_aiohttp_sends_any_other_body_again() -> None:
    """The negative control: aiohttp repeats a plain GET, which would repeat a nonce."""
    async with Recorder([answer(), RESET]) as service, aiohttp.ClientSession() as http:
        for _ in range(2):
            async with http.get(service.url) as response:
                await response.read()

    assert 3 == len(service.requests)
