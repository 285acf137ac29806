"""examples/celery_worker: the commands of its README.md, with a real Redis, and a worker that is killed."""

import re
import shlex
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import pytest

from tests.integrations.worker_shop import SECONDS, Shop, open_shop
from tests.redis_server import Server
from tests.test_readme import blocks

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "celery_worker"
ONE_AT_A_TIME: Final = ("--concurrency", "1", "--without-mingle")


def commands() -> list[list[str]]:
    """Return the commands of README.md that start programs of the example, in their order."""
    shown = "".join(text for _, text in blocks((EXAMPLE / "README.md").read_text(encoding="utf-8"), "bash"))
    return [shlex.split(line) for line in re.findall(r"^(?:celery|python (?!-m)).*$", shown, re.MULTILINE)]


@pytest.fixture
async def shop(tmp_path: Path, redis_server: Server) -> AsyncGenerator[Shop]:
    """The example in a folder of its own, with a sandbox and a Redis."""
    async with open_shop(tmp_path) as opened:
        opened.environment["REDIS_URL"] = redis_server.celery_url
        opened.write({path.name: path.read_text(encoding="utf-8") for path in EXAMPLE.glob("*.py")})
        yield opened


async def test_refund_is_recorded_and_queued(shop: Shop, redis_server: Server) -> None:
    """An invoice has an order, and its refund is in the journal and in the queue before any worker runs."""
    _, _, buy, refund = commands()
    address = await shop.run(*buy)
    await shop.run(*refund)

    assert shop.sandbox.url in address
    assert [("T-I1", "accepted"), ("T-I2", "accepted"), ("R-I1", "new")] == await shop.states()
    assert [("I1", 1), ("I2", 0)] == shop.rows("SELECT number, refunded FROM invoices")
    with redis_server.client() as client:
        assert 1 == client.llen("celery")


@pytest.mark.long
async def test_worker_is_killed_in_the_middle_of_a_refund(shop: Shop) -> None:
    """A refund whose worker was killed is asked about by another worker, and made once."""
    work, tick, buy, refund = commands()
    await shop.run(*buy)
    for order in ("T-I1", "T-I2"):
        await shop.sandbox.customer.authorize(order)
    shop.sandbox.webhook_url = shop.told.url
    clock = await shop.start(tick, "--loglevel", "debug")  # writes its schedule to the disk
    worker = await shop.start(work, *ONE_AT_A_TIME)
    await shop.run(*refund)
    await worker.says("intent 3 is done")
    await shop.told.next(timeout=SECONDS)
    shop.sandbox.faults.hang("refunds.create", phase="after")
    await shop.run(*refund[:-1], "I2")
    await shop.told.next(timeout=SECONDS)
    await worker.end(signal.SIGKILL)
    await clock.says("beat: Ticking")
    await clock.end(signal.SIGTERM)
    killed = await shop.states()

    worker = await shop.start(work, *ONE_AT_A_TIME, late=True)
    await shop.start(tick, late=True)
    await worker.says("asked about 3")  # the orders, too

    assert ("R-I2", "sending") == killed[-1]
    assert [("R-I1", "succeeded"), ("R-I2", "succeeded")] == (await shop.states())[2:]
    assert {"T-I1": 450, "T-I2": 450} == {order: shop.sandbox.ledger.refunded(order) for order in ("T-I1", "T-I2")}
    assert [200, 200] == shop.answers()
