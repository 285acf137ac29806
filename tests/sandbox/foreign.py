"""A client that shares no code with payasync: it signs and sends with a few lines of its own."""

import asyncio
import errno
import hashlib
import hmac
import itertools
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp
from aiohttp import web
from attrs import field, frozen

NOON: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)
PLACE: Final = "/payment/unifiedorder"
QUERY: Final = "/payment/orderquery"
CLOSE: Final = "/payment/closeorder"
REFUND: Final = "/payment/refund"
PAY: Final = "/v1/payments"
SUBSCRIBE: Final = "/subscriptions/create"
PLAN: Final[Mapping[str, Any]] = {
    "billingFrequency": "monthly",
    "amount": 900,
    "startDate": "2999-01-31",
    "customer": {"email": "a@example.com"},
}
"""A subscription that the sandbox accepts."""


@frozen
class Answer:
    """A response."""

    status: int
    document: Any
    headers: Mapping[str, str]

    @property
    def code(self) -> object:
        """The result code, as the sandbox's own profile names it."""
        return self.document["code"]

    @property
    def result(self) -> tuple[int, object]:
        """The status and the code."""
        return self.status, self.code


class Foreign:
    """A client that uses the wire names of the sandbox's own profile."""

    def __init__(self, sandbox: Any, http: aiohttp.ClientSession, nonces: str = "nonce") -> None:
        self.sandbox = sandbox
        self.http = http
        self._nonces = (f"{nonces}-{count}" for count in itertools.count())
        signing_key, secret_key = sandbox.credentials.signing_key, sandbox.credentials.secret_key
        assert signing_key
        assert secret_key
        self._signing_key = signing_key.reveal()
        self.bearer = {"Authorization": f"Bearer {secret_key.reveal()}"}

    def signed(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return fields with the merchant's number, a new nonce and a signature."""
        given = {"merchantId": "SANDBOX", "nonceStr": next(self._nonces), **fields}
        text = "&".join(f"{name}={given[name]}" for name in sorted(given) if given[name] != "")
        return {**given, "sign": hmac.new(self._signing_key.encode(), text.encode(), hashlib.sha256).hexdigest()}

    async def send(self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **options: Any) -> Answer:
        """Send any request."""
        url = self.sandbox.url + path
        async with self.http.request(method, url, headers=headers, allow_redirects=False, **options) as answer:
            text = await answer.text()
            document = json.loads(text) if answer.content_type == "application/json" else text
            return Answer(answer.status, document, dict(answer.headers))

    async def post(self, path: str, **fields: Any) -> Answer:
        """Send a signed request."""
        return await self.send("POST", path, json=self.signed(fields))

    async def place(self, out_trade_no: str, total_amt: int = 450, **fields: Any) -> Answer:
        """Place an order."""
        return await self.post(PLACE, outTradeNo=out_trade_no, totalAmt=total_amt, currency="CAD", **fields)

    async def refund(
        self, out_refund_no: str, refund_amt: int, *, out_trade_no: str, total_amt: int = 450, **fields: Any
    ) -> Answer:
        """Request a refund."""
        given = {"outTradeNo": out_trade_no, "outRefundNo": out_refund_no, **fields}
        return await self.post(REFUND, totalAmt=total_amt, refundAmt=refund_amt, **given)

    async def subscribe(self, **changes: Any) -> Answer:
        """Request a subscription."""
        return await self.send("POST", SUBSCRIBE, json={**PLAN, **changes}, headers=self.bearer)


@frozen
class Delivered:
    """A notification as it arrived."""

    headers: Mapping[str, str]
    body: str

    @property
    def document(self) -> Any:
        """The JSON of the body."""
        return json.loads(self.body)


@frozen
class Held:
    """A response that a receiver holds back, with events for its request and its release."""

    asked: asyncio.Event = field(factory=asyncio.Event)
    released: asyncio.Event = field(factory=asyncio.Event)


class Receiver:
    """A merchant's server for notifications."""

    def __init__(self) -> None:
        self.received: list[Delivered] = []
        self.answer: Callable[[], Awaitable[web.Response]] = as_coroutine(acknowledged)
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on a free port."""
        application = web.Application()
        application.router.add_post("/notify", self._take)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/notify"

    async def close(self) -> None:
        """Stop listening."""
        if self._runner:
            await self._runner.cleanup()

    def hold(self) -> Held:
        """Hold all acknowledgements back until they are released."""
        held = Held()

        async def wait() -> web.Response:
            held.asked.set()
            await held.released.wait()
            return acknowledged()

        self.answer = wait
        return held

    async def _take(self, request: web.Request) -> web.Response:
        self.received.append(Delivered(dict(request.headers), await request.text()))
        return await self.answer()


def acknowledged() -> web.Response:
    """Return the acknowledgement of the sandbox's own profile."""
    return web.json_response({"received": True})


def as_coroutine(answer: Callable[[], web.Response]) -> Callable[[], Awaitable[web.Response]]:
    """Return a receiver's response."""

    async def answered() -> web.Response:
        return answer()

    return answered


async def raw(url: str, request: bytes) -> bytes:
    """Send bytes, and return the first line that comes back."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return answer


def refuses(url: str) -> bool:
    """Return whether the kernel refuses connections to a server."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == errno.ECONNREFUSED
