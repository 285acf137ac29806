"""If a sandbox is killed at any moment, it resumes, and nothing that it confirmed is lost."""

import asyncio
import itertools
import random
import secrets
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from attrs import Factory, define
from yarl import URL

from tests.cli.sandbox_process import SandboxProcess, serving
from tests.sandbox.foreign import PLACE, QUERY, REFUND, Delivered, Foreign, Receiver

CLIENTS: Final = 4
SECONDS: Final = 30


@define
class Life:
    """One life of the service, with everything that it confirmed, and must never lose.

    Attributes:
        client: Signs and sends.
        receiver: Gets the notifications.
        orders: The last confirmed state of each order.
        refunds: The refunds that were confirmed.
        requests: The confirmed signed requests; each nonce is burned.
        due: The orders and refunds that must be notified.
        begun: Counts the requests that are about to be sent.
    """

    client: Foreign
    receiver: Receiver
    orders: dict[str, str] = Factory(dict)
    refunds: list[str] = Factory(list)
    requests: list[tuple[str, dict[str, Any]]] = Factory(list)
    due: set[str] = Factory(set)
    begun: int = 0

    async def trade(self, numbers: "itertools.count[int]") -> None:
        """Place orders, have them paid, and refund a part, until the service dies."""
        for number in numbers:
            order, refund = f"T{number}", f"R{number}"
            placed = await self._send(PLACE, outTradeNo=order, totalAmt=450, currency="CAD")
            self.orders[order] = "SBX_PENDING"
            self.begun += 1
            decision = {"decision": "authorize"}
            async with self.client.http.post(placed["redirectUrl"], data=decision, allow_redirects=False) as paid:
                await paid.read()
                assert paid.status in {200, 303}
            self.orders[order] = "SBX_PAID"
            self.due.add(order)
            await self._send(REFUND, outTradeNo=order, outRefundNo=refund, totalAmt=450, refundAmt=100)
            self.refunds.append(refund)
            self.due.add(refund)

    async def _send(self, path: str, **fields: Any) -> Any:
        self.begun += 1
        signed = self.client.signed({**fields, "notifyUrl": self.receiver.url})
        answer = await self.client.send("POST", path, json=signed)
        assert 200 == answer.status, answer
        self.requests.append((path, signed))
        return answer.document

    async def die(self, sandbox: SandboxProcess, numbers: "itertools.count[int]", chance: random.Random) -> None:
        """Let several clients trade, and kill the service up to 4 ms after one of their requests has begun."""
        last = chance.randint(20, 40)
        clients = [asyncio.create_task(self.trade(numbers)) for _ in range(CLIENTS)]
        while self.begun < last:
            await asyncio.wait(clients, timeout=0.001)
        await asyncio.wait(clients, timeout=chance.uniform(0, 0.004))
        sandbox.process.kill()
        ends = await asyncio.gather(*clients, return_exceptions=True)

        assert [] == [end for end in ends if not isinstance(end, aiohttp.ClientError)]

    async def check(self, client: Foreign) -> None:
        """Compare a restarted service with what it confirmed in this life, and wait for all notifications."""
        for order, state in self.orders.items():
            found = await client.post(QUERY, outTradeNo=order)
            assert 200 == found.status, (order, found)
            assert found.document["status"] == state or state == "SBX_PENDING"
        for refund in self.refunds:
            status = await client.send("GET", f"{REFUND}/status?outRefundNo={refund}", headers=client.bearer)
            assert (200, "SBX_SUCCEEDED") == (status.status, status.document["status"])
        for path, signed in self.requests:
            assert "SBX_NONCE_USED" == (await client.send("POST", path, json=signed)).code, signed
        async with asyncio.timeout(SECONDS):
            while self.due - {_number(each) for each in self.receiver.received}:
                # The receiver is a server of this loop.
                await asyncio.wait([asyncio.create_task(client.post(QUERY, outTradeNo="T0"))])


def _number(notified: Delivered) -> str:
    data = notified.document["data"]
    return str(data.get("outRefundNo") or data["outTradeNo"])


@pytest.mark.parametrize("kills", [1, pytest.param(25, marks=pytest.mark.long)])
async def test_nothing_is_lost_that_was_confirmed(
    receiver: Receiver, http: aiohttp.ClientSession, tmp_path: Path, kills: int
) -> None:
    """Each kill preserves confirmed orders and refunds, burned nonces, notifications and keys."""
    seed = secrets.randbits(32)
    print("seed", seed)  # noqa: T201 - a failure shows it
    chance, numbers = random.Random(seed), itertools.count()  # noqa: S311 - moments are no secret
    port, credentials, lives = "0", None, list[Life]()
    for count in range(kills + 1):
        with serving("--db", str(tmp_path / "sbx.db"), "--port", port) as sandbox:
            assert credentials in {None, sandbox.credentials}
            port, credentials = str(URL(sandbox.url).port), sandbox.credentials
            client = Foreign(sandbox, http, f"life-{count}")
            for life in lives[-1:] if count < kills else lives:
                await life.check(client)
            if count < kills:
                lives.append(Life(client, receiver))
                await lives[-1].die(sandbox, numbers, chance)

    assert kills * 3 < sum(len(each.requests) for each in lives)
