"""The same signed call by three clients, all with the same signature."""

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import orjson
from yarl import URL

from payasync import AnswerShape, Credentials, Profile, Secret, Session, SortedPairs

SCHEME: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex")
KEY: Final = Secret("a signing key of the usual length")
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

Call = Callable[[], Awaitable[Any]]


def signed() -> dict[str, Any]:
    """Return the fields of one order, with a nonce and a signature of their own."""
    fields = {**ORDER, "nonceStr": secrets.token_hex(16)}
    fields["sign"] = SCHEME.sign(fields, path=PATH, key=KEY)
    return fields


@asynccontextmanager
async def hand_written(base: str) -> AsyncGenerator[Call]:
    """Aiohttp as users write it."""
    async with aiohttp.ClientSession() as http:

        async def call() -> str:
            async with http.post(f"{base}{PATH}", json=signed()) as response:
                return str((await response.json())["redirectUrl"])

        yield call


@asynccontextmanager
async def tuned(base: str) -> AsyncGenerator[Call]:
    """Aiohttp as one who knows it writes it: orjson, an encoded URL, no cookies, no redirects, no timers."""
    url, headers = URL(f"{base}{PATH}", encoded=True), {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=None)
    ) as http:

        async def call() -> str:
            body = orjson.dumps(signed())
            async with http.post(url, data=body, headers=headers, allow_redirects=False) as response:
                return str(orjson.loads(await response.read())["redirectUrl"])

        yield call


@asynccontextmanager
async def payasync(base: str) -> AsyncGenerator[Call]:
    """The whole middleware."""
    profile = Profile(signature=SCHEME, answer=AnswerShape(code="code", ok=("OK",), redirect_url="redirectUrl"))
    async with Session(base, credentials=Credentials("M1", signing_key=KEY), profile=profile) as pay:

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


CLIENTS: Final = {"hand-written aiohttp": hand_written, "tuned aiohttp": tuned, "payasync": payasync}
