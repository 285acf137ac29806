"""The timeline: each request, change of state and delivery in the order in which it came, for people to read.

Changes and deliveries are written by triggers of the schema, in the transaction that makes them: no way of
changing a state goes past them. No key and no body stands here; of a signature that is not right, the text that
was to be signed, with the key masked.
"""

from contextlib import suppress
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

from attrs import asdict, frozen

from payasync.sandbox import statements
from payasync.sandbox.store import Store
from payasync.sandbox.values import RefusedError

EntryKind: TypeAlias = Literal["request", "change", "delivery", "admin"]

MOST_TEXT: Final = 4096
"""Characters that one text of an entry may have: a request may be long."""
MOST_ENTRIES: Final = 10_000
"""The schema's trigger forgets what is older."""


@frozen(kw_only=True)
class Entry:
    """One thing that happened.

    Attributes:
        seq: Its number; it grows from entry to entry.
        at: The sandbox's time, in ISO 8601.
        kind: What it was.
        name: The operation such as `orders.place`, the thing that changed, or the notification's number.
        reference: The number of the order, refund or subscription; empty where none was told.
        status: The HTTP status of the answer, or `None` where none was given.
        outcome: The result code, the states before and after, or what became of a delivery.
        reason: Why it was refused, or failed; empty where it was not.
        expected: The text that was to be signed, where the signature was not right.
        fault: The fault that was applied.
        milliseconds: What it took, in wall time; `None` where nobody waited.
    """

    seq: int = 0
    at: str = ""
    kind: EntryKind
    name: str
    reference: str = ""
    status: int | None = None
    outcome: str = ""
    reason: str = ""
    expected: str = ""
    fault: str = ""
    milliseconds: float | None = None

    @property
    def failed(self) -> bool:
        """Whether it did not end as it was meant to."""
        return bool(self.reason or self.fault)


class Timeline:
    """Keeps the newest entries.

    Args:
        store: Where.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, entry: Entry) -> int:
        """Keep an entry, and return its number; where another process holds the database, it is lost, and that is 0.

        Args:
            entry: Whose number and time are given here.
        """
        with suppress(RefusedError), self._store.transaction():
            return self._store.insert(statements.ADD_ENTRY, _short(entry))
        return 0

    def entries(self, reference: str | None = None) -> list[Entry]:
        """Return the entries, oldest first.

        Args:
            reference: Only those about this order, refund or subscription; an order's number or its payment's
                names both, and its refunds.
        """
        if reference is None:
            return self._store.read(Entry, statements.ALL_ENTRIES)
        told = (
            self._store.read(Entry, statements.ENTRIES_ABOUT, reference=number) for number in self._together(reference)
        )
        return sorted(chain.from_iterable(told), key=attrgetter("seq"))

    def _together(self, reference: str) -> set[str]:
        """Return the numbers of what belongs together with this one: those of an order, and of its refunds."""
        order = self._store.order_named(reference)
        if order is None:
            return {reference}
        refunds = (refund.out_refund_no for refund in self._store.refunds_of(order.out_trade_no))
        return {reference, order.out_trade_no, order.payment_id, *refunds}

    def requests(self, limit: int) -> list[Entry]:
        """Return the newest requests, newest first.

        Args:
            limit: How many at most.
        """
        return self._store.read(Entry, statements.NEWEST_REQUESTS, limit=limit)

    def done(self, seq: int) -> Entry | None:
        """Return the entry with this number, where it is of something done at the admin door."""
        found = self._store.read(Entry, statements.ADMIN_ENTRY, seq=seq)
        return found[0] if found else None


def _short(entry: Entry) -> dict[str, Any]:
    return {name: _cut(given) if isinstance(given, str) else given for name, given in asdict(entry).items()}


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}… ({len(text):,} characters)"


def line(entry: Entry) -> str:
    """Return an entry as one line that can be printed, whatever stands in it."""
    words = [entry.at, entry.kind.ljust(8), entry.name, entry.reference, "->", ended(entry)]
    text = " ".join(word for word in words if word)
    text += f" [fault: {entry.fault}]" if entry.fault else ""
    text += f": {entry.reason}" if entry.reason else ""
    text += f"; the text to sign: {entry.expected}" if entry.expected else ""
    return "".join(_printable(character) for character in text)


def ended(entry: Entry) -> str:
    """Return how an entry ended: status, outcome, and what it took."""
    status = str(entry.status or ("no answer" if entry.kind in {"request", "delivery"} else ""))
    took = "" if entry.milliseconds is None else f"({entry.milliseconds:.1f} ms)"
    return " ".join(word for word in (status, entry.outcome, took) if word)


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
