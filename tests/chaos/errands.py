"""What a merchant does all day, drawn at random: each errand is one operation of the soak."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final

from payasync import CreateRefund, PayasyncError, RetryPolicy, Session, Timeouts
from payasync.journal import Reconciler, SqliteJournal
from payasync.journal.reconcile_policy import Patience
from payasync.journal.reconciler import OnResult
from payasync.notifications import Receiver, SqliteInbox

ORDER: Final = "T0"
"""The paid order that all refunds are of."""
PAID: Final = 900_000_000
TIMES: Final = Timeouts(total=0.6, connect=0.3, read=0.2)
PATIENT: Final = RetryPolicy(attempts=3, base_delay=0.02, max_delay=0.1, quota=1_000_000)
IMPATIENCE: Final = 0.05
"""Seconds, within which a caller gives up that gives up."""
MANY: Final = 5
PAUSE: Final = 0.2
"""Seconds between two runs of the reconciler."""
PATIENCE: Final = Patience(first=0.2, longest=1.0, questions=30)

ERRANDS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "refund": 40,
        "order": 15,
        "question": 15,
        "queued": 10,
        "payment": 5,
        "subscription": 4,
        "cancelled": 4,
        "shielded": 4,
        "bulk": 2,
        "session": 1,
    }
)
"""The errands, each a method, and how many in a hundred."""


class Errands:
    """Goes about one merchant's business.

    Args:
        pay: The session.
        journal: The session's.
        folder: Where other journals and inboxes may stand.
        notify: What is told of refunds and orders: ten addresses that begin so, since each hears one thing at a time.
        seed: Repeats the draws.
    """

    def __init__(self, pay: Session, journal: SqliteJournal, folder: Path, notify: str, seed: int) -> None:
        self._pay = pay
        self._journal = journal
        self._folder = folder
        self._notify = notify
        self._seed = seed
        self.done: Final = Counter[str]()
        """By errand, and by the errors that errands ended with."""

    async def run(self, operation: int) -> None:
        """Do what is drawn; that it fails, or is not known to be done, is part of it."""
        chance = Random(f"{self._seed} {operation}")  # noqa: S311 - to be repeated
        (errand,) = chance.choices([*ERRANDS], [*ERRANDS.values()])
        self.done[errand] += 1
        try:
            await getattr(self, errand)(f"R{operation}", chance)
        except PayasyncError as error:
            self.done[type(error).__name__] += 1

    async def refund(self, number: str, _: Random) -> None:
        """Give back some of what was paid."""
        await self._pay.send(self._refund(number))

    async def order(self, number: str, _: Random) -> None:
        """Place an order, and close it."""
        url = self._address(number)
        await self._pay.orders.place(total_amt=1, currency="CAD", out_trade_no=number, notify_url=url)
        await self._pay.orders.close(number)

    async def question(self, number: str, chance: Random) -> None:
        """Ask for what was paid, or for a refund that there may be."""
        if chance.random() < 1 / 2:
            await self._pay.orders.query(ORDER)
        await self._pay.refunds.status(f"R{chance.randrange(int(number[1:]) + 1)}")

    async def queued(self, number: str, _: Random) -> None:
        """Send a refund from the journal."""
        await self._pay.execute(await self._journal.add(self._refund(number), merchant=self._pay.merchant_id))

    async def payment(self, number: str, _: Random) -> None:
        """Charge, by what nobody can ask about, and ask for another."""
        await self._pay.payments.create(amount=1, currency="CAD", intent=number)
        await self._pay.payments.status(ORDER)

    async def subscription(self, number: str, _: Random) -> None:
        """Begin a subscription, change it, and end it."""
        today, customer = datetime.now(UTC).date(), {"email": f"{number}@example.com"}
        made = await self._pay.subscriptions.create(
            frequency="monthly", amount=9, start_date=today, customer=customer, intent=number
        )
        of = str(made.subscription_id)
        await self._pay.subscriptions.update(of, amount=8, intent=f"{number}-update")
        await self._pay.subscriptions.cancel(of, intent=f"{number}-cancel")

    async def cancelled(self, number: str, chance: Random, *, shield: bool = False) -> None:
        """Lose patience with a refund."""
        task = asyncio.create_task(self._pay.send(self._refund(number), shield=shield))
        await asyncio.sleep(chance.random() * IMPATIENCE)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            await task

    async def shielded(self, number: str, chance: Random) -> None:
        """Lose patience, but let it go on."""
        await self.cancelled(number, chance, shield=True)

    async def bulk(self, number: str, chance: Random) -> None:
        """Send many at once, and perhaps look away before their end."""
        refunds = [self._refund(f"{number}-{each}") for each in range(MANY)]
        async with aclosing(self._pay.bulk(refunds, limit=3)) as results:
            async for _ in results:
                if chance.random() < 1 / MANY:
                    break

    async def session(self, number: str, _: Random) -> None:
        """Open all that there is a second time, use it once, and close it."""
        inbox = SqliteInbox(self._folder / "another-inbox.db")
        async with (
            SqliteJournal(self._folder / "another.db") as journal,
            Session.from_env(timeouts=TIMES, retry=PATIENT, journal=journal) as pay,
            Receiver(inbox=inbox, session=pay),
        ):
            await pay.send(self._refund(number))

    def _refund(self, number: str) -> CreateRefund:
        url = self._address(number)
        return CreateRefund(out_trade_no=ORDER, out_refund_no=number, total_amt=PAID, refund_amt=1, notify_url=url)

    def _address(self, number: str) -> str:
        return f"{self._notify}{number[-1]}"


@asynccontextmanager
async def reconciling(reconciler: Reconciler, notify: OnResult) -> AsyncGenerator[asyncio.Lock]:
    """Ask again and again what became of unknown writes; whoever holds the lock has that stand still.

    Args:
        reconciler: Asks.
        notify: Is given each result.
    """
    standstill = asyncio.Lock()

    async def watch() -> None:
        while True:
            async with standstill:
                with suppress(PayasyncError):
                    await reconciler.run_once(notify)
            await asyncio.sleep(PAUSE)

    task = asyncio.create_task(watch())
    try:
        yield standstill
    finally:
        task.cancel()
        await asyncio.wait({task})
