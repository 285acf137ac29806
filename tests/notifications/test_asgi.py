"""Notifications by ASGI: mounted in FastAPI, Starlette and Litestar, and served by uvicorn over real HTTP."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
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

NO = (400, '{"received":false}')
TOO_LARGE = (413, NO[1])
YES = (200, '{"received":true}')
ROUTED = evolve(SIGNED, notification=evolve(SIGNED.notification, kind="", kinds={}))
"""Notifications that do not say what they are about."""


def in_fastapi(receiver: Receiver) -> Any:
    """Mount it in FastAPI."""
    application = FastAPI()
    application.mount("/by/hand", partial(receiver.asgi, kind="refund"))
    application.mount("/notify", receiver.asgi)
    return application


def in_starlette(receiver: Receiver) -> Any:
    """Mount it in Starlette."""
    return Starlette(routes=[Mount("/by/hand", partial(receiver.asgi, kind="refund")), Mount("/notify", receiver.asgi)])


def in_litestar(receiver: Receiver) -> Any:
    """Mount it in Litestar, which looks at the names of the arguments."""

    @asgi("/notify", is_mount=True, copy_scope=True)
    async def notify(scope: Any, receive: Any, send: Any) -> None:
        await receiver.asgi(scope, receive, send)

    @asgi("/by/hand", is_mount=True, copy_scope=True)
    async def by_hand(scope: Any, receive: Any, send: Any) -> None:
        await receiver.asgi(scope, receive, send, "refund")

    return Litestar([notify, by_hand])


async def reading(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Read a body, before the receiver does."""
    await request.body()
    return await call_next(request)


def read_in_fastapi(receiver: Receiver) -> Any:
    """Mount it in FastAPI, behind what reads the body."""
    application = in_fastapi(receiver)
    application.middleware("http")(reading)
    return application


def read_in_starlette(receiver: Receiver) -> Any:
    """Mount it in Starlette, behind what reads the body."""
    middleware = [Middleware(BaseHTTPMiddleware, dispatch=reading)]
    return Starlette(routes=[Mount("/notify", receiver.asgi)], middleware=middleware)


@asynccontextmanager
async def served(application: Any, lifespan: str = "off") -> AsyncGenerator[str]:
    """Serve an application by uvicorn, and return its address."""
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


async def post(url: str, body: bytes, headers: Any = None) -> tuple[int, str]:
    """Post, and return the answer."""
    async with aiohttp.ClientSession() as http, http.post(url, data=BytesIO(body), headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Shop]:
    """A receiver whose notifications do not say what they are about."""
    async with opened(tmp_path, profile=ROUTED, max_bytes=2_000_000) as shop:
        yield shop


@pytest.mark.parametrize("mounted", [in_fastapi, in_starlette, in_litestar], ids=lambda mounted: mounted.__name__)
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/notify/refund", "refund"),
        ("/notify/refund/", "refund"),
        ("/by/hand", "refund"),
        ("/notify/refunds", None),
    ],
)
async def test_mounted_application_takes_notifications(
    mounted: Callable[[Receiver], Any], path: str, kind: str | None, shop: Shop
) -> None:
    """Whatever it is mounted in, the body arrives as it was sent, and the address says the kind, if there is such."""
    got = shop.recording()
    signed = shop.sign(REFUNDED, None)
    async with served(mounted(shop.receiver)) as url:
        answers = [await post(url + path, signed.raw, signed.headers), await post(url + path, b"{}")]
        await shop.receiver.settle()

    assert ([YES, NO], [kind], [signed.raw]) == (answers, [each.kind for each in got], [each.raw for each in got])


@pytest.mark.parametrize("mounted", [read_in_fastapi, read_in_starlette], ids=lambda mounted: mounted.__name__)
async def test_middleware_may_read_the_body_before(mounted: Callable[[Receiver], Any], shop: Shop) -> None:
    """What somebody in front has read, to log it or to measure it, is verified as it came; so is its length."""
    got = shop.recording()
    signed = shop.sign(REFUNDED, None)
    async with served(mounted(shop.receiver)) as url:
        answer = await post(f"{url}/notify/refund", signed.raw, signed.headers)
        longer = await post(f"{url}/notify/refund", b" " * 2_000_001)
        await shop.receiver.settle()

    assert (YES, TOO_LARGE, [signed.raw]) == (answer, longer, [each.raw for each in got])


async def test_application_may_stand_alone(tmp_path: Path) -> None:
    """Served by itself it begins to dispatch before the first request, and is closed after the last."""
    async with opened(tmp_path) as shop:
        got = shop.recording()
        await shop.take()
        await shop.receiver.settle()
        signed = shop.sign({**PAID, "outTradeNo": "T2"})
        async with served(shop.receiver.asgi, "on") as url:
            answer = await post(f"{url}/anywhere", signed.raw, signed.headers)
            await shop.receiver.settle()

        assert (YES, ["T1", "T2"], 503) == (
            answer,
            [each.out_trade_no for each in got],
            (await shop.take()).status,
        )


async def test_server_does_not_start_with_a_foreign_file(tmp_path: Path) -> None:
    """An inbox that is none is found as the server starts, not with the first money."""
    file = tmp_path / "inbox.db"
    file.write_bytes(b"a diary" * 1000)
    async with opened(tmp_path, inbox=SqliteInbox(file)) as shop:
        messages, sent = [{"type": "lifespan.startup"}], list[Any]()

        async def receive() -> Any:
            return messages.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        await shop.receiver.asgi({"type": "lifespan"}, receive, send)

        assert ["lifespan.startup.failed"] == [each["type"] for each in sent]
        assert sent[0]["message"].startswith("ConfigurationError: ")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_only_posts_are_taken(method: str, shop: Shop) -> None:
    """A mounted application gets every method; only one notifies."""
    async with (
        served(shop.receiver.asgi) as url,
        aiohttp.ClientSession() as http,
        http.request(method, url) as answer,
    ):
        assert (405, "POST") == (answer.status, answer.headers["Allow"])


async def test_limit_is_the_receivers(shop: Shop) -> None:
    """A body is taken up to the limit, and not read beyond it."""
    shop.recording()
    long = shop.sign({**PAID, "note": "x" * 1_500_000}, None)
    async with served(shop.receiver.asgi) as url:
        answer = await post(f"{url}/payment", long.raw, long.headers)
        longer = await post(f"{url}/payment", b" " * 2_000_001)

    assert (YES, TOO_LARGE) == (answer, longer)


async def test_nobody_is_answered_who_has_gone(shop: Shop) -> None:
    """A connection that ends within the body keeps nothing; it is not told so."""
    head = b"POST /payment HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{}"
    async with served(shop.receiver.asgi) as url:
        await exchanged(url, head, hang_up=True)
        answer = await post(f"{url}/payment", b"{}")

    assert (NO, []) == (answer, await shop.states())


@pytest.mark.parametrize("mounted", [in_fastapi, in_starlette, in_litestar], ids=lambda mounted: mounted.__name__)
async def test_body_that_drips_ends_after_ten_seconds(mounted: Callable[[Receiver], Any], shop: Shop) -> None:
    """Who sends a byte every three seconds, or none, holds an application for ten seconds in all: then 408."""
    head = b"POST /notify/payment HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
    async with served(mounted(shop.receiver)) as url:
        before, answer, closed = await dripped(url, head, pause=3, drops=4)

    assert (b"", b"408", True) == (before, answer.split()[1], closed)


async def test_no_header_of_a_connection_where_there_is_none(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP/2 forbids the header that closes a connection."""
    monkeypatch.setattr("payasync.notifications.asgi.BODY_SECONDS", 0)
    sent = list[Any]()

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()

    scope = {"type": "http", "method": "POST", "path": "/payment", "headers": [], "http_version": "2"}
    await shop.receiver.asgi(scope, receive, send)

    assert (408, [(b"content-length", b"0")]) == (sent[0]["status"], sent[0]["headers"])


async def test_disconnected_body_is_not_taken(shop: Shop) -> None:
    """Half of a body is no notification, even where the half could be read."""
    signed = shop.sign(PAID, None)
    messages = [
        {"type": "http.request", "body": signed.raw, "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent = list[Any]()

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(name.encode(), value.encode()) for name, value in signed.headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/payment", "headers": headers}
    await shop.receiver.asgi(scope, receive, send)

    assert ([], []) == (sent, await shop.states())


async def test_body_without_fields_is_an_empty_one(shop: Shop) -> None:
    """ASGI leaves out what is empty."""
    sent = list[Any]()

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    await shop.receiver.asgi({"type": "http", "method": "POST", "path": "/", "headers": []}, receive, send)

    assert [400] == [each["status"] for each in sent if "status" in each]


async def test_websocket_is_closed(shop: Shop) -> None:
    """Nobody notifies by a web socket."""
    sent = list[Any]()

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await shop.receiver.asgi({"type": "websocket", "path": "/"}, receive, send)

    assert [{"type": "websocket.close"}] == sent


async def test_answer_of_no_body_has_none(tmp_path: Path) -> None:
    """204 goes out without a body, and without a content type."""
    profile = evolve(SIGNED, notification=evolve(SIGNED.notification, ack_status=204, ack_body=""))
    async with opened(tmp_path, profile=profile) as shop:
        shop.recording()
        signed = shop.sign()
        async with (
            served(shop.receiver.asgi) as url,
            aiohttp.ClientSession() as http,
            http.post(url, data=signed.raw, headers=signed.headers) as answer,
        ):
            assert (204, b"", None) == (answer.status, await answer.read(), answer.headers.get("Content-Type"))
