"""The inbox: what it keeps of notifications, what it promises, and what it asks of its database; no I/O here."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, get_args

from attrs import field, fields, frozen

from payasync.storage import check_moment, check_number
from payasync.wire.validators import invalid_argument

State = Literal["pending", "leased", "done", "dead", "parked", "quarantined"]
STATES: Final[tuple[State, ...]] = get_args(State)
"""What an event can be."""
ENDS: Final[frozenset[State]] = frozenset({"done", "dead", "parked", "quarantined"})
"""What is not dispatched by itself any more."""
REPLAYABLE: Final = ENDS - {"done"}
"""What can be dispatched again."""

KEPT_HEADERS: Final = frozenset(
    {"content-type", "date", "user-agent", "webhook-id", "webhook-timestamp", "x-request-id"}
)
"""What names a notification, or helps to find it at the service. Any other header may let somebody in."""


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() in KEPT_HEADERS}


@frozen(kw_only=True)
class Received:
    """A notification that is about to be kept.

    Attributes:
        key: What says that two notifications are of one event.
        digest: SHA-256 of the body without its volatile fields, in hexadecimal digits.
        weak: The key is no more than that digest.
        kind: `payment`, `refund`, `subscription`, or `None` where nothing says it.
        event: The service's own name of the event, where there is one.
        verified: Its signature is the service's.
        lasting: It is verified, and no signed time bounds how late it can come again: its key is kept for ever.
        raw: The body as it came.
        headers: Those of `KEPT_HEADERS`, as they came.
        received_at: An aware moment.
    """

    key: str
    digest: str
    weak: bool = False
    kind: str | None = None
    event: str | None = None
    verified: bool = False
    lasting: bool = False
    raw: bytes = field(repr=False)
    headers: Mapping[str, str] = field(factory=dict, converter=_kept, repr=False)
    received_at: datetime


class Added(Enum):
    """What became of a notification that was to be kept; whichever it is, it can be acknowledged."""

    NEW = auto()
    """It is the first of its key, and pending."""
    AGAIN = auto()
    """The same has been kept before: nothing was added."""
    CONFLICT = auto()
    """Another body has been kept under its key before: it is quarantined."""


@frozen(kw_only=True)
class InboxEvent:
    """An event as the inbox has it.

    Attributes:
        id: The inbox's number of it, ascending.
        key: As in `Received`, like all that is not named here.
        raw: The body as it came; empty if it was forgotten, and only its key is kept.
        state: One of `STATES`.
        attempts: How often it was claimed since it came, or was replayed.
        failures: How many of these attempts failed; the others ended well, or were cut off.
        reason: Why it is in that state, in one line, where there is something to say.
        due: When it is to be claimed; of a leased one, when the lease ends; `None` where it is neither.
        handled: The names of the handlers that are done with it.
    """

    id: int
    key: str
    kind: str | None = None
    event: str | None = None
    weak: bool = False
    verified: bool = False
    raw: bytes = field(repr=False)
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    received_at: datetime
    state: State = "pending"
    attempts: int = 0
    failures: int = 0
    reason: str = ""
    due: datetime | None = None
    handled: frozenset[str] = frozenset()


@frozen(kw_only=True)
class Claim:
    """A lease on an event; who holds it dispatches.

    Attributes:
        event: As it was when it was claimed.
        fence: The number of this lease; a later lease has a higher one, and this one is lost then.
    """

    event: InboxEvent
    fence: int


class Inbox(Protocol):
    """Keeps notifications durably, and lends them to one dispatcher at a time.

    All of it is safe with several processes on one inbox. Each method raises `StorageError` where the inbox can be
    neither read nor written now, and then nothing was done.
    """

    async def add(self, received: Received) -> Added:
        """Keep a notification: when this returns, it is on the disk and outlives a loss of power."""
        ...

    async def claim(self, limit: int, lease: float) -> list[Claim]:
        """Lease up to `limit` events that are due, for `lease` seconds, the longest due first.

        Each counts an attempt, one whose former lease has ended, too. Where the clock was set back, what waits does
        so for as long as before, from now: nothing hangs until the clock has come so far again.
        """
        ...

    async def extend(self, claim: Claim, lease: float) -> bool:
        """Let a lease end in `lease` seconds from now; `False` where it is lost."""
        ...

    async def handled(self, claim: Claim, handler: str) -> bool:
        """Remember that a handler is done with the event; `False` where the lease is lost."""
        ...

    async def own(self, claim: Claim, key: str) -> bool:
        """Give the event another key, such as one of what was confirmed; what comes under the former key is new then.

        `False`, and nothing changes, where another event has the key, or the lease is lost.
        """
        ...

    async def finish(self, claim: Claim, state: State, reason: str = "", wait: float | None = None) -> bool:
        """End a lease; `False`, and nothing changes, where it is lost.

        Args:
            claim: The lease.
            state: One of `ENDS`, or `pending`.
            reason: Why, in one line.
            wait: Of a pending one, which has failed, the seconds until it may be claimed. `None`: it has not
                failed, and may be claimed at once.
        """
        ...

    async def next_due(self) -> float | None:
        """Return in how many seconds the next event is due, or a lease ends; `None` where nothing is to come."""
        ...

    async def events(self, state: State | None = None, *, limit: int = 100, after: int = 0) -> list[InboxEvent]:
        """List events, those of one state or all, in the order of their numbers, `after` one of them."""
        ...

    async def replay(self, event_id: int, kept: Received | None = None) -> bool:
        """Make a dead, parked or quarantined event pending, with all attempts before it.

        The handlers that are done with it stay done. `False`, and nothing changes, where it is none of these, or
        another event has the key that it is to have.

        Args:
            event_id: Its number.
            kept: Has the kind and the key that are the event's from now on, where these change.
        """
        ...

    async def forget(self, before: datetime) -> int:
        """Delete what has been done since before a moment; return how many events that were.

        What is dead, parked or quarantined is deleted, too, where it was never verified: anybody may have sent it.
        A deleted event that comes again is new. So two kinds of events are never deleted: confirmed ones, whose keys
        begin with `confirmed:`, and the lasting ones. Both can come again at any time, and would be handled anew.
        Once they are done since before that moment, only their key and digest stay; body and headers are deleted.
        """
        ...

    async def aclose(self) -> None:
        """Finish what was begun, and let go of the inbox; whatever is asked of it afterwards is a `StorageError`."""
        ...


FORGOTTEN_AT_ONCE: Final = 500
"""Events that one transaction deletes, so that nobody waits long behind it."""
AHEAD: Final = 60.0
"""Seconds by which a moment in the past may be ahead of now: by more, and the clock was set back."""

# SQLite and PostgreSQL read these alike. Only PostgreSQL locks rows: SQLite takes that for a comment.
SAME_KEY: Final = "SELECT id, digest FROM payasync_events WHERE key = :key ORDER BY id"
ADD: Final = """
INSERT INTO payasync_events
    (key, digest, weak, kind, event, verified, lasting, raw, headers, received_at, state, reason, due, since)
VALUES (
    :key, :digest, :weak, :kind, :event, :verified, :lasting, :raw, :headers, :received_at, :state, :reason, :due,
    :now)
RETURNING id"""

BEGIN_ANEW: Final = """
UPDATE payasync_events SET due = :now + (due - since), since = :now WHERE id IN (
    SELECT id FROM payasync_events WHERE due IS NOT NULL AND since > :ahead /* FOR UPDATE SKIP LOCKED */)
RETURNING id"""
"""The clock was set back: what waits, or is leased, does so for as long as before, from now."""
DUE: Final = """
SELECT id FROM payasync_events WHERE due <= :now ORDER BY due, id LIMIT :limit /* FOR UPDATE SKIP LOCKED */"""
LEASE: Final = """
UPDATE payasync_events SET state = 'leased', attempts = attempts + 1, fence = fence + 1, due = :until, since = :now
WHERE id = :id RETURNING *"""
EXTEND: Final = """
UPDATE payasync_events SET due = :until, since = :now
WHERE id = :id AND state = 'leased' AND fence = :fence RETURNING id"""
OWN: Final = """
UPDATE payasync_events SET key = :key WHERE id = :id AND state = 'leased' AND fence = :fence
AND NOT EXISTS (SELECT 1 FROM payasync_events AS other WHERE other.key = :key AND other.id <> :id)
RETURNING id"""
FINISH: Final = """
UPDATE payasync_events
SET state = :state, reason = :reason, due = :due, since = :now, failures = failures + :failed
WHERE id = :id AND state = 'leased' AND fence = :fence RETURNING id"""
RENAME: Final = """
UPDATE payasync_events SET kind = :kind, key = :key, weak = :weak
WHERE id = :id AND state IN ('dead', 'parked', 'quarantined')
AND NOT EXISTS (SELECT 1 FROM payasync_events AS other WHERE other.key = :key AND other.id <> :id)
RETURNING id"""
REPLAY: Final = """
UPDATE payasync_events
SET state = 'pending', attempts = 0, failures = 0, reason = '', due = :now, since = :now
WHERE id = :id AND state IN ('dead', 'parked', 'quarantined') RETURNING id"""

NEXT_DUE: Final = "SELECT min(due) AS due FROM payasync_events WHERE due IS NOT NULL"
EVENTS: Final = "SELECT * FROM payasync_events WHERE id > :after ORDER BY id LIMIT :limit"
EVENTS_OF_STATE: Final = """
SELECT * FROM payasync_events WHERE state = :state AND id > :after ORDER BY id LIMIT :limit"""
FORGET: Final = """
DELETE FROM payasync_events WHERE id IN (
    SELECT id FROM payasync_events
    WHERE (state = 'done' OR (due IS NULL AND NOT verified)) AND NOT lasting AND substr(key, 1, 10) <> 'confirmed:'
    AND since < :before ORDER BY since LIMIT :limit /* FOR UPDATE SKIP LOCKED */)
RETURNING id"""
EMPTY: Final = """
UPDATE payasync_events SET raw = :nothing, headers = '{}' WHERE id IN (
    SELECT id FROM payasync_events
    WHERE state = 'done' AND (lasting OR substr(key, 1, 10) = 'confirmed:') AND length(raw) > 0
    AND since < :before ORDER BY since LIMIT :limit /* FOR UPDATE SKIP LOCKED */)
RETURNING id"""
"""An event that can come again after any time is known by its key, which needs no payload."""

T = TypeVar("T")
Transaction: TypeAlias = Generator[tuple[str, Mapping[str, Any]], list[dict[str, Any]], T]
"""Yields statements with their values, and is sent the rows that each gives; its end is to be committed."""


class StoredInbox(ABC):
    """Keeps notifications in a database; what it promises stands at `Inbox`."""

    _mark_handled: str
    """The statement that adds a handler to those that are done with an event."""

    @abstractmethod
    async def _run(self, work: Callable[[datetime], Transaction[T]], key: str = "") -> T:
        """Return what a transaction of now returns, after it was committed.

        Args:
            work: Begins it; it may be run again if another transaction was in its way.
            key: No other transaction with this key runs at the same time.
        """

    async def add(self, received: Received) -> Added:
        """Keep a notification: when this returns, it is on the disk and outlives a loss of power."""
        return await self._run(partial(_add, _values(received)), received.key)

    async def claim(self, limit: int, lease: float) -> list[Claim]:
        """Lease up to `limit` events that are due, for `lease` seconds, the longest due first."""
        return await self._run(partial(_claim, limit, timedelta(seconds=lease)))

    async def extend(self, claim: Claim, lease: float) -> bool:
        """Let a lease end in `lease` seconds from now; `False` where it is lost."""
        return await self._run(lambda now: _change(claim, EXTEND, until=now + timedelta(seconds=lease)))

    async def handled(self, claim: Claim, handler: str) -> bool:
        """Remember that a handler is done with the event; `False` where the lease is lost."""
        return await self._run(lambda _: _change(claim, self._mark_handled, handler=handler))

    async def own(self, claim: Claim, key: str) -> bool:
        """Give the event another key; `False` where another event has it, or the lease is lost."""
        return await self._run(lambda _: _change(claim, OWN, key=key), key)

    async def finish(self, claim: Claim, state: State, reason: str = "", wait: float | None = None) -> bool:
        """End a lease; `False`, and nothing changes, where it is lost."""
        if state not in ENDS and state != "pending":
            raise invalid_argument("state", f"pending, {', '.join(sorted(ENDS))}", state)
        values = {"state": state, "reason": reason, "failed": int(wait is not None), "due": None}
        if state != "pending":
            return await self._run(lambda _: _change(claim, FINISH, **values))
        pause = timedelta(seconds=wait or 0)
        return await self._run(lambda now: _change(claim, FINISH, **{**values, "due": now + pause}))

    async def next_due(self) -> float | None:
        """Return in how many seconds the next event is due, or a lease ends; `None` where nothing is to come."""
        return await self._run(_next_due)

    async def events(self, state: State | None = None, *, limit: int = 100, after: int = 0) -> list[InboxEvent]:
        """List events, those of one state or all, in the order of their numbers, `after` one of them."""
        if state is not None and state not in STATES:
            raise invalid_argument("state", f"one of {', '.join(STATES)}", state)
        values = {"state": state, "limit": check_number("limit", limit), "after": check_number("after", after)}
        return await self._run(lambda _: _events(values))

    async def replay(self, event_id: int, kept: Received | None = None) -> bool:
        """Make a dead, parked or quarantined event pending, with all attempts before it; `False` where it cannot be."""
        number = {"id": check_number("event_id", event_id)}
        if kept is None:
            return await self._run(lambda _: _replay(number))
        values = {**_values(kept), **number}
        return await self._run(lambda _: _rename_and_replay(values), kept.key)

    async def forget(self, before: datetime) -> int:
        """Delete what has been done since before a moment, or keep its key alone; return how many were deleted."""
        values = {"before": check_moment("before", before), "limit": FORGOTTEN_AT_ONCE, "nothing": b""}
        total = 0
        while any(numbers := await self._run(lambda _: _forget(values))):
            total += numbers[0]
        return total


def _add(values: Mapping[str, Any], now: datetime) -> Transaction[Added]:
    others = yield SAME_KEY, values
    if any(other["digest"] == values["digest"] for other in others):
        return Added.AGAIN
    if not others:
        yield ADD, {**values, "state": "pending", "reason": "", "due": now}
        return Added.NEW
    reason = f"event {others[0]['id']} came with the same key and another body"
    yield ADD, {**values, "state": "quarantined", "reason": reason, "due": None}
    return Added.CONFLICT


def _claim(limit: int, lease: timedelta, now: datetime) -> Transaction[list[Claim]]:
    yield BEGIN_ANEW, {"ahead": now + timedelta(seconds=AHEAD)}
    claims = list[Claim]()
    for due in (yield DUE, {"limit": limit}):
        (row,) = yield LEASE, {"id": due["id"], "until": now + lease}
        claims.append(Claim(event=_event(row), fence=row["fence"]))
    return claims


def _change(claim: Claim, statement: str, **values: Any) -> Transaction[bool]:
    """Change a leased event; return whether the lease was still held."""
    return bool((yield statement, {"id": claim.event.id, "fence": claim.fence, **values}))


def _next_due(now: datetime) -> Transaction[float | None]:
    ((due,),) = [row.values() for row in (yield NEXT_DUE, {})]
    return None if due is None else (due - now).total_seconds()


def _events(values: Mapping[str, Any]) -> Transaction[list[InboxEvent]]:
    rows = yield EVENTS if values["state"] is None else EVENTS_OF_STATE, values
    return [_event(row) for row in rows]


def _replay(values: Mapping[str, Any]) -> Transaction[bool]:
    return bool((yield REPLAY, values))


def _rename_and_replay(values: Mapping[str, Any]) -> Transaction[bool]:
    renamed = yield RENAME, values
    return bool(renamed) and (yield from _replay(values))


def _forget(values: Mapping[str, Any]) -> Transaction[tuple[int, int]]:
    """Return how many events were deleted, and of how many others the key alone is kept."""
    deleted = yield FORGET, values
    emptied = yield EMPTY, values
    return len(deleted), len(emptied)


_COLUMNS: Final = tuple(each.name for each in fields(InboxEvent))


def _event(row: Mapping[str, Any]) -> InboxEvent:
    facts: dict[str, Any] = {**{name: row[name] for name in _COLUMNS}, "handled": frozenset(row["handled"])}
    return InboxEvent(**facts)


def _values(received: Received) -> dict[str, Any]:
    check_moment("received_at", received.received_at)
    values = {each.name: getattr(received, each.name) for each in fields(Received)}
    return {**values, "headers": json.dumps(dict(received.headers))}
