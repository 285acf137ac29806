"""What must be so after every step, whatever was done: of the journal's file, the service's ledger, and the model."""

import json
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from payasync.journal.intents import TRANSITIONS, Intent
from payasync.sandbox.controls import Ledger
from tests.journal.model import MEANS, Book, Row
from tests.journal.model_calls import Ended
from tests.journal.model_observer import Attempt, Observer
from tests.journal.model_service import ALIVE, OVER, Service, Thing, Wanted

LAWFUL: Final = frozenset(
    {
        *((before, after) for before, those in TRANSITIONS.items() for after in those),
        *(("", first) for first in ("new", "sending")),
        *((last, "") for last in ("succeeded", "rejected")),
    }
)
"""What may become of what; the beginning and the end of an intention included."""
ACCOUNTS: Final[tuple[str, ...]] = ("A1", "A2")
"""The paid orders that refunds are of."""

STATES: Final = {
    "SBX_PENDING": "pending",
    "SBX_PAID": "paid",
    "SBX_CLOSED": "closed",
    "SBX_FAILED": "failed",
    "SBX_PROCESSING": "processing",
    "SBX_SUCCEEDED": "succeeded",
    "SBX_REFUND_FAILED": "failed",
}


def check_journal(book: Book, intents: list[Intent], observer: Observer) -> None:
    """Check that the journal holds what the model holds."""
    expected = [_modelled(row) for row in book.rows.values()]
    found = [(observer.row(each), *_kept(each)) for each in intents]

    assert expected == found, (expected, found)


def check_service(service: Service, ledger: Ledger) -> None:
    """Check that the service has done what the model's has, each once: its ledger says so."""
    refunds = {name: each for name, each in service.things.items() if each.wanted.kind == "refund"}
    orders = {name: each.state for name, each in service.things.items() if each.wanted.kind == "order"}
    back = {
        account: sum(
            each.wanted.amount
            for each in refunds.values()
            if each.state == "succeeded" and each.wanted.account == account
        )
        for account in ACCOUNTS
    }
    counts = len(refunds), len(orders) + len(ACCOUNTS), service.payments

    assert counts == (ledger.refunds(), ledger.orders(), ledger.payments())
    assert {name: each.state for name, each in refunds.items()} == {name: ledger.refund_state(name) for name in refunds}
    assert orders == {name: ledger.order_state(name) for name in orders}
    assert back == {account: ledger.refunded(account) for account in ACCOUNTS}


def check_nonces(nonces: list[str], ledger: Ledger) -> None:
    """Check that no nonce was signed twice, or known at the service before."""
    assert len(set(nonces)) == len(nonces)
    assert "SBX_NONCE_USED" not in {each.code for each in ledger.calls()}


def check_done(book: Book, service: Service) -> None:
    """Check that what the journal has found to be taken, or done, is so."""
    for row in _found(book, "accepted", "succeeded"):
        thing = _check_there(row, service)

        assert row.state == "accepted" or MEANS[row.wanted.kind].get(thing.state) == "succeeded", (row, thing)


def check_open(book: Book, service: Service) -> None:
    """Check that what the service has for an intention is nothing that could be sent again."""
    for row in _found(book, "new", "rejected"):
        made = [each for each in service.things.values() if each.by == row.id]

        assert [] == [each for each in made if each.state in ALIVE and not each.excused], row


def check_told(row: Row, ended: Ended, service: Service) -> None:
    """Check that what a caller was told is done, is done, where no person has said it."""
    if not ended.error and not row.by_person and ended.state not in OVER:
        _check_there(row, service)


def check_attempts(attempts: list[Attempt], forbidden: AbstractSet[Wanted]) -> None:
    """Check that each attempt was kept, in the file, before it left, and that none was at what was done already."""
    done = {(wanted.operation, wanted.number) for wanted in forbidden}
    for attempt in attempts:
        assert "sending" in attempt.states, attempt
        assert (attempt.operation, attempt.reference) not in done, attempt


def done_for(book: Book, service: Service) -> set[Wanted]:
    """Return what the service has, and was made for an intention that the journal still has."""
    made = (each for each in service.things.values() if each.by in book.rows and each.wanted.number)
    return {each.wanted for each in made if each.state in ALIVE and not each.excused}


def thing_of(row: Row, service: Service) -> Thing | None:
    """Return what the service has under an intention's number, or of a payment under that of its answer."""
    return service.things.get(row.thing if row.wanted.kind == "payment" else row.wanted.number or "")


def _check_there(row: Row, service: Service) -> Thing:
    """Check that the service has what was wanted, and not the like of another amount; return it."""
    thing = thing_of(row, service)

    assert thing, row
    assert row.wanted == thing.wanted or row.wanted.kind == "close", (row, thing)
    return thing


def _found(book: Book, *states: str) -> Iterator[Row]:
    """Return the intentions of some states that the journal itself has found out."""
    return (row for row in book.rows.values() if row.state in states and not row.by_person)


def _modelled(row: Row) -> tuple[object, ...]:
    return (
        row.id,
        (row.wanted.operation, row.wanted.number, row.intent, row.queued, row.state),
        (row.attempts, row.asked, row.denied, row.fence),
        (row.lease, row.due, row.updated, row.doubted, row.silent_since, row.answered),
        row.told,
    )


def _kept(intent: Intent) -> tuple[object, ...]:
    """Return the same of the journal's."""
    return (
        (intent.operation, intent.reference, intent.intent, intent.queued, intent.state),
        (intent.attempts, intent.asked, intent.denied, intent.fence),
        (intent.lease, intent.due, intent.updated, intent.sent_at, intent.silent_since, intent.answered),
        STATES[json.loads(intent.outcome.body)["status"]] if intent.outcome else None,
    )
