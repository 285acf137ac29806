"""If a shop is killed by SIGKILL, no acknowledged event is lost, and no transaction's effect comes twice."""

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from payasync import Profile
from payasync.cli.sandbox import environment_of
from payasync.sandbox import Sandbox
from tests.chaos.forked import Forked
from tests.notifications.shop import Books

PROGRAM: Final = Path(__file__).with_name("shop_process.py")
LATER: Final = 20
"""By so many seconds the clock of a second life is ahead: a lease of the first, which was 10 seconds long, is over."""
ORDERS: Final = ["ORDERA", "ORDERB", "ORDERC", "ORDERD", "ORDERE"]
MOMENTS: Final = {
    "arrived": "verified, and not yet in the inbox",
    "stored": "committed in the inbox, and not yet acknowledged",
    "claimed": "claimed from the inbox, and not yet handled",
    "crediting": "in the midst of the handler with a transaction",
    "credited": "after that transaction, and before the inbox knows",
    "mailing": "in the midst of the handler without one",
    "mailed": "after that, and before the inbox knows",
    "done": "after the event is done",
}


def free_place(folder: Path) -> list[str]:
    """Return a folder, and a host and a port that nobody takes while the shop is dead."""
    host = f"127.{secrets.randbelow(250) + 1}.{secrets.randbelow(250) + 1}.1"
    with socket.create_server((host, 0)) as free:
        return [str(folder), host, str(free.getsockname()[1])]


@contextmanager
def life(place: list[str], environment: Mapping[str, str], ahead: int = 0, fatal: str = "") -> Generator[Forked]:
    """Run a shop until the block ends."""
    with Forked(PROGRAM, *place, str(ahead), fatal, environment={**os.environ, **environment}) as process:
        assert "serves\n" == process.stdout.readline()
        yield process


def environment(sandbox: Sandbox, folder: Path) -> dict[str, str]:
    """Return the variables by which a shop finds the service."""
    file = folder / "service.toml"
    file.write_text(sandbox.profile.to_toml(), encoding="utf-8")
    return environment_of(sandbox, file)


async def settled(url: str) -> None:
    """Wait until nothing is due in a shop."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/settled") as answer:
        answer.raise_for_status()


@pytest.mark.parametrize("fatal", MOMENTS)
async def test_killed(fatal: str, profile: Profile, tmp_path: Path) -> None:
    """A handler with a transaction has each effect once, wherever the shop is killed; one without, at least once."""
    place, books = free_place(tmp_path), Books(tmp_path / "books.db")
    url = f"http://{':'.join(place[1:])}"
    async with Sandbox(profile, clock="frozen") as sandbox:
        given = environment(sandbox, tmp_path)
        with life(place, given, fatal=fatal) as first:
            for each in ORDERS:
                await sandbox.given.paid_order(out_trade_no=each, notify_url=f"{url}/notify/payment?to={each}")
            await sandbox.settle()
            ended = await asyncio.to_thread(first.wait)
        acknowledged = {each.reference for each in sandbox.ledger.notifications() if each.state == "delivered"}
        with life(place, given, ahead=LATER):
            await settled(url)
            credited = set(books.of("credited"))
            for wait in profile.sandbox.redelivery:
                await sandbox.clock.advance(seconds=wait)
            await settled(url)
        states = {each.state for each in sandbox.ledger.notifications()}
    mailed = books.of("mailed")

    assert -signal.SIGKILL == ended
    assert acknowledged <= credited
    assert ORDERS == books.of("credited")
    assert set(ORDERS) == set(mailed)
    assert len(mailed) > len(ORDERS) or fatal != "mailed"
    assert {"delivered"} == states
