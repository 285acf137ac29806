"""The story of a receiver that stalls until its lease is over: another takes its event, and it cannot interfere."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

from payasync import Credentials
from payasync.notifications import Claim, Pace, Receiver, SqliteInbox
from payasync.sandbox import PROFILE
from payasync.testing import sign_notification
from tests.inside import until
from tests.notifications.shop import ORDER, Books, keep_books

CREDENTIALS: Final = Credentials("M1", notification_keys="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
LEASE: Final = 30.0
"""Less than the 60 s after which the clock of the first would count as set back: the second is ahead of it."""


class Stalling(SqliteInbox):
    """An inbox whose caller can be made to stall before it notes that a handler is done.

    Args:
        path: Its file.
        ahead: So many seconds its clock is ahead of the machine's.
    """

    def __init__(self, path: Path, ahead: float) -> None:
        super().__init__(path, clock=lambda: time.time() + ahead)
        self.going = asyncio.Event()
        self.stalled = False

    async def handled(self, claim: Claim, handler: str) -> bool:
        """Remember a handler, later."""
        self.stalled = True
        await self.going.wait()
        return await super().handled(claim, handler)


async def never(_seconds: float) -> None:
    """Stall: no lease is ever extended."""
    await asyncio.Event().wait()


@frozen
class Peer:
    """One of two receivers on one inbox."""

    receiver: Receiver
    inbox: Stalling


@asynccontextmanager
async def peer(folder: Path, ahead: float = 0) -> AsyncGenerator[Peer]:
    """Open a receiver, whose clock is ahead by so many seconds; what fails in it is due again at once."""
    inbox = Stalling(folder / "inbox.db", ahead)
    pace = Pace(clock=lambda: time.time() + ahead, sleep=never, jitter=lambda _: 0.0)
    receiver = Receiver(profile=PROFILE, credentials=CREDENTIALS, inbox=inbox, lease=LEASE, pace=pace)
    try:
        yield Peer(receiver, inbox)
    finally:
        inbox.going.set()
        await receiver.aclose(grace=0)


async def tell(peer: Peer) -> None:
    """Have a receiver told of a payment."""
    told = {"outTradeNo": ORDER, "status": "SBX_PAID"}
    signed = sign_notification(told, profile=PROFILE, credentials=CREDENTIALS, kind="payment")
    answer = await peer.receiver.receive(signed.raw, signed.headers)
    assert 200 == answer.status


async def test_effect_is_had_once_though_two_had_the_lease(tmp_path: Path) -> None:
    """The first commits its effect, and stalls; the second finds its mark; the first notes nothing any more."""
    books = Books(tmp_path / "books.db")
    async with peer(tmp_path) as first, peer(tmp_path, ahead=LEASE + 1) as second:
        for each in (first, second):
            keep_books(each.receiver, books)
        await tell(first)
        await until(lambda: first.inbox.stalled)
        second.inbox.going.set()
        await second.receiver.settle()
        done = await second.receiver.events()
        first.inbox.going.set()
        await first.receiver.settle()

        assert [ORDER] == books.of("credited")
        assert [ORDER] == books.of("mailed")  # the first stalled before it, and must not come back to it
        assert ["done"] == [each.state for each in done]
        assert done == await first.receiver.events()
