"""What every adapter promises over real HTTP: aiohttp's handler, and ASGI in FastAPI, Starlette, Litestar and alone."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import uvicorn
from aiohttp import web
from attrs import evolve
from fastapi import FastAPI
from litestar import Litestar
from litestar.handlers import asgi
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from payasync.notifications import Receiver, SqliteInbox
from tests.inside import until
from tests.notifications.merchant import PAID, REFUNDED, SIGNED, Shop, opened
from tests.notifications.wire import dripped, exchanged

NO: Final = (400, '{"received":false}')
TOO_LARGE: Final = (413, NO[1])
YES: Final = (200, '{"received":true}')
ROUTED: Final = evolve(SIGNED, notification=evolve(SIGNED.notification, kind="", kinds={}))
"""Notifications that do not say what they are about."""
LIMIT: Final = 2_000_000

Served = Callable[[Receiver], AbstractAsyncContextManager[str]]
"""Serves a receiver, and gives the address below which it is."""


@asynccontextmanager
async def by_aiohttp(receiver: Receiver, **settings: Any) -> AsyncGenerator[str]:
    """Serve a receiver's handler by aiohttp."""
    application = web.Application(**settings)
    for path in ("/notify/{kind}", "/notify/{kind}/here", "/fixed/refund", "/by/me"):
        application.router.add_post(path, receiver.aiohttp_handler)
    application.router.add_post("/by/hand", partial(receiver.aiohttp_handler, kind="refund"))
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def by_uvicorn(application: Any, lifespan: str = "off") -> AsyncGenerator[str]:
    """Serve an ASGI application."""
    config = uvicorn.Config(application, log_config=None, lifespan=lifespan, timeout_graceful_shutdown=1)  # type: ignore[arg-type] # a literal
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve([listening]))
    try:
        await until(lambda: server.started or serving.done())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listening.close()


def in_fastapi(receiver: Receiver) -> AbstractAsyncContextManager[str]:
    """Mount it in FastAPI."""
    return by_uvicorn(fastapi(receiver))


def fastapi(receiver: Receiver) -> FastAPI:
    """Return an application of FastAPI's."""
    application = FastAPI()
    application.mount("/by/hand", partial(receiver.asgi, kind="refund"))
    application.mount("/notify", receiver.asgi)
    return application


def in_starlette(receiver: Receiver) -> AbstractAsyncContextManager[str]:
    """Mount it in Starlette."""
    routes = [Mount("/by/hand", partial(receiver.asgi, kind="refund")), Mount("/notify", receiver.asgi)]
    return by_uvicorn(Starlette(routes=routes))


def in_litestar(receiver: Receiver) -> AbstractAsyncContextManager[str]:
    """Mount it in Litestar, which looks at the names of the arguments."""

    @asgi("/notify", is_mount=True, copy_scope=True)
    async def notify(scope: Any, receive: Any, send: Any) -> None:
        await receiver.asgi(scope, receive, send)

    @asgi("/by/hand", is_mount=True, copy_scope=True)
    async def by_hand(scope: Any, receive: Any, send: Any) -> None:
        await receiver.asgi(scope, receive, send, "refund")

    return by_uvicorn(Litestar([notify, by_hand]))


def read_in_aiohttp(receiver: Receiver) -> AbstractAsyncContextManager[str]:
    """Serve it behind what reads the body, and lets in more than the receiver does."""

    @web.middleware
    async def reading(request: web.Request, handler: Any) -> web.StreamResponse:
        await request.read()
        answer: web.StreamResponse = await handler(request)
        return answer

    return by_aiohttp(receiver, middlewares=[reading], client_max_size=2 * LIMIT)


async def reading(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Read a body, before the receiver does."""
    await request.body()
    return await call_next(request)


def read_in_fastapi(receiver: Receiver) -> AbstractAsyncContextManager[str]:
    """Mount it in FastAPI, behind what reads the body."""
    application = fastapi(receiver)
    application.middleware("http")(reading)
    return by_uvicorn(application)


def read_in_starlette(receiver: Receiver) -> AbstractAsyncContextManager[str]:
    """Mount it in Starlette, behind what reads the body."""
    middleware = [Middleware(BaseHTTPMiddleware, dispatch=reading)]
    return by_uvicorn(Starlette(routes=[Mount("/notify", receiver.asgi)], middleware=middleware))


def servers(*served: Any) -> pytest.MarkDecorator:
    """Run a test with each of these servers."""
    return pytest.mark.parametrize("served", served, ids=lambda each: each.__name__)


async def post(url: str, body: bytes, headers: Mapping[str, str] = {}) -> tuple[int, str]:
    """Post, and return the answer."""
    async with aiohttp.ClientSession() as http, http.post(url, data=BytesIO(body), headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Shop]:
    """A receiver whose notifications do not say what they are about."""
    async with opened(tmp_path, profile=ROUTED, max_bytes=LIMIT) as shop:
        yield shop


@servers(by_aiohttp, in_fastapi, in_starlette, in_litestar)
async def test_address_says_the_kind(served: Served, shop: Shop) -> None:
    """The path's last part, the route's `{kind}`, or the caller says what a notification is about.

    What names no kind that there is says nothing: a genuine notification is not lost because of its address.
    """
    got = shop.recording()
    kinds: dict[str, str | None] = {"/notify/refund": "refund", "/by/hand": "refund", "/notify/refunds": None}
    if served is by_aiohttp:
        kinds |= {"/notify/refund/here": "refund", "/fixed/refund": "refund", "/by/me": None}
    else:
        kinds |= {"/notify/refund/": "refund"}
    async with served(shop.receiver) as url:
        for number, path in enumerate(kinds):
            signed = shop.sign({**REFUNDED, "outRefundNo": f"R{number}"}, None)
            assert YES == await post(url + path, signed.raw, signed.headers)
        await shop.receiver.settle()

    assert list(kinds.values()) == [each.kind for each in sorted(got, key=lambda each: str(each.out_refund_no))]


@servers(by_aiohttp, in_fastapi, read_in_aiohttp, read_in_fastapi, read_in_starlette)
async def test_body_is_taken_as_it_came(served: Served, shop: Shop) -> None:
    """What was signed is verified byte for byte, also where somebody in front has read it; the limit is the receiver's.

    A framework's own limit, such as aiohttp's of one mebibyte, is neither in the way nor enough.
    """
    got = shop.recording()
    signed = shop.sign({**PAID, "note": "x" * 1_500_000}, None)
    async with served(shop.receiver) as url:
        bodies = (signed.raw, b" " + signed.raw, b" " * LIMIT, b" " * (LIMIT + 1))
        answers = [await post(f"{url}/notify/payment", body, signed.headers) for body in bodies]
        await shop.receiver.settle()

    assert ([YES, NO, NO, TOO_LARGE], [signed.raw]) == (answers, [each.raw for each in got])


HEAD: Final = b"POST /notify/payment HTTP/1.1\r\nHost: a\r\n"
CHUNKED: Final = b"Transfer-Encoding: chunked\r\n\r\n"


@servers(by_aiohttp, in_fastapi)
async def test_body_that_never_ends_is_refused(served: Served, shop: Shop) -> None:
    """Who sends more than the limit gets an answer before the end, and no more is read."""
    async with served(shop.receiver) as url:
        parts = [b"10000\r\n" + b"x" * 0x10000 + b"\r\n"] * 32
        answered = await exchanged(url, HEAD + CHUNKED, *parts)

    assert b"413" == answered.split()[1]


@servers(by_aiohttp, in_fastapi)
async def test_body_that_drips_ends_after_ten_seconds(served: Served, shop: Shop) -> None:
    """Who sends a byte every three seconds, or none, holds a handler for ten seconds in all: then 408."""
    async with served(shop.receiver) as url:
        before, answer, closed = await dripped(url, HEAD + b"Content-Length: 1000\r\n\r\n", pause=3, drops=4)

    assert (b"", b"408", True) == (before, answer.split()[1], closed)
    assert b"connection: close" in answer.lower()


@servers(by_aiohttp, in_fastapi)
@pytest.mark.parametrize("framing", [CHUNKED + b"%x\r\n%b\r\n", b"X-Length: %x\r\nContent-Length: 9999\r\n\r\n%b"])
async def test_body_that_breaks_off_is_not_taken(
    served: Served, framing: bytes, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of a body is no notification, even where the half could be read, and is signed; it is no error of ours."""
    signed = shop.sign(PAID, None)
    lines = b"".join(f"{name}: {value}\r\n".encode() for name, value in signed.headers.items())
    shop.recording()
    async with served(shop.receiver) as url:
        await exchanged(url, HEAD + lines + framing % (len(signed.raw), signed.raw), hang_up=True)
        whole = shop.sign({**PAID, "outTradeNo": "T2"}, None)
        answer = await post(f"{url}/notify/payment", whole.raw, whole.headers)

    assert (YES, ['payment:["T2","SBX_PAID"]']) == (answer, [each.key for each in await shop.receiver.events()])
    assert [] == [each for each in caplog.records if each.levelname == "ERROR"]


@pytest.mark.parametrize(
    "rest",
    [
        CHUNKED + b"ZZ\r\n",
        CHUNKED + b"2\r\n{}XX\r\n0\r\n\r\n",
        b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Encoding: deflate\r\nContent-Length: 4\r\n\r\n\xff\xff\xff\xff",
        b"Content-Length: 2\r\nwebhook-id: \xff\xfe\r\nwebhook-signature: \xe9\r\n\r\n{}",
        b"Content-Length: 0\r\n\r\n",
        b"Content-Type: multipart/form-data\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
async def test_hostile_request_is_refused(rest: bytes, shop: Shop) -> None:
    """Whatever is wrong with a request, it is the sender's fault: 4xx, never 500."""
    async with by_aiohttp(shop.receiver) as url:
        answered = await exchanged(url, HEAD + b"Connection: close\r\n" + rest)

    assert b"400" == answered.split()[1]


@servers(by_aiohttp, in_fastapi)
async def test_overload_says_when_to_come_again(served: Served, shop: Shop) -> None:
    """The header that tells the service to wait is on the wire."""
    await shop.receiver.aclose()
    signed = shop.sign(PAID, None)
    async with (
        served(shop.receiver) as url,
        aiohttp.ClientSession() as http,
        http.post(f"{url}/notify/payment", data=signed.raw, headers=signed.headers) as answer,
    ):
        assert (503, "5") == (answer.status, answer.headers["Retry-After"])


async def test_application_may_stand_alone(shop: Shop) -> None:
    """Served by itself it begins to dispatch before the first request, and is closed after the last."""
    got = shop.recording()
    await shop.take()
    await shop.receiver.settle()
    signed = shop.sign({**PAID, "outTradeNo": "T2"})
    async with by_uvicorn(shop.receiver.asgi, "on") as url:
        answer = await post(f"{url}/anywhere", signed.raw, signed.headers)
        await shop.receiver.settle()

    assert (YES, ["T1", "T2"], 503) == (
        answer,
        [each.out_trade_no for each in got],
        (await shop.take()).status,
    )


async def test_answer_of_no_body_has_none(tmp_path: Path) -> None:
    """204 goes out without a body, and without a content type."""
    profile = evolve(SIGNED, notification=evolve(SIGNED.notification, ack_status=204, ack_body=""))
    async with opened(tmp_path, profile=profile) as shop:
        signed = shop.sign()
        async with (
            by_uvicorn(shop.receiver.asgi) as url,
            aiohttp.ClientSession() as http,
            http.post(url, data=signed.raw, headers=signed.headers) as answer,
        ):
            assert (204, b"", None) == (answer.status, await answer.read(), answer.headers.get("Content-Type"))


async def told(receiver: Receiver, message: MutableMapping[str, Any] | None = None, **scope: Any) -> list[Any]:
    """Return what the application tells a server that has one message for it, or none."""
    sent = list[Any]()

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return message or await asyncio.Event().wait()

    await receiver.asgi({"type": "http", "method": "POST", "path": "/payment", "headers": [], **scope}, receive, send)
    return sent


async def test_server_does_not_start_with_a_foreign_file(tmp_path: Path) -> None:
    """An inbox that is none is found as the server starts, not with the first money."""
    file = tmp_path / "inbox.db"
    file.write_bytes(b"a diary" * 1000)
    async with opened(tmp_path, inbox=SqliteInbox(file)) as shop:
        (failed,) = await told(shop.receiver, {"type": "lifespan.startup"}, type="lifespan")

    assert "lifespan.startup.failed" == failed["type"]
    assert failed["message"].startswith("ConfigurationError: ")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_only_posts_are_taken(method: str, shop: Shop) -> None:
    """A mounted application gets every method; only one notifies."""
    start, _ = await told(shop.receiver, method=method)

    assert (405, (b"allow", b"POST")) == (start["status"], start["headers"][0])


async def test_no_header_of_a_connection_where_there_is_none(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP/2 forbids the header that closes a connection."""
    monkeypatch.setattr("payasync.notifications.ingest.BODY_SECONDS", 0)
    start, _ = await told(shop.receiver, http_version="2")

    assert (408, [(b"content-length", b"0")]) == (start["status"], start["headers"])


async def test_body_without_fields_is_an_empty_one(shop: Shop) -> None:
    """ASGI leaves out what is empty."""
    start, _ = await told(shop.receiver, {"type": "http.request"})

    assert 400 == start["status"]


async def test_websocket_is_closed(shop: Shop) -> None:
    """Nobody notifies by a web socket."""
    assert [{"type": "websocket.close"}] == await told(shop.receiver, type="websocket")
