"""An inbox in one SQLite file, which several processes of one machine can share."""

import json
import os
import sqlite3
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final

from payasync.notifications.inbox import (
    AHEAD,
    FORGOTTEN_AT_ONCE,
    Added,
    Claim,
    InboxEvent,
    Received,
    State,
    a_state,
    an_end,
    beside,
)
from payasync.storage import Schema, check_moment, check_number, read_migrations
from payasync.storage.sqlite import SqliteFile, escape_surrogates, fetch_rows, utc_moment

SAME_KEY: Final = "SELECT id, digest FROM events WHERE key = :key ORDER BY id"
ADD: Final = """
INSERT INTO events
    (key, digest, weak, kind, event, verified, lasting, raw, headers, received_at, state, reason, due, since)
VALUES (
    :key, :digest, :weak, :kind, :event, :verified, :lasting, :raw, :headers, :received_at, :state, :reason, :due,
    :now)"""

BEGIN_ANEW: Final = "UPDATE events SET due = :now + due - since, since = :now WHERE due IS NOT NULL AND since > :ahead"
"""The clock was set back: what waits, or is leased, does so for as long as before, from now."""
DUE: Final = "SELECT id FROM events WHERE due <= :now ORDER BY due, id LIMIT :limit"
LEASE: Final = """
UPDATE events SET state = 'leased', attempts = attempts + 1, fence = fence + 1, due = :until, since = :now
WHERE id = :id"""
EXTEND: Final = "UPDATE events SET due = :until, since = :now WHERE id = :id AND state = 'leased' AND fence = :fence"
HANDLED: Final = """
INSERT INTO handled SELECT id, :handler FROM events WHERE id = :id AND state = 'leased' AND fence = :fence
ON CONFLICT DO UPDATE SET handler = excluded.handler"""
OWN: Final = """
UPDATE events SET key = :key WHERE id = :id AND state = 'leased' AND fence = :fence
AND NOT EXISTS (SELECT 1 FROM events AS other WHERE other.key = :key AND other.id <> :id)"""
FINISH: Final = """
UPDATE events SET state = :state, reason = :reason, due = :due, since = :now, failures = failures + :failed
WHERE id = :id AND state = 'leased' AND fence = :fence"""
REPLAY: Final = """
UPDATE events SET state = 'pending', attempts = 0, failures = 0, reason = '', due = :now, since = :now
WHERE id = :id AND state IN ('dead', 'parked', 'quarantined')"""
RENAME: Final = """
UPDATE events SET kind = :kind, key = :key, weak = :weak
WHERE id = :id AND state IN ('dead', 'parked', 'quarantined')
AND NOT EXISTS (SELECT 1 FROM events AS other WHERE other.key = :key AND other.id <> :id)"""

NEXT_DUE: Final = "SELECT min(due) - :now AS wait FROM events WHERE due IS NOT NULL"
EVENT: Final = "SELECT * FROM events WHERE id = :id"
EVENTS: Final = "SELECT * FROM events WHERE id > :after ORDER BY id LIMIT :limit"
EVENTS_OF_STATE: Final = "SELECT * FROM events WHERE state = :state AND id > :after ORDER BY id LIMIT :limit"
HANDLERS: Final = "SELECT handler FROM handled WHERE event = :id"
FORGET: Final = """
DELETE FROM events WHERE id IN (
    SELECT id FROM events
    WHERE (state = 'done' OR (due IS NULL AND NOT verified)) AND NOT lasting AND substr(key, 1, 10) <> 'confirmed:'
    AND since < :before ORDER BY since LIMIT :limit)"""
EMPTY: Final = """
UPDATE events SET raw = x'', headers = '{}' WHERE id IN (
    SELECT id FROM events
    WHERE state = 'done' AND (lasting OR substr(key, 1, 10) = 'confirmed:') AND length(raw) > 0
    AND since < :before ORDER BY since LIMIT :limit)"""
"""An event that can come again after any time is known by its key, which needs no payload."""


APPLICATION: Final = 0x50617969
"""`Payi`, in the header of the file, says whose it is."""
SCHEMA: Final = Schema(
    name="inbox",
    application=APPLICATION,
    migrations=read_migrations("payasync.notifications", "sqlite"),
)


class SqliteInbox:
    """Keeps notifications in an SQLite file; what it promises stands at `Inbox`.

    Nothing is opened before the first use. The file is its owner's alone, and payloads stand in it as they came.

    Args:
        path: The file's; it is made at the first use, where there is none, and never again: one that vanishes, or whose
            place another takes, is a `StorageError` until it is back. Not on a network's file system.
        clock: Returns seconds since 1970: what is due, and when a lease ends, goes by it.

    Raises:
        ConfigurationError: `path` is no path of a file. The first use raises it if the file is another program's, a
            newer payasync's, or damaged (as one of 0 bytes is). The file stays as it is.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        self._file = SqliteFile(path, SCHEMA)
        self._clock = clock

    def __repr__(self) -> str:
        return f"SqliteInbox({self._file.path!r})"

    async def add(self, received: Received) -> Added:
        """Keep a notification: when this returns, it is on the disk and outlives a loss of power."""
        return await self._file.run(partial(_add, values=_written(received), now=self._clock()))

    async def claim(self, limit: int, lease: float) -> list[Claim]:
        """Lease up to `limit` events that are due, for `lease` seconds, the longest due first."""
        now = self._clock()
        values = {"now": now, "until": now + lease, "ahead": now + AHEAD, "limit": limit}
        return await self._file.run(partial(_claim, values=values))

    async def extend(self, claim: Claim, lease: float) -> bool:
        """Let a lease end in `lease` seconds from now; `False` where it is lost."""
        now = self._clock()
        return await self._change(claim, EXTEND, until=now + lease, now=now)

    async def handled(self, claim: Claim, handler: str) -> bool:
        """Remember that a handler is done with the event; `False` where the lease is lost."""
        return await self._change(claim, HANDLED, handler=escape_surrogates(handler))

    async def own(self, claim: Claim, key: str) -> bool:
        """Give the event another key; `False` where another event has it, or the lease is lost."""
        return await self._change(claim, OWN, key=escape_surrogates(key))

    async def finish(self, claim: Claim, state: State, reason: str = "", wait: float | None = None) -> bool:
        """End a lease; `False`, and nothing changes, where it is lost."""
        now = self._clock()
        due = now + (wait or 0) if an_end(state) == "pending" else None
        ends = {"state": state, "reason": escape_surrogates(reason), "due": due, "failed": wait is not None, "now": now}
        return await self._change(claim, FINISH, **ends)

    async def next_due(self) -> float | None:
        """Return in how many seconds the next event is due, or a lease ends; `None` where nothing is to come."""
        values = {"now": self._clock()}
        wait: float | None = await self._file.run(lambda db: fetch_rows(db, NEXT_DUE, values)[0]["wait"])
        return wait

    async def events(self, state: State | None = None, *, limit: int = 100, after: int = 0) -> list[InboxEvent]:
        """List events, those of one state or all, in the order of their numbers, `after` one of them."""
        values = {"state": a_state(state), "limit": check_number("limit", limit), "after": check_number("after", after)}
        return await self._file.run(partial(_events, values=values))

    async def replay(self, event_id: int, kept: Received | None = None) -> bool:
        """Make a dead, parked or quarantined event pending, with all attempts before it; `False` where it cannot be."""
        values = {"id": check_number("event_id", event_id), "now": self._clock(), **(_written(kept) if kept else {})}
        return await self._file.run(partial(_replay, values=values, anew=kept is not None))

    async def forget(self, before: datetime) -> int:
        """Delete what has been done since before a moment, or keep its key alone; return how many were deleted."""
        values = {"before": check_moment("before", before).timestamp(), "limit": FORGOTTEN_AT_ONCE}
        forgotten = 0
        while any(now := await self._file.run(partial(_forget, values=values))):
            forgotten += now[0]
        return forgotten

    async def aclose(self) -> None:
        """Finish what was begun, and close the file; whatever is asked afterwards is a `StorageError`."""
        await self._file.aclose()

    async def _change(self, claim: Claim, statement: str, **values: Any) -> bool:
        given = {"id": claim.event.id, "fence": claim.fence, **values}
        return await self._file.run(lambda db: db.execute(statement, given).rowcount == 1)


def _add(db: sqlite3.Connection, *, values: dict[str, Any], now: float) -> Added:
    added, kept = beside(fetch_rows(db, SAME_KEY, values), values["digest"])
    if kept:
        due = now if kept["state"] == "pending" else None
        db.execute(ADD, {**values, **kept, "due": due, "now": now})
    return added


def _claim(db: sqlite3.Connection, *, values: dict[str, Any]) -> list[Claim]:
    db.execute(BEGIN_ANEW, values)
    leased = [row["id"] for row in fetch_rows(db, DUE, values)]
    for each in leased:
        db.execute(LEASE, {**values, "id": each})
    found = [fetch_rows(db, EVENT, {"id": each})[0] for each in leased]
    return [Claim(event=_event(db, row), fence=row["fence"]) for row in found]


def _replay(db: sqlite3.Connection, *, values: dict[str, Any], anew: bool) -> bool:
    if anew and db.execute(RENAME, values).rowcount != 1:
        return False
    return db.execute(REPLAY, values).rowcount == 1


def _forget(db: sqlite3.Connection, *, values: dict[str, Any]) -> tuple[int, int]:
    """Return how many events were deleted, and of how many others the key alone is kept."""
    return db.execute(FORGET, values).rowcount, db.execute(EMPTY, values).rowcount


def _events(db: sqlite3.Connection, *, values: dict[str, Any]) -> list[InboxEvent]:
    statement = EVENTS if values["state"] is None else EVENTS_OF_STATE
    return [_event(db, row) for row in fetch_rows(db, statement, values)]


def _event(db: sqlite3.Connection, row: dict[str, Any]) -> InboxEvent:
    done = fetch_rows(db, HANDLERS, {"id": row["id"]})
    return InboxEvent(
        id=row["id"],
        key=row["key"],
        kind=row["kind"],
        event=row["event"],
        weak=bool(row["weak"]),
        verified=bool(row["verified"]),
        raw=row["raw"],
        headers=json.loads(row["headers"]),
        received_at=utc_moment(row["received_at"]),
        state=row["state"],
        attempts=row["attempts"],
        failures=row["failures"],
        reason=row["reason"],
        due=None if row["due"] is None else utc_moment(row["due"]),
        handled=frozenset(each["handler"] for each in done),
    )


def _written(received: Received) -> dict[str, Any]:
    return {
        "key": escape_surrogates(received.key),
        "digest": received.digest,
        "weak": received.weak,
        "kind": received.kind,
        "event": None if received.event is None else escape_surrogates(received.event),
        "verified": received.verified,
        "lasting": received.lasting,
        "raw": received.raw,
        "headers": json.dumps(dict(received.headers)),
        "received_at": check_moment("received_at", received.received_at).timestamp(),
    }
