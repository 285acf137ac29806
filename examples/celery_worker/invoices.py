"""The shop's invoices and refunds. Nothing here depends on the task queue."""

import logging
import sqlite3
import time
from collections.abc import Awaitable
from contextlib import closing
from pathlib import Path

from payasync import (
    AuthenticationError,
    CreateRefund,
    DuplicateError,
    NoAnswerError,
    NotSentError,
    OutcomeUnknownError,
    PayasyncError,
    RateLimitedError,
    Response,
    Session,
    StorageError,
)
from payasync.journal import Intent, Reconciler, Result, SqliteJournal

# The journal and the invoices: they commit together.
DATABASE = Path(__file__).with_name("shop.db").absolute()
ATTEMPTS = 8
LONGEST = 900.0  # seconds between two attempts, unless the service asks for more

logger = logging.getLogger("shop")
journal = SqliteJournal(DATABASE)
# This opens nothing yet, and is not bound to a process or event loop.
pay = Session.from_env(journal=journal)


class NotDoneError(Exception):
    """The service declined a write. The task fails, and is not retried."""


async def create_table() -> None:
    """Create the journal, and the table of invoices beside it."""
    await journal.list()  # the journal makes the file
    with closing(sqlite3.connect(DATABASE)) as db, db:
        db.execute(
            "CREATE TABLE IF NOT EXISTS invoices"
            " (number TEXT PRIMARY KEY, order_no TEXT, amount INTEGER,"
            " refunded INTEGER DEFAULT 0)"
        )


async def record_refund(invoice: str) -> int:
    """Mark an invoice as refunded and record its refund, in one transaction.

    Return the id in the journal.
    """
    with closing(sqlite3.connect(DATABASE)) as db, db:
        query = "SELECT order_no, amount FROM invoices WHERE number = ?"
        row = db.execute(query, (invoice,)).fetchone()
        if row is None:
            raise LookupError(f"there is no invoice {invoice}")
        order, amount = row
        refund = CreateRefund(
            out_trade_no=order,
            out_refund_no=f"R-{invoice}",
            total_amt=amount,
            refund_amt=amount,
        )
        pay.check(refund)  # raises an error now if no worker could send it
        intent_id = await journal.add(
            refund, merchant=pay.merchant_id, connection=db
        )
        db.execute("UPDATE invoices SET refunded = 1 WHERE number = ?", (invoice,))
    return intent_id


async def send(intent_id: int) -> Response:
    """Send a recorded write once, even if the queue delivers its id twice."""
    before = await journal.get(intent_id)
    if before and before.state == "rejected":
        # You may have refunded by other means since.
        raise NotDoneError(f"intent {intent_id} was not done: {before.reason}")
    try:
        response = await pay.execute(intent_id)
    finally:
        after = await journal.get(intent_id)
        if after and after.state == "rejected":
            unmark_refunds([after])
    if after and after.state == "rejected":
        # A response that declines the write raises no error.
        raise NotDoneError(f"intent {intent_id} was not done: {after.reason}")
    return response


async def try_call(
    what: str, call: Awaitable[Response], attempt: int
) -> float | None:
    """Await a call. Return the seconds until the next attempt, or None for none."""
    try:
        await call
    except (OutcomeUnknownError, DuplicateError) as error:
        # Perhaps this write has used the number.
        logger.warning("%s may be done, and the reconciler asks: %s", what, error)
        return None
    except (
        AuthenticationError,
        NotSentError,
        NoAnswerError,
        RateLimitedError,
        StorageError,
    ) as error:
        seconds = pause(error, attempt)
        if seconds is None:
            raise
        logger.info("%s is tried again in %d s: %s", what, seconds, error)
        return seconds
    logger.info("%s is done", what)
    return None


def pause(error: PayasyncError, attempt: int) -> float | None:
    """Return the seconds until the next attempt, or None if there is none."""
    if attempt >= ATTEMPTS or getattr(error, "permanent", False):
        return None
    return max(error.retry_after or 0.0, min(4.0**attempt, LONGEST))


async def reconcile() -> list[int]:
    """Ask about unknown writes. Return the ids of writes that no task will send."""
    results: list[Result] = []
    try:
        report = await Reconciler(pay, journal).run_once(results.append)
    finally:
        unmark_refunds([each.intent for each in results if each.rejected])
    logger.info("asked about %d: %s", report.asked, report)
    return await without_task()


def unmark_refunds(not_done: list[Intent]) -> None:
    """Remove the mark of invoices whose refund was not done.

    For example, the bank has declined it.
    """
    unmark = "UPDATE invoices SET refunded = 0 WHERE 'R-' || number = ?"
    with closing(sqlite3.connect(DATABASE)) as db, db:
        db.executemany(unmark, [(each.reference,) for each in not_done])


async def without_task() -> list[int]:
    """Return the ids of all waiting writes that no task will send, page by page."""
    ids: list[int] = []
    after = 0
    while page := await journal.list("new", after=after):
        mine = [each for each in page if each.merchant == pay.merchant_id]
        ids += [each.id for each in mine if is_without_task(each)]
        after = page[-1].id
    return ids


def is_without_task(intent: Intent) -> bool:
    """Return whether a write has lost its task: it has waited for too long.

    The limit is a minute before the first attempt, and later two of the longest
    pauses. A write that has a reason but no attempt keeps waiting: it cannot be sent
    until a person acts.
    """
    if intent.reason and not intent.attempts:
        return False
    limit = 2 * LONGEST if intent.attempts else 60
    return time.time() - intent.updated.timestamp() > limit
