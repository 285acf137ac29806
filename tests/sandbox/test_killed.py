"""If a sandbox is killed at any moment, it resumes, and nothing that it confirmed is lost."""

import asyncio
import itertools
import random
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from attrs import Factory, define, evolve

from payasync.sandbox import Sandbox
from tests.inside import turns
from tests.sandbox.foreign import PLACE, REFUND, Foreign, Receiver, acknowledged, as_coroutine


def leave(folder: Path, to: Path) -> None:
    """Copy the database with its log, as a kill would leave them now."""
    to.mkdir()
    for file in folder.glob("sandbox.db*"):
        shutil.copy(file, to)


@define
class Merchant:
    """A client, with everything that the sandbox confirmed to it, and must never lose.

    Attributes:
        client: Signs and sends.
        paid: The orders that were paid.
        refunded: The refunds that were made.
        sent: The signed requests; each nonce is burned.
    """

    client: Foreign
    paid: frozenset[str] = frozenset()
    refunded: frozenset[str] = frozenset()
    sent: tuple[tuple[str, dict[str, Any]], ...] = Factory(tuple)

    async def trade(self, numbers: Iterator[int]) -> None:
        """Place orders, have them paid, and refund a part of each."""
        for number in numbers:
            order, refund = f"T{number}", f"R{number}"
            placed = await self._send(PLACE, outTradeNo=order, totalAmt=450, currency="CAD")
            decision = {"decision": "authorize"}
            async with self.client.http.post(placed["redirectUrl"], data=decision, allow_redirects=False):
                self.paid |= {order}
            await self._send(REFUND, outTradeNo=order, outRefundNo=refund, totalAmt=450, refundAmt=100)
            self.refunded |= {refund}

    async def _send(self, path: str, **fields: Any) -> Any:
        signed = self.client.signed(fields)
        answer = await self.client.send("POST", path, json=signed)
        assert 200 == answer.status, answer
        self.sent += ((path, signed),)
        return answer.document


async def test_nothing_is_lost_that_was_confirmed(
    receiver: Receiver, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Whenever a sandbox is killed, confirmed orders and refunds, nonces, notifications and keys are preserved."""
    seed = secrets.randbits(32)
    print("seed", seed)  # noqa: T201 - a failure shows it
    chance, numbers, lives = random.Random(seed), itertools.count(), list[Merchant]()  # noqa: S311 - no secret
    receiver.answer = as_coroutine(lambda: web.Response(status=503))
    async with Sandbox(db=tmp_path / "sandbox.db", webhook_url=receiver.url, clock="frozen") as first:
        merchant = Merchant(Foreign(first, http))
        clients = [asyncio.create_task(merchant.trade(numbers)) for _ in range(4)]
        for life in range(4):
            await turns(chance.randint(20, 60))
            leave(tmp_path, tmp_path / str(life))
            lives.append(evolve(merchant))
        for client in clients:
            client.cancel()
        await asyncio.wait(clients)
    receiver.answer = as_coroutine(acknowledged)
    for life, confirmed in enumerate(lives):
        receiver.received.clear()
        path = tmp_path / str(life) / "sandbox.db"
        async with Sandbox(db=path, webhook_url=receiver.url, clock="frozen") as sandbox:
            await sandbox.clock.advance(hours=1)
            for order in confirmed.paid:
                assert "paid" == sandbox.ledger.order_state(order)
            for refund in confirmed.refunded:
                assert "succeeded" == sandbox.ledger.refund_state(refund)
            for url, signed in confirmed.sent:
                assert "SBX_NONCE_USED" == (await Foreign(sandbox, http).send("POST", url, json=signed)).code
            assert first.credentials == sandbox.credentials
        data = [each.document["data"] for each in receiver.received]
        assert confirmed.paid | confirmed.refunded <= {each.get("outRefundNo") or each["outTradeNo"] for each in data}
    assert len(lives[-1].refunded) > 3
