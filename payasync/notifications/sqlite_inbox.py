"""An inbox in one SQLite file, which several processes of one machine can share."""

import json
import os
import sqlite3
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from importlib import resources
from typing import Any, Final

from payasync.checks import aware, number
from payasync.notifications import inbox_statements as statements
from payasync.notifications.inbox import ENDS, STATES, Added, Claim, InboxEvent, Received, State
from payasync.requests import invalid
from payasync.sqlite import SqliteFile
from payasync.sqlite_opening import Schema
from payasync.sqlite_values import moment, rows, text

APPLICATION: Final = 0x50617969
"""`Payi`, in the header of the file, says whose it is."""
SCHEMA: Final = Schema(
    name="inbox",
    application=APPLICATION,
    steps=(resources.files("payasync.notifications").joinpath("inbox.sql").read_text(encoding="utf-8"),),
)
FORGOTTEN_AT_ONCE: Final = 500
"""Events that one transaction deletes, so that nobody waits long behind it."""


class SqliteInbox:
    """Keeps notifications in an SQLite file; what it promises stands at `Inbox`.

    Nothing is opened before the first use. The file is its owner's alone, and payloads stand in it as they came.

    Args:
        path: The file's; it is made where there is none. Not on a network's file system.
        clock: Returns seconds since 1970: what is due, and when a lease ends, goes by it.

    Raises:
        ConfigurationError: `path` is no path of a file. Where the file is another program's, a newer payasync's, or
            damaged, whatever is asked first raises it, and the file stays as it is.
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
        return await self._file.run(partial(_claim, values={"now": now, "until": now + lease, "limit": limit}))

    async def extend(self, claim: Claim, lease: float) -> bool:
        """Let a lease end in `lease` seconds from now; `False` where it is lost."""
        return await self._change(claim, statements.EXTEND, until=self._clock() + lease)

    async def handled(self, claim: Claim, handler: str) -> bool:
        """Remember that a handler is done with the event; `False` where the lease is lost."""
        return await self._change(claim, statements.HANDLED, handler=text(handler))

    async def own(self, claim: Claim, key: str) -> bool:
        """Give the event another key; `False` where another event has it, or the lease is lost."""
        return await self._change(claim, statements.OWN, key=text(key))

    async def finish(self, claim: Claim, state: State, reason: str = "", due: datetime | None = None) -> bool:
        """End a lease; `False`, and nothing changes, where it is lost."""
        if state not in ENDS and state != "pending":
            raise invalid("state", f"pending, {', '.join(sorted(ENDS))}", state)
        now = self._clock()
        again = None if state in ENDS else aware("due", due).timestamp() if due else now
        ended = now if state in ENDS else None
        return await self._change(
            claim, statements.FINISH, state=state, reason=text(reason), due=again, finished_at=ended
        )

    async def next_due(self) -> datetime | None:
        """Return when the next event is due, or a lease ends; `None` where nothing is to come."""
        due: float | None = await self._file.run(lambda db: rows(db, statements.NEXT_DUE)[0]["due"])
        return None if due is None else moment(due)

    async def events(self, state: State | None = None, *, limit: int = 100, after: int = 0) -> list[InboxEvent]:
        """List events, those of one state or all, in the order of their numbers, `after` one of them."""
        if state is not None and state not in STATES:
            raise invalid("state", f"one of {', '.join(STATES)}", state)
        values = {"state": state, "limit": number("limit", limit), "after": number("after", after)}
        return await self._file.run(partial(_events, values=values))

    async def replay(self, event_id: int) -> bool:
        """Make a dead, parked or quarantined event pending, with all attempts before it; `False` where it is none."""
        values = {"id": number("event_id", event_id), "now": self._clock()}
        return await self._file.run(lambda db: db.execute(statements.REPLAY, values).rowcount == 1)

    async def forget(self, before: datetime) -> int:
        """Delete what has been done since before a moment, and nothing else; return how many events that were."""
        values = {"before": aware("before", before).timestamp(), "limit": FORGOTTEN_AT_ONCE}
        forgotten = 0
        while now := await self._file.run(lambda db: db.execute(statements.FORGET, values).rowcount):
            forgotten += now
        return forgotten

    async def aclose(self) -> None:
        """Finish what was begun, and close the file; whatever is asked afterwards is a `StorageError`."""
        await self._file.aclose()

    async def _change(self, claim: Claim, statement: str, **values: Any) -> bool:
        given = {"id": claim.event.id, "fence": claim.fence, **values}
        return await self._file.run(lambda db: db.execute(statement, given).rowcount == 1)


def _add(db: sqlite3.Connection, *, values: dict[str, Any], now: float) -> Added:
    others = rows(db, statements.SAME_KEY, values)
    if any(other["digest"] == values["digest"] for other in others):
        return Added.AGAIN
    if not others:
        db.execute(statements.ADD, {**values, "state": "pending", "reason": "", "due": now, "finished_at": None})
        return Added.NEW
    reason = f"event {others[0]['id']} came with the same key and another body"
    db.execute(statements.ADD, {**values, "state": "quarantined", "reason": reason, "due": None, "finished_at": now})
    return Added.CONFLICT


def _claim(db: sqlite3.Connection, *, values: dict[str, Any]) -> list[Claim]:
    leased = [row["id"] for row in rows(db, statements.DUE, values)]
    for each in leased:
        db.execute(statements.LEASE, {**values, "id": each})
    found = [rows(db, statements.EVENT, {"id": each})[0] for each in leased]
    return [Claim(event=_event(db, row), fence=row["fence"]) for row in found]


def _events(db: sqlite3.Connection, *, values: dict[str, Any]) -> list[InboxEvent]:
    statement = statements.EVENTS if values["state"] is None else statements.EVENTS_OF_STATE
    return [_event(db, row) for row in rows(db, statement, values)]


def _event(db: sqlite3.Connection, row: dict[str, Any]) -> InboxEvent:
    done = rows(db, statements.HANDLERS, {"id": row["id"]})
    return InboxEvent(
        id=row["id"],
        key=row["key"],
        kind=row["kind"],
        event=row["event"],
        weak=bool(row["weak"]),
        verified=bool(row["verified"]),
        raw=row["raw"],
        headers=json.loads(row["headers"]),
        received_at=moment(row["received_at"]),
        state=row["state"],
        attempts=row["attempts"],
        reason=row["reason"],
        due=None if row["due"] is None else moment(row["due"]),
        handled=frozenset(each["handler"] for each in done),
    )


def _written(received: Received) -> dict[str, Any]:
    return {
        "key": text(received.key),
        "digest": received.digest,
        "weak": received.weak,
        "kind": received.kind,
        "event": None if received.event is None else text(received.event),
        "verified": received.verified,
        "raw": received.raw,
        "headers": json.dumps(dict(received.headers)),
        "received_at": aware("received_at", received.received_at).timestamp(),
    }
