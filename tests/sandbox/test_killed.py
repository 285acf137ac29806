"""If a sandbox is killed at any moment, it resumes, and nothing that it confirmed is lost."""

import asyncio
import itertools
import json
import random
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web
from attrs import Factory, define
from yarl import URL

from tests.cli.sandbox_process import SandboxProcess, serving
from tests.sandbox.foreign import PLACE, QUERY, REFUND, Foreign, Receiver, acknowledged

CLIENTS: Final = 4
SECONDS: Final = 30
Step = Callable[[], object]


@define
class Acknowledged:
    """Everything that the service confirmed, and must never lose."""

    orders: dict[str, str] = Factory(dict)
    """The last confirmed state of each order."""
    refunds: list[str] = Factory(list)
    """The refunds that were confirmed."""
    requests: list[tuple[str, dict[str, Any]]] = Factory(list)
    """The confirmed signed requests since the last start; each nonce is burned."""
    due: set[str] = Factory(set)
    """The orders and refunds that must be notified."""


async def trade(
    client: Foreign, notify_url: str, known: Acknowledged, numbers: "itertools.count[int]", step: Step
) -> None:
    """Place orders, have them paid, and refund a part, until the service dies.

    Args:
        client: Signs and sends.
        notify_url: The address for notifications.
        known: Records what was confirmed.
        numbers: The numbers of the orders.
        step: Called as each request is about to be sent.
    """

    async def send(path: str, **fields: Any) -> Any:
        step()
        signed = client.signed({**fields, "notifyUrl": notify_url})
        answer = await client.send("POST", path, json=signed)
        assert 200 == answer.status, answer
        known.requests.append((path, signed))
        return answer.document

    for number in numbers:
        order, refund = f"T{number}", f"R{number}"
        placed = await send(PLACE, outTradeNo=order, totalAmt=450, currency="CAD")
        known.orders[order] = "SBX_PENDING"
        step()
        page = placed["redirectUrl"]
        async with client.http.post(page, data={"decision": "authorize"}, allow_redirects=False) as paid:
            await paid.read()
            assert paid.status in {200, 303}
        known.orders[order] = "SBX_PAID"
        known.due.add(order)
        await send(REFUND, outTradeNo=order, outRefundNo=refund, totalAmt=450, refundAmt=100)
        known.refunds.append(refund)
        known.due.add(refund)


async def kill_while_trading(
    sandbox: SandboxProcess, trading: Callable[[Step], Coroutine[Any, Any, None]], chance: random.Random, least: int
) -> None:
    """Let several clients trade, and kill the service up to 4 ms after one of their requests has begun."""
    begun, die, loop = itertools.count(1), asyncio.Event(), asyncio.get_running_loop()
    last, seconds = chance.randint(least, 40), chance.uniform(0, 0.004)

    def step() -> None:
        if next(begun) == last:
            loop.call_later(seconds, die.set)

    clients = [asyncio.create_task(trading(step)) for _ in range(CLIENTS)]
    await asyncio.wait({asyncio.create_task(die.wait()), *clients}, return_when=asyncio.FIRST_COMPLETED)
    sandbox.process.kill()
    ends = await asyncio.gather(*clients, return_exceptions=True)

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


async def all_arrived(receiver: Receiver, due: set[str]) -> None:
    """Wait until a notification about each of these has arrived."""
    came = asyncio.Event()

    async def take() -> web.Response:
        came.set()
        return acknowledged()

    receiver.answer = take
    async with asyncio.timeout(SECONDS):
        while due - {number(each.body) for each in receiver.received}:
            await came.wait()
            came.clear()


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
    chance, numbers = random.Random(seed), itertools.count()  # noqa: S311 - moments are no secret
    db, port, credentials = str(tmp_path / "sbx.db"), "0", None
    lives: list[Acknowledged] = []
    for life in range(kills + 1):
        with serving("--db", db, "--port", port) as sandbox:
            assert credentials in {None, sandbox.credentials}
            port, credentials = str(URL(sandbox.url).port), sandbox.credentials
            foreign = Foreign(sandbox, http, f"life-{life}")
            for known in lives[-1:] if life < kills else lives:
                await check(foreign, known)
                await all_arrived(receiver, known.due)
            lives.append(Acknowledged())
            if life < kills:
                trading = partial(trade, foreign, receiver.url, lives[-1], numbers)
                await kill_while_trading(sandbox, trading, chance, 1 if life else 20)

    assert kills * 3 < sum(len(each.requests) for each in lives)
