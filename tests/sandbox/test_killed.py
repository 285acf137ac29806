"""Killed at any moment, the sandbox resumes, and nothing that it confirmed is lost."""

import asyncio
import itertools
import json
import random
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import pytest
from aiohttp import web
from attrs import Factory, define, frozen
from yarl import URL

from tests.cli.sandbox_process import SandboxProcess, serving
from tests.sandbox.foreign import PLACE, QUERY, REFUND, Foreign, Receiver, acknowledged

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS: Final = 4
SECONDS: Final = 30
AMOUNT: Final = 450
GIVEN_BACK: Final = 100


@define
class Acknowledged:
    """What the service confirmed, and so must never lose."""

    orders: dict[str, str] = Factory(dict)
    """The last confirmed state of each order."""
    refunds: dict[str, str] = Factory(dict)
    """The order of each refund."""
    requests: list[tuple[str, dict[str, Any]]] = Factory(list)
    """The confirmed signed requests since the last start; each nonce is burned."""
    due: set[str] = Factory(set)
    """The orders and refunds that must be notified."""


class Merchant:
    """Places orders, has them paid, and refunds a part, until the service dies.

    Args:
        client: Signs and sends.
        notify_url: Where it hears of them.
        known: Where it notes what was answered.
        numbers: Of its orders.
    """

    def __init__(self, client: Foreign, notify_url: str, known: Acknowledged, numbers: "itertools.count[int]") -> None:
        self._client = client
        self._notify_url = notify_url
        self._known = known
        self._numbers = numbers
        self.step: Callable[[], object] = bool
        """Called as each request is about to be sent."""

    async def trade(self) -> None:
        """Go from order to order."""
        while True:
            number = next(self._numbers)
            await self._order(self._known, f"T{number}", f"R{number}")

    async def _order(self, known: Acknowledged, order: str, refund: str) -> None:
        placed = await self._send(PLACE, outTradeNo=order, totalAmt=AMOUNT, currency="CAD")
        known.orders[order] = "SBX_PENDING"
        self.step()
        page = placed["redirectUrl"]
        async with self._client.http.post(page, data={"decision": "authorize"}, allow_redirects=False) as paid:
            await paid.read()
            assert paid.status in {200, 303}
        known.orders[order] = "SBX_PAID"
        known.due.add(order)
        await self._send(REFUND, outTradeNo=order, outRefundNo=refund, totalAmt=AMOUNT, refundAmt=GIVEN_BACK)
        known.refunds[refund] = order
        known.due.add(refund)

    async def _send(self, path: str, **fields: Any) -> Any:
        self.step()
        signed = self._client.signed({**fields, "notifyUrl": self._notify_url})
        answer = await self._client.send("POST", path, json=signed)
        assert 200 == answer.status, answer
        self._known.requests.append((path, signed))
        return answer.document


def client(sandbox: SandboxProcess, http: aiohttp.ClientSession, nonces: str) -> Foreign:
    """Return a foreign client, whose nonces begin with a text."""
    return Foreign(sandbox, http, nonces)


@frozen
class Moment:
    """When the service is killed: so many seconds after so many requests have begun."""

    requests: int
    seconds: float


async def killed_while_trading(sandbox: SandboxProcess, merchant: Merchant, moment: Moment) -> None:
    """Let some clients trade, and kill the service during that."""
    begun, die, loop = itertools.count(1), asyncio.Event(), asyncio.get_running_loop()

    def step() -> None:
        if next(begun) == moment.requests:
            loop.call_later(moment.seconds, die.set)

    merchant.step = step
    trading = [asyncio.ensure_future(merchant.trade()) for _ in range(CLIENTS)]
    await asyncio.wait({asyncio.ensure_future(die.wait()), *trading}, return_when=asyncio.FIRST_COMPLETED)
    sandbox.process.kill()
    ends = await asyncio.gather(*trading, return_exceptions=True)

    assert [] == [end for end in ends if not isinstance(end, aiohttp.ClientError)]


async def check(client: Foreign, known: Acknowledged) -> None:
    """Compare a restarted service with what it had confirmed."""
    for order, state in known.orders.items():
        found = await client.post(QUERY, outTradeNo=order)
        assert 200 == found.status, (order, found)
        assert found.document["status"] == state or state == "SBX_PENDING"
    for refund in known.refunds:
        status = await client.send(
            "GET", "/payment/refund/status", params={"outRefundNo": refund}, headers=client.bearer
        )
        assert (200, "SBX_SUCCEEDED") == (status.status, status.document["status"])
    for path, signed in known.requests:
        again = await client.send("POST", path, json=signed)
        assert "SBX_NONCE_USED" == again.code, signed


class Ears:
    """Waits for notifications.

    Args:
        receiver: Takes them.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._came = asyncio.Event()
        receiver.answer = self._answer

    async def _answer(self) -> web.Response:
        self._came.set()
        return acknowledged()

    async def hear(self, due: set[str]) -> None:
        """Return when a notification has come of each of these."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while self._missing(due):
                    await self._came.wait()
                    self._came.clear()

        assert set() == self._missing(due)

    def _missing(self, due: set[str]) -> set[str]:
        return due - {number(each.body) for each in self._receiver.received}


def number(body: str) -> str:
    """Return the number in a notification: the refund's before the order's."""
    data = json.loads(body)["data"]
    return str(data.get("outRefundNo") or data["outTradeNo"])


@pytest.mark.parametrize("kills", [1, pytest.param(25, marks=pytest.mark.long)])
async def test_nothing_is_lost_that_was_answered(
    receiver: Receiver, http: aiohttp.ClientSession, tmp_path: Path, kills: int
) -> None:
    """Each kill preserves confirmed orders and refunds, burned nonces, notifications and keys."""
    seed = secrets.randbits(32)
    print("seed", seed)  # noqa: T201 - a failure shows it
    chance, numbers, ears = random.Random(seed), itertools.count(), Ears(receiver)  # noqa: S311 - moments are no secret
    db, port, credentials = str(tmp_path / "sbx.db"), "0", None
    lives: list[Acknowledged] = []
    for life in range(kills + 1):
        with serving("--db", db, "--port", port) as sandbox:
            assert credentials in {None, sandbox.credentials}
            port, credentials = str(URL(sandbox.url).port), sandbox.credentials
            foreign = client(sandbox, http, f"life-{life}")
            for known in lives[-1:] if life < kills else lives:
                await check(foreign, known)
                await ears.hear(known.due)
            lives.append(Acknowledged())
            if life < kills:
                at = Moment(chance.randint(20, 40) if life == 0 else chance.randint(1, 40), chance.uniform(0, 0.004))
                await killed_while_trading(sandbox, Merchant(foreign, receiver.url, lives[-1], numbers), at)

    assert kills * 3 < sum(len(each.requests) for each in lives)


async def test_timers_go_on(http: aiohttp.ClientSession, tmp_path: Path) -> None:
    """An order that was placed before the kill expires after it, when its time has come."""
    db = ("--db", str(tmp_path / "sbx.db"), "--clock", "2000x")
    with serving(*db) as sandbox:
        placed = await client(sandbox, http, "first").place("T1")
        sandbox.process.kill()
    with serving(*db) as sandbox:
        foreign = client(sandbox, http, "second")
        async with asyncio.timeout(SECONDS):
            found = await foreign.post(QUERY, outTradeNo="T1")
            while "SBX_PENDING" == found.document["status"]:
                found = await foreign.post(QUERY, outTradeNo="T1")

    assert "SBX_PENDING" == placed.document["status"]
    assert "SBX_EXPIRED" == found.document["status"]
