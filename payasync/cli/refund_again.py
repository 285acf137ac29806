"""Which rows of an import are sent again though somebody may have heard that they were not done.

Whoever heard of it may have refunded by other means.
"""

from collections.abc import Sequence

from attrs import frozen

from payasync.cli.refund_sheet import Row
from payasync.journal import Intent, Journal
from payasync.journal.hashing import COUNTED, digest
from payasync.journal.reconciler import PAGE
from payasync.operations import CREATE_REFUND


@frozen
class Again:
    """A row that is sent again.

    Attributes:
        row: Of the file.
        why: It was not done, in one line.
    """

    row: Row
    why: str


def was_told(kept: Intent) -> bool:
    """Return whether somebody may have heard, from others than its call, that a refund was not done.

    The service took it and declined it; or a question, a notification or a person has ended what was in doubt, or
    waited. What the service refused, or what never left, has no answer, and was claimed by those alone who sent it.
    """
    return kept.state == "rejected" and (kept.outcome is not None or kept.fence > kept.attempts)


async def sent_again(journal: Journal, merchant: str, rows: Sequence[Row]) -> Sequence[Again]:
    """Return the rows that the journal has as such; one whose number stands for another refund is not sent.

    Args:
        journal: Is read only.
        merchant: The merchant's number.
        rows: Good and bad ones.

    Raises:
        StorageError: The journal cannot be read now.
    """
    wanted = {row.number: row for row in rows if row.request}
    found: list[Again] = []
    after = 0
    while page := await journal.list("rejected", limit=PAGE, after=after):
        for each in page:
            row = wanted.get(each.reference or "") if each.operation == CREATE_REFUND.name else None
            if row and was_told(each) and each.hash == _hash(row, merchant):
                found.append(Again(row, each.reason))
        after = page[-1].id
    return sorted(found, key=lambda each: each.row.line)


def _hash(row: Row, merchant: str) -> str:
    """Return what a journal tells this refund from others by; the merchant is in it."""
    counted = {name: getattr(row.request, name) for name in COUNTED[CREATE_REFUND.name]}
    return digest(CREATE_REFUND.name, merchant, counted)
