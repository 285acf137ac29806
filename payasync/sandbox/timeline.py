"""Each request, change of state and delivery in the order in which it came, for people to read."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

from aiohttp import web
from attrs import asdict, evolve, frozen

from payasync.sandbox import statements
from payasync.sandbox.model import RefusedError
from payasync.sandbox.store import Store
from payasync.sandbox.web.pages import GATEWAY, TIMELINE

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


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOGGER: Final = logging.getLogger("payasync.sandbox")
SILENT: Final = ("/admin/", TIMELINE, "/openapi.json", "/favicon.ico")
"""Paths of what people and tools look at: not the service's."""


@frozen(kw_only=True)
class Facts:
    """What the handler of a request knows of it.

    Attributes:
        name: The operation's, such as `orders.place`.
        reference: The number that the request names, or that was made for it.
        code: The result code.
        refused: Why it was not done.
    """

    name: str
    reference: str = ""
    code: str | int = ""
    refused: RefusedError | None = None


FACTS: Final = web.RequestKey("payasync_sandbox_facts", Facts)
FAULT: Final = web.RequestKey("payasync_sandbox_fault", str)
"""Where the name of a fault stands that was applied to a request."""


class Recorder:
    """Notes requests.

    Args:
        timeline: Where.
        seconds: A clock that only grows.
    """

    def __init__(self, timeline: Timeline, seconds: Callable[[], float] = time.perf_counter) -> None:
        self._timeline = timeline
        self._seconds = seconds

    @web.middleware
    async def note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Have a request answered, and note what came of it."""
        started, status = self._seconds(), None
        try:
            answer = await handler(request)
            status = answer.status or None  # a fault in place of the answer has none
            return answer
        finally:
            if facts := known(request):
                self._keep(entry(facts, status, (self._seconds() - started) * 1000, request.get(FAULT, "")))

    def _keep(self, seen: Entry) -> None:
        self._timeline.add(seen)
        LOGGER.info("%s", line(seen), extra={"seen": seen})


def note(request: web.Request, **learnt: Any) -> None:
    """Add to what is known of a request.

    Args:
        request: That has its facts.
        learnt: Attributes of `Facts`.
    """
    request[FACTS] = evolve(request[FACTS], **learnt)


def known(request: web.Request) -> Facts | None:
    """Return what is known of a request; nothing where it is no request to the service."""
    if FACTS in request:
        return request[FACTS]
    path = request.path
    if path == "/" or path.startswith((*SILENT, GATEWAY)):
        return None
    return Facts(name=f"{request.method} {path}")


def entry(facts: Facts, status: int | None, milliseconds: float, fault: str) -> Entry:
    """Return the entry of a request."""
    refused = facts.refused
    return Entry(
        kind="request",
        name=facts.name,
        reference=facts.reference,
        status=status,
        outcome=str(facts.code),
        reason=refused.message if refused else "",
        expected=refused.expected if refused else "",
        fault=fault,
        milliseconds=milliseconds,
    )


def reference(arguments: Mapping[str, Any]) -> str:
    """Return the number that a request's arguments name: that of the refund before that of its order."""
    names = ("out_refund_no", "out_trade_no", "subscription_id", "identifier")
    return next((str(arguments[name]) for name in names if arguments.get(name)), "")
