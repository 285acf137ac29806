"""examples/celery_worker: the commands of its README.md, with a real Redis."""

import re
import shlex
from pathlib import Path
from typing import Final

from tests.integrations.worker_shop import open_shop
from tests.redis_server import Server
from tests.test_readme import blocks

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "celery_worker"


def commands() -> list[list[str]]:
    """Return the commands of README.md that start programs of the example, in their order."""
    shown = "".join(text for _, text in blocks((EXAMPLE / "README.md").read_text(encoding="utf-8"), "bash"))
    return [shlex.split(line) for line in re.findall(r"^(?:celery|python (?!-m)).*$", shown, re.MULTILINE)]


async def test_refund_is_recorded_and_queued(tmp_path: Path, redis_server: Server) -> None:
    """An invoice has an order, and its refund is in the journal and in the queue before any worker runs.

    tests/integrations/test_tasks_docs.py runs the workers.
    """
    _, _, buy, refund = commands()
    async with open_shop(tmp_path) as shop:
        shop.environment["REDIS_URL"] = redis_server.celery_url
        shop.write({path.name: path.read_text(encoding="utf-8") for path in EXAMPLE.glob("*.py")})
        address = await shop.run(*buy)
        await shop.run(*refund)

        assert shop.sandbox.url in address
        assert [("T-I1", "accepted"), ("T-I2", "accepted"), ("R-I1", "new")] == await shop.states()
        assert [("I1", 1), ("I2", 0)] == shop.rows("SELECT number, refunded FROM invoices")
    with redis_server.client() as client:
        assert 1 == client.llen("celery")
