"""The row `statements`: each statement of a journal in a large one, beside a small one, by its plan and its time."""

import asyncio
import random
import sqlite3
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import psycopg
from attrs import frozen

from benchmarks.rows import Figure, Run
from payasync.journal import PostgresJournal, transactions
from payasync.journal.journal import PRUNED_TOGETHER
from payasync.journal.postgres_journal import postgres_statement
from payasync.journal.sqlite_journal import SCHEMA, sqlite_statement
from payasync.journal.transactions import FOR_UPDATE, SKIP_LOCKED
from payasync.storage.sqlite import open_database
from payasync.storage.sqlite_statement import binding, fetch_rows, names_in, picker
from tests.plans import GAUGES, plan
from tests.postgres import postgres

FEW: Final = 1_000
MANY: Final = 1_000_000
MOST: Final = 2.0
OF_GAUGES: Final = 4.0
"""For statements that read each open row: those of a large journal do not fit into SQLite's memory."""
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
DUE, HELD, NEW = range(3)
KINDS: Final = 100
"""The remainder of a row's number by this is its kind. Rows of all other kinds have ended."""
FIRST: Final = 10_000_000
"""Numbers of a merchant count from here: they are stored in the order of their time, as those of most programs."""
HASH: Final = "0123456789abcdef" * 4
REQUEST: Final = '{"out_trade_no": "T1", "total_amt": 450}'
FILL: Final = f"""
WITH RECURSIVE count (n) AS (SELECT CAST(:first AS integer) UNION ALL SELECT n + 1 FROM count WHERE n < :last)
INSERT INTO payasync_intents
    (operation, merchant, reference, number, intent, hash, request, queued, attempts, fence, state, lease, due,
     created, updated)
SELECT
    'refunds.create', 'M1', 'R' || ({FIRST} + n), 'refunds.create:' || 'R' || ({FIRST} + n), 'intent ' || ({FIRST} + n),
    '{HASH}', '{REQUEST}', 1 = 0, 1, 1,
    CASE n % {KINDS} WHEN {DUE} THEN 'unknown' WHEN {HELD} THEN 'unknown' WHEN {NEW} THEN 'new' ELSE 'succeeded' END,
    CASE n % {KINDS} WHEN {HELD} THEN :start + n * :second END,
    CASE n % {KINDS} WHEN {DUE} THEN :start + n * :second END,
    :start + n * :second, :start + n * :second
FROM count"""  # noqa: S608 - numbers of ours
SERVICE: Final = "INSERT INTO payasync_services (merchant, service) VALUES ('M1', 'https://old.example')"

STATEMENTS: Final[Mapping[str, str]] = {
    name: value for name, value in vars(transactions).items() if isinstance(value, str) and "payasync_intents" in value
}
"""The statements that read or change intents, by their names. The merchants' services are one row each."""
LOCKS: Final = {"MATCHING": FOR_UPDATE, "DUE": SKIP_LOCKED}
STOPPING: Final = {"DONE_THERE"}
"""These read rows up to the first that fits, which most do: no index is faster."""
OF_KIND: Final = {
    "NOTE": NEW,
    "NOTE_USED": HELD,
    "POSTPONE": HELD,
    "QUEUE": NEW,
    "SEND": NEW,
    "SETTLE": HELD,
}
"""Which rows a statement changes. Any other one that asks for a row is given one that is due."""
DRAFT: Final[dict[str, Any]] = {
    "reference": "R0",
    "number": "refunds.create:R0",
    "intent": "intent 0",
    "state": "sending",
    "lease": timedelta(minutes=1),
    "fence": 1,
    "idempotency_key": None,
    "service": None,
    "hash": HASH,
}
"""Of `ADD`, which stores a new row."""


def values_for(name: str, number: int) -> dict[str, Any]:
    """Return the values with which a statement is executed.

    Args:
        name: The statement's.
        number: Of the row that the statement is about.
    """
    moment = START + timedelta(seconds=number)
    nothing = dict.fromkeys(("key", "key_sent", "key_tick", "named", "outcome", "silent_since", "tick"))
    values = {
        **nothing,
        "after": number // 2,
        "again": False,
        "answered": False,
        "attempts": 1,
        "before": START + timedelta(days=1000),
        "by": START + timedelta(days=1000),
        "denied": 0,
        "due": moment,
        "fence": 1,
        "id": number,
        "intent": f"intent {FIRST + number}",
        "interrupted": "",
        "least": START,
        "limit": PRUNED_TOGETHER if name == "PRUNE" else 5,
        "merchant": "M1",
        "now": moment,
        "number": f"refunds.create:R{FIRST + number}",
        "old": "https://old.example",
        "operation": "refunds.create",
        "questions": 8,
        "queued": False,
        "reason": "noted",
        "reference": f"R{FIRST + number}",
        "request": REQUEST,
        "sent_at": moment,
        "state": "succeeded" if name == "RESOLVE" else "unknown",
        "until": moment,
    }
    return values | DRAFT if name == "ADD" else values


def _random_row(name: str, rows: int) -> int:
    row = random.randrange(rows // KINDS) * KINDS + OF_KIND.get(name, DUE)  # noqa: S311 - no secret
    return row or KINDS


def _times(name: str) -> int:
    """Return how often a statement is measured, each time for another row."""
    return 10 if name in GAUGES else 100


@frozen
class Measured:
    """What statements cost in a journal of some size.

    Attributes:
        seconds: The median time of an execution, by the statements' names.
        scans: The statements that read all rows.
    """

    seconds: Mapping[str, float]
    scans: frozenset[str]


def statements(run: Run) -> Iterator[Figure]:
    """Each statement of a journal, by plan and time, in a large journal beside a small one."""
    large = MANY // 10 if run.quick else MANY
    few, many = (_on_sqlite(run.folder / f"statements-{rows}.db", rows) for rows in (FEW, large))
    yield from _compare("SQLite", few, many, large, "CPU time")
    few, many = (asyncio.run(_on_postgres(rows)) for rows in (FEW, large))
    yield from _compare("PostgreSQL", few, many, large, "wall time")


def _compare(database: str, few: Measured, many: Measured, large: int, measured: str) -> Iterator[Figure]:
    scans = ", ".join(sorted(many.scans)) or "none"
    yield Figure(f"{database}, scans: {scans}", len(many.scans), "scans", most=0, measured="plan")
    for name, seconds in many.seconds.items():
        ratio = seconds / few.seconds[name]
        if name in GAUGES:
            yield Figure(f"{database}, {name}, per open row", ratio * FEW / large, most=OF_GAUGES, measured=measured)
        else:
            yield Figure(f"{database}, {name}", ratio, most=MOST, measured=measured)


def _on_sqlite(path: Path, rows: int) -> Measured:
    with closing(open_database(str(path), SCHEMA)) as db:
        db.execute(FILL, {"first": 1, "last": rows, "start": START.timestamp(), "second": 1.0})
        db.execute(SERVICE)
        texts = {name: sqlite_statement(statement).text for name, statement in STATEMENTS.items()}
        scans = {name for name, text in texts.items() if _reads_all(db, name, text)}
        seconds = {
            name: statistics.median(_execution(db, name, text, rows) for _ in range(_times(name)))
            for name, text in texts.items()
        }
        return Measured(seconds, frozenset(scans))


def _reads_all(db: sqlite3.Connection, name: str, text: str) -> bool:
    row = picker(names_in(text))(values_for(name, KINDS))
    bound = binding(text, tuple(map(type, row)))
    steps = db.execute(f"EXPLAIN QUERY PLAN {bound.text}", bound.bind(row))
    return any("SCAN payasync_intents" in step for *_, step in steps)


def _execution(db: sqlite3.Connection, name: str, text: str, rows: int) -> float:
    """Return the CPU time of a second execution for the same row.

    How long pages take to come into memory depends on the machine, and not on the statement.
    """
    values = values_for(name, _random_row(name, rows))
    _timed(db, name, text, values)
    return _timed(db, name, text, values)


def _timed(db: sqlite3.Connection, name: str, text: str, values: Mapping[str, Any]) -> float:
    db.execute("BEGIN IMMEDIATE")
    before, started = db.total_changes, time.thread_time()
    fetch_rows(db, text, values)
    taken = time.thread_time() - started
    if text.lstrip().startswith("SELECT") == (db.total_changes > before):
        raise RuntimeError(f"{name} does not change what it should")
    db.execute("ROLLBACK")
    return taken


async def _on_postgres(rows: int) -> Measured:
    seconds, scans = dict[str, float](), set[str]()
    with postgres() as server:
        async with PostgresJournal(server.dsn) as journal:
            await journal.next_due()
        async with await psycopg.AsyncConnection.connect(server.dsn, autocommit=True) as connection:
            await fill_postgres(connection, 1, rows)
            await connection.execute(SERVICE)
            for name in STATEMENTS:
                text = of_postgres(name)
                values = [values_for(name, _random_row(name, rows)) for _ in range(_times(name))]
                # The second for each row, as on SQLite.
                plans = [await plan(connection, text, each) for each in values for _ in range(2)][1::2]
                seconds[name] = statistics.median(each.seconds for each in plans)
                if name not in STOPPING and any("Seq Scan" in each.steps for each in plans):
                    scans.add(name)
    return Measured(seconds, frozenset(scans))


async def fill_postgres(connection: psycopg.AsyncConnection[Any], first: int, last: int) -> None:
    """Store the intents from one number to another, and let the planner see them."""
    text = postgres_statement(FILL.replace("% ", "%% "), "").encode()
    await connection.execute(text, {"first": first, "last": last, "start": START, "second": timedelta(seconds=1)})
    await connection.execute("VACUUM ANALYZE payasync_intents")


@cache
def of_postgres(name: str) -> str:
    """Return a statement as PostgreSQL executes it."""
    return postgres_statement(STATEMENTS[name], LOCKS.get(name, ""))
