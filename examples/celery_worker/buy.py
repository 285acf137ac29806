"""Place orders of invoices, and print where to pay: `python buy.py I1 I2`."""

import asyncio
import sqlite3
import sys
from contextlib import closing

import invoices


async def main(numbers: list[str]) -> None:
    """Place an order of 4.50 CAD for each invoice."""
    await invoices.create_table()
    async with invoices.pay as pay:
        for number in numbers:
            order = f"T-{number}"
            placed = await pay.orders.place(
                out_trade_no=order, total_amt=450, currency="CAD", subject="Coffee"
            )
            with closing(sqlite3.connect(invoices.DATABASE)) as db, db:
                db.execute(
                    "INSERT OR IGNORE INTO invoices VALUES (?, ?, 450, 0)",
                    (number, order),
                )
            print(f"Pay invoice {number} at {placed.redirect_url}")
    await invoices.journal.aclose()


asyncio.run(main(sys.argv[1:]))
