"""Run the example on a sandbox in which the three orders of refunds.csv are paid."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from refund_from_csv import run

from payasync.journal import SqliteJournal
from payasync.sandbox import Sandbox


async def main(folder: Path) -> None:
    """Refund the rows twice. The second run sends nothing: the journal has them."""
    source, target = Path(__file__).with_name("refunds.csv"), folder / "results.csv"
    async with Sandbox() as sandbox, SqliteJournal(folder / "pay.db") as journal:
        for order, paid in (("T1", 450), ("T2", 1999), ("T3", 29)):
            await sandbox.given.paid_order(out_trade_no=order, total_amt=paid)
        async with sandbox.session(journal=journal) as pay:
            for _ in range(2):
                print("exit code:", await run(pay, journal, source, target))
                print("refunds at the service:", sandbox.ledger.refunds())
    print(target.read_text(encoding="utf-8"))


with TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder)))
