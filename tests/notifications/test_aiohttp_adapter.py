"""Notifications by aiohttp's server, over real HTTP."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from attrs import evolve

from payasync.notifications import Notification, Receiver, SqliteInbox
from payasync.sandbox import Sandbox
from tests.notifications.merchant import PAID, REFUNDED, SIGNED, Shop, opened
from tests.notifications.wire import dripped, exchanged

NO = (400, '{"received":false}')
TOO_LARGE = (413, NO[1])
YES = (200, '{"received":true}')
ROUTED = evolve(SIGNED, notification=evolve(SIGNED.notification, kind="", kinds={}))
"""Notifications that do not say what they are about."""


@asynccontextmanager
async def served(receiver: Receiver, path: str = "/notify/{kind}", **settings: Any) -> AsyncGenerator[str]:
    """Serve a receiver's handler, and return the address below which it is."""
    application = web.Application(**settings)
    application.router.add_post(path, receiver.aiohttp_handler)
    application.router.add_post("/by/hand", partial(receiver.aiohttp_handler, kind="refund"))
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Shop]:
    """A receiver whose notifications do not say what they are about."""
    async with opened(tmp_path, profile=ROUTED, max_bytes=2_000_000) as shop:
        yield shop


async def post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    """Post, and return the answer."""
    async with aiohttp.ClientSession() as http, http.post(url, data=BytesIO(body), headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    ("route", "path", "kind"),
    [
        ("/notify/{kind}", "/notify/refund", "refund"),
        ("/notify/refund", "/notify/refund", "refund"),
        ("/notify/{kind}/here", "/notify/refund/here", "refund"),
        ("/by/me", "/by/me", None),
        ("/notify/{kind}", "/notify/refunds", None),
        ("/unused", "/by/hand", "refund"),
    ],
)
async def test_address_says_the_kind(route: str, path: str, kind: str | None, shop: Shop) -> None:
    """The route's `{kind}`, the last part of the path, or the caller says what a notification is about.

    What names no kind that there is says nothing: a genuine notification is not lost because of its address.
    """
    got = shop.recording()
    async with served(shop.receiver, route) as url:
        signed = shop.sign(REFUNDED, None)
        answer = await post(url + path, signed.raw, dict(signed.headers))
        await shop.receiver.settle()

    assert (YES, [kind]) == (answer, [each.kind for each in got])


async def test_signature_is_over_the_raw_body(shop: Shop) -> None:
    """What was signed is verified as it came, with its spaces and its order, and is kept so."""
    got = shop.recording()
    signed = shop.sign(PAID, None, key=None)
    async with served(shop.receiver) as url:
        answer = await post(f"{url}/notify/payment", signed.raw, dict(signed.headers))
        changed = await post(f"{url}/notify/payment", b" " + signed.raw, dict(signed.headers))
        await shop.receiver.settle()

    assert (YES, NO, [signed.raw]) == (answer, changed, [each.raw for each in got])


def after_reading(read: Callable[[web.Request], Awaitable[object]]) -> Any:
    """Return a middleware that reads a body before it is handled."""

    @web.middleware
    async def reading(request: web.Request, handler: Any) -> web.StreamResponse:
        await read(request)
        answer: web.StreamResponse = await handler(request)
        return answer

    return reading


@pytest.mark.parametrize("read", [web.Request.read, web.Request.text, web.Request.json, web.Request.post])
async def test_middleware_may_read_the_body_before(
    read: Callable[[web.Request], Awaitable[object]], shop: Shop
) -> None:
    """What somebody in front has read, to log it or to measure it, is verified as it came; so is its length."""
    got = shop.recording()
    signed = shop.sign(PAID, None)
    async with served(shop.receiver, middlewares=[after_reading(read)]) as url:
        answer = await post(f"{url}/notify/payment", signed.raw, dict(signed.headers))
        changed = await post(f"{url}/notify/payment", signed.raw.replace(b"450", b"451"), dict(signed.headers))
        await shop.receiver.settle()

    assert (YES, NO, [signed.raw]) == (answer, changed, [each.raw for each in got])


async def test_limit_holds_for_what_a_middleware_has_read(shop: Shop) -> None:
    """A body that is longer than the receiver takes is refused, however much the application lets in."""
    settings: Any = {"middlewares": [after_reading(web.Request.read)], "client_max_size": 4_000_000}
    async with served(shop.receiver, **settings) as url:
        assert TOO_LARGE == await post(f"{url}/notify/payment", b" " * 2_000_001, {})
        assert NO == await post(f"{url}/notify/payment", b" " * 2_000_000, {})


async def test_limit_is_the_receivers(shop: Shop) -> None:
    """What aiohttp itself allows, one mebibyte, is neither in the way nor enough."""
    shop.recording()
    long = shop.sign({**PAID, "note": "x" * 1_500_000}, None)
    async with served(shop.receiver) as url:
        answer = await post(f"{url}/notify/payment", long.raw, dict(long.headers))
        longer = await post(f"{url}/notify/payment", b" " * 2_000_001, {})

    assert (YES, TOO_LARGE) == (answer, longer)


async def test_body_that_never_ends_is_refused(shop: Shop) -> None:
    """Who sends more than the limit gets an answer before the end, and no more is read."""
    head = b"POST /notify/payment HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with served(shop.receiver) as url:
        answered = await exchanged(url, head, *[b"10000\r\n" + b"x" * 0x10000 + b"\r\n"] * 32)

    assert b"413" == answered.split()[1]


async def test_body_that_drips_ends_after_ten_seconds(shop: Shop) -> None:
    """Who sends a byte every three seconds, or none, holds a handler for ten seconds in all: then 408."""
    head = b"POST /notify/payment HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
    async with served(shop.receiver) as url:
        before, answer, closed = await dripped(url, head, pause=3, drops=4)

    assert (b"", b"408", True) == (before, answer.split()[1], closed)
    assert b"connection: close" in answer.lower()


HEAD = b"POST /notify/payment HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX\r\n0\r\n\r\n",
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Content-Encoding: deflate\r\nContent-Length: 4\r\n\r\n\xff\xff\xff\xff",
        HEAD + b"Content-Length: 2\r\nwebhook-id: \xff\xfe\r\nwebhook-signature: \xe9\r\n\r\n{}",
        HEAD + b"Content-Length: 0\r\n\r\n",
        HEAD + b"Content-Type: multipart/form-data\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
async def test_hostile_request_is_refused(request_: bytes, shop: Shop) -> None:
    """Whatever is wrong with a request, it is the sender's fault: 4xx, never 500."""
    async with served(shop.receiver) as url:
        answered = await exchanged(url, request_)

    assert b"400" == answered.split()[1]


async def test_body_that_breaks_off_is_not_taken(shop: Shop) -> None:
    """Half of a body is no notification, even where the half could be read, and is signed."""
    signed = shop.sign(PAID, None)
    lines = b"".join(f"{name}: {value}\r\n".encode() for name, value in signed.headers.items())
    head = HEAD + lines + b"Transfer-Encoding: chunked\r\n\r\n"
    shop.recording()
    async with served(shop.receiver) as url:
        await exchanged(url, head, b"%x\r\n%b\r\n" % (len(signed.raw), signed.raw), hang_up=True)
        whole = shop.sign({**PAID, "outTradeNo": "T2"}, None)
        answer = await post(f"{url}/notify/payment", whole.raw, dict(whole.headers))

    assert (YES, ['payment:["T2","SBX_PAID"]']) == (answer, [each.key for each in await shop.receiver.events()])


async def test_sender_that_goes_away_harms_nobody(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """A connection that ends within the body keeps nothing, and logs no error."""
    shop.recording()
    async with served(shop.receiver) as url:
        await exchanged(url, HEAD + b"Content-Length: 10\r\n\r\n{}", hang_up=True)
        signed = shop.sign(PAID, None)

        assert YES == await post(f"{url}/notify/payment", signed.raw, dict(signed.headers))
    assert [] == [each for each in caplog.records if each.levelname == "ERROR"]


async def test_overload_says_when_to_come_again(tmp_path: Path) -> None:
    """The header that tells the service to wait is on the wire."""
    async with opened(tmp_path) as shop:
        await shop.receiver.aclose()
        async with served(shop.receiver) as url, aiohttp.ClientSession() as http:
            signed = shop.sign()
            async with http.post(f"{url}/notify/payment", data=signed.raw, headers=signed.headers) as answer:
                assert (503, "5") == (answer.status, answer.headers["Retry-After"])


async def test_service_is_answered_as_it_expects(tmp_path: Path) -> None:
    """The sandbox's notification is taken, and it takes the answer for an acknowledgement."""
    async with Sandbox() as sandbox:
        inbox = SqliteInbox(tmp_path / "inbox.db")
        receiver = Receiver(profile=sandbox.profile, credentials=sandbox.credentials, inbox=inbox)
        got = list[str | None]()

        @receiver.on("payment")
        async def paid(notification: Notification) -> None:
            got.append(notification.out_trade_no)

        async with receiver, served(receiver) as url:
            order = await sandbox.given.paid_order(notify_url=f"{url}/notify/payment")
            await sandbox.settle()
            await receiver.settle()

        assert [order] == got
        assert [True] == [each.acknowledged for each in sandbox.ledger.deliveries()]
