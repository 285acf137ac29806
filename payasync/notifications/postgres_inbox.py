"""An inbox in a PostgreSQL database, which web workers of several machines can share: extra `[postgres]`."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from payasync.credentials import Hidden, Secret
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
from payasync.storage.postgres import CONNECTIONS, Database, Transaction

ONE_BY_ONE: Final = "SELECT pg_advisory_xact_lock(hashtextextended('payasync_events:' || %(key)s, 0))"
"""Two bodies under one key, at once, would both be the first; the lock ends with the transaction."""
SAME_KEY: Final = "SELECT id, digest FROM payasync_events WHERE key = %(key)s ORDER BY id"
ADD: Final = """
INSERT INTO payasync_events
    (key, digest, weak, kind, event, verified, lasting, raw, headers, received_at, state, reason, due, since)
VALUES (
    %(key)s, %(digest)s, %(weak)s, %(kind)s, %(event)s, %(verified)s, %(lasting)s, %(raw)s, %(headers)s,
    %(received_at)s, %(state)s, %(reason)s, %(due)s, %(now)s)"""

BEGIN_ANEW: Final = """
UPDATE payasync_events SET due = %(now)s + (due - since), since = %(now)s WHERE id IN (
    SELECT id FROM payasync_events WHERE due IS NOT NULL AND since > %(ahead)s FOR UPDATE SKIP LOCKED)
RETURNING id"""
"""The clock was set back: what waits, or is leased, does so for as long as before, from now."""
CLAIM: Final = """
WITH free AS MATERIALIZED (
    SELECT id, due FROM payasync_events WHERE due <= %(now)s
    ORDER BY due, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE payasync_events AS event
SET state = 'leased', attempts = attempts + 1, fence = fence + 1, due = %(until)s, since = %(now)s
FROM free WHERE event.id = free.id
RETURNING event.*, free.due AS waited_until"""
EXTEND: Final = """
UPDATE payasync_events SET due = %(until)s, since = %(now)s
WHERE id = %(id)s AND state = 'leased' AND fence = %(fence)s RETURNING id"""
HANDLED: Final = """
UPDATE payasync_events SET handled = array_append(array_remove(handled, %(handler)s), %(handler)s)
WHERE id = %(id)s AND state = 'leased' AND fence = %(fence)s RETURNING id"""
OWN: Final = """
UPDATE payasync_events SET key = %(key)s
WHERE id = %(id)s AND state = 'leased' AND fence = %(fence)s RETURNING id"""
FINISH: Final = """
UPDATE payasync_events
SET state = %(state)s, reason = %(reason)s, due = %(due)s, since = %(now)s, failures = failures + %(failed)s
WHERE id = %(id)s AND state = 'leased' AND fence = %(fence)s RETURNING id"""
REPLAY: Final = """
UPDATE payasync_events
SET state = 'pending', attempts = 0, failures = 0, reason = '', due = %(now)s, since = %(now)s
WHERE id = %(id)s AND state IN ('dead', 'parked', 'quarantined') RETURNING id"""
RENAME: Final = """
UPDATE payasync_events SET kind = %(kind)s, key = %(key)s, weak = %(weak)s
WHERE id = %(id)s AND state IN ('dead', 'parked', 'quarantined') RETURNING id"""

NEXT_DUE: Final = """
SELECT extract(epoch FROM min(due) - %(now)s)::float8 AS wait FROM payasync_events WHERE due IS NOT NULL"""
EVENTS: Final = "SELECT * FROM payasync_events WHERE id > %(after)s ORDER BY id LIMIT %(limit)s"
EVENTS_OF_STATE: Final = """
SELECT * FROM payasync_events WHERE state = %(state)s AND id > %(after)s ORDER BY id LIMIT %(limit)s"""
FORGET: Final = """
DELETE FROM payasync_events WHERE id IN (
    SELECT id FROM payasync_events
    WHERE (state = 'done' OR (due IS NULL AND NOT verified)) AND NOT lasting AND substr(key, 1, 10) <> 'confirmed:'
    AND since < %(before)s ORDER BY since LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING id"""
EMPTY: Final = """
UPDATE payasync_events SET raw = '', headers = '{}' WHERE id IN (
    SELECT id FROM payasync_events
    WHERE state = 'done' AND (lasting OR substr(key, 1, 10) = 'confirmed:') AND length(raw) > 0
    AND since < %(before)s ORDER BY since LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING id"""
"""An event that can come again after any time is known by its key, which needs no payload."""


SCHEMA: Final = Schema(name="inbox", migrations=read_migrations("payasync.notifications", "postgres"))


class PostgresInbox:
    """Keeps notifications in a PostgreSQL database; what it promises stands at `Inbox`.

    Nothing is opened before the first use; the tables, `payasync_events` and `payasync_migrations`, are made then.
    What is due, and when a lease ends, goes by the server's clock, and not by those of its clients.

    Args:
        dsn: Such as `postgresql://user:password@host/database`; what is not in it, libpq's variables say.
        connections: How many are opened at most, for each process and event loop.
        clock: Returns seconds since 1970, in place of the server's clock.

    Raises:
        ConfigurationError: `dsn` is no connection string, or `psycopg` is not installed. Where the tables are another
            program's, a newer payasync's, or may not be made, whatever is asked first raises it.
    """

    def __init__(
        self, dsn: str | Secret, *, connections: int = CONNECTIONS, clock: Callable[[], float] | None = None
    ) -> None:
        given = Hidden(dsn)
        del dsn  # a traceback may show what is local
        self._database = Database(given, SCHEMA, connections=connections, clock=clock)

    def __repr__(self) -> str:
        return f"PostgresInbox({self._database.address.shown!r})"

    async def add(self, received: Received) -> Added:
        """Keep a notification: when this returns, it is on the disk and outlives a loss of power."""
        return await self._database.run(partial(_add, _written(received)))

    async def claim(self, limit: int, lease: float) -> list[Claim]:
        """Lease up to `limit` events that are due, for `lease` seconds, the longest due first."""
        return await self._database.run(partial(_claim, limit, timedelta(seconds=lease)))

    async def extend(self, claim: Claim, lease: float) -> bool:
        """Let a lease end in `lease` seconds from now; `False` where it is lost."""
        return await self._database.run(partial(_extend, _held(claim), timedelta(seconds=lease)))

    async def handled(self, claim: Claim, handler: str) -> bool:
        """Remember that a handler is done with the event; `False` where the lease is lost."""
        return bool(await self._rows(HANDLED, **_held(claim), handler=handler))

    async def own(self, claim: Claim, key: str) -> bool:
        """Give the event another key; `False` where another event has it, or the lease is lost."""
        return await self._database.run(partial(_named, OWN, {**_held(claim), "key": key}))

    async def finish(self, claim: Claim, state: State, reason: str = "", wait: float | None = None) -> bool:
        """End a lease; `False`, and nothing changes, where it is lost."""
        values = {**_held(claim), "state": an_end(state), "reason": reason, "failed": int(wait is not None)}
        return await self._database.run(partial(_finish, values, timedelta(seconds=wait or 0)))

    async def next_due(self) -> float | None:
        """Return in how many seconds the next event is due, or a lease ends; `None` where nothing is to come."""
        wait: float | None = (await self._rows(NEXT_DUE))[0]["wait"]
        return wait

    async def events(self, state: State | None = None, *, limit: int = 100, after: int = 0) -> list[InboxEvent]:
        """List events, those of one state or all, in the order of their numbers, `after` one of them."""
        statement = EVENTS if state is None else EVENTS_OF_STATE
        values = {"limit": check_number("limit", limit), "after": check_number("after", after), "state": a_state(state)}
        return [_event(row) for row in await self._rows(statement, **values)]

    async def replay(self, event_id: int, kept: Received | None = None) -> bool:
        """Make a dead, parked or quarantined event pending, with all attempts before it; `False` where it cannot be."""
        values = {"id": check_number("event_id", event_id), **(_written(kept) if kept else {})}
        return await self._database.run(partial(_replay, values, anew=kept is not None))

    async def forget(self, before: datetime) -> int:
        """Delete what has been done since before a moment, or keep its key alone; return how many were deleted."""
        values = {"before": check_moment("before", before), "limit": FORGOTTEN_AT_ONCE}
        forgotten = 0
        while any(now := await self._database.run(partial(_forget, values))):
            forgotten += now[0]
        return forgotten

    async def aclose(self) -> None:
        """Finish what was begun, and close all connections; whatever is asked afterwards is a `StorageError`."""
        await self._database.aclose()

    async def _rows(self, statement: str, **values: Any) -> list[dict[str, Any]]:
        return await self._database.run(lambda transaction: transaction.rows(statement, values))


async def _add(values: dict[str, Any], transaction: Transaction) -> Added:
    await transaction.rows(ONE_BY_ONE, values)
    added, kept = beside(await transaction.rows(SAME_KEY, values), values["digest"])
    if kept:
        due = transaction.now if kept["state"] == "pending" else None
        await transaction.rows(ADD, {**values, **kept, "due": due})
    return added


async def _claim(limit: int, lease: timedelta, transaction: Transaction) -> list[Claim]:
    await transaction.rows(BEGIN_ANEW, {"ahead": transaction.now + timedelta(seconds=AHEAD)})
    found = await transaction.rows(CLAIM, {"limit": limit, "until": transaction.now + lease})
    found.sort(key=lambda row: (row["waited_until"], row["id"]))
    return [Claim(event=_event(row), fence=row["fence"]) for row in found]


async def _extend(held: dict[str, Any], lease: timedelta, transaction: Transaction) -> bool:
    return bool(await transaction.rows(EXTEND, {**held, "until": transaction.now + lease}))


async def _forget(values: dict[str, Any], transaction: Transaction) -> tuple[int, int]:
    """Return how many events were deleted, and of how many others the key alone is kept."""
    deleted = await transaction.rows(FORGET, values)
    return len(deleted), len(await transaction.rows(EMPTY, values))


async def _replay(values: dict[str, Any], transaction: Transaction, *, anew: bool) -> bool:
    if anew and not await _named(RENAME, values, transaction):
        return False
    return bool(await transaction.rows(REPLAY, values))


async def _named(statement: str, values: dict[str, Any], transaction: Transaction) -> bool:
    """Give an event a key; `False` where another one has it."""
    await transaction.rows(ONE_BY_ONE, values)
    others = await transaction.rows(SAME_KEY, values)
    taken = any(other["id"] != values["id"] for other in others)
    return not taken and bool(await transaction.rows(statement, values))


async def _finish(values: dict[str, Any], wait: timedelta, transaction: Transaction) -> bool:
    due = transaction.now + wait if values["state"] == "pending" else None
    return bool(await transaction.rows(FINISH, {**values, "due": due}))


def _held(claim: Claim) -> dict[str, Any]:
    return {"id": claim.event.id, "fence": claim.fence}


def _event(row: dict[str, Any]) -> InboxEvent:
    return InboxEvent(
        id=row["id"],
        key=row["key"],
        kind=row["kind"],
        event=row["event"],
        weak=row["weak"],
        verified=row["verified"],
        raw=row["raw"],
        headers=row["headers"],
        received_at=row["received_at"],
        state=row["state"],
        attempts=row["attempts"],
        failures=row["failures"],
        reason=row["reason"],
        due=row["due"],
        handled=frozenset(row["handled"]),
    )


def _written(received: Received) -> dict[str, Any]:
    return {
        "key": received.key,
        "digest": received.digest,
        "weak": received.weak,
        "kind": received.kind,
        "event": received.event,
        "verified": received.verified,
        "lasting": received.lasting,
        "raw": received.raw,
        "headers": json.dumps(dict(received.headers)),
        "received_at": check_moment("received_at", received.received_at),
    }
