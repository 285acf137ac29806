"""Building blocks of the journal's tests."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from payasync.clocks import Clocks
from payasync.journal import Journal
from payasync.journal.drafts import draft_from_request, keep_all_but_customer
from payasync.journal.intents import Draft, Intent
from payasync.resources.payments import CreatePayment
from payasync.resources.refunds import CreateRefund
from payasync.wire.request import Request

START: Final = datetime(2027, 1, 1, tzinfo=UTC)
BOOTED: Final = START - timedelta(days=10)
"""When the machine of a `Clock` was started."""
LEASE: Final = 60.0
"""Seconds."""
MERCHANT: Final = "M1"
SERVICE: Final = "https://pay.example/v2"


class Clock:
    """A clock that stands until it is moved; a call returns seconds since 1970."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        """Return what time it is."""
        return self.now.timestamp()

    def advance(self, seconds: float) -> datetime:
        """Let time pass; return what time it is then."""
        self.now += timedelta(seconds=seconds)
        return self.now

    def clocks(self) -> Clocks:
        """Return the clocks of a machine on which it is that time."""
        return Clocks(wall=self, boot=self, tick=lambda: round((self.now - BOOTED).total_seconds() * 1e9))


def refund(number: str = "R1", **given: Any) -> CreateRefund:
    """Return a refund of 200 out of 450."""
    facts: dict[str, Any] = {"out_trade_no": "T1", "total_amt": 450, "refund_amt": 200, **given}
    return CreateRefund(out_refund_no=number, **facts)


PAYMENT: Final = CreatePayment(amount=1000, currency="USD", description="Invoice 42")


def draft(request: Request[Any] | None = None, intent: str | None = None, merchant: str = MERCHANT) -> Draft:
    """Return the draft of a request, by default of a refund."""
    return draft_from_request(request or refund(), merchant, intent, keep_all_but_customer)


def kept(**facts: Any) -> Intent:
    """Return an intent that was stored at the start."""
    given: dict[str, Any] = {
        "id": 1,
        "operation": "refunds.create",
        "merchant": MERCHANT,
        "reference": "R1",
        "number": "refunds.create:R1",
        "hash": "a",
        "state": "sending",
        "created": START,
        "updated": START,
    }
    given |= facts
    return Intent(**given)


def unknown(**facts: Any) -> Intent:
    """Return a refund that may have been done at the start, and was queried once."""
    return kept(**{"state": "unknown", "attempts": 1, "asked": 1, "sent_at": START, **facts})


async def only(journal: Journal) -> Intent:
    """Return the journal's only intent."""
    (intent,) = await journal.list()
    return intent


def content(path: Path) -> bytes | None:
    """Return the bytes of a file; `None` if it does not exist."""
    return path.read_bytes() if path.exists() else None


def move_away(path: Path) -> None:
    """Move a file away from its path."""
    path.rename(path.with_name("elsewhere.db"))
