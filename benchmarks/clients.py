"""The same signed call by several clients. All but payasync sign with the five lines below."""

import asyncio
import hashlib
import hmac
import json
import secrets
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import aiohttp
import orjson
from attrs import frozen
from yarl import URL

from benchmarks.bare_journal import bare_refunding
from payasync import AnswerShape, CreateRefund, Credentials, Profile, Secret, Session, SortedPairs
from payasync.journal import Journal, SqliteJournal

KEY: Final = b"a signing key of the usual length"
PATH: Final = "/payment/unifiedorder"
ORDER: Final[dict[str, Any]] = {
    "merchantId": "M1",
    "subject": "Coffee",
    "body": "Large coffee",
    "totalAmt": 450,
    "currency": "CAD",
    "notifyUrl": "https://shop.example/notify/payment",
    "sceneType": "JSAPI",
    "outTradeNo": "T1",
}
CREDENTIALS: Final = Credentials("M1", signing_key=Secret(KEY.decode()))
PROFILE: Final = Profile(
    signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"),
    answer=AnswerShape(code="code", ok=("OK",), redirect_url="redirectUrl"),
)

Refund: TypeAlias = Callable[[str], Awaitable[object]]
Call: TypeAlias = Callable[[], Awaitable[Any]]
Client: TypeAlias = Callable[["Service"], AbstractAsyncContextManager[Call]]


@frozen
class Service:
    """Where a client calls.

    Attributes:
        base: The address.
        tls: Trusts the service, if its address is https.
        connections: How many the client opens at most; this is aiohttp's default.
    """

    base: str
    tls: ssl.SSLContext | None = None
    connections: int = 100


def signed(facts: Mapping[str, Any] = ORDER) -> dict[str, Any]:
    """Return the fields of a request, with a nonce and a signature of their own."""
    fields = {**facts, "nonceStr": secrets.token_hex(16)}
    text = "&".join(f"{name}={value}" for name, value in sorted(fields.items()))
    fields["sign"] = hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()
    return fields


class _Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def post(self, request: bytes) -> asyncio.Future[bytes]:
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._response

    def data_received(self, data: bytes) -> None:
        self._response.set_result(data.partition(b"\r\n\r\n")[2])


@asynccontextmanager
async def floor(service: Service) -> AsyncGenerator[Call]:
    """A bare asyncio protocol with a prebuilt head: what any client costs at least."""
    at, loop, idle = URL(service.base), asyncio.get_running_loop(), list[_Connection]()
    host, port = str(at.host), int(at.port or 80)
    head = f"POST {PATH} HTTP/1.1\r\nHost: {at.authority}\r\nContent-Type: application/json\r\nContent-Length: "

    async def call() -> str:
        if idle:
            connection = idle.pop()
        else:
            _, connection = await loop.create_connection(_Connection, host, port, ssl=service.tls)
        body = orjson.dumps(signed())
        response = await connection.post(f"{head}{len(body)}\r\n\r\n".encode() + body)
        idle.append(connection)
        return str(orjson.loads(response)["redirectUrl"])

    yield call


@asynccontextmanager
async def hand_written(service: Service) -> AsyncGenerator[Call]:
    """Aiohttp as users write it."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=service.tls or True, limit=service.connections)
    ) as http:

        async def call() -> str:
            async with http.post(f"{service.base}{PATH}", json=signed()) as response:
                return str((await response.json())["redirectUrl"])

        yield call


@asynccontextmanager
async def tuned(service: Service) -> AsyncGenerator[Call]:
    """Aiohttp as an expert writes it: orjson, an encoded URL, no cookies, no redirects, no timers."""
    url, headers = URL(f"{service.base}{PATH}", encoded=True), {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=service.tls or True, limit=service.connections),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
    ) as http:

        async def call() -> str:
            body = orjson.dumps(signed())
            async with http.post(url, data=body, headers=headers, allow_redirects=False) as response:
                return str(orjson.loads(await response.read())["redirectUrl"])

        yield call


@asynccontextmanager
async def payasync(service: Service, **settings: Any) -> AsyncGenerator[Call]:
    """The whole middleware."""
    given: dict[str, Any] = {
        "credentials": CREDENTIALS,
        "profile": PROFILE,
        "tls": service.tls,
        "max_connections": service.connections,
    }
    async with Session(service.base, **{**given, **settings}) as pay:

        async def call() -> str:
            order = await pay.orders.place(
                subject="Coffee",
                body="Large coffee",
                total_amt=450,
                currency="CAD",
                notify_url="https://shop.example/notify/payment",
                scene_type="JSAPI",
                out_trade_no="T1",
            )
            return str(order.redirect_url)

        yield call


@asynccontextmanager
async def refunding(base: str, journal: Journal | None) -> AsyncGenerator[Refund]:
    """Give what makes a refund of a number."""
    async with Session(base, credentials=CREDENTIALS, profile=PROFILE, journal=journal) as pay:

        async def refund(number: str) -> None:
            await pay.send(CreateRefund(out_trade_no="T1", out_refund_no=number, total_amt=450, refund_amt=1))

        yield refund


@asynccontextmanager
async def refunds(service: Service, journal: str = "") -> AsyncGenerator[Call]:
    """Refunds of payasync, or of a bare program; each has a number of its own.

    Args:
        service: Where the client calls.
        journal: `SQLite`, `bare` for the file of the bare program, or nothing for no journal.
    """
    with TemporaryDirectory(prefix=".benchmark-", dir=".") as folder:
        path, numbers = Path(folder) / "pay.db", count()
        async with AsyncExitStack() as stack:
            if journal == "bare":
                refund = await stack.enter_async_context(bare_refunding(service.base, path))
            else:
                kept = await stack.enter_async_context(SqliteJournal(path)) if journal else None
                refund = await stack.enter_async_context(refunding(service.base, kept))
            yield lambda: refund(f"R{next(numbers)}")


@asynccontextmanager
async def stripe(service: Service) -> AsyncGenerator[Call]:
    """Another payment SDK, with its own aiohttp client; a key in a header takes the place of the signature."""
    # Here, because it takes half a second; and without types, so that they can be checked where it is missing.
    package: Any = import_module("stripe")
    http = package.AIOHTTPClient()
    client = package.StripeClient("sk_test_of_the_benchmark", base_addresses={"api": service.base}, http_client=http)

    async def call() -> str:
        made = await client.v1.payment_intents.create_async({"amount": 450, "currency": "cad", "description": "Coffee"})
        return str(made["redirectUrl"])

    yield call
    await http.close_async()


@asynccontextmanager
async def httpx(service: Service) -> AsyncGenerator[Call]:
    """Another HTTP client."""
    from httpx import AsyncClient, Limits  # noqa: PLC0415 - only this client needs it

    limits = Limits(max_connections=service.connections, max_keepalive_connections=service.connections)
    async with AsyncClient(base_url=service.base, verify=service.tls or True, limits=limits, timeout=60) as http:

        async def call() -> str:
            return str(json.loads((await http.post(PATH, json=signed())).content)["redirectUrl"])

        yield call


CLIENTS: Final[dict[str, Client]] = {
    "floor": floor,
    "tuned": tuned,
    "hand-written": hand_written,
    "payasync": payasync,
    "stripe": stripe,
    "httpx": httpx,
}
REFUNDS: Final[dict[str, Client]] = {
    "none": refunds,
    "SQLite": partial(refunds, journal="SQLite"),
    "bare": partial(refunds, journal="bare"),
}
